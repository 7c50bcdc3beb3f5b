package recur

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/redistest"
)

// An expression comes from a user, perhaps from a form: whatever it is, it is taken or refused, and its ticks come in
// order.
func FuzzCron(f *testing.F) {
	for _, e := range []string{
		"* * * * *", "0 30 2 29 2 *", "@every 5m", "@daily", "* TZ=x * * *", "1,TZ=UTC * * * *", "* * * * CRON_TZ=",
		"TZ=UTC * * * *", "0 0 1,TZ= * *", "*/5 9-17 * * MON-FRI", "? * * * *", "@", "@every", "@every TZ=",
	} {
		f.Add(e, "Europe/Berlin")
		f.Add(e, "")
	}
	f.Fuzz(func(t *testing.T, expression, zone string) {
		s := Cron(expression, zone)
		if s.Err() != nil {
			return
		}
		last := int64(1_700_000_000_000)
		var read Spec
		if text, _ := s.MarshalText(); read.UnmarshalText(text) != nil || read.String() != s.String() ||
			read.next(last) != s.next(last) {
			t.Fatalf("%q in %q reads as %q: %v", expression, zone, read, read.Err())
		}
		for range 3 {
			next := s.next(last)
			if next == 0 {
				return
			}
			if next <= last {
				t.Fatalf("%q in %q: after %d comes %d", expression, zone, last, next)
			}
			last = next
		}
	})
}

// A record in Redis may be anything: it is read or refused, and what is read has ticks.
func FuzzRecord(f *testing.F) {
	for _, body := range []string{"1\n* * * * *\n\nx", "-5\n* * * * *\n\nx", "1000000000\n@every 1s\n\nx",
		"1\n* TZ=x * * *\n\nx"} {
		f.Add("1 01ARZ3NDEKTSV4RRFFQ69G5FAV 1 active 1 0 0 w\n" + body)
		f.Add("1 01ARZ3NDEKTSV4RRFFQ69G5FAV 1 paused -9223372036854775808 0 0 w\n" + body)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		r, err := parseRecord(raw)
		if err != nil || r.spec.Err() != nil {
			return
		}
		now := int64(1_700_000_000_000)
		if ticks, _ := r.spec.due(now-60_000, now, r.policy); len(ticks) > MaxAll+1 {
			t.Fatalf("%d ticks", len(ticks))
		}
	})
}

// One record that cannot be read stops neither List nor Run.
func TestRecordThatWouldPanic(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	pool, err := shunt.NewPool(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	q := &shunt.Queue{Pool: pool}
	defer q.Close()
	timetable := &Timetable{Queue: q}
	ctx := context.Background()
	kind := shunt.Define("c", func(context.Context, int) error { return nil })
	if err := timetable.Add(ctx, "good", Every(time.Second), kind.Message(1)); err != nil {
		t.Fatal(err)
	}
	for _, body := range []string{"1\n* TZ=x * * *\n\nx", "-5\n* * * * *\n\nx", "1000000000\n@every 100ms\n\nx"} {
		s.Do("HSET", "{c}.recur", "bad", "1 01ARZ3NDEKTSV4RRFFQ69G5FAV 1 active 1 0 0 w\n"+body)
		es, err := timetable.List(ctx, "c")
		if bad := slices.ContainsFunc(es, func(e Entry) bool { return e.Spec.Err() != nil }); err == nil && !bad {
			t.Errorf("%q: %d entries, and no error", body, len(es))
		}
		stop, err := timetable.Run(ctx, "c")
		if err != nil {
			t.Fatal(err)
		}
		if err := stop(ctx); err != nil {
			t.Error(err)
		}
	}
}
