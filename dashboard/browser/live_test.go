package browser

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/redistest"
)

// What happens in Redis shows without a reload; a hidden tab has no stream.
func TestLive(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.enqueue("c", "1")
	b := d.tab("vera")
	b.screen(1440, "light")
	cell := `[data-c=c] [data-f=waiting]`
	for _, path := range []string{"", "channel?c=c"} {
		n := d.count("c", shunt.StatePrepare)
		b.open(path)
		b.shows(cell, fmt.Sprint(n))
		b.do(chromedp.Evaluate("document.body.dataset.same = 1", nil))
		d.until("it is live", func() bool { return b.text(".livemark") == "live" })
		d.enqueue("c", "2")
		d.until("the figure changes", func() bool { return b.text(cell) == fmt.Sprint(n+1) })
		if js[string](b, "document.body.dataset.same ?? ''") != "1" {
			t.Error("the page was loaded again")
		}
	}
	d.until("one stream is open", func() bool { return d.streams.Load() == 1 })

	hide := func(hidden bool) {
		t.Helper()
		b.do(chromedp.Evaluate(fmt.Sprintf(`Object.defineProperty(document, "hidden", {configurable: true, value: %t});
			document.dispatchEvent(new Event("visibilitychange"))`, hidden), nil))
	}
	hide(true)
	d.until("the stream is closed", func() bool { return d.streams.Load() == 0 })
	d.enqueue("c", "3")
	hide(false)
	d.until("the figure is as it is now", func() bool { return b.text(cell) == "4" })
	b.open("settings")
	d.until("no stream is open", func() bool { return d.streams.Load() == 0 })
	b.blameless("live pages")
}

// A bulk action on a slow Redis shows how far it is, can be stopped, and goes on where it was.
func TestProgress(t *testing.T) {
	t.Parallel()
	start(t)
	s := redistest.Start(t)
	deskOn(t, s.Addr()).fail("c", 2000, "no %d", true)
	proxy := redistest.NewProxy(t, s.Addr())
	d := deskOn(t, proxy.Addr())
	b := d.tab("olga")
	b.screen(360, "dark")
	b.open("dead?c=c")
	b.click("button[value=retry-all]")
	b.asks("Retry 2,000 dead letters of c?")
	proxy.Slow(150*time.Millisecond, 0, 0)
	b.click("button[name=yes]")
	moves := make(map[int]bool)
	d.until("it moves twice", func() bool {
		n := js[int](b, "document.querySelector('progress').value")
		if n > 0 && n < 100 {
			moves[n] = true
		}
		return len(moves) > 1
	})
	b.click("button[value=stop-job]")
	d.until("it has stopped", func() bool {
		return js[bool](b, `!!document.querySelector("button[value=resume-job]")`)
	})
	b.shows(".job", "Retry all: stopped after")
	left := d.count("c", shunt.StateDead)
	if left == 0 || left >= 2000 {
		t.Fatalf("%d are dead", left)
	}
	proxy.Slow(0, 0, 0)
	b.click("button[value=resume-job]")
	b.click("button[name=yes]")
	d.until("it has ended", func() bool { return strings.HasPrefix(b.text(".job"), "Retry all: done") })
	if n := d.count("c", shunt.StatePrepare); n != 2000 {
		t.Errorf("%d are ready", n)
	}
	b.blameless("a bulk action")
}

// Charts say the time as the rest of the page does, wherever the browser is, and fit when the screen turns.
func TestCharts(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.plant()
	b := d.tab("vera")
	b.screen(1440, "light")
	b.do(emulation.SetTimezoneOverride("Asia/Kolkata"))
	b.open("channel?c=webhook.deliver")
	var at struct{ X, Y float64 }
	b.do(chromedp.Evaluate(`(() => {
		const e = document.querySelector(".u-over");
		e.scrollIntoView();
		const r = e.getBoundingClientRect();
		return {x: r.right - 1, y: r.top + 20};
	})()`, &at))
	b.do(input.DispatchMouseEvent(input.MouseMoved, at.X-9, at.Y),
		input.DispatchMouseEvent(input.MouseMoved, at.X, at.Y))
	last := js[string](b, `document.querySelector("#series tbody tr:last-child time").dateTime`)
	last = last[:10] + " " + last[11:16]
	d.until("the legend has the time", func() bool { return b.text(".u-legend .u-value") == last })

	fits := `[...document.querySelectorAll("figure")].every(f => f.scrollWidth <= f.clientWidth + 1 &&
		f.querySelector("canvas").getBoundingClientRect().right <= f.getBoundingClientRect().right)`
	for _, width := range []int64{360, 700, 360} {
		b.screen(width, "dark")
		d.until(fmt.Sprint("charts fit ", width, " px"), func() bool { return js[bool](b, fits) })
	}
	b.blameless("charts")
}

// A page that comes back by the browser's back button is live again.
func TestBack(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.enqueue("c", "1")
	b := d.tab("vera")
	b.open("")
	d.until("it is live", func() bool { return d.streams.Load() == 1 })
	b.open("settings")
	d.until("it is not", func() bool { return d.streams.Load() == 0 })
	var at int64
	var entries []*page.NavigationEntry
	b.do(chromedp.NavigationEntries(&at, &entries))
	b.do(page.NavigateToHistoryEntry(entries[at-1].ID))
	d.until("it is live again", func() bool { return d.streams.Load() == 1 })
	d.enqueue("c", "2")
	d.until("the figure is as it is now", func() bool { return b.text(`[data-c=c] [data-f=waiting]`) == "2" })
}
