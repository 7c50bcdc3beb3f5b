package top

import (
	"context"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/shuntmq/shunt"
)

type kind int

const (
	channelsScreen kind = iota
	channelScreen
	messagesScreen
	messageScreen
)

// screen is what is shown: each is opened from the one before it.
type screen struct {
	kind    kind
	channel string
	state   shunt.State
	latest  bool
	from    string // of a page
	ref     shunt.Ref
}

// place is where the cursor was in a screen that was left.
type place struct {
	screen
	row, top int
}

// model is the whole screen. Only bubbletea's goroutine uses it, but for what fetch and act have copied.
type model struct {
	ctx context.Context
	q   *shunt.Queue
	o   Options

	acts actions // they end, and are noted, whoever leaves

	width, height int
	screen        screen
	behind        []place // screens to go back to
	row, top      int     // of the cursor, and of the first row that is shown

	sort     int // a column
	reverse  bool
	filter   string
	typing   bool // keys go to the filter
	paused   bool
	busy     bool // a look or an action is under way
	wanted   bool // another look is, when that one is over
	gen      tick
	asking   *verb // waits for y or n
	askedRef shunt.Ref

	at    time.Time // of the last look that Redis answered
	err   error     // of the last one
	said  string    // what became of the last action
	all   []shunt.Overview
	paces map[string]pace // by channel
	of    *detail
	page  *shunt.Page
	entry *shunt.Entry
	since map[string]time.Time // when a message was first seen in a worker's hands
}

func newModel(ctx context.Context, q *shunt.Queue, o Options) *model {
	return &model{ctx: ctx, q: q, o: o, width: 80, height: 24, sort: 1, since: make(map[string]time.Time)}
}

func (m *model) Init() tea.Cmd { return tea.Batch(m.fetch(), m.later()) }

func (m *model) later() tea.Cmd {
	gen := m.gen
	return tea.Tick(m.o.Refresh, func(time.Time) tea.Msg { return gen })
}

// Update takes in what happens.
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = max(0, msg.Width), max(0, msg.Height)
	case tick:
		if msg != m.gen || m.paused {
			return m, nil
		}
		if m.busy || m.screen.kind > channelScreen && m.err == nil { // a list that is read must not move
			return m, m.later()
		}
		return m, tea.Batch(m.fetch(), m.later())
	case loaded:
		m.busy = false
		m.take(msg)
		return m, m.again()
	case done:
		m.busy = false
		m.said = msg.text + ": done"
		if msg.err != nil {
			m.said = msg.text + ": " + msg.err.Error()
		} else if m.screen.kind == messageScreen {
			m.back()
		}
		m.wanted = true
		return m, m.again()
	case tea.KeyPressMsg:
		return m.key(msg)
	case tea.PasteMsg:
		m.pasted(msg.Content)
	}
	return m, nil
}

// again looks once more where that was asked for meanwhile.
func (m *model) again() tea.Cmd {
	if !m.wanted || m.busy {
		return nil
	}
	m.wanted = false
	return m.fetch()
}

// refresh looks now, or when the look under way is over.
func (m *model) refresh() tea.Cmd {
	m.wanted = true
	return m.again()
}

// take takes in a look, unless another screen is shown by now.
func (m *model) take(l loaded) {
	if l.screen != m.screen {
		m.wanted = true
		return
	}
	if m.err = l.err; l.err != nil {
		return
	}
	m.at = l.at
	switch l.screen.kind {
	case channelsScreen:
		m.all = l.overviews
		m.paced(m.all, l.at)
	case channelScreen:
		m.of = l.detail
		m.paced([]shunt.Overview{m.of.overview}, l.at)
		now := make(map[string]time.Time, len(m.of.held))
		for _, e := range m.of.held {
			key := e.Receiver + e.Serial
			at, is := m.since[key]
			if !is {
				at = l.at
			}
			now[key] = at
		}
		m.since = now
	case messagesScreen:
		m.page = l.page
	case messageScreen:
		m.entry = l.entry
	}
}

func (m *model) open(s screen) tea.Cmd {
	m.behind = append(m.behind, place{m.screen, m.row, m.top})
	m.show(s)
	return m.refresh()
}

// show goes to a screen, of which nothing is known yet.
func (m *model) show(s screen) {
	m.screen, m.row, m.top, m.said, m.err = s, 0, 0, "", nil
	m.of, m.page, m.entry = nil, nil, nil
}

func (m *model) back() {
	if n := len(m.behind); n > 0 {
		p, said := m.behind[n-1], m.said
		m.behind = m.behind[:n-1]
		m.show(p.screen)
		m.row, m.top, m.said = p.row, p.top, said
	}
}
