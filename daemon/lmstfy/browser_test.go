package lmstfy

import (
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
