package dashboard

import (
	"context"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/recur"
)

// fill has something on every page.
func (d *desk) fill(channel string) {
	d.Helper()
	d.enqueue(channel, `{"to":"ann@example.org"}`, shunt.ID("welcome-1"), shunt.Header("tenant", "blue"))
	d.enqueue(channel, "later", shunt.In(time.Hour), shunt.ID("later-1"))
	d.kill(channel+".dead", 3, "mailbox %d is full")
	tt := &recur.Timetable{Queue: d.q}
	err := tt.Add(context.Background(), "nightly", recur.Cron("30 2 * * *", ""), shunt.Raw(channel, []byte("all")))
	if err != nil {
		d.Fatal(err)
	}
	err = d.q.Audit(context.Background(), shunt.AuditEntry{By: "ann", Verb: "retry", Channel: channel})
	if err != nil {
		d.Fatal(err)
	}
}

// Every page shows what there is to both roles, and only operators find buttons.
func TestPages(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.fill("mail")
	release := make(chan struct{})
	work := shunt.Define("work", func(context.Context, string) error { <-release; return nil })
	if _, err := d.q.Receive(context.Background(), work, 2); err != nil {
		t.Fatal(err)
	}
	defer close(release)
	if err := d.q.Enqueue(context.Background(), work.Message("a")); err != nil {
		t.Fatal(err)
	}
	for d.count("work", shunt.StateDoing) == 0 {
		time.Sleep(time.Millisecond)
	}
	held := d.entry("work", shunt.StateDoing)
	ref := d.entry("mail", shunt.StatePrepare).Ref().String()
	gone := d.entry("mail.dead", shunt.StateDead)
	for path, wants := range map[string][]string{
		"":                         {"mail", "work", "Nothing is wrong|Health", `data-f="waiting">1<`},
		"?q=wor":                   {"work"},
		"?sort=channel":            {`aria-sort="ascending"`, `href="./?sort=channel&amp;up=1"`},
		"channel?c=mail":           {"Ready", "Handling", `id="series"`, "uplot.js"},
		"channel?c=mail&range=3h":  {`aria-current="true">3h`, `id="series"`},
		"channel?c=mail&range=2d":  {`aria-current="true">2d`, `id="series"`},
		"channel?c=mail&range=30d": {`aria-current="true">30d`, `id="series"`},
		"channel?c=work":           {held.Receiver, "alive"},
		"messages?c=mail":          {"welcome-1", `{&#34;to&#34;:&#34;ann@example.org&#34;}`},
		"messages?c=mail&s=delay": {"later-1", "in 59m",
			`href="messages?c=mail&amp;latest=1&amp;s=delay"`},
		"messages?c=mail&header=tenant%3Dblue":     {"welcome-1", "Looked at 1"},
		"messages?c=mail&header=tenant%3Dred":      {"There is none here"},
		"messages?c=mail&idprefix=x":               {"There is none here"},
		"messages?c=mail&find=nothing":             {"There is no message nothing"},
		"messages?c=mail.dead&s=dead":              {"mailbox 1001 is full", "mailbox 1003 is full"},
		"messages?c=mail.dead&s=dead&failure=1002": {"mailbox 1002 is full", "and 1 fit"},
		"message?ref=" + esc(ref):                  {"welcome-1", "&#34;to&#34;: &#34;ann@example.org&#34;", "tenant"},
		"message?ref=" + esc(gone.Ref().String()):  {"mailbox", "Died"},
		"message?ref=" + esc(held.Ref().String()):  {held.Receiver, "In a worker"},
		"payload?ref=" + esc(ref):                  {`{"to":"ann@example.org"}`},
		"dead":                                     {"mail.dead"},
		"dead?c=mail.dead":                         {"mailbox # is full", ">3<"},
		"dead?c=mail.dead&failure=1002":            {"mailbox # is full", ">1<"},
		"recurring":                                {"nightly", "30 2 * * *", "02:30:00 UTC"},
		"recurring?c=mail":                         {"nightly"},
		"receivers":                                {held.Receiver, held.Serial, "s ago|ms ago"},
		"receivers?c=work":                         {held.Receiver},
		"redis":                                    {"redis_version", "maxmemory_policy", "Slow log"},
		"audit":                                    {"ann", "retry"},
		"settings":                                 {"vera|olga"},
	} {
		for _, user := range []string{"vera", "olga"} {
			b := d.as(user)
			body := b.get(200, path)
			for _, want := range wants {
				found := false
				for one := range strings.SplitSeq(want, "|") {
					found = found || strings.Contains(body, one)
				}
				if !found {
					t.Errorf("%s for %s: no %q in %s", path, user, want, near(body, "<h1>"))
				}
			}
			if strings.Contains(body, "CountsOptions") {
				t.Errorf("%s shows no counts: %s", path, near(body, "CountsOptions"))
			}
			if user == "vera" && strings.Contains(body, `action="act"`) {
				t.Errorf("%s has actions for a viewer", path)
			}
		}
	}
	b := d.as("vera")
	if body := b.get(200, "channel?c=mail"); !strings.Contains(body, `<td class="num">1</td>`) {
		t.Error(body)
	}
	b.get(303, "messages?c=mail&find=welcome-1")
	b.get(303, "messages?c=mail&find="+d.entry("mail", shunt.StatePrepare).Serial)
	b.get(404, "message?ref="+esc(shunt.BySerial("mail", gone.Serial).String()))
	b.get(400, "message?ref=nonsense")
	b.get(400, "channel")
	b.get(502, "channel?c=a%20b")
}

func esc(s string) string { return url.QueryEscape(s) }

// Only pages that there are, by the last element of the path, are served; nothing else of the file system is.
func TestPaths(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	for path, status := range map[string]int{
		"/": 200, "": 404, "/settings": 200, "/x/y/settings": 200, "/style.css": 200, "/x/style.css": 200,
		"/..": 404, "/../": 200, "/%2e%2e/handler.go": 404, "/handler.go": 404, "/assets/": 200, "/assets": 404,
		"/templates/layout.html": 404, "/layout": 404, "/confirm": 404, "/error": 404, "/uplot.LICENSE": 404,
		"/..%2fhandler.go": 404, "/settings/": 200, "/settings%00": 404, "/Settings": 404, "/settings;x": 404,
		"/....//etc/passwd": 404, "//evil.example/settings": 200, `/\evil`: 404, "/act": 404,
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.URL.Path = path
		if strings.Contains(path, "%") {
			r = httptest.NewRequest("GET", path, nil)
		}
		r.SetBasicAuth("vera", "v")
		w := httptest.NewRecorder()
		d.d.ServeHTTP(w, r)
		if w.Code != status {
			t.Errorf("%q: %d, want %d", path, w.Code, status)
		}
	}
	for _, method := range []string{"PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"} {
		r := httptest.NewRequest(method, "/settings", nil)
		r.SetBasicAuth("olga", "o")
		w := httptest.NewRecorder()
		if d.d.ServeHTTP(w, r); w.Code != 405 {
			t.Errorf("%s: %d", method, w.Code)
		}
	}
}

// The headers that keep others out are on each answer, whatever it is.
func TestSecurityHeaders(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	for _, path := range []string{"/", "/settings", "/style.css", "/nothing", "/channel"} {
		for _, user := range []string{"", "vera"} {
			r := httptest.NewRequest("GET", path, nil)
			r.SetBasicAuth(user, "v")
			w := httptest.NewRecorder()
			d.d.ServeHTTP(w, r)
			csp := w.Header().Get("Content-Security-Policy")
			if !strings.Contains(csp, "default-src 'none'") || strings.Contains(csp, "unsafe") ||
				!strings.Contains(csp, "frame-ancestors 'none'") ||
				w.Header().Get("X-Content-Type-Options") != "nosniff" ||
				w.Header().Get("X-Frame-Options") != "DENY" || w.Header().Get("Referrer-Policy") != "same-origin" {
				t.Errorf("%s for %q: %v", path, user, w.Header())
			}
			if path != "/style.css" && w.Header().Get("Cache-Control") != "no-store" {
				t.Errorf("%s may be kept", path)
			}
		}
	}
}

// The first load of each live page has at most 150 KB, comes from here alone, and has no script or style within.
func TestFirstLoad(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.fill("mail")
	for i := range 60 {
		d.enqueue("channel-"+strings.Repeat("x", i), "x")
	}
	b := d.as("olga")
	loads := regexp.MustCompile(`(?:href|src)="([a-z]+\.(?:css|js|svg)\?v=[0-9a-f]+)"`)
	for _, page := range []string{
		"", "channel?c=mail", "channel?c=mail&range=2d", "dead?c=mail.dead", "messages?c=mail",
	} {
		body := b.get(200, page)
		took := time.Hour
		for tries := 0; tries < 3 && took > time.Second; tries++ { // 100 ms on a machine that does nothing else
			began := time.Now()
			b.get(200, page)
			took = time.Since(began)
		}
		if took > time.Second {
			t.Errorf("%q took %v", page, took)
		}
		size := len(body)
		for _, m := range loads.FindAllStringSubmatch(body, -1) {
			size += len(b.get(200, m[1]))
		}
		if t.Logf("%q: %d bytes", page, size); size > 150<<10 || size < 10<<10 {
			t.Errorf("%q loads %d bytes", page, size)
		}
		for _, bad := range []string{"http://", "https://", "//cdn", "<style", "style=", " onclick", "javascript:"} {
			if strings.Contains(body, bad) {
				t.Errorf("%q has %s", page, bad)
			}
		}
		if strings.Count(body, "<script") != strings.Count(body, "<script defer src=") {
			t.Errorf("%q has a script within", page)
		}
	}
}

// A Redis that is away is an error on a page, not a hang and not a panic.
func TestRedisAway(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	b := d.as("olga")
	b.get(200, "")
	d.redis.Kill()
	b.get(502, "channel?c=mail", "That did not work")
	b.get(200, "settings")
}

func TestClosed(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	b := d.as("olga")
	b.get(200, "")
	if err := d.d.Close(); err != nil {
		t.Fatal(err)
	}
	b.get(503, "")
	w := httptest.NewRecorder()
	if Handler(nil, Options{}).ServeHTTP(w, httptest.NewRequest("GET", "/", nil)); w.Code != 503 {
		t.Error(w.Code)
	}
}
