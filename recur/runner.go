package recur

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/inside"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/store"
)

const (
	startTimeout = 5 * time.Second
	lookEvery    = 5 * time.Second // for what no hint told; it costs two small commands

	// Who did not fire a message last waits for so long behind its tick, to hear of it: a round trip, and jitter.
	giveWay       = 3
	giveWayJitter = 7 // ms

	mostScripts  = 64      // of one pipeline
	mostElements = 100     // of one script; a Policy may ask for more, and then it is fired more than once
	mostBytes    = 1 << 20 // of one script, unless one element alone is larger
	mostHints    = 10000   // that may wait; then all is read anew
)

// Run enqueues the recurring messages of channels at their ticks, until ctx ends or shutdown is called. Any number of
// processes may, and each tick is enqueued once; a channel in which nobody runs enqueues none. The error says what is
// wrong with the channels, the Queue or Redis, after at most 5 s, and then nothing is left running. A Redis that goes
// away later is waited for; meanwhile Events "receiver-error" tell why. An idle channel costs Redis two small commands
// every 5 s, a tick one script and, from processes that cannot subscribe, one more each.
//
// shutdown waits for what is under way until its ctx ends, and then cuts that short; it returns nil. Call it before
// Queue.Close: a closed Queue ends it, too, but only when it next asks Redis, after at most 5 s.
func (t *Timetable) Run(ctx context.Context, channels ...string) (shutdown shunt.Shutdown, err error) {
	if len(channels) == 0 {
		return nil, errors.New("recur: run: no channel: want those of the recurring messages")
	}
	door, err := inside.Open(t.Queue)
	if err != nil {
		return nil, err
	}
	hard, cut := context.WithCancel(context.WithoutCancel(ctx))
	soft, stop := context.WithCancel(ctx)
	seen := make(map[string]bool)
	var runners []*runner
	start, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for _, channel := range channels {
		if seen[channel] {
			continue
		}
		seen[channel] = true
		r := &runner{door: door, channel: channel, keys: store.KeysOf(channel), soft: soft, hard: hard,
			entries: make(
				map[string]*entry,
			), most: mostScripts, wake: make(chan struct{}, 1), back: make(chan struct{}, 1)}
		if err := r.readAll(start); err != nil {
			stop()
			cut()
			return nil, fmt.Errorf("recur: run channel %q: %w", channel, err)
		}
		runners = append(runners, r)
	}
	var g errgroup.Group
	for _, r := range runners {
		g.Go(func() error {
			r.run()
			return nil
		})
	}
	ended := make(chan struct{})
	go func() {
		_ = g.Wait() // no runner returns an error
		stop()
		cut()
		close(ended)
	}()
	return func(ctx context.Context) error {
		stop()
		select {
		case <-ended:
		case <-ctx.Done():
			cut()
			<-ended
		}
		return nil
	}, nil
}

// entry is a recurring message in a runner's hands.
type entry struct {
	name string
	record
	mine  bool         // this runner fired it last
	due   int64        // when to try, ms of the clock of Redis
	place int          // in the heap; -1: not there
	off   link.Holdoff // of refusals that concern it alone
	// the writer of its next write, however often that is tried: found in a head, it says that one of the tries was
	// executed
	pen string
}

// runner enqueues the ticks of one channel in one process.
type runner struct {
	door    inside.Door
	channel string
	keys    *store.Keys
	soft    context.Context // ends: nothing more is begun
	hard    context.Context // ends: what is under way is cut short

	// Its goroutine's own.
	entries map[string]*entry
	heap    queue // of those that are to be tried, by due
	clock   clock
	mark    string    // as read last
	look    time.Time // of the next look
	most    int       // scripts of one pipeline: one after an error, so that it concerns one message
	off     link.Holdoff

	wake chan struct{} // of capacity 1: there are hints, or what follows
	back chan struct{} // likewise: the subscription is, or is there again

	mu    sync.Mutex
	heard []string // hints not yet taken in
	asked bool     // a look is due at once
	anew  bool     // all is to be read, because hints are missing
}

// run is the runner's goroutine.
func (r *runner) run() {
	hints := r.door.Hints(r.channel)
	l := hints.Listen(r.keys.Recur, r.hint, func(listening bool) {
		if listening { // what was published before was not heard
			r.ask(false)
			poke(r.back)
		}
	})
	defer func() {
		ctx, cancel := context.WithTimeout(r.hard, time.Second)
		defer cancel()
		hints.Forget(ctx, l)
	}()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for r.soft.Err() == nil {
		err := r.step()
		if errors.Is(err, shunt.ErrClosed) {
			return
		}
		if err != nil {
			timer.Reset(r.off.Refuse(err))
			r.trouble(err)
			select {
			case <-timer.C:
			case <-r.back:
			case <-r.soft.Done():
			}
			continue
		}
		r.off = link.Holdoff{}
		wait := time.Until(r.look)
		if len(r.heap) > 0 {
			wait = min(wait, r.clock.until(r.heap[0].due))
		}
		timer.Reset(max(wait, 0))
		select {
		case <-timer.C:
		case <-r.wake:
		case <-r.soft.Done():
		}
	}
}

func (r *runner) trouble(err error) {
	if r.soft.Err() == nil {
		r.door.Emit(
			string(shunt.EventReceiverError),
			r.channel,
			"",
			"",
			0,
			time.Time{},
			fmt.Errorf("recur: channel %q: %w", r.channel, err),
		)
	}
}

// hint takes what was published: a head, and the name whose it is.
func (r *runner) hint(payload string) {
	r.mu.Lock()
	if len(r.heard) < mostHints {
		r.heard = append(r.heard, payload)
	} else {
		r.anew = true
	}
	r.mu.Unlock()
	poke(r.wake)
}

// ask has a look made at once, or all read.
func (r *runner) ask(anew bool) {
	r.mu.Lock()
	r.asked, r.anew = true, r.anew || anew
	r.mu.Unlock()
	poke(r.wake)
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
