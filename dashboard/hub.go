package dashboard

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/shuntmq/shunt"
)

// While messages move, all is looked at in each poll. At rest a poll is an INFO, and a PING before it, as for each
// connection that was idle for a second; one channel is looked at in so many polls, two commands; and Health is an INFO
// more. In all that is 0.92 commands a second, however many channels there are.
const (
	pollEvery   = 2 * time.Second
	restEvery   = 3 * time.Second
	turnPolls   = 3
	healthEvery = 30 * time.Second
)

const (
	// settleFor is how long all is looked at after the last move: by then its process has added its counts.
	settleFor = 12 * time.Second
	// lately is how far back counts of an Overview go.
	lately = 10 * time.Minute
	// maxStreams bounds the browsers that listen at once.
	maxStreams = 1000
)

// sight is a channel as it was when it was asked for.
type sight struct {
	o  *shunt.Overview
	at time.Time
}

// now is the channel by now, if nothing has moved there since.
func (s sight) now() shunt.Overview {
	o, d := *s.o, time.Since(s.at)
	if o.OldestAge > 0 {
		o.OldestAge += d
	}
	if o.NextDueIn != 0 {
		o.NextDueIn -= d
	}
	if o.LeaseEndsIn != 0 {
		o.LeaseEndsIn -= d
	}
	if d > lately {
		o.Lately = shunt.Counts{From: o.Lately.From.Add(d), To: o.Lately.To.Add(d)}
		o.Trend, o.TrendOver = 0, 0
	}
	return o
}

// snapshot is what the poller knows. It is not written to once it is sent.
type snapshot struct {
	all      map[string]sight
	findings []shunt.Finding
	judged   bool // findings are known
	err      string
}

// now gives all channels as they are by now, where Redis still answers.
func (s *snapshot) now() []shunt.Overview {
	all := make([]shunt.Overview, 0, len(s.all))
	for _, one := range s.all {
		if s.err == "" {
			all = append(all, one.now())
		} else {
			all = append(all, *one.o)
		}
	}
	return all
}

// hub asks Redis for all live pages together, while there are any.
type hub struct {
	q      *shunt.Queue
	log    *slog.Logger
	busy   func() bool   // something moves, whatever Redis says
	settle time.Duration // settleFor

	// The poller's own, which the next one takes over: a page that is opened again begins nothing anew.
	moves                 int64
	moved, looked, judged time.Time // the last time; zero: not yet
	polls                 int       // at rest
	fresh                 snapshot

	mu     sync.Mutex
	ears   map[chan *snapshot]string // the channel that each shows; empty: all
	seen   map[string]sight          // by the poller, and by pages
	stop   context.CancelFunc        // of the poller that runs; nil: none does
	ended  chan struct{}             // closed by the poller that was started last
	last   *snapshot                 // of the poller that runs
	gone   chan struct{}             // closed by close
	closed bool
}

func newHub(q *shunt.Queue, log *slog.Logger, busy func() bool) *hub {
	return &hub{q: q, log: log, busy: busy, settle: settleFor, ears: make(map[chan *snapshot]string),
		seen: make(map[string]sight), gone: make(chan struct{})}
}

// listen gives a channel of snapshots, of which the latest counts, for a page of one channel or of all; nil: there are
// too many listeners.
func (h *hub) listen(only string) chan *snapshot {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || len(h.ears) >= maxStreams {
		return nil
	}
	ear := make(chan *snapshot, 1)
	h.ears[ear] = only
	if h.last != nil {
		s := *h.last
		s.all = maps.Clone(h.seen) // the page itself may have looked since
		ear <- &s
	}
	if h.stop == nil {
		ctx, stop := context.WithCancel(context.Background())
		before, ended := h.ended, make(chan struct{})
		h.stop, h.ended = stop, ended
		go h.poll(ctx, before, ended)
	}
	return ear
}

// leave ends a listener, and with the last one the poller.
func (h *hub) leave(ear chan *snapshot) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.ears, ear)
	if len(h.ears) == 0 && h.stop != nil {
		h.stop()
		h.stop, h.last = nil, nil
	}
}

func (h *hub) close() {
	h.mu.Lock()
	if !h.closed {
		h.closed = true
		close(h.gone)
	}
	if h.stop != nil {
		h.stop()
		h.stop = nil
	}
	ended := h.ended
	h.mu.Unlock()
	if ended != nil {
		<-ended
	}
}

// poll looks until ctx ends. The poller before it has ended, or will.
func (h *hub) poll(ctx context.Context, before, ended chan struct{}) {
	defer close(ended)
	if before != nil {
		<-before
	}
	for first := true; ctx.Err() == nil; first = false {
		began := time.Now()
		moves, err := h.q.Moves(ctx)
		if ctx.Err() != nil {
			return // the last page has left: what is known stays as it is, for the next poller
		}
		if err != nil || moves != h.moves || h.moved.IsZero() || h.fresh.err != "" || h.busy() {
			h.moves, h.moved = moves, began
		}
		every, due := pollEvery, true
		if h.looked.Before(h.moved.Add(h.settle)) {
			h.look(ctx, began)
		} else {
			every = restEvery
			h.polls++
			if due = h.polls%turnPolls == 0; due {
				h.turn(ctx, began)
			}
		}
		if due || first {
			h.judge(ctx)
			h.tell(ctx)
		}
		timer := time.NewTimer(time.Until(began.Add(every)))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

// look looks at all channels.
func (h *hub) look(ctx context.Context, began time.Time) {
	all, err := h.q.Overview(ctx)
	if h.failed(ctx, err) {
		return
	}
	h.looked = began
	h.learn(all, began, true)
}

// turn looks at the channel that was not looked at for longest: in turns of those that somebody looks at, of those with
// receivers, which may be killed without a command, and of all.
func (h *hub) turn(ctx context.Context, began time.Time) {
	h.mu.Lock()
	open := make(map[string]bool)
	for _, only := range h.ears {
		open[only] = true
	}
	kind := h.polls / turnPolls % 3
	var next string
	var best int
	for name, s := range h.seen {
		fits := 0
		if kind == 0 && open[name] || kind == 1 && s.o.Receivers+s.o.Leases > 0 {
			fits = 1
		}
		if next == "" || fits > best || fits == best && s.at.Before(h.seen[next].at) {
			next, best = name, fits
		}
	}
	h.mu.Unlock()
	if next == "" {
		return
	}
	if all, err := h.q.Overview(ctx, next); !h.failed(ctx, err) {
		h.learn(all, began, false)
	}
}

// failed takes in an error, of which the next look finds out whether it is over.
func (h *hub) failed(ctx context.Context, err error) bool {
	if h.fresh.err = ""; err != nil && ctx.Err() == nil {
		h.fresh.err = err.Error()
	}
	return err != nil
}

// learn takes in what was asked for at a time: all that there are, or some.
func (h *hub) learn(some []shunt.Overview, at time.Time, all bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	seen := h.seen
	if all {
		seen = make(map[string]sight, len(some))
	}
	for i := range some {
		name, now := some[i].Channel, sight{&some[i], at}
		if was, is := h.seen[name]; is && was.at.After(at) {
			now = was
		} else if !is && !all {
			continue // of a page, which may be asked for whatever there is not
		}
		seen[name] = now
	}
	h.seen = seen
}

// judge asks for what is wrong, once in a while.
func (h *hub) judge(ctx context.Context) {
	h.mu.Lock()
	if len(h.seen) > 0 || !h.looked.IsZero() {
		h.fresh.all = maps.Clone(h.seen)
	}
	h.mu.Unlock()
	if time.Since(h.judged) < healthEvery || h.fresh.err != "" || h.fresh.all == nil {
		return
	}
	if found, err := h.q.HealthOf(ctx, h.fresh.now()); !h.failed(ctx, err) {
		h.fresh.findings, h.fresh.judged, h.judged = found, true, time.Now()
	}
}

func (h *hub) tell(ctx context.Context) {
	s := h.fresh
	h.mu.Lock()
	defer h.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	h.last = &s
	for ear := range h.ears {
		select {
		case <-ear: // it has not seen the one before
		default:
		}
		ear <- &s
	}
}
