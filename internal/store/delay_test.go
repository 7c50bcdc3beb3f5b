package store

import (
	"context"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/redistest"
)

// Due messages go to prepare, and the reply says when the next is due.
func TestPromote(t *testing.T) {
	each(t, func(f *fixture) {
		ctx := context.Background()
		f.enqueue(In, 60_000, named(""))
		f.s.Do("ZADD", f.k.Delay, 1, "one", 2, "two", 3, "three")
		p, err := RunPromote(ctx, f.l, f.k, 1, 1<<20, 2)
		if f.must(err); p.Moved != 2 || !p.Scheduled || p.NextDue >= 0 {
			f.Fatalf("%+v", p)
		}
		p, err = RunPromote(ctx, f.l, f.k, 10, 1<<20, 1)
		if f.must(err); p.Moved != 1 || p.NextDue < 50*time.Second || p.NextDue > 61*time.Second {
			f.Fatalf("%+v", p)
		}
		page, err := ListPage(ctx, f, f.k, f.k.Prepare, 0, 2)
		if f.must(err); len(page) != 2 || string(page[0]) != "one" || string(page[1]) != "two" {
			f.Fatalf("%q", page)
		}
		f.s.Do("DEL", f.k.Delay)
		if _, real := f.s.(*redistest.Server); real { // miniredis gives "inf" in a form that its own Lua cannot read
			f.s.Do("ZADD", f.k.Delay, "+inf", "never")
			p, err = RunPromote(ctx, f.l, f.k, 10, 1<<20, 1)
			if f.must(err); p.Moved != 0 || p.NextDue <= 0 {
				f.Fatalf("a score that no integer holds: %+v", p)
			}
			f.s.Do("DEL", f.k.Delay)
		}
		f.s.Do("SET", f.k.Delay, "no set")
		if _, err = RunPromote(ctx, f.l, f.k, 10, 1<<20, 1); err == nil {
			f.Fatal("what is no set is promoted")
		}
	})
}

// A keeper that yields makes room for the next one at once.
func TestYieldKeeper(t *testing.T) {
	each(t, func(f *fixture) {
		ctx := context.Background()
		bid := func(name string) bool {
			s, err := RunSweep(ctx, f.l, f.k, Sweeping{Bid: name, KeepFor: time.Minute})
			f.must(err)
			return s.Keeper
		}
		if !bid("one") || bid("two") {
			f.Fatal("two keep at once, or none does")
		}
		f.must(YieldKeeper(ctx, f.l, "two", f.k))
		if bid("two") {
			f.Fatal("another's place was yielded")
		}
		f.must(YieldKeeper(ctx, f.l, "one", f.k))
		if !bid("two") {
			f.Fatal("the place is not free")
		}
	})
}
