package shunt

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
)

// Taken, handed back, expired.
func TestReleasedDoesNotExpire(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	for _, id := range []bool{false, true} {
		t.Run(fmt.Sprint(id), func(t *testing.T) {
			b := newBench(t, s.URL(), func(q *Queue) { q.Grace = time.Millisecond })
			in := make(chan struct{}, 1)
			stop := b.receive(
				1,
				func(ctx context.Context, i int) error { in <- struct{}{}; <-ctx.Done(); return ctx.Err() },
			)
			const expire = time.Second
			opts := []Option{Expire(expire)}
			if id {
				opts = append(opts, ID("a"))
			}
			b.must(b.one(1, opts...))
			<-in
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			t.Log(stop(ctx))
			b.passes(s, expire+time.Millisecond)
			var n atomic.Int32
			b.receive(1, func(ctx context.Context, i int) error { n.Add(1); return nil })
			b.until(5*time.Second, "end", func() bool { return b.count(EventAcked)+b.count(EventExpired) >= 1 })
			if n.Load() != 1 {
				t.Errorf("taken once, handed back, and then dropped as expired: Expired %d", b.count(EventExpired))
			}
		})
	}
}

// expiring runs a test of a message that expires after a second, with an ID and without.
func expiring(t *testing.T, f func(t *testing.T, id bool, opts []Option)) {
	t.Parallel()
	for _, id := range []bool{false, true} {
		t.Run(fmt.Sprint(id), func(t *testing.T) {
			t.Parallel()
			opts := []Option{Expire(time.Second)}
			if id {
				opts = append(opts, ID("a"))
			}
			f(t, id, opts)
		})
	}
}

// itExpires holds a command up until the time of what was enqueued before is over.
var itExpires = redistest.Call(func() { time.Sleep(1010 * time.Millisecond) })

// Taken in time, and the worker's question comes when the time is over: it has not expired, and has its ID.
func TestTakenDoesNotExpire(t *testing.T) {
	expiring(t, func(t *testing.T, id bool, opts []Option) {
		p := redistest.NewProxy(t, redistest.Shared(t).Addr())
		b := newBench(t, p.URL())
		question := redistest.Command("TIME")
		if id {
			question = redistest.ByScript(store.Start)(b.name)
		}
		var again error
		var n atomic.Int32
		b.idles(p, 1, func(context.Context, int) error {
			n.Add(1)
			again = b.one(2, opts...)
			return nil
		})
		late := p.On(question, 1, itExpires)
		b.must(b.one(1, opts...))
		b.until(5*time.Second, "end", func() bool { return b.count(EventAcked)+b.count(EventExpired) >= 1 })
		if late.Struck() == 0 || n.Load() == 0 || b.count(EventExpired) > 0 {
			t.Errorf("%d handled, %d expired", n.Load(), b.count(EventExpired))
		}
		if id && !errors.Is(again, ErrDuplicate) {
			t.Errorf("while it was handled its ID was free: %v", again)
		}
	})
}

// What a Pull has taken does not expire either, where it hears of that only later.
func TestPulledDoesNotExpire(t *testing.T) {
	expiring(t, func(t *testing.T, id bool, opts []Option) {
		s := redistest.Shared(t)
		p := redistest.NewProxy(t, s.Addr())
		b := newBench(t, s.URL())
		o := b.through(p)
		pull := PullOptions{Channels: []string{b.name}, Lease: time.Minute}
		_, err := o.Pull(t.Context(), pull) // so that Redis knows the script
		b.must(err)
		take := redistest.ByScript(store.TakeLease)(b.name)
		p.On(take, 2, itExpires)
		p.On(take, 1, redistest.CutAfter)
		b.must(b.one(1, opts...))
		ms, err := o.Pull(t.Context(), pull)
		if b.must(err); len(ms) != 1 {
			t.Errorf("%d pulled", len(ms))
		}
		if id && !errors.Is(b.one(2, opts...), ErrDuplicate) {
			t.Error("its ID is free")
		}
	})
}

// A start that is executed late meets a record that only keeps the id taken.
func TestLateStart(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	b := newBench(t, s.URL())
	k := store.KeysOf(b.name)
	b.receive(1, func(context.Context, int) error { return nil })
	b.must(b.one(1, ID("a"), UniqueFor(2*time.Second)))
	b.wait(EventAcked, 1, 5*time.Second)
	raw := s.Do("HGET", k.IDs, "a").([]byte)
	s.Do("HSET", k.Running, raw[:16], "gone/0 1 1")
	b.until(5*time.Second, "a free id", func() bool { return b.one(2, ID("a")) == nil })
}

// Taken in time, its process died before start, expired since, id taken by another: both are handled.
func TestExpiredRecovered(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	b := newBench(t, s.URL())
	k := store.KeysOf(b.name)
	b.must(b.one(1, ID("a"), Expire(50*time.Millisecond)))
	raw := s.Do("RPOP", k.Prepare).([]byte) // taken, and reaped
	raw[2] = 1
	s.Do("RPUSH", k.Prepare, raw)
	b.passes(s, 51*time.Millisecond)
	b.must(b.one(2, ID("a")))
	var now, most atomic.Int32
	b.receive(2, func(context.Context, int) error {
		if n := now.Add(1); n > most.Load() {
			most.Store(n)
		}
		time.Sleep(300 * time.Millisecond)
		now.Add(-1)
		return nil
	})
	b.until(5*time.Second, "end", func() bool { return b.count(EventAcked)+b.count(EventExpired) >= 2 })
	if most.Load() > 1 {
		t.Errorf("%d of one id at once", most.Load())
	}
}

// expires leaves in the bench's channel a message with that id which nobody has taken in its time. It also makes
// running a key of the wrong type.
func (b *bench) expires(s redistest.Backend, id string) {
	b.t.Helper()
	b.must(b.one(0, ID(id), Expire(time.Millisecond)))
	b.passes(s, 400*time.Millisecond)
	s.Do("SET", store.KeysOf(b.name).Running, "not shunt's")
}

// What went to dead before any handler began has an outcome of no attempt, as its dead letter has.
func TestOutcomeOfWhatWasNotHandled(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	b := newBench(t, s.URL())
	b.must(b.one(1, ID("expired"), Retain(time.Hour), ExpireToDead(100*time.Millisecond)))
	b.must(b.one(2, ID("late"), Retain(time.Hour), Deadline(time.Now().Add(100*time.Millisecond))))
	b.passes(s, 200*time.Millisecond)
	b.receive(1, func(context.Context, int) error { return nil })
	b.wait(EventRejected, 2, 5*time.Second)
	for _, id := range []string{"expired", "late"} {
		st, err := b.Status(t.Context(), ByID(b.name, id))
		if err != nil || st.State != StateDone || st.Attempt != 0 {
			t.Errorf("%s: attempt %d of %v %v, %v", id, st.Attempt, st.State, st.Outcome, err)
		}
	}
}
