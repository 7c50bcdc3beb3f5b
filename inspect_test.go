package shunt

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
)

// Purge deletes what was there when it began, and leaves what came meanwhile.
func TestPurgeLeavesWhatCameMeanwhile(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	ctx := context.Background()
	b := newBench(t, s.URL())
	k := b.kind(nil)
	b.must(b.Enqueue(ctx, k.Message(-1), ID("id"))) // one message with an id: so it goes in batches
	const old = 500
	b.enqueue(0, old)
	p := redistest.NewProxy(t, s.Addr())
	operator := newBench(t, p.URL())
	batches := 0
	p.On(redistest.ByScript(store.Purge)(b.name), 0, redistest.Call(func() { // between its batches others enqueue
		if batches++; batches == 1 {
			return
		}
		var ms []IMessage
		for i := range 50 {
			ms = append(ms, k.Message(10000+100*batches+i))
		}
		b.must(b.EnqueueAll(ctx, ms))
	}))
	n, err := operator.Purge(ctx, b.name, StatePrepare)
	b.must(err)
	es, err := b.List(ctx, b.name, StatePrepare, 0, 0)
	b.must(err)
	fresh := 0
	for _, e := range es {
		var i int
		b.must(json.Unmarshal(e.Payload, &i))
		if i >= 10000 {
			fresh++
		}
	}
	if n != old+1 || fresh != 50*(batches-1) || len(es) != fresh || batches < 3 {
		t.Errorf("%d deleted in %d batches; left: %d, of which %d came meanwhile", n, batches, len(es), fresh)
	}
}

// What is kept of a message is found by whoever waits for it, although its id was taken again at once.
func TestWaitWhileTheIDIsTakenAgain(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	b := newBench(t, p.URL())
	o := newBench(t, s.URL())
	o.name = b.name
	step := make(chan struct{})
	o.receive(2, func(context.Context, int) error { <-step; return nil })
	ctx := context.Background()
	k := o.kind(nil)
	o.must(o.Enqueue(ctx, k.Message(1), ID("x"), Retain(time.Hour)))
	confirm := make(chan struct{})
	p.On(redistest.Command("SUBSCRIBE", ".done"), 1, redistest.Call(func() { <-confirm })) // a slow line, no fault
	looks := p.On(redistest.ByScript(store.Wait)(b.name), 0, redistest.Pass)
	got := make(chan error, 1)
	go func() {
		out, err := b.Wait(ctx, ByID(b.name, "x"))
		if err == nil && out.Kind != EventAcked {
			t.Errorf("%+v", out)
		}
		got <- err
	}()
	strikes(t, looks, 1)
	step <- struct{}{}
	o.wait(EventAcked, 1, 5*time.Second)
	o.must(o.Enqueue(ctx, k.Message(2), ID("x"), Retain(time.Hour)))
	close(confirm)
	select {
	case err := <-got:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("it waits for the other one")
	}
	close(step)
}

// What is cancelled is left out of the counts, wherever it lies, and what a worker handles is not counted as waiting.
func TestStatsWithCancelled(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	ctx := context.Background()
	b := newBench(t, s.URL())
	at := time.Now().Add(time.Hour)
	for i := range 200 {
		b.must(b.one(i, ID(fmt.Sprint(i)), At(at)))
	}
	for i := range 200 {
		_, err := b.Cancel(ctx, ByID(b.name, fmt.Sprint(i)))
		b.must(err)
	}
	step, begun := make(chan struct{}), make(chan struct{})
	b.receive(1, func(context.Context, int) error { close(begun); <-step; return nil })
	b.must(b.one(1000, ID("running")))
	<-begun
	b.must(b.one(1001, ID("waiting")))
	for _, id := range []string{"running", "waiting"} {
		_, err := b.Cancel(ctx, ByID(b.name, id))
		b.must(err)
	}
	b.enqueue(2000, 2100)
	st, err := b.Stats(ctx, b.name)
	b.must(err)
	if st[StatePrepare].Count != 100 || st[StateDelay].Count != 0 {
		t.Errorf("prepare %d, delay %d", st[StatePrepare].Count, st[StateDelay].Count)
	}
	close(step)
}

// Enqueue of a delayed message hears Close.
func TestEnqueueLaterHearsClose(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	b := newBench(t, p.URL(), func(q *Queue) { q.ReplyTimeout = 500 * time.Millisecond })
	k := b.kind(nil)
	b.must(b.Enqueue(context.Background(), k.Message(0)))
	p.On(redistest.ByScript(store.Later)(b.name), 1, redistest.CutAfter)
	p.On(redistest.ByScript(store.Later)(b.name), 2, redistest.Call(func() {
		p.Refuse(true)
		p.CutAll()
	}))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	got := make(chan error, 1)
	go func() { got <- b.Enqueue(ctx, k.Message(1), In(time.Hour)) }()
	b.wait(EventDisconnected, 1, 10*time.Second)
	b.must(b.Close())
	select {
	case err := <-got:
		if !errors.Is(err, ErrUnknown) {
			t.Error(err)
		}
	case <-time.After(5 * time.Second):
		t.Error("it has not returned 5 s after Close")
	}
}

// Then takes a bounded number of messages, whatever the number of calls.
func TestThenHasATotal(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	b := newBench(t, s.URL())
	got := make(chan error, 1)
	b.receive(1, func(ctx context.Context, i int) error {
		if i != 1 {
			return nil
		}
		some := make([]IMessage, 600)
		for i := range some {
			some[i] = b.kind(nil).Message(2)
		}
		if err := Then(ctx, some...); err != nil {
			got <- err
			return nil
		}
		got <- Then(ctx, some...)
		return nil
	})
	b.enqueue(1, 2)
	if err := <-got; err == nil || !strings.Contains(err.Error(), "1200") || !strings.Contains(err.Error(), "1000") {
		t.Error(err)
	}
	b.wait(EventAcked, 601, 10*time.Second)
}

// What is due later has no age but a time until it is due, which is negative once that has passed.
func TestNextDueIn(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		b := newBench(t, s.URL())
		check := func(least, most time.Duration) {
			t.Helper()
			st, err := b.Stats(context.Background(), b.name)
			b.must(err)
			if d := st[StateDelay]; d.NextDueIn < least || d.NextDueIn > most || d.OldestAge != 0 {
				t.Errorf("%+v", d)
			}
		}
		check(0, 0)
		b.must(b.one(1, In(time.Hour)))
		check(50*time.Minute, time.Hour+time.Second)
		b.must(b.one(2, In(time.Millisecond)))
		b.passes(s, 20*time.Millisecond) // nobody promotes it
		check(-time.Minute, -10*time.Millisecond)
	})
}

// leaves says what a channel still has, by state.
func (b *bench) leaves(channel string) (left Stats, n int) {
	b.t.Helper()
	left, err := b.Stats(context.Background(), channel)
	for tries := 1; err != nil; tries++ {
		if tries == 3 || !timedOut(err) {
			b.t.Fatal(err)
		}
		left, err = b.Stats(context.Background(), channel)
	}
	for _, st := range left {
		n += st.Count
	}
	return left, n
}

// The listed age of the oldest was always zero, because a string that is a whole reply had got a field of its own.
func TestOldest(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		q := newBench(t, b.URL())
		q.enqueue(0, 1)
		q.until(5*time.Second, "the message that waits has an age", func() bool {
			st, err := q.Stats(t.Context(), q.name)
			if err != nil {
				t.Fatal(err)
			}
			return st[StatePrepare].Count == 1 && st[StatePrepare].OldestAge > 0
		})
	})
}

// What is asked, and moved, by id does not need the keys of what is cancelled or kept.
func TestStatusBesideWrongType(t *testing.T) {
	t.Parallel()
	for _, suffix := range []string{"cancelled", "done"} {
		t.Run(suffix, func(t *testing.T) {
			t.Parallel()
			s := redistest.Shared(t)
			b := newBench(t, s.URL())
			b.must(b.one(1, ID("a"), In(time.Hour)))
			s.Do("SET", "{"+b.name+"}."+suffix, "not shunt's")
			if st := b.status("a"); st.State != StateDelay {
				t.Errorf("%+v", st)
			}
			b.must(b.Promote(context.Background(), ByID(b.name, "a")))
			if st := b.status("a"); st.State != StatePrepare {
				t.Errorf("%+v", st)
			}
		})
	}
}

// A state that cannot be purged is refused before any message is deleted. The largest limit is as good as none.
func TestPurgeOfSomeStates(t *testing.T) {
	t.Parallel()
	b := newBench(t, redistest.Shared(t).URL())
	b.enqueue(0, 3)
	b.must(b.one(3, In(time.Hour)))
	b.must(b.one(4, In(time.Hour)))
	if n, err := b.Purge(t.Context(), b.name, StatePrepare, StateDoing); n != 0 || err == nil {
		t.Errorf("%d purged, %v", n, err)
	}
	for state, want := range map[State]int{StatePrepare: 2, StateDelay: 1, StateDoing: 0, StateDone: 0} {
		if es, err := b.List(t.Context(), b.name, state, 1, math.MaxInt); err != nil || len(es) != want {
			t.Errorf("%s: %d after one, want %d: %v", state, len(es), want, err)
		}
	}
}
