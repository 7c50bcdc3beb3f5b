package shunt

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
)

// A Limit bounds what is changed also where a reply is lost.
func TestLimitBesideLostReply(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	ctx := context.Background()
	f := Filter{Limit: 10}
	for name, c := range map[string]struct {
		state State
		at    func(channel string) redistest.Match
		do    func(q *Queue, channel string) (BulkResult, error)
	}{
		"delete": {StateDead, redistest.ByName("ZREM", ".dead"),
			func(q *Queue, c string) (BulkResult, error) { return q.DeleteAllDead(ctx, c, f) }},
		"retry": {StateDead, redistest.ByScript(store.Revive),
			func(q *Queue, c string) (BulkResult, error) { return q.RetryAllDead(ctx, c, f) }},
		"promote": {StateDelay, redistest.ByScript(store.Hasten),
			func(q *Queue, c string) (BulkResult, error) { return q.PromoteAll(ctx, c, f) }},
		"cancel": {StatePrepare, redistest.ByName("LREM", ".prepare"),
			func(q *Queue, c string) (BulkResult, error) { return q.CancelAll(ctx, c, StatePrepare, f) }},
		"cancel delayed": {StateDelay, redistest.ByName("ZREM", ".delay"),
			func(q *Queue, c string) (BulkResult, error) { return q.CancelAll(ctx, c, StateDelay, f) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := redistest.NewProxy(t, s.Addr())
			b := newBench(t, s.URL())
			o := b.through(p)
			const all = 50
			switch c.state {
			case StateDead:
				b.buries(s, all, 1, nil)
			case StateDelay:
				for i := range all {
					b.must(b.one(i, In(time.Hour)))
				}
			default:
				b.enqueue(0, all)
			}
			cut := p.On(c.at(b.name), 1, redistest.CutAfter)
			r, err := c.do(o.Queue, b.name)
			b.must(err)
			stats, err := b.Stats(ctx, b.name)
			b.must(err)
			if gone := all - stats[c.state].Count; gone != 10 || cut.Struck() != 1 {
				t.Errorf("%d have gone, with Limit 10: %+v", gone, r)
			}
		})
	}
}

// Purge deletes no more than there were when it began, also where its reply is lost.
func TestPurgeBesideLostReply(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	for name, opts := range map[string][]Option{"plain": nil, "id": {ID("x")}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := redistest.NewProxy(t, s.Addr())
			b := newBench(t, s.URL())
			o := b.through(p)
			b.enqueue(0, 30)
			b.must(b.one(30, opts...))
			match := redistest.ByScript(store.Purge)(b.name)
			p.On(match, 2, redistest.Call(func() { b.enqueue(100, 120) }))
			lost := p.On(match, 1, redistest.CutAfter)
			_, err := o.Purge(context.Background(), b.name, StatePrepare)
			switch left := len(b.waits()); {
			case lost.Struck() != 1:
				t.Error("no reply was lost")
			case err != nil && !errors.Is(err, ErrUnknown), err != nil && left != 0, err == nil && left != 20:
				t.Errorf("%d are left, %v: want the 20 that came after it began, or ErrUnknown", left, err)
			}
		})
	}
}

// A message that a verb has brought to prepare, whose reply is lost, may be handled before the verb is sent again: the
// verb has succeeded.
func TestVerbBesideLostReplyThenTaken(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	ctx := context.Background()
	for name, c := range map[string]struct {
		state State
		id    bool
		over  bool // it has been handled, else it is being handled
		at    func(channel string) redistest.Match
		do    func(q *Queue, r Ref) error
	}{
		"retry dead":        {StateDead, false, false, redistest.ByScript(store.Revive), (*Queue).retryIt},
		"retry dead id":     {StateDead, true, false, redistest.ByScript(store.Revive), (*Queue).retryIt},
		"retry dead over":   {StateDead, true, true, redistest.ByScript(store.Revive), (*Queue).retryIt},
		"promote":           {StateDelay, false, false, redistest.ByScript(store.Postpone), (*Queue).promoteIt},
		"promote id":        {StateDelay, true, false, redistest.ByScript(store.Postpone), (*Queue).promoteIt},
		"retry delayed":     {StateDelay, false, false, redistest.ByScript(store.Postpone), (*Queue).retryIt},
		"promote over":      {StateDelay, false, true, redistest.ByScript(store.Postpone), (*Queue).promoteIt},
		"promote id over":   {StateDelay, true, true, redistest.ByScript(store.Postpone), (*Queue).promoteIt},
		"promote by serial": {StateDelay, true, false, redistest.ByScript(store.Postpone), (*Queue).promoteSerial},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := redistest.NewProxy(t, s.Addr())
			b := newBench(t, s.URL())
			o := b.through(p)
			var opts []Option
			if c.id {
				opts = []Option{ID("x"), Retain(time.Hour)}
			}
			began, end, bury := make(chan struct{}, 9), make(chan struct{}), make(chan struct{}, 1)
			if c.state == StateDead {
				bury <- struct{}{}
			} else {
				opts = append(opts, In(time.Hour))
			}
			b.must(b.one(1, opts...))
			b.receive(1, func(context.Context, int) error {
				select {
				case <-bury:
					return Reject(errors.New("no"))
				default:
				}
				began <- struct{}{}
				if !c.over {
					<-end
				}
				return nil
			})
			var e Entry
			b.until(5*time.Second, "it lies there", func() bool {
				es, err := b.List(ctx, b.name, c.state, 0, 0)
				b.must(err)
				if len(es) > 0 {
					e = es[0]
				}
				return len(es) > 0
			})
			match := c.at(b.name)
			p.On(match, 2, redistest.Call(func() {
				<-began
				if c.over {
					b.wait(EventAcked, 1, 5*time.Second)
				}
			}))
			lost := p.On(match, 1, redistest.CutAfter)
			if err := c.do(o.Queue, e.Ref()); err != nil || lost.Struck() != 1 {
				t.Errorf("%v, %d replies were lost", err, lost.Struck())
			}
			close(end)
		})
	}
}

func (q *Queue) retryIt(r Ref) error       { return q.Retry(context.Background(), r) }
func (q *Queue) promoteIt(r Ref) error     { return q.Promote(context.Background(), r) }
func (q *Queue) promoteSerial(r Ref) error { return q.promoteIt(BySerial(r.Channel, r.Serial)) }

// Delete of a message that a worker takes just before says so, and does not end its handler.
func TestDeleteOfWhatIsTaken(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	ctx := context.Background()
	p := redistest.NewProxy(t, s.Addr())
	b := newBench(t, s.URL())
	o := b.through(p)
	b.must(b.one(1, ID("x")))
	began, end, cause := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	p.On(redistest.ByScript(store.Cancel)(b.name), 1, redistest.Call(func() {
		b.receive(1, func(ctx context.Context, _ int) error {
			close(began)
			select {
			case <-ctx.Done():
			case <-end:
			}
			cause <- context.Cause(ctx)
			return nil
		})
		<-began
		b.until(5*time.Second, "it is noted", func() bool {
			st, err := b.Status(ctx, ByID(b.name, "x"))
			return err == nil && st.State == StateDoing
		})
	}))
	if err := o.Delete(ctx, ByID(b.name, "x")); !errors.Is(err, ErrRunning) {
		t.Errorf("%v, want ErrRunning", err)
	}
	time.AfterFunc(300*time.Millisecond, func() { close(end) })
	if why := <-cause; why != nil {
		t.Errorf("its handler was ended: %v", why)
	}
}

// What was cancelled before, and lies in its list still, is not refused once more.
func TestCancelAllBesideCancelled(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	b := newBench(t, s.URL())
	for i := range 20 {
		b.must(b.one(i, ID(fmt.Sprint(i))))
	}
	for _, want := range []BulkResult{{Looked: 20, Changed: 20}, {Looked: 20}} {
		if r, err := b.CancelAll(t.Context(), b.name, StatePrepare, Filter{}); err != nil || r != want {
			t.Errorf("%+v, %v, want %+v", r, err, want)
		}
	}
}

// A message that was promoted before it is cancelled among the delayed ones is counted once, by whoever meets it.
func TestCancelAllOfPromotedCountsOnce(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	var seal turner
	b := newBench(t, s.URL(), func(q *Queue) { q.Payloads = seal.payloads() })
	b.byHand()
	ctx := t.Context()
	b.must(b.one(1, ID("one"), In(time.Hour)))
	f := Filter{Match: func(Entry) bool {
		b.must(b.Promote(ctx, ByID(b.name, "one")))
		return true
	}}
	if r, err := b.CancelAll(ctx, b.name, StateDelay, f); err != nil || r.Changed != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	b.receive(1, func(context.Context, int) error { return nil })
	b.wait(EventCancelled, 1, 5*time.Second)
	b.counter.flush(context.Background())
	if got := b.counted(); got.Cancelled != 1 {
		t.Errorf("%d cancelled messages were counted, and there was one", got.Cancelled)
	}
	b.must(b.Close())
	if len(seal.over) != 1 {
		t.Errorf("Over was told %d times of one message", len(seal.over))
	}
}

// What comes into delay meanwhile costs no message its turn in PromoteAll, and what is due later than all that there
// were is not looked at.
func TestPromoteAllWhileDelayed(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	b := newBench(t, s.URL())
	const n = 150
	for i := range n {
		b.must(b.one(i, In(time.Duration(i/100*48+1)*time.Hour)))
	}
	looked := 0
	r, err := b.PromoteAll(t.Context(), b.name, Filter{Match: func(e Entry) bool {
		if looked++; looked == 1 { // a producer
			for i := range 100 {
				b.must(b.one(n+i, In(24*time.Hour)))
				b.must(b.one(n+i, In(50*time.Hour)))
			}
		}
		return true
	}})
	b.must(err)
	if left := b.state(StateDelay); r.Changed != n+100 || r.Looked != r.Changed || r.Next != "" || left != 100 {
		t.Errorf("%+v, and %d are left", r, left)
	}
}
