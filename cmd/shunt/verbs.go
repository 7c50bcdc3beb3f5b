package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/shuntmq/shunt"
)

func moveCommands(a *app) []*cobra.Command {
	var in span
	var at string
	var to shunt.Option
	postpone := a.verb(verb{
		name: "postpone", done: "postponed", short: "Give delayed messages another due time", state: shunt.StateDelay,
		long: "Give a delayed message another due time. With --all those that are due before the new time, and fit, " +
			"get it.",
		ready: func(f *shunt.Filter) (err error) {
			if (in == 0) == (at == "") {
				return usage("postpone wants either --in or --at")
			}
			t := time.Now().Add(time.Duration(in))
			if to = shunt.In(time.Duration(in)); at != "" {
				t, err = parseTime(at)
				to = shunt.At(t)
			}
			// What --all has postponed is due then or later, so it meets none twice where the clocks agree.
			if before := t.Add(-time.Millisecond); f.Until.IsZero() || f.Until.After(before) {
				f.Until = before
			}
			return err
		},
		one: func(ctx context.Context, q *shunt.Queue, r shunt.Ref) error { return q.Postpone(ctx, r, to) },
		all: func(ctx context.Context, q *shunt.Queue, c string, _ shunt.State,
			f shunt.Filter) (shunt.BulkResult, error) {
			return postponeAll(ctx, q, c, f, to)
		},
	})
	postpone.Flags().Var(&in, "in", "due after that length of time")
	postpone.Flags().StringVar(&at, "at", "", "due at that `time`")

	return []*cobra.Command{
		a.verb(verb{
			name: "retry", done: "retried", short: "Have dead messages handled again, or delayed ones now",
			long: "Have a message handled again: a dead one goes back into its channel with no attempts behind it, a " +
				"delayed one is due now. With --all that is for the dead messages that fit.",
			state: shunt.StateDead,
			one:   func(ctx context.Context, q *shunt.Queue, r shunt.Ref) error { return q.Retry(ctx, r) },
			all:   retryAll,
		}),
		a.verb(verb{
			name: "delete", done: "deleted", short: "Delete messages for good", destructive: true,
			long: "Delete a message for good: a dead letter, what is kept of one that is over, or one that waits. " +
				"With --all that is for the dead messages that fit; cancel --all is for others.",
			state: shunt.StateDead,
			one:   func(ctx context.Context, q *shunt.Queue, r shunt.Ref) error { return q.Delete(ctx, r) },
			all:   deleteAll,
		}),
		a.verb(verb{
			name: "cancel", done: "cancelled", short: "End messages that wait, or are handled", destructive: true,
			long: "End a message: one that waits is not handled, and the handler's context of one that is handled " +
				"ends. With --all --state prepare, delay or suspect that is for the messages there that fit.",
			one: func(ctx context.Context, q *shunt.Queue, r shunt.Ref) error {
				_, err := q.Cancel(ctx, r)
				return err
			},
			all: func(ctx context.Context, q *shunt.Queue, c string, s shunt.State,
				f shunt.Filter) (shunt.BulkResult, error) {
				return q.CancelAll(ctx, c, s, f)
			},
		}),
		postpone,
		a.verb(verb{
			name: "promote", done: "promoted", short: "Make delayed messages due now", state: shunt.StateDelay,
			long: "Make a delayed message due now. With --all that is for those that fit: --min-attempts 1 runs all " +
				"retries now.",
			one: func(ctx context.Context, q *shunt.Queue, r shunt.Ref) error { return q.Promote(ctx, r) },
			all: func(ctx context.Context, q *shunt.Queue, c string, _ shunt.State,
				f shunt.Filter) (shunt.BulkResult, error) {
				return q.PromoteAll(ctx, c, f)
			},
		}),
		purgeCommand(a),
	}
}

func retryAll(ctx context.Context, q *shunt.Queue, c string, _ shunt.State, f shunt.Filter) (shunt.BulkResult, error) {
	return q.RetryAllDead(ctx, c, f)
}

func deleteAll(ctx context.Context, q *shunt.Queue, c string, _ shunt.State, f shunt.Filter) (shunt.BulkResult, error) {
	return q.DeleteAllDead(ctx, c, f)
}

func postponeAll(
	ctx context.Context, q *shunt.Queue, channel string, f shunt.Filter, to shunt.Option,
) (b shunt.BulkResult, err error) {
	o := shunt.BrowseOptions{Channel: channel, State: shunt.StateDelay, From: f.From, Limit: 100, Filter: f}
	o.Filter.From, o.Filter.Limit = "", 0 // it has bounds of its own
	// Where this clock is ahead of that of Redis, what was postponed fits again. Most of it lies behind what there was.
	last, err := q.Browse(ctx, shunt.BrowseOptions{Channel: channel, State: shunt.StateDelay, Latest: true, Limit: 1})
	if err != nil {
		return b, err
	}
	for _, e := range last.Entries {
		if e.DueAt.Before(o.Filter.Until) {
			o.Filter.Until = e.DueAt
		}
	}
	for b.Next = f.From; ; {
		page, err := q.Browse(ctx, o)
		if err != nil {
			return b, err
		}
		for _, e := range page.Entries {
			if err := q.Postpone(ctx, e.Ref(), to); errors.Is(err, shunt.ErrNotFound) ||
				errors.Is(err, shunt.ErrRunning) || errors.Is(err, shunt.ErrWaiting) {
				b.Refused++ // it was due meanwhile
			} else if err != nil {
				return b, err
			} else if b.Changed++; b.Changed == f.Limit {
				return b, nil // the next call finds the rest, for these are due later
			}
		}
		b.Looked += page.Looked
		b.Next, o.From = page.Next, page.Next
		if b.Next == "" {
			return b, nil
		}
	}
}
