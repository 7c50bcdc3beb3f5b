package top

import (
	"strings"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"
	"github.com/shuntmq/shunt"
)

// key does what a key is for.
func (m *model) key(k tea.KeyPressMsg) (tea.Model, tea.Cmd) {
	name := k.String()
	switch {
	case name == "ctrl+c":
		return m, tea.Quit
	case m.asking != nil:
		v := *m.asking
		m.asking = nil
		if name != "y" {
			m.said = v.name + ": not done"
			return m, nil
		}
		m.said = v.name + " ..."
		return m, m.act(v, m.askedRef)
	case m.typing:
		m.typed(k)
		return m, nil
	}
	switch name {
	case "q":
		return m, tea.Quit
	case "esc", "left", "backspace", "h":
		switch {
		case m.filter != "" && m.screen.kind == channelsScreen:
			m.filter = ""
		case len(m.behind) > 0:
			m.back()
			return m, m.refresh()
		}
	case "p":
		m.paused = !m.paused
		m.gen++ // what was to come is void
		if !m.paused {
			return m, tea.Batch(m.refresh(), m.later())
		}
	case "u":
		return m, m.refresh()
	case "enter", "right", "l":
		return m, m.enter()
	case "/":
		if m.screen.kind == channelsScreen {
			m.typing = true
		}
	case "S":
		m.reverse = !m.reverse
	case "s":
		m.sort = (m.sort + 1) % len(columns)
	case "n", "b", "o":
		if m.screen.kind == messagesScreen {
			return m, m.turn(name)
		}
	default:
		m.move(name)
		m.sortBy(name)
		m.ask(name)
	}
	return m, nil
}

// move moves the cursor, to the first or the last row at most.
func (m *model) move(name string) {
	switch name {
	case "up", "k":
		m.row--
	case "down", "j":
		m.row++
	case "pgup":
		m.row -= max(1, m.height-6)
	case "pgdown", "space":
		m.row += max(1, m.height-6)
	case "home", "g":
		m.row = 0
	case "end", "G":
		m.row = m.rows() - 1
	}
	m.row = max(0, min(m.row, m.rows()-1))
}

// sortBy sorts the channels by the column of that number, and the second time the other way round.
func (m *model) sortBy(name string) {
	if len(name) != 1 || name < "1" || name > "9" || m.screen.kind != channelsScreen {
		return
	}
	if at := int(name[0] - '1'); at < len(columns) {
		m.reverse = at == m.sort && !m.reverse
		m.sort = at
	}
}

// turn goes to the next page of messages, back to the first one, or to the other end.
func (m *model) turn(name string) tea.Cmd {
	s := m.screen
	switch {
	case name == "n" && m.page != nil && m.page.Next != "":
		s.from = m.page.Next
	case name == "b" && s.from != "":
		s.from = ""
	case name == "o":
		s.from, s.latest = "", !s.latest
	default:
		return nil
	}
	m.show(s)
	return m.refresh()
}

// typed takes a key of the filter.
func (m *model) typed(k tea.KeyPressMsg) {
	switch k.String() {
	case "enter":
		m.typing = false
	case "esc":
		m.typing, m.filter = false, ""
	case "backspace":
		_, size := utf8.DecodeLastRuneInString(m.filter)
		m.filter = m.filter[:len(m.filter)-size]
	default:
		m.pasted(k.Text)
	}
	m.row, m.top = 0, 0
}

// pasted takes text for the filter, which is all that may be pasted.
func (m *model) pasted(text string) {
	if m.typing && len(m.filter)+len(text) <= 200 {
		m.filter += clean(text)
		m.row, m.top = 0, 0
	}
}

// ask begins an action on the message at the cursor, which the user is to confirm.
func (m *model) ask(name string) {
	ref, is := m.ref()
	for i := range verbs {
		if is && !m.busy && verbs[i].key == name {
			m.asking, m.askedRef = &verbs[i], ref
		}
	}
}

// ref is the message at the cursor.
func (m *model) ref() (r shunt.Ref, is bool) {
	switch {
	case m.screen.kind == messagesScreen && m.page != nil && m.row < len(m.page.Entries):
		return m.page.Entries[m.row].Ref(), true
	case m.screen.kind == messageScreen && m.entry != nil:
		return m.screen.ref, true
	}
	return r, false
}

// enter opens what the cursor is on.
func (m *model) enter() tea.Cmd {
	switch s := m.screen; s.kind {
	case channelsScreen:
		if all := m.channels(); m.row < len(all) {
			return m.open(screen{kind: channelScreen, channel: all[m.row].Channel})
		}
	case channelScreen:
		if m.row < len(shunt.States) {
			return m.open(screen{kind: messagesScreen, channel: s.channel, state: shunt.States[m.row]})
		}
		if at := m.row - len(shunt.States); m.of != nil && at < len(m.of.held) {
			return m.open(screen{kind: messageScreen, channel: s.channel, ref: m.of.held[at].Ref()})
		}
	case messagesScreen:
		if ref, is := m.ref(); is {
			return m.open(screen{kind: messageScreen, channel: s.channel, ref: ref})
		}
	case messageScreen:
	}
	return nil
}

// rows is how many rows the cursor may be on.
func (m *model) rows() int {
	switch m.screen.kind {
	case channelsScreen:
		return len(m.channels())
	case channelScreen:
		if m.of == nil {
			return len(shunt.States)
		}
		return len(shunt.States) + len(m.of.held)
	case messagesScreen:
		if m.page != nil {
			return len(m.page.Entries)
		}
	case messageScreen:
		return len(m.messageLines())
	}
	return 0
}

// hints are the keys that do something now.
func (m *model) hints() string {
	switch {
	case m.asking != nil:
		return "y do it  any other key: no"
	case m.typing:
		return "type to filter  enter keep  esc drop"
	}
	pause := "p pause"
	if m.paused {
		pause = "p go on"
	}
	keys := []string{"enter open", "esc back", pause, "q quit"}
	switch m.screen.kind {
	case channelsScreen:
		keys = []string{"enter open", "/ filter", "1-9 s S sort", pause, "q quit"}
	case messagesScreen:
		keys = []string{"enter open", "r retry", "d delete", "c cancel", "n next", "b begin", "o order", "u look",
			"esc back"}
	case messageScreen:
		keys = []string{"r retry", "d delete", "c cancel", "u look", "up/down scroll", "esc back", "q quit"}
	case channelScreen:
	}
	return strings.Join(keys, "  ")
}
