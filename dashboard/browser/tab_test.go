package browser

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/chromedp/cdproto"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"
)

// tab is a user's tab of the browser.
type tab struct {
	*desk
	ctx context.Context

	mu     sync.Mutex
	faults []string // since the page was opened: of the console, and requests to other hosts
	bytes  float64  // that were loaded since
}

func (d *desk) tab(user string) *tab {
	d.Helper()
	all := start(d.T)
	whole := cdp.WithExecutor(all, chromedp.FromContext(all).Browser)
	jar, err := target.CreateBrowserContext().WithDisposeOnDetach(true).Do(whole)
	if err != nil {
		d.Fatal(err)
	}
	id, err := target.CreateTarget("about:blank").WithBrowserContextID(jar).WithNewWindow(true).Do(whole)
	if err != nil {
		d.Fatal(err)
	}
	ctx, cancel := chromedp.NewContext(all, chromedp.WithTargetID(id))
	d.Cleanup(func() {
		cancel()
		ctx, stop := context.WithTimeout(whole, time.Second)
		defer stop()
		_ = target.DisposeBrowserContext(jar).Do(ctx) // Chromium does not answer while such a page loads
	})
	t := &tab{desk: d, ctx: ctx}
	chromedp.ListenTarget(ctx, t.hear)
	// EventSource sends headers, too; a password in the URL would be in every link.
	r := &http.Request{Header: http.Header{}}
	r.SetBasicAuth(user, logins[user].Password)
	t.do(network.Enable(), log.Enable(), runtime.Enable(), network.SetCacheDisabled(true),
		network.SetExtraHTTPHeaders(network.Headers{"Authorization": r.Header.Get("Authorization"),
			"Accept-Language": "en"}))
	return t
}

func (t *tab) hear(event any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fault := func(format string, args ...any) { t.faults = append(t.faults, fmt.Sprintf(format, args...)) }
	switch e := event.(type) {
	case *runtime.EventConsoleAPICalled:
		fault("console: %s", e.Type)
	case *runtime.EventExceptionThrown:
		fault("exception: %s", e.ExceptionDetails.Error())
	case *log.EventEntryAdded:
		fault("log: %s: %s %s", e.Entry.Level, e.Entry.Text, e.Entry.URL)
	case *network.EventRequestWillBeSent:
		if u, err := url.Parse(e.Request.URL); err != nil || u.Host != t.host && u.Scheme != "data" {
			fault("request to %s", e.Request.URL)
		}
	case *network.EventLoadingFinished:
		t.bytes += e.EncodedDataLength
	case *page.EventJavascriptDialogOpening:
		fault("dialog: %s", e.Message)
	}
}

// do runs actions, which have to succeed.
func (t *tab) do(actions ...chromedp.Action) {
	t.Helper()
	// The first Run of a tab makes it, for as long as its context lives; so that must not be one that ends.
	if chromedp.FromContext(t.ctx).Target == nil {
		if err := chromedp.Run(t.ctx); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.ctx, patience)
	defer cancel()
	if err := chromedp.Run(ctx, actions...); err != nil {
		var at string
		_ = chromedp.Run(t.ctx, chromedp.Location(&at))
		t.Fatalf("%v at %s", err, at)
	}
}

// leads runs actions that open another page, and gives its status.
func (t *tab) leads(actions ...chromedp.Action) int64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.ctx, patience)
	defer cancel()
	r, err := chromedp.RunResponse(ctx, actions...)
	if err != nil || r == nil {
		var at string
		_ = chromedp.Run(t.ctx, chromedp.Location(&at))
		t.Fatalf("%v at %s", err, at)
	}
	return r.Status
}

// screen sets the width of the screen; what is narrow is a phone.
func (t *tab) screen(width int64, theme string) {
	t.Helper()
	t.do(emulation.SetDeviceMetricsOverride(width, 900, 1, width < 800),
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{
			{Name: "prefers-color-scheme", Value: theme}, {Name: "prefers-reduced-motion", Value: "reduce"}}))
}

func (t *tab) open(path string) int64 {
	t.Helper()
	t.mu.Lock()
	t.faults, t.bytes = nil, 0
	t.mu.Unlock()
	return t.leads(chromedp.Navigate(t.at + path))
}

// click clicks what is visible, and waits for the page that it leads to. While the page is still loaded, what it shows
// may move away from below the click.
func (t *tab) click(selector string) {
	t.Helper()
	t.until("the page is loaded", func() bool { return js[bool](t, `document.readyState === "complete"`) })
	if status := t.leads(chromedp.Click(selector, chromedp.ByQuery)); status != 200 {
		t.Fatalf("a click on %s leads to %d: %s", selector, status, t.text("main"))
	}
}

// js evaluates an expression: again where the page went away meanwhile, as one that is loaded again.
func js[T any](t *tab, expression string) (v T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.ctx, patience)
	defer cancel()
	for {
		err := chromedp.Run(ctx, chromedp.Evaluate(expression, &v,
			func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }))
		var protocol *cdproto.Error // of the browser; what a script throws is another
		if err == nil {
			return v
		} else if !errors.As(err, &protocol) || ctx.Err() != nil {
			t.Fatal(err)
		}
	}
}

// text is what an element shows; empty without one.
func (t *tab) text(selector string) string {
	t.Helper()
	return js[string](t, fmt.Sprintf("document.querySelector(%q)?.innerText ?? ''", selector))
}

// shows says whether the page has an element with a text.
func (t *tab) shows(selector, text string) {
	t.Helper()
	if got := t.text(selector); !strings.Contains(got, text) {
		t.Errorf("%s is %q, want %q", selector, got, text)
	}
}

// blameless fails for what the browser complained of, and for what goes elsewhere.
func (t *tab) blameless(where string) {
	t.Helper()
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, f := range t.faults {
		t.Errorf("%s: %s", where, f)
	}
}
