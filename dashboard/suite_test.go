package dashboard

import (
	"context"
	"errors"
	"fmt"
	"html"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/redistest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// desk is a dashboard on a Redis of its own, mounted below /some/where/, with a viewer and an operator.
type desk struct {
	*testing.T
	redis *redistest.Server
	q     *shunt.Queue
	d     *Dashboard
	at    string
}

var logins = map[string]Login{"olga": {"o", Operator}, "vera": {"v", Viewer}}

func newDesk(t *testing.T, change ...func(*Options)) *desk {
	t.Helper()
	redistest.Leaks(t)
	s := redistest.Start(t)
	return deskOn(t, s, s.Addr(), change...)
}

// deskOn is a desk that reaches its Redis by an address.
func deskOn(t *testing.T, s *redistest.Server, addr string, change ...func(*Options)) *desk {
	t.Helper()
	pool := redistest.Pool(t, addr)
	q := &shunt.Queue{Pool: pool, Quiet: true, Lease: 2 * time.Second, EnqueueTimeout: 3 * time.Second}
	t.Cleanup(func() {
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	})
	o := Options{Authenticate: BasicAuth(logins), Pool: pool, Log: slog.New(slog.NewTextHandler(io.Discard, nil))}
	for _, c := range change {
		c(&o)
	}
	d := Handler(q, o)
	mux := http.NewServeMux()
	mux.Handle("/some/where/", d)
	server := httptest.NewServer(mux)
	t.Cleanup(func() {
		_ = d.Close()
		server.Close()
	})
	return &desk{T: t, redis: s, q: q, d: d, at: server.URL + "/some/where/"}
}

// browser is one user's, with cookies; it follows no redirects.
type browser struct {
	*desk
	c    *http.Client
	user string
}

func (d *desk) as(user string) *browser {
	jar, _ := cookiejar.New(nil)
	b := &browser{d, &http.Client{Jar: jar, Transport: &http.Transport{}}, user}
	b.c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	d.Cleanup(b.c.CloseIdleConnections)
	return b
}

func (b *browser) do(r *http.Request) (*http.Response, string) {
	b.Helper()
	if b.user != "" {
		r.SetBasicAuth(b.user, logins[b.user].Password)
	}
	resp, err := b.c.Do(r)
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		b.Fatal(err)
	}
	return resp, string(body)
}

// near is the part of a page around a text; without it, what the page is about.
func near(body, text string) string {
	_, main, _ := strings.Cut(body, "<main")
	if at := strings.Index(body, text); at >= 0 {
		main = body[max(0, at-200):]
	}
	return main[:min(len(main), 500)]
}

func (b *browser) get(status int, path string, wants ...string) string {
	b.Helper()
	r, err := http.NewRequest("GET", b.at+path, nil)
	if err != nil {
		b.Fatal(err)
	}
	resp, body := b.do(r)
	if resp.StatusCode != status {
		b.Fatalf("GET %s: %d, want %d: %s", path, resp.StatusCode, status, near(body, "role=\"alert\""))
	}
	for _, want := range wants {
		if !strings.Contains(body, want) {
			b.Errorf("GET %s: no %s in %s", path, want, near(body, "<h1>"))
		}
	}
	return body
}

var (
	tokenField  = regexp.MustCompile(`name="token" value="([^"]+)"`)
	hiddenField = regexp.MustCompile(`type="hidden" name="([^"]+)" value="([^"]*)"`)
)

// token is that of the browser's forms.
func (b *browser) token() string {
	b.Helper()
	m := tokenField.FindStringSubmatch(b.get(200, "settings"))
	if m == nil {
		b.Fatal("no token")
	}
	return m[1]
}

// post sends a form with its token, and gives where it leads to or the page.
func (b *browser) post(status int, pairs ...string) (location, body string) {
	b.Helper()
	v := url.Values{"token": {b.token()}}
	for i := 0; i < len(pairs); i += 2 {
		v.Add(pairs[i], pairs[i+1])
	}
	return b.send(status, "act", v)
}

func (b *browser) send(status int, path string, v url.Values) (location, body string) {
	b.Helper()
	r, err := http.NewRequest("POST", b.at+path, strings.NewReader(v.Encode()))
	if err != nil {
		b.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, body := b.do(r)
	if resp.StatusCode != status {
		b.Fatalf("POST %v: %d, want %d: %s", v, resp.StatusCode, status, near(body, "role=\"alert\""))
	}
	return resp.Header.Get("Location"), body
}

// confirmed posts, reads the page that asks, and sends its form with yes.
func (b *browser) confirmed(question string, pairs ...string) {
	b.Helper()
	_, page := b.post(200, pairs...)
	if !strings.Contains(page, question) {
		b.Errorf("no %q in %s", question, near(page, "question"))
	}
	v := url.Values{"yes": {"1"}}
	for _, m := range hiddenField.FindAllStringSubmatch(page, -1) {
		v.Add(m[1], html.UnescapeString(m[2]))
	}
	b.send(303, "act", v)
}

func (d *desk) enqueue(channel, payload string, opts ...shunt.Option) shunt.Ref {
	d.Helper()
	var r shunt.Ref
	err := d.q.Enqueue(context.Background(), shunt.Raw(channel, []byte(payload)), append(opts, shunt.RefTo(&r))...)
	if err != nil {
		d.Fatal(err)
	}
	return r
}

// kill has n messages die, each with a failure of its own number.
func (d *desk) kill(channel string, n int, failure string, opts ...shunt.Option) {
	d.Helper()
	ctx := context.Background()
	for range n {
		d.enqueue(channel, `{"to":"ann"}`, opts...)
	}
	for i := 0; i < n; {
		ms, err := d.q.Pull(ctx, shunt.PullOptions{Channels: []string{channel}, Max: 1000, Wait: time.Second})
		if err != nil || len(ms) == 0 {
			d.Fatal(err, len(ms))
		}
		for _, m := range ms {
			i++
			why := errors.New(strings.ReplaceAll(failure, "%d", fmt.Sprint(1000+i)))
			if err := m.Fail(ctx, shunt.Reject(why)); err != nil {
				d.Fatal(err)
			}
		}
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

func (d *desk) audits() []shunt.AuditEntry {
	d.Helper()
	es, err := d.q.AuditLog(context.Background(), "", 100)
	if err != nil {
		d.Fatal(err)
	}
	return es
}

// entry is the first message of a state.
func (d *desk) entry(channel string, s shunt.State) shunt.Entry {
	d.Helper()
	es, err := d.q.List(context.Background(), channel, s, 0, 1)
	if err != nil || len(es) == 0 {
		d.Fatal(err, len(es))
	}
	return es[0]
}

func requestFor(query string) *request {
	v, _ := url.ParseQuery(query)
	return &request{form: v}
}
