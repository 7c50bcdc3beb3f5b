package store

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/redistest"
)

// now is the server's time.
func (f *fixture) now() time.Time { return ServerTime(f.s.Do("TIME")) }

func TestIncarnationNames(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{1, 2, 64, MaxWorkers} {
		for _, lease := range []time.Duration{time.Second, 10 * time.Second, 1500 * time.Millisecond,
			10 * time.Minute} {
			i := NewIncarnation(workers, lease)
			got, err := ParseIncarnation(i.Name)
			if err != nil || got != i || got.Workers != workers || got.Lease != lease {
				t.Errorf("%d workers, %v: %+v, %v", workers, lease, got, err)
			}
			if again := NewIncarnation(workers, lease); again.Name == i.Name {
				t.Errorf("two are called %s", i.Name)
			}
			for _, how := range []string{"r", "s", "c"} {
				member := i.Name + " 1763726400000 " + how
				c, err := ParseDeadReceiver(member)
				if want := (DeadReceiver{i, "1763726400000", how != "r", how != "s"}); err != nil || c != want {
					t.Errorf("%q: %+v, %v", member, c, err)
				}
			}
		}
	}
}

// Whatever somebody puts into a registry, it makes no sweep ask for millions of keys, nor for none.
func TestJunkNames(t *testing.T) {
	t.Parallel()
	const id = "01J3SWF8DJRFAEBXG730MKMJTW"
	if _, err := ParseIncarnation(id + "-8-10000"); err != nil {
		t.Fatal(err)
	}
	junk := []string{
		"", "x", "-", "--", id, id + "-8", id + "-8-", id + "--10000", "-8-10000", id + "-8-10000-1",
		id[1:] + "-8-10000", id + "0-8-10000", "8" + id[1:] + "-8-10000", strings.Replace(id, "J", "U", 1) + "-8-10000",
		id + "-0-10000", id + "--8-10000", id + "-x-10000", id + "-8.0-10000", id + "-10001-10000",
		id + "-99999999999999999999-10000",
		id + "-8-0", id + "-8--1", id + "-8-x", id + "-8-1e4", id + "-8-9999999999999", id + "-8-99999999999999999999",
		id + "-8-10000 ", " " + id + "-8-10000", id + "-8-10000\n", strings.Repeat("x", 1<<16),
	}
	for _, name := range junk {
		i, err := ParseIncarnation(name)
		if err == nil || i != (Incarnation{}) {
			t.Errorf("%.80q: %+v, %v", name, i, err)
		} else if len(err.Error()) > 500 {
			t.Errorf("%.80q: an error of %d bytes", name, len(err.Error()))
		}
		if _, err := ParseDeadReceiver(name + " 1763726400000 r"); err == nil &&
			strings.TrimSpace(name) != id+"-8-10000" {
			t.Errorf("dead %.80q was taken for an entry", name)
		}
	}
	for _, member := range []string{"", " ", id + "-8-10000", id + "-8-10000 1", id + "-8-10000 1 r r",
		id + "-8-10000 1 sr", "1 r", " 1 r", "x 1 r"} {
		if c, err := ParseDeadReceiver(member); err == nil {
			t.Errorf("%q: %+v", member, c)
		}
	}
}

// An incarnation is among the living from its register until it is unregistered or superseded.
func TestLiveness(t *testing.T) {
	each(t, func(f *fixture) {
		ctx := context.Background()
		beat := func(i Incarnation) BeatAnswer {
			b, err := BeatReply(f.run(func(c *link.Call) { AddBeat(c, f.k, i) }))
			f.must(err)
			return b
		}
		if b := beat(f.i); !b.Alive || !b.Others || b.Earliest <= 0 || b.Now.Sub(f.now()).Abs() > time.Minute {
			f.Fatalf("%+v", b)
		}
		if b := beat(NewIncarnation(1, time.Second)); b.Alive {
			f.Fatalf("a beat brought one back: %+v", b)
		}
		next := NewIncarnation(1, time.Minute)
		abandoned := NewIncarnation(1, time.Minute)
		_, err := RegisterIncarnation(ctx, f.l, []*Keys{f.k}, abandoned, nil)
		f.must(err)
		run, err := RegisterIncarnation(ctx, f.l, []*Keys{f.k}, next, []string{abandoned.Name})
		if f.must(err); beat(abandoned).Alive || !beat(next).Alive {
			f.Fatal("an abandoned one lives, or the new one does not")
		}
		if _, real := f.s.(*redistest.Server); real && len(run) != 40 {
			f.Fatalf("the run is %q", run)
		}
		all, err := Receivers(ctx, f, f.k)
		if f.must(err); len(all) != 2 || !all[0].Alive || !all[1].Alive || time.Until(all[0].Until) > 90*time.Second {
			f.Fatalf("%+v", all)
		}
		f.enqueue(Now, 0, named(""))
		f.take(1, 1)
		gone := func(i Incarnation) bool {
			g, err := UnregisterReply(f.run(func(c *link.Call) { AddUnregister(c, f.k, i) }))
			f.must(err)
			return g
		}
		if gone(f.i) || !gone(next) || !gone(next) {
			f.Fatal("one that holds a message is unregistered, or one that holds none is not")
		}
		n, err := HeldReply(f.run(func(c *link.Call) { AddHeld(c, f.k.AllDoing(f.i)...) }))
		if f.must(err); n != 1 {
			f.Fatalf("%d lists hold something", n)
		}
		some, err := NonEmpty(ctx, f.l, f.k.AllDoing(f.i))
		if f.must(err); !slices.Equal(some, []string{f.k.Doing(f.i, 1)}) {
			f.Fatalf("some hold something: %q", some)
		}
		f.run(func(c *link.Call) { AddEmpty(c, f.k, f.i, 1) })
		n, err = CountNonEmpty(ctx, f.l, f.k.AllDoing(f.i))
		if f.must(err); n != 0 || !gone(f.i) {
			f.Fatalf("%d lists hold something", n)
		}
		f.lengths(1, 0, 0, 0)
	})
}
