package shunt

import (
	"context"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
)

// A key of the wrong type at delay or suspect keeps nobody's messages with the dead.
func TestForeignKeyStopsNoSweep(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"delay", "suspect"} {
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			s := redistest.Shared(t)
			redistest.Leaks(t)
			b := newBench(t, s.URL(), func(q *Queue) { q.Lease = time.Second })
			k, dead := store.KeysOf(b.name), store.NewIncarnation(1, time.Second)
			s.Do("ZADD", k.Receivers, 1, dead.Name)
			s.Do("LPUSH", k.Doing(dead, 0), "1")
			s.Do("SET", "{"+b.name+"}."+key, "not shunt's")
			b.receive(1, func(context.Context, int) error { return nil })
			b.wait(EventAcked, 1, 5*time.Second)
			b.wait(EventReceiverError, 1, 5*time.Second)
		})
	}
}

// A server that cuts idle connections after a second cuts each beat's. What a killed process held is recovered all the
// same, because a row of beats is about the sight of Redis.
func TestServerTimeout(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "timeout 1")
	redistest.Leaks(t)
	b := newBench(t, s.URL(), func(q *Queue) { q.Lease = 4 * time.Second })
	b.receive(1, func(context.Context, int) error { return nil })
	b.wait(EventStarted, 1, 5*time.Second)
	k, dead := store.KeysOf(b.name), store.NewIncarnation(1, b.Lease)
	s.Do("ZADD", k.Receivers, 1, dead.Name)
	s.Do("LPUSH", k.Doing(dead, 0), "1")
	b.wait(EventAcked, 1, 4*b.Lease)
}

// While the clock of Redis is behind, a new dead letter is not the oldest.
func TestDeadWhileTheClockIsBehind(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	b := newBench(t, s.URL(), func(q *Queue) { q.MaxDead = 3 })
	k := store.KeysOf(b.name)
	ahead := time.Now().Add(time.Hour).UnixMilli() // as an hour ago seen from there
	for _, old := range []string{"old 1", "old 2", "old 3"} {
		s.Do("ZADD", k.Dead, ahead, old)
	}
	b.receive(1, func(context.Context, int) error { return Reject(nil) })
	b.enqueue(0, 1)
	b.wait(EventTrimmed, 1, 5*time.Second)
	es, err := b.List(context.Background(), b.name, StateDead, 0, 0)
	b.must(err)
	fresh := 0
	for _, e := range es {
		if e.Serial != "" {
			fresh++
		}
	}
	if len(es) != 3 || fresh != 1 {
		t.Errorf("%d dead letters, %d of them new", len(es), fresh)
	}
}
