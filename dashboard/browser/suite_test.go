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
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/dashboard"
	"github.com/shuntmq/shunt/internal/redistest"
)

// patience bounds what a page may take: much, for machines that do something else, too.
const patience = 20 * time.Second

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
	q := &shunt.Queue{Pool: pool, Quiet: true, EnqueueTimeout: patience, Grace: patience}
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
