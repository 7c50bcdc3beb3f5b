package shunt

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
)

// Cancel while the receiver shuts down.
func TestCancelDuringShutdown(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	b := newBench(t, s.URL())
	o := newBench(t, s.URL())
	in, ended := make(chan struct{}), make(chan struct{})
	stop := b.receive(
		1,
		func(ctx context.Context, i int) error { close(in); <-ctx.Done(); close(ended); return ctx.Err() },
	)
	b.must(b.one(1, ID("a")))
	<-in
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Second)
	defer cancel()
	go stop(ctx)
	b.until(5*time.Second, "it has stopped", func() bool {
		b.Queue.mu.Lock()
		defer b.Queue.mu.Unlock()
		for r := range b.receivers {
			return r.pool.Stopped()
		}
		return false
	})
	_, err := o.Cancel(context.Background(), ByID(b.name, "a"))
	b.must(err)
	began := time.Now()
	<-ended
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("took %v", took)
	}
}

// Postpone among more than a script looks through of one ms.
func TestPostponeAmongMany(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	ctx := context.Background()
	b := newBench(t, s.URL())
	at := time.Now().Add(time.Hour)
	var ms []IMessage
	for i := range 1500 {
		ms = append(ms, With(b.kind(nil).Message(i), ID(fmt.Sprint(i))))
	}
	b.must(b.EnqueueAll(ctx, ms, At(at)))
	es, err := b.List(ctx, b.name, StateDelay, 1499, 1)
	b.must(err)
	id := es[0].ID
	b.must(b.Postpone(ctx, ByID(b.name, id), In(2*time.Hour)))
	b.must(b.Promote(ctx, ByID(b.name, id)))
	st, _ := b.Stats(ctx, b.name)
	t.Logf("status %v, prepare %d, delay %d", b.status(id).State, st[StatePrepare].Count, st[StateDelay].Count)
	if st[StatePrepare].Count != 1 {
		t.Errorf("promoted, but still in delay for an hour")
	}
}

// Promote whose reply is lost is sent again: to no other message that has the id by then, and it is told as done. So is
// Postpone to what is past.
func TestPromoteSentTwice(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	ctx := context.Background()
	p := redistest.NewProxy(t, s.Addr())
	b := newBench(t, p.URL())
	o := newBench(t, s.URL())
	o.name = b.name
	for i, after := range []string{"another has its id", "it is being handled", "it is over", "it is over"} {
		o.must(o.one(1, ID("a"), In(time.Hour)))
		cut := p.On(redistest.ByScript(store.Postpone)(b.name), 1, redistest.CutAfter)
		again := p.On(redistest.ByScript(store.Postpone)(b.name), 2, redistest.Call(func() {
			if after == "it is being handled" {
				st, err := o.Status(ctx, ByID(b.name, "a"))
				if err != nil {
					t.Error(err)
				}
				serial, _ := ulid.ParseStrict(st.Serial)
				s.Do("HSET", store.KeysOf(b.name).Running, serial[:], "somebody/0 1 1")
				return
			}
			_, err := o.Cancel(ctx, ByID(b.name, "a"))
			if after == "another has its id" {
				err = errors.Join(err, o.one(2, ID("a"), In(time.Hour)))
			}
			if err != nil {
				t.Error(err)
			}
		}))
		soon := b.Promote
		if i == 3 {
			soon = func(ctx context.Context, r Ref) error {
				return b.Postpone(ctx, r, At(time.Now().Add(-time.Hour)))
			}
		}
		if err := soon(ctx, ByID(b.name, "a")); err != nil {
			t.Errorf("%s: %v", after, err)
		}
		if cut.Struck() != 1 || again.Struck() != 1 {
			t.Fatalf("%s: cut %d times, sent again %d times", after, cut.Struck(), again.Struck())
		}
		if after == "another has its id" && o.status("a").State != StateDelay {
			t.Errorf("the other is promoted: %+v", o.status("a"))
		}
		cut.Remove()
		again.Remove()
		s.Do("DEL", store.KeysOf(b.name).Running, store.KeysOf(b.name).IDs)
	}
}

// Cancel just before the last attempt's reject.
func TestCancelAtLastAttempt(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	ctx := context.Background()
	p := redistest.NewProxy(t, s.Addr())
	b := newBench(t, p.URL(), func(q *Queue) { q.MaxAttempts = 1 })
	o := newBench(t, s.URL())
	b.must(b.one(1, ID("a")))
	p.On(redistest.ByScript(store.Reject)(b.name), 1, redistest.Call(func() {
		st, err := o.Cancel(ctx, ByID(b.name, "a"))
		t.Log(st.State, err)
	}))
	b.receive(1, func(context.Context, int) error { return errors.New("no") })
	b.until(5*time.Second, "end", func() bool { return b.count(EventCancelled)+b.count(EventRejected) > 0 })
	st, _ := b.Stats(ctx, b.name)
	if st[StateDead].Count != 0 {
		t.Errorf("cancelled, failed, and in dead")
	}
}

// Cancel whose reply is lost, sent again.
func TestCancelSentAgain(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	ctx := context.Background()
	p := redistest.NewProxy(t, s.Addr())
	b := newBench(t, p.URL())
	o := newBench(t, s.URL())
	o.name = b.name
	b.must(b.one(1, ID("a")))
	p.On(redistest.ByScript(store.Cancel)(b.name), 1, redistest.CutAfter)
	st, err := b.Cancel(ctx, ByID(b.name, "a"))
	t.Logf("%v %v", st.State, err)
	if errors.Is(err, ErrNotFound) {
		t.Error("it was cancelled by this very call")
	}
}

// Stats, List and Status say the same of a message that is postponed, promoted, or due and not promoted yet.
func TestStatesAgree(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		ctx := context.Background()
		b := newBench(t, s.URL())
		agree := func(what string, want State) {
			t.Helper()
			st, err := b.Stats(ctx, b.name)
			b.must(err)
			es, err := b.List(ctx, b.name, want, 0, 0)
			b.must(err)
			status := b.status("a")
			if st[want].Count != 1 || len(es) != 1 || status.State != want || !status.DueAt.Equal(es[0].DueAt) {
				t.Errorf("%s: Stats %+v, List %+v, Status %+v: want %s", what, st, es, status, want)
			}
		}
		b.must(b.one(1, ID("a"), In(time.Hour)))
		agree("delayed", StateDelay)
		b.must(b.Postpone(ctx, ByID(b.name, "a"), In(2*time.Hour)))
		agree("postponed", StateDelay)
		b.must(b.Postpone(ctx, ByID(b.name, "a"), In(time.Millisecond)))
		b.passes(s, 5*time.Millisecond)
		agree("due, without a receiver", StateDelay)
		b.must(b.Promote(ctx, ByID(b.name, "a")))
		agree("promoted", StatePrepare)
	})
}
