package lmstfy

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/shuntmq/shunt/internal/redistest"
)

// A page of another site must not have an operator's browser change anything. A form needs no leave to be sent.
func TestAdminFromAnotherSite(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	const own = "a-token-that-another-site-knows"
	for _, from := range [][]string{
		{"Sec-Fetch-Site", "cross-site", "Origin", "https://example.org"},
		{"Origin", "https://example.org"},
	} {
		for _, path := range []string{"/token/" + s.ns + "?description=d&token=" + own, "/accesslog?status=disable"} {
			headers := append([]string{"Content-Type", "application/x-www-form-urlencoded"}, from...)
			if r := s.send(s.private.URL, "POST", path, "", headers...); r.status != 403 {
				t.Errorf("%s: %d %s", path, r.status, r.body)
			}
		}
	}
	if r := s.send(s.private.URL, "GET", "/token/"+s.ns, "", "Origin", "https://example.org"); r.status != 200 ||
		strings.Contains(r.body, "a-to*") {
		t.Errorf("%d %s", r.status, r.body)
	}
	if r := s.send(s.private.URL, "POST", "/token/"+s.ns+"?description=d&token="+own, ""); r.status != 201 {
		t.Errorf("a client that is no browser: %d %s", r.status, r.body)
	}
}

// A site may give its name the address of localhost. While nobody needs a password its page does and reads nothing.
func TestAdminUnderAnotherName(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	open, closed := newSite(t), newSite(t, func(_ *API, a *Admin) { a.Accounts = map[string]string{"ann": "x"} })
	for _, c := range []struct {
		s      *site
		host   string
		status int
	}{
		{open, "example.org:7778", 403}, {open, "example.org", 403}, {open, "localhost.example.org", 403},
		{open, "localhost:7778", 200}, {open, "LOCALHOST", 200}, {open, "127.0.0.1:7778", 200},
		{open, "[::1]:7778", 200},
		{closed, "example.org", 200}, // a browser keeps passwords by the site's name
	} {
		for _, path := range []string{"/token/" + c.s.ns, "/info", "/pools", "/accesslog", "/debug/pprof/"} {
			r, err := http.NewRequest("GET", c.s.private.URL+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Host = c.host
			r.SetBasicAuth("ann", "x")
			res, err := c.s.private.Client().Do(r)
			if err != nil {
				t.Fatal(err)
			}
			text, _ := io.ReadAll(res.Body)
			res.Body.Close()
			if res.StatusCode != c.status {
				t.Errorf("%s of %s: %d %s", path, c.host, res.StatusCode, text)
			}
		}
	}
}

// Beyond loopback a listener may have any name, and what comes without a Host comes from no browser.
func TestRebound(t *testing.T) {
	loopback := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}
	for _, c := range []struct {
		at   net.Addr
		host string
		want bool
	}{
		{loopback, "example.org", true}, {loopback, "", false}, {loopback, "localhost", false},
		{&net.TCPAddr{IP: net.IPv6loopback}, "example.org", true},
		{&net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)}, "example.org", false}, {&net.UnixAddr{}, "example.org", false},
	} {
		ctx := context.WithValue(t.Context(), http.LocalAddrContextKey, c.at)
		r := httptest.NewRequestWithContext(ctx, "GET", "/", nil)
		if r.Host = c.host; rebound(r) != c.want {
			t.Errorf("%v at %v: want %v", c.host, c.at, c.want)
		}
	}
}
