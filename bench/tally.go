package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"time"
)

// tally sees to it that every message is handled exactly once, and when.
type tally struct {
	seen           []atomic.Bool // by number
	want           int64         // how many are to be handled
	count, doubled atomic.Int64  // numbers seen, and seen again
	busy           atomic.Int64  // ns that handlers took
	epoch          time.Time     // that first and last count from, so that they are monotonic
	first, last    atomic.Int64  // ns; when the first handler started and the last wanted one ended
	all            chan struct{} // closed with the last wanted one
}

func newTally(seen []atomic.Bool, want int) *tally {
	return &tally{seen: seen, want: int64(want), epoch: time.Now(), all: make(chan struct{})}
}

// handle is a handler that does nothing.
func (t *tally) handle(payload []byte) {
	if t.first.Load() == 0 {
		t.first.CompareAndSwap(0, int64(time.Since(t.epoch)))
	}
	i := binary.BigEndian.Uint64(payload)
	if i >= uint64(len(t.seen)) || t.seen[i].Swap(true) {
		t.doubled.Add(1)
		return
	}
	if t.count.Add(1) == t.want {
		t.last.Store(int64(time.Since(t.epoch)))
		close(t.all)
	}
}

// handler is one that waits so long, and measures how long it was in truth.
func (t *tally) handler(wait time.Duration) func([]byte) {
	if wait == 0 {
		return t.handle
	}
	return func(payload []byte) {
		began := time.Now()
		if t.first.Load() == 0 {
			t.first.CompareAndSwap(0, int64(began.Sub(t.epoch)))
		}
		time.Sleep(wait)
		t.busy.Add(int64(time.Since(began)))
		t.handle(payload)
	}
}

// wait returns when all that is wanted has come, or nothing for as long as stall.
func (t *tally) wait(ctx context.Context, stall time.Duration) error {
	look := time.NewTicker(stall)
	defer look.Stop()
	for before := int64(-1); ; before = t.count.Load() {
		select {
		case <-t.all:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-look.C:
			if t.count.Load() == before {
				return fmt.Errorf("nothing more was handled for %v", stall)
			}
		}
	}
}

// verdict is to be asked when the workers have ended, because a double may come after the last.
func (t *tally) verdict() error {
	return verdict(int(t.want), int(max(0, t.want-t.count.Load())), int(t.doubled.Load()))
}

func verdict(n, lost, again int) error {
	if lost == 0 && again == 0 {
		return nil
	}
	return fmt.Errorf("of %d messages %d were not handled, %d were handled again", n, lost, again)
}

// rate is what was handled ÷ the time from the first handler's start to the last one's end.
func (t *tally) rate() float64 {
	return float64(t.want) / time.Duration(t.last.Load()-t.first.Load()).Seconds()
}

// mean is how long a handler took by its own measure.
func (t *tally) mean() time.Duration {
	return time.Duration(t.busy.Load() / max(1, t.count.Load()+t.doubled.Load()))
}

// expect is the end of every count: what was enqueued and not handled lies in Redis still.
func expect(ctx context.Context, q queue, want int) error {
	n, err := q.left(ctx)
	if err != nil {
		return fmt.Errorf("count what is left: %w", err)
	}
	if n != want {
		return fmt.Errorf("there are %d messages in Redis, not %d", n, want)
	}
	return nil
}
