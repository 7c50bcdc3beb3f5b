package store

import (
	"context"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/element"
)

// Upkeep removes marks of nobody and receipts of long ago, and nothing else.
func TestUpkeep(t *testing.T) {
	each(t, func(f *fixture) {
		ctx, now := context.Background(), time.Now()
		f.must(Upkeep(ctx, f.l, f.k, new(Scan), now))
		f.enqueue(Now, 0, named("a"))
		f.start(0, f.take(0, 1), false)
		stale, old := element.NewSerial(), element.NewSerialAt(now.Add(-48*time.Hour))
		f.s.Do("HSET", f.k.Running, stale[:], string(Mark(NewIncarnation(1, time.Second), 0, 1, now)))
		f.s.Do("SADD", f.k.Receipts, old[:], "x"+string(old[:]), "?")
		var at Scan
		for range 4 {
			f.must(Upkeep(ctx, f.l, f.k, &at, now))
		}
		if n := f.length("HLEN", f.k.Running); n != 1 || f.status("a").Holder == (Handling{}) {
			f.Fatalf("%d marks are left", n)
		}
		if n := f.length("SCARD", f.k.Receipts); n != 1 { // that of a
			f.Fatalf("%d receipts are left", n)
		}
		f.must(Upkeep(ctx, f.l, f.k, &at, now))
	})
}
