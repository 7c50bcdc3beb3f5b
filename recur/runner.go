package recur

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/event"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/store"
)

const (
	startTimeout = 5 * time.Second
	pollEvery    = 5 * time.Second // finds what no hint reported; a poll is two small commands
	maxHints     = 10000           // that wait to be read; beyond that the whole table is read again
)

// Run enqueues the recurring messages of channels at their ticks, until ctx ends or shutdown is called. Any number of
// processes may run a channel, and each tick is enqueued once. Without a runner a channel enqueues none.
//
// The error says what is wrong with the channels, the Queue or Redis. It comes after at most 5 s, and then nothing is
// left running. If Redis goes away later, Run waits for it, and Events of kind shunt.EventReceiverError say why.
//
// An idle channel costs Redis two small commands every 5 s. A tick costs one script, and one more from each process
// that may not subscribe.
//
// shutdown waits for commands under way until its ctx ends, and then cancels them; it returns nil. Call it before
// Queue.Close. A closed Queue ends Run too, but only when the runner next asks Redis, after at most 5 s.
func (t *Timetable) Run(ctx context.Context, channels ...string) (shutdown shunt.Shutdown, err error) {
	if ctx == nil {
		return nil, errors.New("recur: run: the context is nil: want one, such as context.Background()")
	}
	if len(channels) == 0 {
		return nil, errors.New("recur: run: no channel: want those of the recurring messages")
	}
	engine, err := queues.Open(t.Queue)
	if err != nil {
		return nil, err
	}
	requests, cancelRequests := context.WithCancel(context.WithoutCancel(ctx))
	running, stop := context.WithCancel(ctx)
	var runners []*runner
	start, cancelStart := context.WithTimeout(ctx, startTimeout)
	defer cancelStart()
	seen := make(map[string]bool)
	for _, channel := range channels {
		if seen[channel] {
			continue
		}
		seen[channel] = true
		r := newRunner(engine, channel, running, requests)
		if err := r.readTable(start); err != nil {
			stop()
			cancelRequests()
			return nil, fmt.Errorf("recur: run channel %q: %w", channel, err)
		}
		runners = append(runners, r)
	}
	var group errgroup.Group
	for _, r := range runners {
		group.Go(func() error {
			r.run()
			return nil
		})
	}
	ended := make(chan struct{})
	go func() {
		_ = group.Wait() // no runner returns an error
		stop()
		cancelRequests()
		close(ended)
	}()
	return func(ctx context.Context) error {
		stop()
		select {
		case <-ended:
		case <-ctx.Done():
			cancelRequests()
			<-ended
		}
		return nil
	}, nil
}

// runner enqueues the ticks of one channel in one process.
type runner struct {
	engine   engine
	channel  string
	keys     *store.Keys
	running  context.Context // its end ends the runner
	requests context.Context // of commands; it ends later than running

	// Owned by the runner's goroutine.
	known      map[string]*recurrence // by name
	scheduled  dueHeap
	clock      clock
	mark       string    // as read last
	nextPoll   time.Time // when to compare the mark
	maxFirings int       // in one pipeline: 1 after an error, so that the next error concerns one message
	holdoff    link.Holdoff

	wake      chan struct{} // of capacity 1: hints or requests wait
	connected chan struct{} // of capacity 1: the subscription is confirmed, for the first time or again

	mu            sync.Mutex
	hints         []string // payloads that wait to be read
	pollRequested bool
	readRequested bool // of the whole table
}

func newRunner(e engine, channel string, running, requests context.Context) *runner {
	return &runner{
		engine: e, channel: channel, keys: store.KeysOf(channel), running: running, requests: requests,
		known: make(map[string]*recurrence), maxFirings: maxFirings,
		wake: make(chan struct{}, 1), connected: make(chan struct{}, 1),
	}
}

// run is the runner's goroutine.
func (r *runner) run() {
	hints := r.engine.Hints(r.channel)
	l := hints.Listen(r.keys.Recur, r.hint, func(listening bool) {
		if listening { // hints that were published before did not arrive
			r.requestPoll(false)
			signal(r.connected)
		}
	})
	defer func() {
		ctx, cancel := context.WithTimeout(r.requests, time.Second)
		defer cancel()
		hints.Forget(ctx, l)
	}()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for r.running.Err() == nil {
		err := r.step()
		if errors.Is(err, shunt.ErrClosed) {
			return
		}
		if err != nil {
			timer.Reset(r.holdoff.Refuse(err))
			r.reportError(err)
			select {
			case <-timer.C:
			case <-r.connected:
			case <-r.running.Done():
			}
			continue
		}
		r.holdoff = link.Holdoff{}
		timer.Reset(r.untilNext())
		select {
		case <-timer.C:
		case <-r.wake:
		case <-r.running.Done():
		}
	}
}

// untilNext is the time until the next poll or firing.
func (r *runner) untilNext() time.Duration {
	wait := time.Until(r.nextPoll)
	if len(r.scheduled) > 0 {
		wait = min(wait, r.clock.until(r.scheduled[0].due))
	}
	return max(wait, 0)
}

// step reads what hints and polls report, and fires what is due, one pipeline of it.
func (r *runner) step() error {
	r.mu.Lock()
	hints, poll, all := r.hints, r.pollRequested, r.readRequested
	r.hints, r.pollRequested, r.readRequested = nil, false, false
	r.mu.Unlock()

	if err := r.refresh(hints, poll, all); err != nil {
		r.requestPoll(true) // it also finds what the hints reported
		return err
	}
	return r.fire()
}

func (r *runner) reportError(err error) {
	if r.running.Err() == nil {
		r.engine.Emit(event.Event{Kind: event.ReceiverError, Channel: r.channel,
			Err: fmt.Errorf("recur: channel %q: %w", r.channel, err)})
	}
}

// hint keeps the payload of a hint: a head, and the name of its record.
func (r *runner) hint(payload string) {
	r.mu.Lock()
	if len(r.hints) < maxHints {
		r.hints = append(r.hints, payload)
	} else {
		r.readRequested = true
	}
	r.mu.Unlock()
	signal(r.wake)
}

// requestPoll has the next step poll at once, or read the whole table.
func (r *runner) requestPoll(all bool) {
	r.mu.Lock()
	r.pollRequested, r.readRequested = true, r.readRequested || all
	r.mu.Unlock()
	signal(r.wake)
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
