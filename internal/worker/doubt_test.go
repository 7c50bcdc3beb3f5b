package worker

import (
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/custody"
	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/event"
	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
)

// noBeats has all beats refused from now on.
func (c *cut) noBeats() *redistest.Rule {
	return c.proxy.On(redistest.ByScript(store.Beat)(c.keys.Name), 0, redistest.ReplyError("BUSY a test"))
}

func (c *cut) enqueue() {
	e := element.Element{Serial: element.NewSerial(), Payload: []byte("x")}
	c.server.Do("LPUSH", c.keys.Prepare, e.Encode())
}

// Redis comes back with an older state, which does not know the incarnation, while all workers are busy: no command is
// under way whose end would tell. Nothing is taken on the new connection, because nobody would look after that if this
// process were killed now.
func TestNothingTakenInDoubt(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	begun, goOn := make(chan struct{}, 2), make(chan struct{}, 2)
	c := newCut(t, s, 1, func(conf *Config) {
		conf.Handle = func(*Item) *custody.Verdict { begun <- struct{}{}; <-goOn; return custody.Ack }
	})
	c.enqueue()
	<-begun
	old := c.Sites[0].Live().Name
	beats := c.noBeats()
	c.proxy.CutAll()
	s.Do("ZREM", c.keys.Receivers, old)
	c.enqueue()
	goOn <- struct{}{}
	c.wait(t, event.Acked) // a take would have gone before this verdict, in the same write
	if n, _ := redis.Int(s.Do("LLEN", c.keys.Prepare), nil); n != 1 {
		t.Errorf("%d wait: one was taken into a list that nobody looks after", n)
	}
	beats.Remove()
	goOn <- struct{}{}
	c.wait(t, event.Acked)
	if now := c.Sites[0].Live().Name; now == old {
		t.Errorf("%s is gone from Redis, and takes on", now)
	}
}

// A waiter does not block on a new connection before a beat was answered.
func TestNothingAwaitedInDoubt(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	c := newCut(t, s, 1, func(conf *Config) { conf.Handle = func(*Item) *custody.Verdict { return custody.Ack } })
	waiter := &c.Lanes[0].Waiter
	blocks := func() bool { return waiter.Blocked.Load() && waiter.ID() != 0 }
	awaited := c.proxy.On(redistest.Command("BRPOPLPUSH"), 0, redistest.Pass)
	redistest.Until(t, 5*time.Second, "the waiter blocks", func() bool { return awaited.Struck() > 0 && blocks() })
	beats, before := c.noBeats(), awaited.Struck()
	s.Do("CLIENT", "KILL", "ID", waiter.ID())
	c.wait(t, event.HandedOver)
	n := beats.Struck()
	redistest.Until(t, 5*time.Second, "two more beats are refused", func() bool { return beats.Struck() >= n+2 })
	if awaited.Struck() > before {
		t.Error("the waiter blocks on a connection that is younger than the last good beat")
	}
	beats.Remove()
	redistest.Until(t, 5*time.Second, "the waiter blocks again", blocks)
	c.enqueue()
	c.wait(t, event.Acked)
}

// While Redis is away the waits between beats grow to a sixth of a lease. Once it is back, takes wait for a beat, and
// not for the rest of such a wait.
func TestDoubtHurriesBeats(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	c := newCut(t, s, 1, func(conf *Config) {
		conf.Lease = time.Minute
		conf.Handle = func(*Item) *custody.Verdict { return custody.Ack }
	})
	redistest.Until(t, 5*time.Second, "the waiter's command is sent", func() bool {
		return c.proxy.Count(redistest.Command("BRPOPLPUSH")) > 0
	})
	beats := c.noBeats()
	c.Sites[0].RequestBeat()
	redistest.Until(t, 5*time.Second, "the next beat is 2 s off", func() bool { return beats.Struck() >= 2 })
	beats.Remove()
	c.proxy.CutAll()
	back := time.Now()
	c.wait(t, event.HandedOver)
	c.enqueue()
	c.wait(t, event.Acked)
	if d := time.Since(back); d > time.Second {
		t.Errorf("taken %v after Redis was back", d)
	}
}

// Redis comes back with an older state once more, between a register and what is moved to the lists of the incarnation
// that was registered. What handlers hold goes to the taking end then.
func TestNothingMovedToTheUnknown(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	begun, goOn := make(chan struct{}, 2), make(chan struct{})
	c := newCut(t, s, 1, func(conf *Config) {
		conf.Handle = func(*Item) *custody.Verdict { begun <- struct{}{}; <-goOn; return custody.Ack }
	})
	defer close(goOn)
	c.enqueue()
	<-begun
	c.noBeats()
	c.proxy.On(redistest.ByScript(store.Handover)(c.keys.Name), 1,
		redistest.Call(func() { s.Do("DEL", c.keys.Receivers) }))
	c.Sites[0].MustHandOver(errStray)
	c.wait(t, event.HandedOver)
	if n, _ := redis.Int(s.Do("LLEN", c.keys.Prepare), nil); n != 1 {
		t.Errorf("%d wait: one lies in a list that nobody looks after", n)
	}
}
