package shunt

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/redistest"
)

// A copy has all that the original had, but for its serial, in whichever state that waits.
func TestCopy(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		t.Parallel()
		ctx := t.Context()
		b := newBench(t, s.URL())
		b.must(b.one(1, ID("order-1"), Type("Order"), Header("k", "v"), In(time.Hour), Expire(2*time.Hour),
			Deadline(time.Now().Add(3*time.Hour)), Retain(time.Minute), UniqueFor(time.Minute), MaxAttempts(7),
			Timeout(time.Minute)))
		s.Do("LPUSH", b.keys().Prepare, "bare")
		for _, state := range []State{StateDelay, StatePrepare} {
			es, err := b.List(ctx, b.name, state, 0, 0)
			b.must(err)
			e, err := ParseElement(b.name, state, es[0].Element(), es[0].DueAt)
			b.must(err)
			if !reflect.DeepEqual(e, es[0]) {
				t.Errorf("parsed: %+v, want %+v", e, es[0])
			}
			e.Channel += ".copy"
			b.must(b.Enqueue(ctx, e.Copy(), Header("more", "x")))
			copies, err := b.List(ctx, e.Channel, state, 0, 0)
			b.must(err)
			was, _ := element.Decode(es[0].raw)
			is, _ := element.Decode(copies[0].raw)
			if state == StateDelay {
				if x := is.Extra; x.Expires < was.Extra.Expires-60_000 || x.Expires > was.Extra.Expires+60_000 {
					t.Errorf("it expires at %d, want %d", x.Expires, was.Extra.Expires)
				}
				was.Extra.Expires, is.Extra.Expires = 0, 0
				if !reflect.DeepEqual(was.Extra, is.Extra) || is.Timeout() != time.Minute || is.MaxAttempts() != 7 {
					t.Errorf("%+v %+v, want %+v", is, is.Extra, was.Extra)
				}
			}
			got, want := copies[0], es[0]
			if got.Serial == want.Serial || got.Headers["more"] != "x" {
				t.Errorf("%+v", got)
			}
			got.Serial, got.raw, got.EnqueuedAt, got.Channel = want.Serial, want.raw, want.EnqueuedAt, want.Channel
			got.lay = want.lay
			if delete(got.Headers, "more"); len(got.Headers) == 0 {
				got.Headers = nil
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%+v, want %+v", got, want)
			}
		}
	})
}

// What was tried before has its attempts and its failure in the copy.
func TestCopyOfRetry(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	b := newBench(t, s.URL(), func(q *Queue) { q.Backoff = func(int) time.Duration { return time.Hour } })
	b.enqueue(0, 1)
	shutdown := b.receive(1, func(_ context.Context, _ int) error { return errOops })
	b.wait(EventRetried, 1, 5*time.Second)
	b.must(shutdown(t.Context()))
	es, err := b.List(t.Context(), b.name, StateDelay, 0, 0)
	b.must(err)
	es[0].Channel += ".copy"
	b.must(b.Enqueue(t.Context(), es[0].Copy()))
	copies, err := b.List(t.Context(), es[0].Channel, StateDelay, 0, 0)
	b.must(err)
	if e := copies[0]; e.Attempts != 1 || e.Failure != errOops.Error() || !e.DueAt.Equal(es[0].DueAt) {
		t.Errorf("%+v", e)
	}
}

// Dead letters come back as they were, once.
func TestRestoreDead(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		t.Parallel()
		ctx := t.Context()
		b := newBench(t, s.URL())
		b.buries(s, 250, 10, func(i int, e *element.Element) { e.SetFailure("oh") })
		all, err := b.List(ctx, b.name, StateDead, 0, 0)
		b.must(err)
		if n, err := b.DeleteAllDead(ctx, b.name, Filter{}); err != nil || n.Changed != 250 {
			t.Fatal(n, err)
		}
		for _, want := range []int{250, 0} {
			if n, err := b.RestoreDead(ctx, b.name, all...); err != nil || n != want {
				t.Errorf("%d, %v", n, err)
			}
		}
		again, err := b.List(ctx, b.name, StateDead, 0, 0)
		if err != nil || !reflect.DeepEqual(all, again) {
			t.Errorf("%d are back, %v", len(again), err)
		}
	})
}

// A dead letter that is enqueued anew has what its enqueue said, and no attempts.
func TestCopyRenewed(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		t.Parallel()
		ctx := t.Context()
		b := newBench(t, s.URL())
		b.must(b.one(1, ID("one"), Type("t"), Header("k", "v"), Retain(time.Hour), Timeout(time.Minute), MaxAttempts(1),
			Deadline(time.Now().Add(time.Hour))))
		b.receive(1, func(context.Context, int) error { return errOops })
		b.wait(EventRejected, 1, 5*time.Second)
		es, err := b.List(ctx, b.name, StateDead, 0, 0)
		b.must(err)
		if e := es[0].Renewed(); e.Attempts != 0 || e.State != StatePrepare || e.ID != "one" {
			t.Errorf("%+v", e)
		}
		es[0].Channel += ".copy"
		b.must(b.Enqueue(ctx, es[0].Renewed().Copy()))
		copies, err := b.List(ctx, b.name+".copy", StatePrepare, 0, 0)
		b.must(err)
		el, err := element.Decode(copies[0].raw)
		b.must(err)
		if x := el.Extra; el.Attempts != 0 || el.Failure() != errOops.Error() || el.ID() != "one" || el.Type() != "t" ||
			!maps.Equal(el.Headers(), map[string]string{"k": "v"}) || x.Retain != time.Hour.Milliseconds() ||
			x.Deadline != 0 || el.Timeout() != time.Minute || el.MaxAttempts() != 1 {
			t.Errorf("%+v, %+v", copies[0], x)
		}
		if e := (Entry{Channel: "c", Attempts: 1}).Renewed(); e.Attempts != 1 {
			t.Errorf("%+v", e)
		}
	})
}

// What is no whole element of its state is refused.
func TestCopyRefuses(t *testing.T) {
	t.Parallel()
	b := newBench(t, redistest.Shared(t).URL())
	_, err1 := ParseElement("", StateDead, nil, time.Time{})
	_, err2 := ParseElement("c", StateDone, nil, time.Time{})
	newer := element.Element{Serial: element.NewSerial()}
	raw := newer.Encode()
	raw[1] = 0x20
	_, err3 := ParseElement("c", StateDead, raw, time.Time{})
	_, err4 := b.RestoreDead(t.Context(), b.name, Entry{State: StateDead})
	err5 := b.Enqueue(t.Context(), Entry{Channel: b.name}.Copy())
	_, err6 := b.RestoreDead(t.Context(), "")
	for i, err := range []error{err1, err2, err3, err4, err5, err6} {
		if err == nil || !strings.HasPrefix(err.Error(), "shunt: ") {
			t.Errorf("%d: %v", i+1, err)
		}
	}
	if !errors.Is(err3, element.ErrNewerVersion) {
		t.Errorf("%v", err3)
	}
}

// What came back from a lease does not expire any more, and its copy does not either.
func TestCopyOfWhatWasTaken(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		t.Parallel()
		ctx := t.Context()
		b := newBench(t, s.URL())
		b.must(b.one(1, ID("one"), Expire(time.Hour), Header("k", "v")))
		_, err := b.Pull(ctx, PullOptions{Channels: []string{b.name}, Lease: 500 * time.Millisecond})
		b.must(err)
		b.wait(EventLapsed, 1, 10*time.Second)
		es, err := b.List(ctx, b.name, StatePrepare, 0, 0)
		b.must(err)
		was, _ := element.Decode(es[0].raw)
		es[0].Channel += ".copy"
		b.must(b.Enqueue(ctx, es[0].Copy()))
		b.must(b.Enqueue(ctx, es[0].Copy(), ID("another"), Expire(time.Minute)))
		es, err = b.List(ctx, b.name+".copy", StatePrepare, 0, 0)
		b.must(err)
		for i, expires := range []bool{false, true} {
			el, _ := element.Decode(es[i].raw)
			if was.Extra.Expires == 0 || (el.Extra.Expires != 0) != expires || el.Attempts != was.Attempts {
				t.Errorf("%d: %+v, of %+v", i, el.Extra, was.Extra)
			}
		}
	})
}

// A copy of what is past its Deadline is enqueued, for a receiver to bury with that reason.
func TestCopyPastDeadline(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		t.Parallel()
		ctx := t.Context()
		b := newBench(t, s.URL())
		b.must(b.one(1, Deadline(time.Now().Add(50*time.Millisecond))))
		es, err := b.List(ctx, b.name, StatePrepare, 0, 0)
		b.must(err)
		<-time.After(60 * time.Millisecond)
		_, err = b.Cancel(ctx, es[0].Ref())
		b.must(err)
		b.must(b.Enqueue(ctx, es[0].Copy()))
		if err := b.Enqueue(ctx, es[0].Copy(), Deadline(time.Now().Add(-time.Minute))); err == nil {
			t.Error("a Deadline that the enqueue gives is not looked at")
		}
		b.receive(1, func(context.Context, int) error { return nil })
		b.wait(EventRejected, 1, 5*time.Second)
		dead, err := b.List(ctx, b.name, StateDead, 0, 0)
		if err != nil || len(dead) != 1 || dead[0].Failure != ErrDeadline.Error() {
			t.Errorf("%+v, %v", dead, err)
		}
	})
}

// What was postponed beyond its Expire has a copy all the same, which expires as the original does.
func TestCopyPostponedBeyondExpire(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		t.Parallel()
		ctx := t.Context()
		b := newBench(t, s.URL())
		var r Ref
		b.must(b.one(1, RefTo(&r), In(time.Hour), Expire(2*time.Hour)))
		b.must(b.Postpone(ctx, r, In(3*time.Hour)))
		es, err := b.List(ctx, b.name, StateDelay, 0, 0)
		b.must(err)
		was, _ := element.Decode(es[0].raw)
		es[0].Channel += ".copy"
		b.must(b.Enqueue(ctx, es[0].Copy()))
		if _, err := b.EnqueueOnce(ctx, Once{Channel: es[0].Channel, Key: "k"}, es[0].Copy()); err != nil {
			t.Error(err)
		}
		copies, err := b.List(ctx, es[0].Channel, StateDelay, 0, 0)
		b.must(err)
		for _, e := range copies {
			is, _ := element.Decode(e.raw)
			if d := is.Extra.Expires - was.Extra.Expires; d < -60_000 || d > 60_000 || !e.DueAt.Equal(es[0].DueAt) {
				t.Errorf("due at %v, it expires %d ms after the original", e.DueAt, d)
			}
		}
		if len(copies) != 2 {
			t.Errorf("%d copies", len(copies))
		}
		if err := b.Enqueue(ctx, es[0].Copy(), Expire(time.Minute)); err == nil {
			t.Error("an Expire of its own ends before it is due")
		}
	})
}
