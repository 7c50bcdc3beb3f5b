package top

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/shuntmq/shunt"
)

const (
	askWithin   = 3 * time.Second
	pageSize    = 100
	mostShown   = 64 << 10 // bytes of a payload
	partShown   = 120      // of a payload in a list
	mostHeld    = 200      // messages in workers' hands that are shown
	mostStarted = 20       // of these, those with an ID that are asked for when they began
)

// tick asks for the next look. Those of an older generation, from before a pause, are void.
type tick int

// loaded is what a look at Redis has brought for one screen.
type loaded struct {
	screen    screen
	at        time.Time
	err       error
	overviews []shunt.Overview
	detail    *detail
	page      *shunt.Page
	entry     *shunt.Entry
}

// detail is one channel, closely.
type detail struct {
	stats     shunt.Stats
	overview  shunt.Overview
	receivers []shunt.Receiver
	held      []shunt.Entry
	started   map[string]time.Time // by the serial of what is held
}

// done says what became of an action.
type done struct {
	text string
	err  error
}

// fetch looks at Redis for the screen that is shown.
func (m *model) fetch() tea.Cmd {
	s, q := m.screen, m.q
	m.busy = true
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(m.ctx, askWithin)
		defer cancel()
		l := loaded{screen: s}
		switch s.kind {
		case channelsScreen:
			l.overviews, l.err = q.Overview(ctx)
		case channelScreen:
			l.detail, l.err = look(ctx, q, s.channel)
		case messagesScreen:
			var p shunt.Page
			p, l.err = q.Browse(ctx, shunt.BrowseOptions{Channel: s.channel, State: s.state, Limit: pageSize,
				Payload: partShown, From: s.from, Latest: s.latest})
			l.page = &p
		case messageScreen:
			var e shunt.Entry
			e, l.err = q.Peek(ctx, s.ref)
			l.entry = &e
		}
		l.at = time.Now()
		return l
	}
}

func look(ctx context.Context, q *shunt.Queue, channel string) (*detail, error) {
	d := &detail{started: make(map[string]time.Time)}
	os, err := q.Overview(ctx, channel)
	if err != nil {
		return nil, err
	}
	if d.overview = os[0]; d.overview.Error != "" {
		return nil, errors.New(d.overview.Error)
	}
	if d.stats, err = q.Stats(ctx, channel); err != nil {
		return nil, err
	}
	if d.receivers, err = q.Receivers(ctx, channel); err != nil {
		return nil, err
	}
	p, err := q.Browse(ctx, shunt.BrowseOptions{Channel: channel, State: shunt.StateDoing, Limit: mostHeld})
	if err != nil {
		return nil, err
	}
	d.held = p.Entries
	asked := 0
	for _, e := range d.held {
		if e.ID == "" || asked == mostStarted {
			continue
		}
		asked++
		if s, err := q.Status(ctx, e.Ref()); err == nil && s.Serial == e.Serial && !s.StartedAt.IsZero() {
			d.started[e.Serial] = s.StartedAt
		}
	}
	return d, nil
}

// verb is what a user may do to a message.
type verb struct {
	key, name string
	do        func(ctx context.Context, q *shunt.Queue, r shunt.Ref) error
}

var verbs = []verb{
	{"r", "retry", func(ctx context.Context, q *shunt.Queue, r shunt.Ref) error { return q.Retry(ctx, r) }},
	{"d", "delete", func(ctx context.Context, q *shunt.Queue, r shunt.Ref) error { return q.Delete(ctx, r) }},
	{"c", "cancel", func(ctx context.Context, q *shunt.Queue, r shunt.Ref) error {
		_, err := q.Cancel(ctx, r)
		return err
	}},
}

// actions are those that are under way.
type actions struct {
	mu   sync.Mutex
	left bool // the screen: none begins any more
	all  sync.WaitGroup
}

// begin says whether an action may begin, for which leave then waits.
func (a *actions) begin() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.left {
		a.all.Add(1)
	}
	return !a.left
}

// leave waits for the actions. None begins after it.
func (a *actions) leave() {
	a.mu.Lock()
	a.left = true
	a.mu.Unlock()
	a.all.Wait()
}

// act does what was confirmed, and notes it.
func (m *model) act(v verb, r shunt.Ref) tea.Cmd {
	q, by, parent := m.q, m.o.By, m.ctx
	m.busy = true
	return func() tea.Msg {
		if !m.acts.begin() {
			return nil
		}
		defer m.acts.all.Done()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(parent), 10*time.Second)
		defer cancel()
		err := v.do(ctx, q, r)
		note := shunt.AuditEntry{By: by, Verb: v.name, Channel: r.Channel, Detail: r.String(), Count: 1}
		if err != nil {
			note.Count, note.Error = 0, err.Error()
		}
		if bad := q.Audit(ctx, note); bad != nil {
			err = errors.Join(err, fmt.Errorf("top: it was not noted: %w", bad))
		}
		return done{text: v.name + " " + r.Serial, err: err}
	}
}
