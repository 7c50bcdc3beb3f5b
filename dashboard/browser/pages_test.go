package browser

import (
	_ "embed"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/shuntmq/shunt/internal/redistest"
)

// axe finds what keeps people with disabilities out. Its licence is beside it.
//
//go:embed testdata/axe/axe.min.js
var axe string

// pages are all that there are, in all their forms, by a name.
func (p *planted) pages() [][2]string {
	evil := url.QueryEscape(p.hostile.Channel)
	return [][2]string{
		{"overview", ""}, {"overview, none found", "?q=nosuch"}, {"channel", "channel?c=webhook.deliver"},
		{"channel at work", "channel?c=mail.welcome&range=3h"}, {"channel in Chinese", "channel?c=短信.发送&lang=zh"},
		{"hostile channel", "channel?c=" + evil + "&lang=en"}, {"ready", "messages?c=image.resize&idprefix=photo"},
		{"leased", "messages?c=image.resize&s=leased"},
		{"delayed", "messages?c=billing.invoice&s=delay&idprefix=invoice:2026-10:411"},
		{"in hand", "messages?c=mail.welcome&s=doing"}, {"done", "messages?c=mail.welcome&s=done&idprefix=welcome:1"},
		{"dead", "messages?c=webhook.deliver&s=dead&failure=panic"},
		{"none found", "messages?c=webhook.deliver&s=dead&failure=x"},
		{"no such message", "messages?c=webhook.deliver&find=nobody"}, {"hostile messages", "messages?c=" + evil},
		{"message", ref(p.ready)}, {"dead message", ref(p.died)}, {"retried message", ref(p.retried)},
		{"done message", ref(p.done)}, {"message in hand", ref(p.held)}, {"hostile message", ref(p.hostile)},
		{"Chinese message", ref(p.named)}, {"dead letters", "dead"}, {"groups", "dead?c=webhook.deliver"},
		{"hostile groups", "dead?c=" + evil}, {"no groups", "dead?c=billing.invoice"}, {"recurring", "recurring"},
		{"nothing recurs", "recurring?c=image.resize"}, {"receivers", "receivers"}, {"redis", "redis"},
		{"audit", "audit"}, {"settings", "settings"},
	}
}

// Each page, on a phone and on a wide screen, light and dark: no complaint in the console, no request that goes
// elsewhere, nothing that is wider than the screen, and nothing that axe finds serious.
func TestPages(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	p := d.plant()
	for _, screen := range []struct {
		width int64
		theme string
	}{{1440, "light"}, {360, "dark"}, {360, "light"}, {1440, "dark"}} {
		t.Run(fmt.Sprint(screen.width, screen.theme), func(t *testing.T) {
			t.Parallel()
			d := d.in(t)
			b := d.tab("olga")
			b.screen(screen.width, screen.theme)
			// Widths differ in layout and themes in colours: so two of the four see both.
			accessible := (screen.width > 800) == (screen.theme == "light")
			for _, page := range p.pages() {
				where := fmt.Sprintf("%s (%s)", page[0], page[1])
				if status := b.open(page[1]); status != 200 {
					t.Fatalf("%s: %d: %s", where, status, b.text("main"))
				}
				b.judge(where, screen.width, accessible)
			}
			// Pages that ask or refuse have no address of their own.
			b.open("dead?c=webhook.deliver")
			b.click("button[value=delete-all]")
			b.judge("bulk question", screen.width, accessible)
			b.open("messages?c=webhook.deliver&s=dead&failure=refused")
			b.do(chromedp.Click("[data-all]", chromedp.ByQuery))
			b.click("button[value=delete]")
			b.judge("question", screen.width, accessible)
			b.open("messages?c=" + url.QueryEscape(p.hostile.Channel) + "&from=x")
			b.mu.Lock() // the console says that it is an error
			b.faults = slices.DeleteFunc(b.faults, func(f string) bool {
				return strings.Contains(f, " status of 502 ")
			})
			b.mu.Unlock()
			b.judge("error", screen.width, accessible)
		})
	}
}

// in is the desk for a subtest.
func (d *desk) in(t *testing.T) *desk {
	return &desk{T: t, q: d.q, at: d.at, host: d.host}
}

// judge looks at the page that is open.
func (t *tab) judge(where string, width int64, accessible bool) {
	t.Helper()
	var shape struct {
		Wide, Client, Inner int64
		Clipped, Squeezed   []string
		Here                bool
	}
	// What a figure clips would not widen the page, and a phone widens its view for what does.
	t.do(chromedp.Evaluate(`(() => {
		const e = document.scrollingElement;
		return {wide: e.scrollWidth, client: e.clientWidth, inner: innerWidth,
			clipped: [...document.querySelectorAll("figure, .tiles div, header, .findings, .panel, button, .button")]
				.filter(e => e.scrollWidth > e.clientWidth + 1)
				.map(e => e.scrollWidth + " > " + e.clientWidth + " " + e.outerHTML.slice(0, 120)),
			squeezed: [...document.querySelectorAll("th, td")].filter(e => {
				const r = document.createRange();
				r.selectNodeContents(e);
				const {width, height} = r.getBoundingClientRect();
				return height > 4 * width;
			}).map(e => e.outerHTML.slice(0, 120)),
			here: [...document.querySelectorAll("nav [aria-current]")].every(e =>
				e.getBoundingClientRect().right <= e.parentElement.getBoundingClientRect().right + 1)};
	})()`, &shape))
	if shape.Wide > shape.Client || shape.Client > width || shape.Inner > width || !shape.Here ||
		len(shape.Clipped)+len(shape.Squeezed) > 0 {
		t.Errorf("%s does not fit %d px: %+v", where, width, shape)
	}
	if text := t.text("body"); strings.Contains(text, "%!") {
		t.Errorf("%s has a text with other arguments: %s", where, text)
	}
	t.blameless(where)
	if !accessible {
		return
	}
	t.do(chromedp.Evaluate(axe, nil))
	for _, found := range js[[]string](t, `axe.run(document, {preload: false, resultTypes: ["violations"]}).then(r =>
		r.violations.filter(v => v.impact === "serious" || v.impact === "critical")
		.map(v => v.id + ": " + v.help + ": " + v.nodes.slice(0, 3).map(n => n.html + " " +
			n.any.map(c => c.message).join()).join("\n  ")))`) {
		t.Errorf("%s at %d px: %s", where, width, found)
	}
}

// A first visit loads at most 150 KB, and soon shows something: the median of some loads by a browser that has loaded
// the page before, and keeps nothing of it. Paints come late on a busy machine: beside them the server's time is told,
// and the paint of a page of one line.
func TestFirstLoad(t *testing.T) {
	const loads = 7
	d := newDesk(t)
	p := d.plant()
	b := d.tab("olga")
	b.screen(1440, "light")
	paint := func() time.Duration {
		return time.Duration(js[float64](b, `new Promise(done => new PerformanceObserver(l =>
			done(l.getEntries()[0].startTime)).observe({type: "paint", buffered: true}))`) * 1e6)
	}
	load := func() time.Duration {
		return time.Duration(js[float64](b, `new Promise(done => {
			const ask = () => performance.timing.loadEventEnd ? done(performance.timing.loadEventEnd -
				performance.timing.navigationStart) : setTimeout(ask, 5);
			ask();
		})`) * 1e6)
	}
	median := func(ds []time.Duration) time.Duration {
		slices.Sort(ds)
		return ds[len(ds)/2]
	}
	var told []string
	for _, path := range []string{"", "channel?c=webhook.deliver", "channel?c=mail.welcome&range=2d",
		"messages?c=webhook.deliver&s=dead", ref(p.died), "dead?c=webhook.deliver", "receivers", "redis", "line"} {
		var paints, loaded, serves []time.Duration
		b.open(path)
		for range loads {
			b.open(path)
			paints, loaded = append(paints, paint()), append(loaded, load())
			serves = append(serves, time.Duration(d.took.Load()))
		}
		b.mu.Lock()
		bytes := b.bytes
		b.mu.Unlock()
		if bytes > 150<<10 || path != "line" && bytes < 10<<10 {
			t.Errorf("%s loads %.0f bytes", path, bytes)
		}
		first, served := median(paints), median(serves)
		if first > time.Second || first <= 0 || served > 200*time.Millisecond {
			t.Errorf("%s shows nothing for %v, the server took %v", path, first, served)
		}
		name, _, _ := strings.Cut(path, "?")
		told = append(told, fmt.Sprintf("%s %v (server %.1f ms, loaded %v) %.0f KB", name,
			first.Round(time.Millisecond), served.Seconds()*1000, median(loaded).Round(time.Millisecond), bytes/1024))
	}
	redistest.Tell("dashboard: first paint: " + strings.Join(told, ", ") + "\n")
}

// Without scripts pages show the same, and forms act.
func TestNoScript(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	p := d.plant()
	b := d.tab("olga")
	b.screen(360, "light")
	b.do(emulation.SetScriptExecutionDisabled(true))
	for _, page := range p.pages() {
		if status := b.open(page[1]); status != 200 {
			t.Errorf("%s: %d", page[0], status)
		}
		if got := b.text("main"); len(got) < 40 {
			t.Errorf("%s: %q", page[0], got)
		}
		b.blameless(page[0])
	}
	b.open("?q=image")
	if rows := js[int](b, `document.querySelectorAll("#channels tbody tr").length`); rows != 1 {
		t.Errorf("%d rows fit", rows)
	}
	b.open(ref(p.ready))
	b.click("button[value=cancel]")
	b.click("button[name=yes]")
	if !d.gone(p.ready) {
		t.Error("it is not cancelled")
	}
	b.shows("[role=status]", "1 cancelled.")
}

// A viewer sees the same pages, without anything that acts, and is refused what they do not offer.
func TestViewer(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	p := d.plant()
	b := d.tab("vera")
	for _, page := range p.pages() {
		b.open(page[1])
		forms := js[[]string](b, `[...document.querySelectorAll("form[method=post], button[name], input[name=ref]")]
			.map(e => e.outerHTML)`)
		if want := map[bool]int{true: 1}[page[0] == "settings"]; len(forms) != want {
			t.Errorf("%s: %d forms: %v", page[0], len(forms), forms)
		}
		b.blameless(page[0])
	}
	b.open("settings")
	b.do(chromedp.Evaluate(fmt.Sprintf(`{ const f = document.forms[0]; f.action = "act";
		for (const [k, v] of [["verb", "retry"], ["ref", %q]]) {
			const i = document.createElement("input"); i.name = k; i.value = v; f.append(i);
		} }`, p.died.String()), nil))
	if status := b.leads(chromedp.Click("main form button", chromedp.ByQuery)); status != 403 {
		t.Errorf("a viewer's action: %d", status)
	}
	if e := d.peek(p.died); e.State != "dead" {
		t.Errorf("it is %s", e.State)
	}
}
