package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/link"
)

// Each fate takes the element from its list once, with an id and without; a repeat finds nothing.
func TestFates(t *testing.T) {
	each(t, func(f *fixture) {
		for _, id := range []string{"", "a"} {
			for _, fate := range []Fate{Acked, Cancelled, Expired, Retried, Rejected, Released} {
				f.enqueue(Now, 0, named(id))
				h := f.take(0, 1)[0]
				v := &Verdict{Fate: fate, Failure: "boom", Wait: time.Minute}
				if fate == Retried || fate == Rejected {
					next := h.Next(errBoom)
					v.Next = next.Encode()
				}
				if l := f.leave(0, h, v, &Bounds{}); !l.Found || l.Cancelled {
					f.Fatalf("fate %d of %q: %+v", fate, id, l)
				}
				if l := f.leave(0, h, v, &Bounds{}); l.Found {
					f.Fatalf("fate %d of %q, twice: %+v", fate, id, l)
				}
				switch fate {
				case Retried:
					f.lengths(0, 1, 0, 0)
					if r := f.state(id); id != "" && r != 'd' {
						f.Fatalf("its record says %q", r)
					}
				case Rejected:
					f.lengths(0, 0, 1, 0)
					if r := f.state(id); r != 0 {
						f.Fatalf("a dead message has its id, %q", r)
					}
				case Released:
					f.lengths(1, 0, 0, 0)
				default:
					f.empty()
				}
				f.s.Do("DEL", f.k.Prepare, f.k.Delay, f.k.Dead, f.k.IDs)
			}
		}
	})
}

// A verdict sends what Plain, Shares and Keeps promise.
func TestVerdictKinds(t *testing.T) {
	t.Parallel()
	plain, bare, id := Held{Element: named("")}, Held{Element: &element.Element{Bare: true}},
		Held{Element: named("a"), OwnsID: true}
	retained := Held{Element: named("a", func(x *element.Extra) { x.Retain = 1 }), OwnsID: true}
	ack, retry, follow := &Verdict{}, &Verdict{Fate: Retried}, &Verdict{Then: []Followup{{}}}
	for _, c := range []struct {
		name          string
		h             Held
		v             *Verdict
		plain, shares bool
	}{
		{"ack", plain, ack, true, true}, {"bare", bare, ack, true, false}, {"id", id, ack, false, true},
		{"retry", plain, retry, false, false}, {"follow", plain, follow, false, false},
	} {
		if p, s := c.v.Plain(c.h), c.v.Shares(c.h); p != c.plain || s != c.shares {
			t.Errorf("%s: plain %v, shares %v", c.name, p, s)
		}
	}
	for name, c := range map[string]struct {
		h     Held
		v     *Verdict
		keeps bool
	}{
		"ack": {id, ack, false}, "retain": {retained, ack, true}, "result": {id, &Verdict{Result: []byte("x")}, true},
		"expired": {id, &Verdict{Fate: Expired}, true}, "another's id": {Held{Element: named("a")}, ack, true},
	} {
		if k := c.v.Keeps(c.h); k != c.keeps {
			t.Errorf("%s: keeps %v", name, k)
		}
	}
}

// Several leave by one script: all that were taken first, or each for itself.
func TestSettle(t *testing.T) {
	each(t, func(f *fixture) {
		var es []*element.Element
		for _, id := range []string{"a", "b", "c", "d", "e", "f"} {
			es = append(es, named(id))
		}
		f.enqueue(Now, 0, es...)
		held := f.take(0, 6)
		f.start(0, held, false)
		doing := f.k.Doing(f.i, 0)
		first := func(from, n int) link.Reply {
			return f.run(func(c *link.Call) {
				AddSettleFirst(c, f.k, doing, &Bounds{}, n, func(i int) Held { return held[from+i] })
			})
		}
		if FirstReply(first(1, 2)) {
			f.Fatal("what was not taken first left as such")
		}
		f.lengths(0, 0, 0, 6)
		if !FirstReply(first(0, 2)) {
			f.Fatal("the first two are refused")
		}
		f.lengths(0, 0, 0, 4)
		// One was cancelled, and one is waited for: each ends as it is.
		a, err := RunCancel(context.Background(), f, f.k, "c", held[2].Serial, &Bounds{})
		if f.must(err); !a.Found || a.Holder.Receiver != f.i.Name {
			f.Fatalf("cancel: %+v", a)
		}
		w, err := RunWait(context.Background(), f, f.k, "d", nil)
		if f.must(err); !w.Lives || w.Serial != held[3].Serial {
			f.Fatalf("d does not live: %+v", w)
		}
		if !FirstReply(first(2, 2)) {
			f.Fatal("the next two are refused")
		}
		w, err = RunWait(context.Background(), f, f.k, "d", &held[3].Serial)
		if o := w.Outcome; w.Lives || o.Serial != held[3].Serial || o.Kind != OutcomeAcked || o.Attempt != 1 {
			f.Fatalf("of d is kept %+v (%v)", o, err)
		}
		rest := append(slices.Clone(held[4:]), held[0]) // which has left
		v := &Verdict{Result: []byte("result")}
		rep := f.run(func(c *link.Call) {
			AddSettle(c, f.k, doing, &Bounds{}, len(rest), func(i int) (Held, *Verdict) {
				rest[i].Extra.Retain = time.Minute.Milliseconds()
				return rest[i], v
			})
		})
		for i := range rest {
			l, err := LeaveReply(v, EachReply(rep, i))
			if f.must(err); l.Found != (i < 2) {
				f.Fatalf("%d of several: %+v", i, l)
			}
		}
		if out := f.status("f").Outcome; string(out.Result) != "result" {
			f.Fatalf("of f is kept %+v", out)
		}
		f.empty()
	})
}

// What follows is enqueued with the ack, or refused for its id; nothing of it where the ack comes late.
func TestFollow(t *testing.T) {
	each(t, func(f *fixture) {
		f.enqueue(Now, 0, named("a", func(x *element.Extra) { x.Unique = time.Hour.Milliseconds() }), named("taken"))
		h := f.take(0, 1)[0]
		v := &Verdict{}
		for _, e := range []*element.Element{named("next"), named("taken"), named("")} {
			v.Then = append(v.Then, Followup{Keys: f.k, Mode: In, MS: 60_000, Element: *e, Raw: e.Encode()})
		}
		v.Then[2].Mode, v.Then[2].MS = Now, 0
		if l := f.leave(0, h, v, &Bounds{}); !l.Found || !slices.Equal(l.Followed, []bool{true, false, true}) {
			f.Fatalf("%+v", l)
		}
		f.lengths(2, 1, 0, 0)
		later, err := SetPage(context.Background(), f, f.k, f.k.Delay, false, 0, 1)
		if f.must(err); later[0].At.Sub(f.now()) < 50*time.Second {
			f.Fatalf("what follows in a minute is due at %v", later[0].At)
		}
		if l := f.leave(0, h, v, &Bounds{}); l.Found || l.Followed != nil {
			f.Fatalf("twice: %+v", l)
		}
		f.lengths(2, 1, 0, 0)
		if a, next := f.state("a"), f.state("next"); a != 'u' || next != 'd' {
			f.Fatalf("the records say %q and %q", a, next)
		}
	})
}

// An ack that brings others keeps no more outcomes than Bounds allow.
func TestFollowBounds(t *testing.T) {
	each(t, func(f *fixture) {
		for i := range 5 {
			kept := func(x *element.Extra) { x.Retain = time.Hour.Milliseconds() }
			f.enqueue(Now, 0, named(fmt.Sprint("id", i), kept))
			e := named("")
			v := &Verdict{Then: []Followup{{Keys: f.k, Mode: In, MS: 60_000, Element: *e, Raw: e.Encode()}}}
			f.leave(0, f.take(0, 1)[0], v, &Bounds{MaxDone: 2, MaxDoneBytes: 10_000})
			if n := f.s.Do("ZCOUNT", f.k.Kept, "-inf", "(0"); n != int64(min(i+1, 2)) {
				f.Fatalf("after %d acks %d outcomes are kept", i+1, n)
			}
		}
	})
}

// A verdict of a message that was cancelled meanwhile ends it.
func TestCancelledVerdict(t *testing.T) {
	each(t, func(f *fixture) {
		for _, fate := range []Fate{Retried, Rejected} {
			f.enqueue(Now, 0, named("a"))
			held := f.take(0, 1)
			f.start(0, held, false)
			_, err := RunCancel(context.Background(), f, f.k, "a", held[0].Serial, &Bounds{})
			f.must(err)
			next := held[0].Next(errBoom)
			l := f.leave(0, held[0], &Verdict{Fate: fate, Next: next.Encode()}, &Bounds{})
			if !l.Found || !l.Cancelled {
				f.Fatalf("fate %d: %+v", fate, l)
			}
			f.empty()
		}
	})
}

// The oldest dead letters make room, and the reply says how many.
func TestRejectTrims(t *testing.T) {
	each(t, func(f *fixture) {
		for i := range 4 {
			f.enqueue(Now, 0, named(""))
			h := f.take(0, 1)[0]
			next := h.Next(errBoom)
			l := f.leave(0, h, &Verdict{Fate: Rejected, Next: next.Encode()}, &Bounds{MaxDead: 2})
			if l.Trimmed != max(0, i-1)-max(0, i-2) {
				f.Fatalf("with %d dead: %+v", i, l)
			}
		}
		f.lengths(0, 0, 2, 0)
	})
}

// Plain messages leave by the first and the last of them, or go back by their identities.
func TestAckFirst(t *testing.T) {
	each(t, func(f *fixture) {
		f.enqueue(Now, 0, named(""), named(""), named(""))
		held := f.take(0, 3)
		ack := func(first, last Held) bool {
			return FirstReply(f.run(func(c *link.Call) { AddAckFirst(c, f.k.Doing(f.i, 0), first.Raw, last.Raw, 2) }))
		}
		if ack(held[1], held[2]) {
			f.Fatal("the last two left first")
		}
		if !ack(held[0], held[1]) {
			f.Fatal("the first two stay")
		}
		f.lengths(0, 0, 0, 1)
		n, err := ReleaseReply(f.run(func(c *link.Call) {
			AddRelease(c, f.k, f.k.Doing(f.i, 0), held[2].Identity(held[2].Raw), held[0].Identity(held[0].Raw))
		}))
		if f.must(err); n != 1 {
			f.Fatalf("%d were released", n)
		}
		f.lengths(1, 0, 0, 0)
	})
}

func TestLeaveReplyErrors(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused")
	if _, err := LeaveReply(&Verdict{}, link.Reply{Err: refused}); !errors.Is(err, refused) {
		t.Error(err)
	}
	if rep := EachReply(link.Reply{Value: int64(1)}, 0); rep.Value != int64(1) {
		t.Errorf("%+v", rep)
	}
}

// What was taken does not expire when it goes back, unless its time was over before it began, and it has lost its id
// since.
func TestGoesBackUnexpiring(t *testing.T) {
	each(t, func(f *fixture) {
		for _, how := range []string{"release", "handover", "reap"} {
			for _, others := range []string{"never", "is another's", "was another's"} {
				f.enqueue(Now, 0, named("a", func(x *element.Extra) { x.Expires = 1 }))
				h := f.take(0, 1)[0]
				time.Sleep(3 * time.Millisecond)
				if others != "never" {
					f.enqueue(Now, 0, named("a"))
				}
				if others == "was another's" {
					f.leave(1, f.take(1, 1)[0], &Verdict{Fate: Acked}, &Bounds{})
				}
				f.run(func(c *link.Call) {
					switch how {
					case "release":
						AddRelease(c, f.k, f.k.Doing(f.i, 0), h.Identity(h.Raw))
					case "handover":
						AddEmpty(c, f.k, f.i, 0)
					case "reap":
						AddReap(c, f.k, f.k.Doing(f.i, 0), Fence{}, DeadReceiver{Superseded: true}, 1, 1<<20, &Bounds{})
					}
				})
				back := f.take(0, 1)[0]
				if back.Serial != h.Serial || (back.Extra.Expires != 0) != (others != "never") {
					f.Fatalf("%s, its id %s: it expires at %d", how, others, back.Extra.Expires)
				}
				f.s.Do("DEL", f.k.Prepare, f.k.IDs, f.k.Receipts, f.k.Running, f.k.Doing(f.i, 0))
			}
		}
	})
}
