package browser

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/recur"
)

// audited fails unless somebody's last action is in the audit.
func (d *desk) audited(verb string, count int) {
	d.Helper()
	es, err := d.q.AuditLog(context.Background(), "", 1)
	if err != nil || len(es) != 1 {
		d.Fatal(err, es)
	}
	if e := es[0]; e.By != "olga" || e.Verb != verb || e.Count != count || e.Error != "" {
		d.Errorf("the audit ends with %+v, want %s of %d", e, verb, count)
	}
}

// asks fails unless the page asks a question.
func (t *tab) asks(question string) {
	t.Helper()
	if got := t.text(".question"); got != question {
		t.Fatalf("it asks %q, want %q", got, question)
	}
}

// Each action on one message, by clicks, on a phone.
func TestOneMessage(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	p := d.plant()
	b := d.tab("olga")
	b.screen(360, "light")

	b.open(ref(p.died))
	b.click("button[value=retry]")
	b.shows("[role=status]", "1 retried.")
	if e := d.peek(p.died); e.State != shunt.StatePrepare {
		t.Errorf("retried, it is %s", e.State)
	}
	d.audited("retry", 1)

	b.open("messages?c=webhook.deliver&s=dead")
	b.click("tbody th a")
	b.click("button[value=delete]")
	b.asks("Delete this message?")
	b.click(".button") // no
	if n := d.count("webhook.deliver", shunt.StateDead); n != 82 {
		t.Errorf("%d are dead after a no", n)
	}
	b.click("tbody th a")
	b.click("button[value=delete]")
	b.click("button[name=yes]")
	if n := d.count("webhook.deliver", shunt.StateDead); n != 81 {
		t.Errorf("%d are dead", n)
	}
	d.audited("delete", 1)

	b.open(ref(p.retried))
	b.do(chromedp.SetValue("input[name=by]", "36h", chromedp.ByQuery))
	b.click("button[value=postpone]")
	if in := time.Until(d.peek(p.retried).DueAt); in < 35*time.Hour || in > 36*time.Hour {
		t.Errorf("postponed, it is due in %v", in)
	}
	d.audited("postpone", 1)
	b.open(ref(p.retried))
	b.click("button[value=promote]")
	d.until("it is ready", func() bool {
		e := d.peek(p.retried)
		return e.State == shunt.StatePrepare || time.Until(e.DueAt) <= 0
	})
	d.audited("promote", 1)

	b.open(ref(p.ready))
	b.click("button[value=cancel]")
	b.asks("Cancel this message?")
	b.click("button[name=yes]")
	if !d.gone(p.ready) {
		t.Error("it is not cancelled")
	}
	d.audited("cancel", 1)

	b.open(ref(p.held))
	b.click("button[value=cancel]")
	b.click("button[name=yes]")
	if s, err := d.q.Status(context.Background(), p.held); err != nil || !s.Cancelled {
		t.Errorf("in hand, it is %+v, %v", s, err)
	}
	b.open(ref(p.held))
	b.shows(".life", "Cancel was asked for")
	b.blameless("actions")
}

// Those chosen by their boxes, and all on a page by one.
func TestChosen(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.fail("c", 60, "no %d", true)
	b := d.tab("olga")
	b.screen(1440, "dark")
	b.open("messages?c=c&s=dead")
	b.do(chromedp.Click("tbody tr:nth-child(2) input", chromedp.ByQuery),
		chromedp.Click("tbody tr:nth-child(4) input", chromedp.ByQuery))
	b.click("button[value=retry]")
	b.shows("[role=status]", "2 retried.")
	b.do(chromedp.Click("[data-all]", chromedp.ByQuery))
	b.click("button[value=delete]")
	b.asks("Delete 50 messages?")
	b.click("button[name=yes]")
	b.shows("[role=status]", "50 deleted.")
	if dead, ready := d.count("c", shunt.StateDead), d.count("c", shunt.StatePrepare); dead != 8 || ready != 2 {
		t.Errorf("%d are dead, %d ready", dead, ready)
	}
	d.audited("delete", 50)
}

// Bulk actions name their count first, change no others, and show how far they are until they end.
func TestBulk(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.plant()
	b := d.tab("olga")
	b.screen(1440, "light")
	group := func(text, verb string) string {
		return fmt.Sprintf(`//tr[contains(., %q)]//button[@value=%q]`, text, verb)
	}
	ended := func(text string) {
		t.Helper()
		// The page is loaded again when it has ended, and only then has no button that stops it.
		d.until(text, func() bool {
			return strings.Contains(b.text(".job"), text) && js[bool](b, `document.readyState === "complete" &&
				!document.querySelector("button[value=stop-job]")`)
		})
	}

	b.open("dead?c=webhook.deliver")
	if status := b.leads(chromedp.Click(group("503 Service", "retry-all"))); status != 200 {
		t.Fatal(status)
	}
	b.asks("Retry 57 dead letters of webhook.deliver?")
	b.click("button[name=yes]")
	ended("Retry all: done, 57 of 57")
	dead, ready := d.count("webhook.deliver", shunt.StateDead), d.count("webhook.deliver", shunt.StatePrepare)
	if dead != 26 || ready != 57 {
		t.Errorf("%d are dead, %d ready", dead, ready)
	}
	d.audited("retry-all", 57)

	b.open("dead?c=webhook.deliver")
	if status := b.leads(chromedp.Click(group("connection refused", "delete-all"))); status != 200 {
		t.Fatal(status)
	}
	b.asks("Delete 21 dead letters of webhook.deliver?")
	b.shows(".ask .note", "cannot be undone")
	b.click("button[name=yes]")
	ended("Delete all: done, 21 of 21")
	if n := d.count("webhook.deliver", shunt.StateDead); n != 5 {
		t.Errorf("%d are dead", n)
	}
	d.audited("delete-all", 21)

	b.open("channel?c=mail.welcome")
	b.click("button[value=purge]")
	b.asks("Delete all 60 messages of mail.welcome in the state “Done”?")
	b.click("button[name=yes]")
	ended("Purge: done, 60 of 60")
	if n := d.count("mail.welcome", shunt.StateDone); n != 0 {
		t.Errorf("%d are kept", n)
	}

	b.open("messages?c=billing.invoice&s=delay&idprefix=invoice:2026-10:411")
	b.click("button[value=promote-all]")
	b.asks("Make 10 delayed messages of billing.invoice due now?")
	b.click("button[name=yes]")
	d.until("10 are due", func() bool {
		return d.count("billing.invoice", shunt.StatePrepare)+due(d, "billing.invoice") == 10
	})
	b.open("channel?c=billing.invoice")
	b.click("button[value=cancel-all]")
	b.click("button[name=yes]")
	ended("Cancel all: done")
	b.blameless("bulk actions")
}

// due is how many delayed messages of a channel are due.
func due(d *desk, channel string) (n int) {
	d.Helper()
	es, err := d.q.List(context.Background(), channel, shunt.StateDelay, 0, 100)
	if err != nil {
		d.Fatal(err)
	}
	for _, e := range es {
		if time.Until(e.DueAt) <= 0 {
			n++
		}
	}
	return n
}

func TestRecurring(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.plant()
	ctx, tt := context.Background(), &recur.Timetable{Queue: d.q}
	entry := func() recur.Entry {
		es, err := tt.List(ctx, "report.nightly")
		for _, e := range es {
			if e.Name == "digest" {
				return e
			}
		}
		t.Fatal(err, es)
		return recur.Entry{}
	}
	b := d.tab("olga")
	b.screen(360, "dark")
	b.open("recurring")
	press := func(verb, did string) {
		t.Helper()
		button := fmt.Sprintf(`//tr[th="digest"]//button[@value=%q]`, verb)
		if status := b.leads(chromedp.Click(button)); status != 200 {
			t.Fatal(verb, status)
		}
		b.shows("[role=status]", did)
		d.audited(verb, 1)
	}
	press("run", "Enqueued.")
	if n := d.count("report.nightly", shunt.StatePrepare); n != 1 {
		t.Errorf("%d are ready", n)
	}
	press("pause", "Paused.")
	if !entry().Paused {
		t.Error("it is not paused")
	}
	press("resume", "Resumed.")
	if entry().Paused {
		t.Error("it is paused")
	}
	b.blameless("recurring")
}

// Theme and language stay with the browser.
func TestSettings(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	b := d.tab("vera")
	b.screen(360, "light")
	background := func() string { return js[string](b, "getComputedStyle(document.body).backgroundColor") }
	b.open("settings")
	light := background()
	b.do(chromedp.Click("input[value=dark]", chromedp.ByQuery), chromedp.Click("input[value=zh]", chromedp.ByQuery))
	b.click("main form button")
	b.open("")
	b.shows("h1", "概览")
	dark := background()
	if dark == light || js[string](b, "document.documentElement.lang") != "zh-Hans" {
		t.Errorf("the background is %s, and was %s", dark, light)
	}
	// A theme that was chosen wins over the system's, both ways.
	b.screen(360, "dark")
	b.open("settings")
	b.do(chromedp.Click("input[value=light]", chromedp.ByQuery), chromedp.Click("input[value=en]", chromedp.ByQuery))
	b.click("main form button")
	b.shows("h1", "Settings")
	if got := background(); got != light {
		t.Errorf("the background is %s, want %s", got, light)
	}
	b.blameless("settings")
}

// A search by what people know of a message, and pages of what fits.
func TestSearch(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	p := d.plant()
	b := d.tab("vera")
	b.screen(1440, "light")
	rows := func() int { return js[int](b, `document.querySelectorAll("tbody th").length`) }
	search := func(path, field, text string) {
		t.Helper()
		b.open(path)
		selector := fmt.Sprintf("input[name=%s]", field)
		if status := b.leads(chromedp.SendKeys(selector, text+"\r", chromedp.ByQuery)); status != 200 {
			t.Fatal(status)
		}
	}
	search("messages?c=image.resize", "find", "photo:last")
	b.shows("h1", "photo:last")
	search("messages?c=image.resize", "find", p.ready.Serial)
	b.shows("h1", "photo:last")
	search("messages?c=短信.发送", "find", "验证码:4711")
	b.shows("h1", "验证码:4711")
	search("messages?c=image.resize", "find", "<b>nobody</b>")
	b.shows(".note:not([hidden])", "There is no message <b>nobody</b>")
	for _, s := range []struct {
		path, field, text string
		want              int
	}{
		{"messages?c=webhook.deliver&s=dead", "failure", "connection refused", 21},
		{"messages?c=billing.invoice&s=delay", "idprefix", "invoice:2026-10:412", 10},
		{"messages?c=billing.invoice&s=delay", "header", "tenant=acme", 40},
		{"messages?c=短信.发送", "type", "验证码", 1}, {"messages?c=webhook.deliver&s=dead", "attempts", "2", 0},
		{"dead?c=webhook.deliver", "failure", "orders", 1}, {"", "q", "IMAGE", 1},
	} {
		if search(s.path, s.field, s.text); rows() != s.want {
			t.Errorf("%s %s=%s: %d rows, want %d", s.path, s.field, s.text, rows(), s.want)
		}
	}

	seen := make(map[string]bool)
	b.open("messages?c=image.resize")
	for want := 50; ; {
		for _, serial := range js[[]string](b, `[...document.querySelectorAll("tbody th")].map(e => e.innerText)`) {
			seen[serial] = true
		}
		if len(seen) != want {
			t.Fatalf("%d were on pages, want %d", len(seen), want)
		}
		if want = min(128, want+50); len(seen) == 128 {
			break
		}
		b.click("a[rel=next]")
	}
	if js[bool](b, `!!document.querySelector("a[rel=next]")`) {
		t.Error("there is a page after the last one")
	}
	b.open("messages?c=image.resize")
	first := b.text("tbody th")
	b.click(".pager .button") // the other end first
	if got := b.text("tbody th"); got == first || rows() != 50 {
		t.Errorf("from the other end the first of %d is %s", rows(), got)
	}
	// A column's head sorts by it, and the other way when it is clicked again.
	b.open("")
	for _, want := range []string{"ascending", "descending"} {
		b.click("thead th:first-child a")
		names := js[[]string](b, `[...document.querySelectorAll("tbody th a")].map(a => a.innerText)`)
		sorted := slices.IsSorted(names)
		if slices.Reverse(names); js[string](b, "document.querySelector('thead th').ariaSort") != want ||
			sorted != (want == "ascending") || !sorted && !slices.IsSorted(names) {
			t.Errorf("sorted %s: %q", want, names)
		}
	}
	// Rows are filtered while one types.
	b.open("")
	b.do(chromedp.SendKeys("input[name=q]", "短信", chromedp.ByQuery))
	if n := js[int](b, `document.querySelectorAll("tbody tr:not([hidden])").length`); n != 1 {
		t.Errorf("%d rows are left", n)
	}
	b.do(chromedp.SendKeys("input[name=q]", "\x1b", chromedp.ByQuery))
	if n := js[int](b, `document.querySelectorAll("tbody tr[hidden]").length`); n != 0 {
		t.Errorf("%d rows are hidden after Esc", n)
	}
	b.blameless("search")
}
