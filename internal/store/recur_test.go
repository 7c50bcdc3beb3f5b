package store

import (
	"context"
	"testing"
	"time"
)

// A record is written, fired and removed only by who has read it as it is.
func TestRecur(t *testing.T) {
	each(t, func(f *fixture) {
		ctx := context.Background()
		write := func(head, record string) bool {
			ok, err := WriteRecur(ctx, f, f.k, "daily", head, record)
			f.must(err)
			return ok
		}
		now, mark, err := ReadRecurMark(ctx, f, f.k)
		if f.must(err); mark != "" || time.Since(now).Abs() > time.Minute {
			f.Fatalf("%v %q", now, mark)
		}
		if write("other\n", "head 1\nbody") || !write("", "head 1\nbody") || write("", "head 2\nbody") {
			f.Fatal("it was written over another, or not at all")
		}
		table, err := ReadRecurTable(ctx, f, f.k)
		if f.must(err); len(table.Records) != 1 || table.Records["daily"] != "head 1\nbody" || table.Mark == "" {
			f.Fatalf("%+v", table)
		}
		some, err := ReadRecurs(ctx, f, f.k, []string{"none", "daily"})
		if f.must(err); len(some) != 2 || some[0] != "" || some[1] != "head 1\nbody" {
			f.Fatalf("%q", some)
		}
		fire := RecurFiring{Name: "daily", Head: "head 1\n", Next: "head 2\n", Elements: [][]byte{named("").Encode()}}
		early, late := fire, fire
		early.From, late.Until = now.Add(time.Hour), now.Add(-time.Hour)
		replies, _, err := FireRecur(ctx, f, f.k, early, late, fire, fire)
		f.must(err)
		for i, r := range replies {
			if r.NotTheTime != (i < 2) || r.HeadChanged != (i == 3) || (r.Enqueued == 1) != (i == 2) || r.Now.IsZero() {
				f.Fatalf("firing %d: %+v", i, r)
			}
		}
		if replies[3].Head != "head 2\n" {
			f.Fatalf("%+v", replies[3])
		}
		f.lengths(1, 0, 0, 0)
		named := RecurFiring{Name: "daily", Head: "head 2\n", Next: "head 3\n", ID: "a", Expires: now.Add(time.Hour),
			Elements: [][]byte{named("a").Encode(), named("a").Encode()}}
		replies, _, err = FireRecur(ctx, f, f.k, named)
		if f.must(err); replies[0].Enqueued != 1 {
			f.Fatalf("%+v", replies[0])
		}
		if !write("head 3\n", "") || f.length("EXISTS", f.k.Recur) != 0 {
			f.Fatal("it was not removed")
		}
	})
}
