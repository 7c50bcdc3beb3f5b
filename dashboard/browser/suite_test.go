package browser

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
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
	"go.uber.org/goleak"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/dashboard"
	"github.com/shuntmq/shunt/internal/redistest"
)

// patience bounds what a page may take: much, for machines that do something else, too.
const patience = 20 * time.Second

// chromium is the one browser of all tests. Each test has a tab with cookies of its own.
var chromium struct {
	once sync.Once
	path string
	ctx  context.Context
	end  func()
	err  error
}

func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	if chromium.end != nil {
		chromium.end()
	}
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, "browser: the tests left goroutines behind:", err)
		code = 1
	}
	os.Exit(code)
}

// start gives the browser, which the first test starts.
func start(t *testing.T) context.Context {
	t.Helper()
	chromium.once.Do(func() {
		for _, name := range []string{os.Getenv("CHROMIUM"), "chromium", "chromium-browser", "google-chrome"} {
			if chromium.path == "" && name != "" {
				chromium.path, _ = exec.LookPath(name)
			}
		}
		if chromium.path == "" {
			return
		}
		options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(chromium.path),
			chromedp.NoSandbox, chromedp.Flag("disable-dev-shm-usage", true), chromedp.Flag("lang", "en"),
			// Nothing but the test's own server is to be reached.
			chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"))
		all, stop := chromedp.NewExecAllocator(context.Background(), options...)
		ctx, cancel := chromedp.NewContext(all)
		chromium.ctx, chromium.end = ctx, func() {
			_ = chromedp.Cancel(ctx)
			cancel()
			stop()
		}
		chromium.err = chromedp.Run(ctx)
	})
	switch {
	case chromium.path == "" && os.Getenv("REQUIRE_BROWSER") != "":
		t.Fatal("there is no chromium in PATH: install it, or name it by CHROMIUM")
	case chromium.path == "":
		t.Skip("there is no chromium in PATH, and CHROMIUM names none")
	case chromium.err != nil:
		t.Fatal(chromium.err)
	}
	return chromium.ctx
}

// desk is a dashboard on a Redis of its own, with an operator and a viewer.
type desk struct {
	*testing.T
	q       *shunt.Queue
	at      string
	host    string
	streams atomic.Int32 // that are open
	took    atomic.Int64 // ns that the server had for the last page
}

var logins = map[string]dashboard.Login{
	"olga": {Password: "o", Role: dashboard.Operator}, "vera": {Password: "v", Role: dashboard.Viewer},
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	start(t)
	s := redistest.Start(t)
	return deskOn(t, s.Addr())
}

// deskOn is a desk on the Redis at an address.
func deskOn(t *testing.T, addr string) *desk {
	t.Helper()
	pool := redistest.Pool(t, addr)
	q := &shunt.Queue{Pool: pool, Quiet: true, EnqueueTimeout: patience}
	t.Cleanup(func() {
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	})
	h := dashboard.Handler(q, dashboard.Options{Authenticate: dashboard.BasicAuth(logins), Pool: pool,
		Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	d := &desk{T: t, q: q}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/desk/line" {
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, "<!doctype html><title>line</title><p>hello")
			return
		}
		if r.URL.Path == "/desk/live" {
			d.streams.Add(1)
			defer d.streams.Add(-1)
		}
		began := time.Now()
		h.ServeHTTP(w, r)
		if r.Header.Get("Sec-Fetch-Dest") == "document" {
			d.took.Store(int64(time.Since(began)))
		}
	}))
	t.Cleanup(func() {
		_ = h.Close()
		server.Close()
	})
	d.at, d.host = server.URL+"/desk/", strings.TrimPrefix(server.URL, "http://")
	return d
}

// until waits for what happens elsewhere.
func (d *desk) until(what string, ok func() bool) {
	d.Helper()
	redistest.Until(d.T, patience, what, ok)
}

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

// click clicks what is visible, and waits for the page that it leads to.
func (t *tab) click(selector string) {
	t.Helper()
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

func (d *desk) count(channel string, s shunt.State) int {
	d.Helper()
	stats, err := d.q.Stats(context.Background(), channel)
	if err != nil {
		d.Fatal(err)
	}
	return stats[s].Count
}

// peek is a message, which has to be there.
func (d *desk) peek(r shunt.Ref) shunt.Entry {
	d.Helper()
	e, err := d.q.Peek(context.Background(), r)
	if err != nil {
		d.Fatal(err)
	}
	return e
}

// gone says whether nothing is left of a message.
func (d *desk) gone(r shunt.Ref) bool {
	d.Helper()
	_, err := d.q.Peek(context.Background(), r)
	if err != nil && !errors.Is(err, shunt.ErrNotFound) {
		d.Fatal(err)
	}
	return err != nil
}

func ref(r shunt.Ref) string { return "message?ref=" + url.QueryEscape(r.String()) }
