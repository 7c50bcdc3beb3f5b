package dashboard

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/shuntmq/shunt"
)

const (
	pollEvery = 2 * time.Second
	// While no messages move, which one command tells, all is looked at once in so long. Longer where there are many
	// channels, with two commands each: so an idle page costs less than a command a second.
	restFor, restMost = 30 * time.Second, 5 * time.Minute
	// settleFor is how long all is looked at after the last move: by then its process has added its counts.
	settleFor = 12 * time.Second
	// healthEvery is how many polls there are for one of Health, which costs as much as an Overview.
	healthEvery = 15
	// maxStreams bounds the browsers that listen at once.
	maxStreams = 1000
	// streamFor ends a stream, and the browser opens another one, so that whoever may not see it any more is found out.
	streamFor = 10 * time.Minute
	// writeFor bounds how long a browser may take to read an event.
	writeFor = 10 * time.Second
)

// snapshot is what the poller saw. It is not written to once it is sent.
type snapshot struct {
	all      map[string]*shunt.Overview
	findings []shunt.Finding
	judged   bool // findings are known
	err      string
}

// hub asks Redis for all live pages together, while there are any.
type hub struct {
	q      *shunt.Queue
	log    *slog.Logger
	settle time.Duration // settleFor

	mu     sync.Mutex
	ears   map[chan *snapshot]bool
	stop   context.CancelFunc // of the poller that runs; nil: none does
	ended  chan struct{}      // closed by the poller that was started last
	last   *snapshot          // of the poller that runs
	gone   chan struct{}      // closed by close
	closed bool
}

func newHub(q *shunt.Queue, log *slog.Logger) *hub {
	return &hub{q: q, log: log, settle: settleFor, ears: make(map[chan *snapshot]bool), gone: make(chan struct{})}
}

// listen gives a channel of snapshots, of which the latest counts; nil: there are too many listeners.
func (h *hub) listen() chan *snapshot {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || len(h.ears) >= maxStreams {
		return nil
	}
	ear := make(chan *snapshot, 1)
	h.ears[ear] = true
	if h.last != nil {
		ear <- h.last
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

// poll looks at once and then every 2 s while messages move, until ctx ends. The poller before it has ended, or will.
func (h *hub) poll(ctx context.Context, before, ended chan struct{}) {
	defer close(ended)
	if before != nil {
		<-before
	}
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	var s snapshot
	var moves int64
	var moved, looked time.Time
	for n := 0; ctx.Err() == nil; {
		if now, err := h.q.Moves(ctx); err != nil || now != moves || s.err != "" || n == 0 {
			moves, moved = now, time.Now()
		}
		rest := min(restMost, max(restFor, time.Duration(2*len(s.all))*pollEvery))
		if time.Since(moved) < h.settle || time.Since(looked) >= rest {
			s, looked = h.look(ctx, s, n%healthEvery == healthEvery-1), time.Now()
			h.tell(ctx, s)
			n++
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// look asks Redis; where it fails, the numbers stay as they were.
func (h *hub) look(ctx context.Context, s snapshot, health bool) snapshot {
	all, err := h.q.Overview(ctx)
	if err == nil && health {
		s.findings, err = h.q.Health(ctx)
		s.judged = err == nil
	}
	if s.err = ""; err != nil {
		if ctx.Err() == nil {
			s.err = err.Error()
		}
		return s
	}
	s.all = make(map[string]*shunt.Overview, len(all))
	for i := range all {
		s.all[all[i].Channel] = &all[i]
	}
	return s
}

func (h *hub) tell(ctx context.Context, s snapshot) {
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

// event is what a browser gets: the fields that have changed of each channel, by the names that the templates use.
type event struct {
	Rows  map[string]map[string]string `json:"rows,omitempty"`
	Error string                       `json:"error"`
	Stale bool                         `json:"stale,omitempty"` // channels or findings have come or gone: load again
}

// live streams what changes on the page of the same query, the overview or a page of one channel.
func (q *request) live() error {
	if q.r.Method != http.MethodGet {
		return refuse(http.StatusMethodNotAllowed, "dashboard: a stream wants GET")
	}
	ear := q.hub.listen()
	if ear == nil {
		return refuse(http.StatusServiceUnavailable, "dashboard: more than %d pages are live", maxStreams)
	}
	defer q.hub.leave(ear)
	q.w.Header().Set("Content-Type", "text/event-stream")
	q.w.Header().Set("X-Accel-Buffering", "no") // nginx would keep events back
	out := http.NewResponseController(q.w)
	send := func(text string) bool {
		_ = out.SetWriteDeadline(time.Now().Add(writeFor)) // a writer without deadlines has none to mind
		_, err := fmt.Fprint(q.w, text)
		return err == nil && out.Flush() == nil
	}
	end := time.NewTimer(streamFor)
	defer end.Stop()
	p := &pageState{request: q, only: q.form.Get("c")}
	for ok := send("retry: 3000\n\n"); ok; {
		select {
		case s := <-ear:
			body, err := json.Marshal(p.changes(s))
			if err != nil {
				return nil // it has no value that JSON lacks
			}
			ok = send("data: " + string(body) + "\n\n")
		case <-q.r.Context().Done():
			return nil
		case <-q.hub.gone:
			return nil
		case <-end.C:
			return nil
		}
	}
	return nil
}

// pageState is what a live page shows by now.
type pageState struct {
	*request
	only     string // one channel's page
	shown    map[string]map[string]string
	findings []shunt.Finding
	judged   bool
}

func (p *pageState) changes(s *snapshot) event {
	e := event{Error: s.err, Rows: make(map[string]map[string]string)}
	if s.all == nil {
		return e
	}
	now := make(map[string]map[string]string)
	if p.only != "" {
		if o := s.all[p.only]; o != nil {
			now[p.only] = p.fields(o)
			p.jobFields(p.only, now[p.only])
		}
	} else {
		all := make([]shunt.Overview, 0, len(s.all))
		for _, o := range s.all {
			all = append(all, *o)
		}
		page := p.arrange(all)
		for i := range page.Rows {
			now[page.Rows[i].O.Channel] = page.Rows[i].Fields
		}
		now[""] = page.Sum
		e.Stale = p.shown != nil && len(all) != atoi(p.shown[""]["channels.raw"])
		if s.judged {
			e.Stale = e.Stale || p.judged && !sameKinds(p.findings, s.findings)
			p.findings, p.judged = s.findings, true
		}
	}
	for name, fields := range now {
		for key, text := range fields {
			if old, is := p.shown[name][key]; !is || old != text {
				if e.Rows[name] == nil {
					e.Rows[name] = make(map[string]string)
				}
				e.Rows[name][key] = text
			}
		}
	}
	p.shown = now
	return e
}

func sameKinds(a, b []shunt.Finding) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].Kind != b[i].Kind || a[i].Channel != b[i].Channel {
			return false
		}
	}
	return true
}
