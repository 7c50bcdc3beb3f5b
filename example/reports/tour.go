package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/recur"
)

const limit = 25 * time.Second // of all acts

// tour is what the first process does beside being an office: it directs the acts, and keeps the archive.
type tour struct {
	*office
	url string // of the Redis, for the other office

	act      string
	west     *errgroup.Group // waits for the other office
	lifeline io.Closer       // its standard input; nil before it is started

	ticks     map[int64]int  // reports that recur and are filed, by tick, in s since 1970
	by        map[string]int // the same, by who made them
	made      []string       // to order
	cancelled int
	counted   string // what act 1 found
}

func newTour(o *office, url string) *tour {
	return &tour{office: o, url: url, ticks: make(map[int64]int), by: make(map[string]int)}
}

// startWest starts the other office. If it ends before its time so do the acts.
func (t *tour) startWest() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	west := exec.Command(self, "-second", "west")
	west.Env = append(os.Environ(), "REDIS_URL="+t.url) // its arguments would show the password to all
	west.Stdout, west.Stderr = os.Stdout, os.Stderr
	if t.lifeline, err = west.StdinPipe(); err != nil {
		return err
	}
	if err := west.Start(); err != nil {
		return fmt.Errorf("start the other office: %w", err)
	}
	t.west.Go(func() error {
		if err := west.Wait(); err != nil {
			return fmt.Errorf("the other office: %w", err)
		}
		return nil
	})
	return nil
}

// recurring lets the timetable be run by the first office, then by both, then by the second alone.
func (t *tour) recurring(ctx context.Context) error {
	t.heading(ctx, "1. A report every second: two offices run the timetable, and no tick doubles")
	if err := t.open(ctx, t.filed); err != nil {
		return err
	}
	filed := func(ticks int) error { return t.await(ctx, func() bool { return t.reports() >= ticks }) }
	if err := filed(1); err != nil {
		return err
	}
	if err := errors.Join(t.startWest(), filed(4)); err != nil {
		return err
	}
	if err := t.ticking(ctx); err != nil {
		return err
	}
	t.tell("left", "the timetable, which goes on: it is in Redis, and no process leads")
	if err := filed(7); err != nil {
		return err
	}
	channel := t.takings.Channel()
	if err := t.table.Pause(ctx, channel, "takings"); err != nil {
		return err
	}
	entries, err := t.table.List(ctx, channel)
	if err != nil || len(entries) == 0 {
		return cmp.Or(err, recur.ErrNotFound)
	}
	count := entries[0].Count
	t.tell("paused", "the timetable, after %d ticks", count)
	if err := filed(count); err != nil {
		return err
	}
	at := slices.Sorted(maps.Keys(t.ticks))
	t.counted = fmt.Sprintf("seconds %d, ticks %d, reports %d, doubles %d", at[len(at)-1]-at[0]+1, count, t.reports(),
		t.reports()-len(t.ticks))
	t.tell("counted", "%s (made in east %d, in west %d)", t.counted, t.by["east"], t.by["west"])
	return nil
}

// unique has a report asked for in both offices at once.
func (t *tour) unique(ctx context.Context) error {
	t.heading(ctx, "2. Asked for in both offices at once, made once: the second is told where the first is")
	g, both := errgroup.WithContext(ctx)
	g.Go(func() error { return t.visitWest(both, "stock") })
	g.Go(func() error { return t.serve(both, "stock") })
	if err := g.Wait(); err != nil {
		return err
	}
	return t.await(ctx, func() bool { return len(t.made) >= 1 })
}

// visitWest has a customer served in the other office: with ID, Retain and Wait a message is a call, and its end the
// reply.
func (t *tour) visitWest(ctx context.Context, name string) error {
	id := "customer for " + name
	if err := t.q.Enqueue(ctx, t.visit.Message(name), shunt.ID(id), shunt.Retain(time.Minute),
		shunt.MaxAttempts(1)); err != nil {
		return err
	}
	end, err := t.q.Wait(ctx, shunt.ByID(t.visit.Channel(), id))
	if err == nil && end.Kind != shunt.EventAcked {
		err = fmt.Errorf("the customer in west was not served: %s", end.Failure)
	}
	return err
}

// waiting has customers wait here for what is made in the other office.
func (t *tour) waiting(ctx context.Context) error {
	t.heading(ctx, "3. A customer waits in one office for what the other makes")
	if err := t.making(ctx); err != nil {
		return err
	}
	t.tell("closed", "its workshop: from now on west makes what is ordered")
	if err := t.serve(ctx, "sales"); err != nil {
		return err
	}
	t.tell("asks", "for sales, a second time: what became of it is kept for a minute")
	if err := t.collect(ctx, "sales"); err != nil {
		return err
	}
	return t.await(ctx, func() bool { return len(t.made) >= 2 })
}

// cancelling takes back a report that is being made in the other office, and one that waits behind it.
func (t *tour) cancelling(ctx context.Context) error {
	t.heading(ctx, "4. Cancelled: one that is being made in the other office, and one that waits")
	if err := t.order(ctx, "year", time.Minute); err != nil {
		return err
	}
	// Nobody tells of a beginning: one looks.
	for state := shunt.StatePrepare; state != shunt.StateDoing; {
		s, err := t.q.Status(ctx, shunt.ByID(t.report.Channel(), "year"))
		if err == nil {
			state, err = s.State, wait(ctx, 50*time.Millisecond)
		}
		if err != nil {
			return err
		}
	}
	if err := t.order(ctx, "decade", time.Minute); err != nil {
		return err
	}
	if err := wait(ctx, 500*time.Millisecond); err != nil {
		return err
	}
	for _, name := range []string{"decade", "year"} { // the other way round, west would begin decade in between
		before, err := t.q.Cancel(ctx, shunt.ByID(t.report.Channel(), name))
		if err != nil {
			return err
		}
		t.cancelled++
		t.tell("cancelled", "%s, which was in state %s", name, before.State)
	}
	if err := t.serve(ctx, "week"); err != nil { // before which west comes upon decade
		return err
	}
	return t.await(ctx, func() bool { return len(t.made) >= 3 })
}

// await takes in what is filed until there is enough.
func (t *tour) await(ctx context.Context, enough func() bool) error {
	for !enough() {
		select {
		case f := <-t.arrived:
			if f.Tick.IsZero() {
				t.made = append(t.made, f.What)
				continue
			}
			t.ticks[f.Tick.Unix()]++
			t.by[f.By]++
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// reports counts those that recur.
func (t *tour) reports() int { return t.by["east"] + t.by["west"] }

// heading begins an act, after a pause to read the last one.
func (t *tour) heading(ctx context.Context, act string) {
	if t.act != "" {
		_ = wait(ctx, 800*time.Millisecond) // what comes next sees that ctx has ended
	}
	t.act = act
	fmt.Printf("\n%s\n", act)
}

// play runs the acts, and in any case shuts down what has begun.
func (t *tour) play(ctx context.Context) error {
	began := time.Now()
	limited, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the acts have taken more than %v", limit))
	defer cancel()
	var acting context.Context
	t.west, acting = errgroup.WithContext(limited)
	_, err := t.clear(acting)
	for _, act := range []func(context.Context) error{t.recurring, t.unique, t.waiting, t.cancelling} {
		if err == nil {
			err = act(acting)
		}
	}
	how := fmt.Sprintf("All done after %.1f s: %s; to order: made %s; cancelled %d", time.Since(began).Seconds(),
		t.counted, strings.Join(t.made, ", "), t.cancelled)
	if ctx.Err() != nil {
		t.tell("Ctrl-C", "shutting down; what has begun may end")
		how, err = fmt.Sprintf("Interrupted in act %.1s and shut down", t.act), nil
	}
	if t.lifeline != nil {
		_ = t.lifeline.Close() // fails only where west has ended
	}
	if e := t.west.Wait(); e != nil {
		err = e // for which the act has ended, too
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*patience)
	defer cancel()
	t.close(last)
	left, e := t.clear(last)
	if err = cmp.Or(err, e, t.q.Close()); err != nil {
		return err
	}
	fmt.Printf("\n%s; left over %d\n", how, left)
	return nil
}

// clear removes what this or an earlier, interrupted run has left: it is nobody's any more. It returns how many
// messages that were.
func (t *tour) clear(ctx context.Context) (int, error) {
	if err := t.table.Remove(ctx, t.takings.Channel(), "takings"); err != nil && !errors.Is(err, recur.ErrNotFound) {
		return 0, err
	}
	sum := 0
	for _, m := range []shunt.IMessage{t.takings, t.report, t.filed, t.visit} {
		n, err := t.q.Purge(ctx, m.Channel(), shunt.StatePrepare, shunt.StateDelay, shunt.StateSuspect, shunt.StateDead)
		if err == nil {
			_, err = t.q.Purge(ctx, m.Channel(), shunt.StateDone) // what Retain has kept
		}
		if err != nil {
			return sum, err
		}
		sum += n
	}
	return sum, nil
}
