package main

import (
	"context"
	"strings"
	"testing"
	"time"
)

// deaf does nothing when it is to cancel or to postpone.
type deaf struct{ shuntQueue }

func (deaf) cancel(context.Context, string) error              { return nil }
func (deaf) postpone(context.Context, string, time.Time) error { return nil }

func TestIDFaultsAreNoResult(t *testing.T) {
	t.Parallel()
	stray := []any{"HSET", "{bench}.ids", idOfNumber(1e6), "x"}
	twice := []any{"HSET", "{bench}.ids", idOfNumber(uint64(tiny.alive)), "0123456789abcdefp 0 0 0 \n"}
	for _, c := range []struct {
		name   string
		run    func(context.Context, queue, task) ([]sample, error)
		before []any // a command
		deaf   bool
		want   string
	}{
		{"enqueued", enqueueIDs("", func(l load) int { return l.alive }), nil, false, ""},
		{"enqueued with another", enqueueIDs("", func(l load) int { return l.alive }), stray, false,
			"there are 351 ids in Redis, not 350"},
		{"enqueued with its id taken", enqueueIDs("", func(l load) int { return l.alive }), twice, false,
			"enqueue message 50: "},
		{"handled", processIDs, nil, false, ""},
		{"handled beside another", processIDs, stray, false, "there are 1 ids in Redis, not 0"},
		{"not cancelled", cancel, nil, true, "it is still there"},
		{"not postponed", postpone, nil, true, "it is due at "},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			srv, err := startServer(false)
			if err != nil {
				t.Fatal(err)
			}
			defer srv.stop()
			work := task{load: tiny, srv: srv, note: func(string, ...any) {}}
			q, err := openShunt(0)(work)
			if err != nil {
				t.Fatal(err)
			}
			defer q.close()
			if c.before != nil {
				if _, err := srv.conn.Do(c.before[0].(string), c.before[1:]...); err != nil {
					t.Fatal(err)
				}
			}
			if c.deaf {
				q = deaf{q.(shuntQueue)}
			}
			_, err = c.run(t.Context(), q, work)
			if got := err != nil; got != (c.want != "") || got && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}
