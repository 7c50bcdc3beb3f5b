package store

import (
	"context"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/link"
)

// A full Redis notes who handles a message by the script, and does not where it has expired before it was taken.
func TestStart(t *testing.T) {
	each(t, func(f *fixture) {
		f.enqueue(Now, 0, named("a", func(x *element.Extra) { x.Expires = 1 }), named("b"))
		held := f.take(0, 2)
		time.Sleep(3 * time.Millisecond)
		s := f.start(0, held, true)
		if !s.Late || s.records[0] == nil || s.records[1] == nil || len(s.cancelled) > 0 ||
			f.length("HLEN", f.k.Running) != 1 {
			f.Fatalf("%+v", s)
		}
		s.Taken = func(int) int64 { return s.Now - 1000 }
		f.must(s.Ask(link.NewCall(), f.k, func(c *link.Call) error { return f.l.Run(context.Background(), c) }))
		if s.Late || f.length("HLEN", f.k.Running) != 2 {
			f.Fatalf("what was taken in time is not noted: %+v", s)
		}
		cancelled, err := WereCancelled(context.Background(), f, f.k, []ulid.ULID{held[0].Serial})
		if f.must(err); len(cancelled) != 1 || cancelled[0] {
			f.Fatalf("cancelled: %v", cancelled)
		}
	})
}
