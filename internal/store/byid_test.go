package store

import (
	"context"
	"reflect"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/shuntmq/shunt/internal/element"
)

// What is known of an id follows its message.
func TestStatusByID(t *testing.T) {
	each(t, func(f *fixture) {
		e := named("a", func(x *element.Extra) { x.Retain = time.Minute.Milliseconds() })
		f.enqueue(In, 60_000, e)
		if s := f.state("a"); s != 'd' {
			f.Fatalf("delayed: %q", s)
		}
		p, err := RunPostpone(context.Background(), f, f.k, "a", e.Serial, At, 1, nil, false)
		if f.must(err); p.Result != Postponed || len(p.Record) == 0 {
			f.Fatalf("postpone to a time that is past: %+v", p)
		}
		f.lengths(1, 0, 0, 0)
		p, err = RunPostpone(context.Background(), f, f.k, "a", e.Serial, In, 60_000, nil, false)
		if f.must(err); p.Result != WaitsAlready {
			f.Fatalf("postpone what is ready: %+v", p)
		}
		held := f.take(1, 1)
		f.start(1, held, false)
		a := f.status("a")
		if want := (Handling{Receiver: f.i.Name, Worker: 1, Attempt: 1,
			StartedAt: time.UnixMilli(1)}); a.Holder != want ||
			a.Cancelled {
			f.Fatalf("held by %+v, want %+v", a.Holder, want)
		}
		p, err = RunPostpone(context.Background(), f, f.k, "a", e.Serial, In, 60_000, nil, false)
		if f.must(err); p.Result != BeingHandled {
			f.Fatalf("postpone what is handled: %+v", p)
		}
		holders, err := Holders(context.Background(), f, f.k, e.Serial, element.NewSerial())
		if f.must(err); len(holders) != 2 || holders[0] != a.Holder || holders[1] != (Handling{}) {
			f.Fatalf("holders: %+v", holders)
		}
		f.leave(1, held[0], &Verdict{Result: []byte("r")}, &Bounds{})
		a = f.status("a")
		o := a.Outcome
		if len(a.Record) > 0 || a.Holder != (Handling{}) || string(o.Result) != "r" || o.Kind != OutcomeAcked ||
			o.Serial != e.Serial || o.Attempt != 1 || o.EndedAt.After(a.Now) ||
			o.KeptUntil.Sub(o.EndedAt) != time.Minute {
			f.Fatalf("over: %+v", a)
		}
		w, err := RunWait(context.Background(), f, f.k, "a", nil)
		if f.must(err); w.Lives || !reflect.DeepEqual(w.Outcome, o) {
			f.Fatalf("waited for: %+v", w)
		}
		w, err = RunWait(context.Background(), f, f.k, "none", nil)
		if f.must(err); !reflect.DeepEqual(w, WaitAnswer{}) {
			f.Fatalf("waited for none: %+v", w)
		}
	})
}

// A cancelled message is gone from delay at once, and from prepare when it is met.
func TestCancelByID(t *testing.T) {
	each(t, func(f *fixture) {
		ctx := context.Background()
		later, ready := named("later"), named("ready")
		f.enqueue(In, 60_000, later)
		f.enqueue(Now, 0, ready)
		for _, e := range []*element.Element{later, ready} {
			a, err := RunCancel(ctx, f, f.k, e.ID(), e.Serial, &Bounds{})
			if f.must(err); !a.Found || a.Twice || SerialOf(e.Encode()) != e.Serial {
				f.Fatalf("cancel of %s: %+v", e.ID(), a)
			}
			a, err = RunCancel(ctx, f, f.k, e.ID(), e.Serial, &Bounds{})
			if f.must(err); a.Found {
				f.Fatalf("cancelled twice: %+v", a)
			}
		}
		f.lengths(1, 0, 0, 0)
		n, err := Count(ctx, f, f.k)
		if f.must(err); n.Prepare != 1 || n.Cancelled != 1 {
			f.Fatalf("counts: %+v", n)
		}
		held := f.take(0, 1)
		if s := f.start(0, held, false); !s.cancelled[0] || s.records[0] != nil || s.Now == 0 || s.Full {
			f.Fatalf("started: %+v", s)
		}
		some, err := AreCancelled(ctx, f.l, f.k, []ulid.ULID{later.Serial, ready.Serial})
		if f.must(err); len(some) != 1 || some[0] != ready.Serial {
			f.Fatalf("cancelled are %v", some)
		}
	})
}

// One of more that are due at one time than a script looks at is found from here.
func TestPostponeAmongMany(t *testing.T) {
	each(t, func(f *fixture) {
		ctx, at := context.Background(), time.Now().Add(time.Hour).UnixMilli()
		e := named("a")
		e.Serial[0] = 0xff // behind all others
		f.enqueue(At, at, e)
		args := []any{f.k.Delay}
		for range 3000 {
			args = append(args, at, "bare "+element.NewSerial().String()) // before what has a header
		}
		f.s.Do("ZADD", args...)
		p, err := RunPostpone(ctx, f, f.k, "a", e.Serial, In, 1000, nil, false)
		if f.must(err); p.Result != NotAmongSome {
			f.Fatalf("%+v", p)
		}
		p, err = RunPostpone(ctx, f, f.k, "a", e.Serial, In, 1000, e.Encode(), true)
		if f.must(err); p.Result != Postponed {
			f.Fatalf("%+v", p)
		}
	})
}
