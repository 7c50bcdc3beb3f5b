package daemon

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"time"
)

// get asks without following redirects. Of headers, Host and Basic ("user:password") are not sent as they are.
func (r *running) get(at string, headers ...string) (*http.Response, string) {
	r.t.Helper()
	return r.send(r.t.Context(), "GET", at, "", headers...)
}

func (r *running) send(ctx context.Context, method, at, body string, headers ...string) (*http.Response, string) {
	r.t.Helper()
	res := r.open(ctx, method, at, body, headers...)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return res, string(text)
}

func (r *running) open(ctx context.Context, method, at, body string, headers ...string) *http.Response {
	r.t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, at, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		switch headers[i] {
		case "Host":
			req.Host = headers[i+1]
		case "Basic":
			user, password, _ := strings.Cut(headers[i+1], ":")
			req.SetBasicAuth(user, password)
		default:
			req.Header.Set(headers[i], headers[i+1])
		}
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	res, err := r.client.Transport.RoundTrip(req)
	if err != nil {
		r.t.Fatal(err)
	}
	return res
}

// live opens a stream of at most 20 s, and has read its first event.
func (r *running) live(at string, headers ...string) (*bufio.Scanner, func()) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 20*time.Second)
	res := r.open(ctx, "GET", at, "", headers...)
	if kind := res.Header.Get("Content-Type"); res.StatusCode != 200 || kind != "text/event-stream" {
		r.t.Fatalf("%s: %d %s", at, res.StatusCode, kind)
	}
	lines := bufio.NewScanner(res.Body)
	if !nextEvent(lines) {
		r.t.Fatalf("%s: no event: %v", at, lines.Err())
	}
	return lines, func() { cancel(); _ = res.Body.Close() }
}

func nextEvent(lines *bufio.Scanner) bool {
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "data: ") {
			return true
		}
	}
	return false
}
