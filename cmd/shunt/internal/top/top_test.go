package top

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/redistest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// fed is a model that has seen three channels, and asks nobody.
func fed(t *testing.T) *model {
	t.Helper()
	m := newModel(t.Context(), &shunt.Queue{}, Options{NoColor: true}.withDefaults())
	now := time.Now()
	counts := shunt.Counts{From: now.Add(-10 * time.Minute), To: now, Enqueued: 6000, Acked: 3000, Retried: 1000}
	m.Update(loaded{at: now, overviews: []shunt.Overview{
		{Channel: "mail", Prepare: 5, Receivers: 1, Workers: 4, OldestAge: time.Minute, Lately: counts},
		{Channel: "video", Prepare: 12345, Dead: 7},
		{Channel: "invoices", Delay: 3, Receivers: 2, Workers: 16},
	}})
	return m
}

// press sends keys, and drops what they ask for.
func press(m *model, keys ...string) (last tea.Cmd) {
	for _, k := range keys {
		msg := tea.KeyPressMsg{Text: k}
		for code, name := range map[rune]string{tea.KeyEnter: "enter", tea.KeyEsc: "esc", tea.KeyUp: "up",
			tea.KeyDown: "down", tea.KeyBackspace: "backspace"} {
			if name == k {
				msg = tea.KeyPressMsg{Code: code}
			}
		}
		_, last = m.Update(msg)
	}
	return last
}

func screenOf(m *model) string { return ansi.Strip(m.content()) }

func order(m *model) (names string) {
	for _, r := range m.channels() {
		names += r.Channel + " "
	}
	return names
}

func TestSortAndFilter(t *testing.T) {
	t.Parallel()
	m := fed(t)
	for _, c := range []struct{ keys, want string }{
		{"", "video mail invoices "}, // by what waits
		{"1", "invoices mail video "},
		{"1", "video mail invoices "}, // once more: reversed
		{"5", "mail invoices video "}, // the oldest
		{"7", "video invoices mail "}, // dead
		{"9", "invoices mail video "}, // workers
		{"S", "video mail invoices "},
	} {
		if press(m, strings.Fields(c.keys)...); order(m) != c.want {
			t.Errorf("after %q: %s, want %s", c.keys, order(m), c.want)
		}
	}
	press(m, "/", "V", "I", "q") // keys of the filter do nothing else
	if order(m) != "" || !strings.Contains(screenOf(m), "filter: VIq") || !strings.Contains(screenOf(m),
		"no channel fits") {
		t.Errorf("filtered:\n%s", screenOf(m))
	}
	if press(m, "backspace", "enter"); order(m) != "video " {
		t.Errorf("filtered: %s", order(m))
	}
	if press(m, "esc"); len(m.channels()) != 3 {
		t.Error("the filter stays after esc")
	}
}

func TestList(t *testing.T) {
	t.Parallel()
	m := fed(t)
	text := screenOf(m)
	for _, want := range []string{"vWAIT", "12k", "video", " 10 ", "5.0", "25%", "1/4", "60s", "p pause"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	lines := strings.Split(text, "\n")
	if len(lines) != 24 {
		t.Errorf("%d lines, want 24", len(lines))
	}
	for _, l := range lines {
		if ansi.StringWidth(l) > 80 {
			t.Errorf("wider than 80: %q", l)
		}
	}
}

// No size, and no state, makes the screen panic, or larger than the terminal.
func TestSizes(t *testing.T) {
	t.Parallel()
	bare := shunt.Entry{Channel: "mail", State: shunt.StateDead, Payload: []byte("\x1b[31m\x00日本\nnext"),
		Failure: "\x1b]0;title\x07", Headers: map[string]string{"a": "b"}, EnqueuedAt: time.Now()}
	for _, w := range []int{0, 1, 2, 7, 20, 79, 80, 300} {
		for _, h := range []int{0, 1, 2, 3, 5, 24, 100} {
			m := fed(t)
			check := func(what string) {
				t.Helper()
				m.Update(tea.WindowSizeMsg{Width: w, Height: h})
				text := m.content()
				if n := strings.Count(text, "\n") + 1; n > max(1, h) {
					t.Errorf("%s at %dx%d: %d lines", what, w, h, n)
				}
				for l := range strings.SplitSeq(text, "\n") {
					if ansi.StringWidth(l) > w {
						t.Errorf("%s at %dx%d: %q", what, w, h, l)
					}
				}
				if strings.ContainsAny(text, "\x00\x07") || strings.Contains(text, "\x1b[31m") ||
					strings.Contains(text, "\x1b]") {
					t.Errorf("%s: what a terminal would obey: %q", what, text)
				}
				for range 3 {
					press(m, "down", "G", "up", "g")
				}
			}
			check("channels")
			press(m, "enter")
			check("channel, not loaded")
			m.Update(loaded{screen: m.screen, at: time.Now(), detail: &detail{stats: shunt.Stats{},
				receivers: []shunt.Receiver{{Name: "x-1"}}, held: []shunt.Entry{bare}}})
			check("channel")
			press(m, "g", "enter")
			check("messages, not loaded")
			m.Update(loaded{screen: m.screen, at: time.Now(), page: &shunt.Page{Entries: []shunt.Entry{bare},
				Next: "x"}})
			check("messages")
			press(m, "enter")
			check("message, not loaded")
			m.Update(loaded{screen: m.screen, at: time.Now(), entry: &bare})
			check("message")
			press(m, "d")
			check("asked")
		}
	}
}

// While the screen is paused nothing is asked, and an old tick does not bring it back.
func TestPause(t *testing.T) {
	t.Parallel()
	m := fed(t)
	old := m.gen
	if _, cmd := m.Update(old); cmd == nil || !m.busy {
		t.Fatal("a tick asks nothing")
	}
	m.busy = false
	press(m, "p")
	if _, cmd := m.Update(m.gen); cmd != nil || m.busy {
		t.Error("a tick asks while paused")
	}
	if press(m, "p"); !m.busy {
		t.Error("nothing is asked after the pause")
	}
	m.busy = false
	if _, cmd := m.Update(old); cmd != nil {
		t.Error("an old tick goes on beside the new one")
	}
	m.screen.kind = messagesScreen
	if m.Update(m.gen); m.busy {
		t.Error("a list of messages moves while it is read")
	}
	m.err = errors.New("away")
	if m.Update(m.gen); !m.busy {
		t.Error("nobody looks whether Redis is back")
	}
}

// What is late for a screen that was left does not show in another.
func TestLate(t *testing.T) {
	t.Parallel()
	m := fed(t)
	late := loaded{screen: m.screen, err: errors.New("away"), at: time.Now()}
	press(m, "enter")
	m.Update(late)
	if m.err != nil || m.screen.channel != "video" {
		t.Errorf("%v, %+v", m.err, m.screen)
	}
}

func TestPace(t *testing.T) {
	t.Parallel()
	at := time.Now()
	o := shunt.Overview{Lately: shunt.Counts{From: at.Add(-10 * time.Minute), To: at, Enqueued: 600, Acked: 60}}
	p := pace{}.next(&o, at)
	if p.inS != 1 || p.outS != 0.1 {
		t.Errorf("of ten minutes: %+v", p)
	}
	o.Lately.Enqueued, o.Lately.Dead = 1600, 500
	if p = p.next(&o, at.Add(50*time.Second)); p.inS != 20 || p.outS != 10 {
		t.Errorf("of 50 s: %+v", p)
	}
	o.Lately.From, o.Lately.Enqueued = at, 1000 // a minute goes
	if p = p.next(&o, at.Add(60*time.Second)); p.inS != 20 {
		t.Errorf("of the next minute: %+v", p)
	}
}

func TestText(t *testing.T) {
	t.Parallel()
	for got, want := range map[string]string{
		count(9999): "9999", count(12_345): "12k", count(1_234_567): "1.2M", span(0): "-",
		span(1500 * time.Millisecond): "1.5s",
		span(-time.Minute):            "-60s", span(72 * time.Hour): "3.0d", span(20 * 365 * 24 * time.Hour): "20y",
		rate(0.55): "0.6", rate(0): "-", fit("abc", 2): "a~", right("a", 3): "  a", clean("a\x1b\n日"): "a. 日",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// What is pasted is for the filter alone.
func TestPaste(t *testing.T) {
	t.Parallel()
	m := fed(t)
	m.Update(tea.PasteMsg{Content: "/q1"})
	if m.typing || m.sort != 1 || m.filter != "" {
		t.Error("what was pasted did something")
	}
	press(m, "/")
	m.Update(tea.PasteMsg{Content: "v\x1bi"})
	if m.filter == "" || strings.Contains(m.filter, "\x1b") {
		t.Errorf("filter %q", m.filter)
	}
	press(m, "esc")
	m.Update(loaded{screen: m.screen, at: time.Now()})
	press(m, "enter")
	if cmd := press(m, "q"); cmd == nil {
		t.Error("q does not end it")
	}
}
