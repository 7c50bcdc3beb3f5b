package browser

import (
	"context"
	"fmt"
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
