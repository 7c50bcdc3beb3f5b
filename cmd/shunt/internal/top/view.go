package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/shuntmq/shunt"
)

// column is one of the list of channels. The first has what the others leave.
type column struct {
	name  string
	width int
	text  func(o *row) string
	order func(o *row) float64
}

// row is one channel as the list shows it.
type row struct {
	shunt.Overview
	pace
}

var columns = []column{
	{"CHANNEL", 0, func(o *row) string { return clean(o.Channel) }, nil},
	{"WAIT", 6, func(o *row) string { return count(o.waiting()) },
		func(o *row) float64 { return float64(o.waiting()) }},
	{"IN/s", 5, func(o *row) string { return rate(o.inS) }, func(o *row) float64 { return o.inS }},
	{"OUT/s", 5, func(o *row) string { return rate(o.outS) }, func(o *row) float64 { return o.outS }},
	{"OLDEST", 6, func(o *row) string { return span(o.OldestAge) },
		func(o *row) float64 { return o.OldestAge.Seconds() }},
	{"DELAY", 6, func(o *row) string { return count(o.Delay) },
		func(o *row) float64 { return float64(o.Delay) }},
	{"DEAD", 6, func(o *row) string { return count(o.Dead) },
		func(o *row) float64 { return float64(o.Dead) }},
	{"FAIL%", 5, func(o *row) string { return percent(failing(&o.Overview)) },
		func(o *row) float64 { return failing(&o.Overview) }},
	{"RCV/WRK", 8, func(o *row) string { return count(o.Receivers) + "/" + count(o.Workers) },
		func(o *row) float64 { return float64(o.Workers) }},
	{"EMPTY IN", 8, func(o *row) string { return drain(&o.Overview) },
		func(o *row) float64 { return o.DrainTime().Seconds() }},
}

func (o *row) waiting() int { return o.Prepare + o.Suspect }

func failing(o *shunt.Overview) float64 {
	c := &o.Lately
	if n := c.Acked + c.Retried + c.Dead; n > 0 {
		return float64(c.Retried+c.Dead) / float64(n)
	}
	return 0
}

func percent(part float64) string {
	if part == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f%%", max(1, 100*part))
}

func drain(o *shunt.Overview) string {
	switch d := o.DrainTime(); {
	case d < 0 && o.Trend > 0:
		return "grows"
	case d < 0:
		return "never"
	default:
		return span(d)
	}
}

// channels are those that the filter leaves, in order.
func (m *model) channels() []row {
	all := make([]row, 0, len(m.all))
	for _, o := range m.all {
		if strings.Contains(strings.ToLower(o.Channel), strings.ToLower(m.filter)) {
			all = append(all, row{o, m.paces[o.Channel]})
		}
	}
	order := columns[m.sort].order
	slices.SortStableFunc(all, func(a, b row) int {
		by := strings.Compare(a.Channel, b.Channel)
		if order != nil { // most first
			by = cmp.Or(cmp.Compare(order(&b), order(&a)), by)
		}
		if m.reverse {
			return -by
		}
		return by
	})
	return all
}

// View is the screen, in place of what the terminal shows otherwise.
func (m *model) View() tea.View {
	v := tea.NewView(m.content())
	v.AltScreen = true
	return v
}

// content is a title, what the screen shows, what is to be said, and the keys.
func (m *model) content() string {
	if m.width < 1 || m.height < 1 {
		return ""
	}
	lines, chosen := m.body()
	head := min(len(lines), m.fixed())
	fixed, rest := lines[:head], lines[head:]
	room := max(0, m.height-3-head)
	at := chosen - head
	switch {
	case m.screen.kind == messageScreen:
		m.top = m.row
	case at >= 0:
		m.top = min(m.top, at)
		m.top = max(m.top, at-room+1)
	}
	m.top = max(0, min(m.top, len(rest)-room))
	out := append([]string{m.title()}, fixed...)
	for i := m.top; i < len(rest) && i < m.top+room; i++ {
		line := rest[i]
		if i == at && m.screen.kind != messageScreen {
			line = reverse + fit(ansi.Strip(line), m.width) + plain
		}
		out = append(out, line)
	}
	for len(out) < m.height-2 {
		out = append(out, "")
	}
	out = append(out[:max(0, min(len(out), m.height-2))], m.status(), m.paint(bold, m.hints()))
	out = out[max(0, len(out)-m.height):]
	for i := range out {
		out[i] = ansi.Truncate(out[i], m.width, "")
	}
	return strings.Join(out, "\n")
}

// fixed is how many of the first lines stay while the others scroll.
func (m *model) fixed() int {
	switch m.screen.kind {
	case channelsScreen, messagesScreen, channelScreen:
		return 1
	case messageScreen:
	}
	return 0
}

func (m *model) title() string {
	path := "shunt top"
	if m.screen.channel != "" {
		path += " > " + clean(m.screen.channel)
	}
	if m.screen.state != "" {
		path += " > " + string(m.screen.state)
	}
	if m.screen.kind == messageScreen {
		path += " > " + cmp.Or(clean(m.screen.ref.Serial), clean(m.screen.ref.ID))
	}
	state := "-"
	switch {
	case m.paused:
		state = "paused"
	case !m.at.IsZero():
		state = m.at.Format(time.TimeOnly)
	}
	return m.paint(bold, fit(path, m.width-len(state)-1)+" "+state)
}

// status is the line above the keys.
func (m *model) status() string {
	switch {
	case m.asking != nil:
		return m.paint(yellow, m.asking.name+" "+clean(cmp.Or(m.askedRef.ID,
			m.askedRef.Serial)+" of "+m.askedRef.Channel)+"? (y/n)")
	case m.err != nil:
		last := ""
		if !m.at.IsZero() {
			last = ", last seen at " + m.at.Format(time.TimeOnly)
		}
		return m.paint(red, "Redis does not answer"+last+": "+clean(m.err.Error()))
	case m.typing || m.filter != "" && m.screen.kind == channelsScreen:
		return "filter: " + m.filter
	}
	return clean(m.said)
}

// body are the lines of the screen, and which the cursor is on.
func (m *model) body() (lines []string, chosen int) {
	m.row = max(0, min(m.row, m.rows()-1))
	switch m.screen.kind {
	case channelsScreen:
		return m.channelLines(), m.row + 1
	case channelScreen:
		return m.detailLines()
	case messagesScreen:
		return m.pageLines(), m.row + 1
	case messageScreen:
		return m.messageLines(), m.row
	}
	return nil, 0
}

func (m *model) channelLines() []string {
	first := m.width
	for _, c := range columns[1:] {
		first -= c.width + 1
	}
	line := func(text func(i int, c *column) string) string {
		out := fit(text(0, &columns[0]), max(8, first))
		for i := range columns[1:] {
			out += " " + right(text(i+1, &columns[i+1]), columns[i+1].width)
		}
		return out
	}
	lines := []string{m.paint(bold, line(func(i int, c *column) string {
		if i == m.sort {
			return map[bool]string{true: "^", false: "v"}[m.reverse] + c.name
		}
		return c.name
	}))}
	for _, o := range m.channels() {
		if o.Error != "" {
			lines = append(lines, m.paint(red, fit(clean(o.Channel), max(8, first))+" "+clean(o.Error)))
			continue
		}
		text := line(func(_ int, c *column) string { return c.text(&o) })
		switch {
		case o.waiting() > 0 && o.Receivers == 0 && o.Leases == 0:
			text = m.paint(red, text)
		case failing(&o.Overview) > 0.5 || o.Suspect > 0:
			text = m.paint(yellow, text)
		}
		lines = append(lines, text)
	}
	if len(lines) == 1 && !m.at.IsZero() {
		lines = append(lines, "no channel"+map[bool]string{true: " fits the filter", false: " yet"}[m.filter != ""])
	}
	return lines
}
