package browser

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/shuntmq/shunt"
)

// Tab goes through all that can be used, in the order of the page, and each time one sees where one is.
func TestTab(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.fail("c", 3, "no %d", true)
	r := d.enqueue("c", `{"a":1}`, shunt.ID("one"))
	d.enqueue("late", "{}", shunt.In(1e12))
	d.plantRecurring()
	for _, width := range []int64{1440, 360} {
		b := d.tab("olga")
		b.screen(width, "light")
		for _, path := range []string{"", "channel?c=c", "messages?c=c&s=dead", "messages?c=late&s=delay", ref(r),
			"dead", "dead?c=c", "recurring", "receivers", "redis", "audit", "settings", "ask"} {
			if b.open(strings.TrimPrefix(path, "ask")); path == "ask" {
				b.open("dead?c=c")
				b.click("button[value=delete-all]")
			}
			b.tabs(fmt.Sprintf("%q at %d px", path, width))
		}
		b.blameless("keyboard")
	}
}

// tabs presses Tab until it leaves the page.
func (t *tab) tabs(where string) {
	t.Helper()
	// Of radio buttons Tab stops at the one that is chosen.
	want := js[[]string](t, `(() => {
		window.name_of = e => e.tagName + " " +
			(e.getAttribute("aria-label") || e.innerText || e.name || e.id).trim().slice(0, 60);
		window.stops = [...document.querySelectorAll(
			"a[href], button, summary, input:not([type=hidden]), [tabindex='0']")].filter(e => e.checkVisibility() &&
			(e.type !== "radio" || e.checked));
		return stops.map(name_of);
	})()`)
	for i, name := range want {
		t.do(chromedp.KeyEvent(kb.Tab))
		var now struct {
			At      int
			Name    string
			Visible bool
			Why     string
		}
		t.do(chromedp.Evaluate(`(() => {
			const e = document.activeElement, s = getComputedStyle(e), r = e.getBoundingClientRect();
			const mid = [Math.max(1, Math.min(innerWidth - 1, r.left + Math.min(r.width / 2, 20))),
				Math.max(1, Math.min(innerHeight - 1, r.top + Math.min(r.height / 2, 10)))];
			const over = document.elementFromPoint(...mid);
			const outlined = s.outlineStyle !== "none" && parseFloat(s.outlineWidth) >= 2;
			const seen = r.bottom > 0 && r.top < innerHeight && r.right > 0 && r.left < innerWidth &&
				over && (e.contains(over) || over.contains(e));
			return {at: stops.indexOf(e), name: name_of(e), visible: outlined && seen,
				why: JSON.stringify([s.outline, r, over && over.outerHTML.slice(0, 80)])};
		})()`, &now))
		if now.At != i || !now.Visible {
			t.Errorf("%s: Tab %d is at %d, %s, want %s; visible: %v %s", where, i+1, now.At, now.Name, name,
				now.Visible, now.Why)
			return
		}
	}
}

// press presses a key as a person does: where the page takes it, nothing is typed.
func press(key string) chromedp.Action {
	return chromedp.Tasks{input.DispatchKeyEvent(input.KeyDown).WithKey(key).WithText(key),
		input.DispatchKeyEvent(input.KeyUp).WithKey(key)}
}

// Enter and Space act, Esc goes back, / finds, j and k walk.
func TestKeys(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.fail("c", 5, "no %d", true)
	for i := range 3 {
		d.enqueue(fmt.Sprint("d", i), "1")
	}
	b := d.tab("olga")
	b.screen(1440, "light")
	b.open("messages?c=c&s=dead")
	focus := func(selector string) chromedp.Action { return chromedp.Focus(selector, chromedp.ByQuery) }
	b.do(focus("tbody tr:nth-child(1) input"), press(" "), focus("tbody tr:nth-child(2) input"),
		press(" "))
	b.leads(focus("button[value=delete]"), chromedp.KeyEvent(kb.Enter))
	b.asks("Delete 2 messages?")
	b.leads(chromedp.KeyEvent(kb.Escape))
	b.shows("h1", "c / Dead")
	if n := d.count("c", shunt.StateDead); n != 5 {
		t.Errorf("%d are dead after Esc", n)
	}
	b.do(focus("tbody tr:nth-child(1) input"), press(" "))
	b.leads(focus("button[value=delete]"), press(" "))
	b.asks("Delete this message?")
	b.leads(focus("button[name=yes]"), press(" "))
	if n := d.count("c", shunt.StateDead); n != 4 {
		t.Errorf("%d are dead after Space", n)
	}

	b.open("")
	active := func() string { return js[string](b, "document.activeElement.name || document.activeElement.innerText") }
	b.do(press("/"))
	if got := active(); got != "q" {
		t.Errorf("/ goes to %q", got)
	}
	b.do(press("j"), press("j"), press("/"))
	if got := js[string](b, "document.activeElement.value"); got != "jj/" {
		t.Errorf("the field has %q", got)
	}
	b.do(chromedp.KeyEvent(kb.Escape))
	if got := js[string](b, "document.activeElement.value ?? 'elsewhere'"); got != "" {
		t.Errorf("after Esc the field has %q", got)
	}
	b.do(chromedp.Evaluate("document.activeElement.blur()", nil))
	names := js[[]string](b, `[...document.querySelectorAll("#channels th a")].slice(-4).map(a => a.innerText)`)
	for i, key := range []string{"j", "j", "j", "k", "k", "k"} {
		b.do(press(key))
		if got, want := active(), names[[]int{0, 1, 2, 1, 0, 0}[i]]; got != want {
			t.Errorf("key %d, %s, goes to %q, want %q", i, key, got, want)
		}
	}
	b.leads(chromedp.KeyEvent(kb.Enter))
	b.shows("h1", names[0])

	// The first Tab offers a way past the navigation.
	b.open("")
	b.do(chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent(kb.Enter), chromedp.KeyEvent(kb.Tab))
	if !js[bool](b, "document.getElementById('main').contains(document.activeElement)") {
		t.Errorf("the skip link leads to %q", active())
	}
	b.blameless("keys")
}
