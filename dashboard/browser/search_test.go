package browser

import (
	"fmt"
	"slices"
	"testing"

	"github.com/chromedp/chromedp"
)

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
