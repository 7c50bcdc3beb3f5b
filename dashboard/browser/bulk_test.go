package browser

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/shuntmq/shunt"
)

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
