package daemon

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/shuntmq/shunt/daemon/config"
	"github.com/shuntmq/shunt/daemon/internal/testkit"
	"github.com/shuntmq/shunt/daemon/lmstfy"
)

// running is a Daemon of a test.
type running struct {
	*Daemon
	t          testing.TB
	api, admin string // URLs
	client     *http.Client
	log        *testkit.Log
	stop       func()
	ended      chan error
}

func serving(t testing.TB, url string, change ...func(*config.Config)) *running {
	t.Helper()
	c := config.Default()
	c.API.Listen, c.Admin.Listen, c.Checks = "127.0.0.1:0", "localhost:0", "off"
	c.Grace = 10 * time.Second
	c.Pools = map[string]config.Pool{lmstfy.DefaultPool: {Redis: url, MaxDead: 10, DeadFor: time.Hour}}
	for _, f := range change {
		f(&c)
	}
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	r := &running{
		t:      t,
		log:    new(testkit.Log),
		ended:  make(chan error, 1),
		client: &http.Client{Transport: &http.Transport{}},
	}
	level := new(slog.LevelVar)
	listening := make(chan [2]string, 1)
	r.Daemon = &Daemon{Config: c, Level: level, Build: lmstfy.Build{Version: "test"},
		Log:     slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: level})),
		Serving: func(api, admin string) { listening <- [2]string{api, admin} }}
	ctx, cancel := context.WithCancel(context.Background())
	var once sync.Once
	r.stop = func() {
		once.Do(func() {
			cancel()
			if err := <-r.ended; err != nil {
				t.Error(err)
			}
			r.client.CloseIdleConnections()
			if b := r.Daemon.api.Budget; b.Bodies() != 0 || b.Waiting() != 0 {
				t.Errorf("%d bytes are held, %d requests wait", b.Bodies(), b.Waiting())
			}
		})
	}
	go func() { r.ended <- r.Run(ctx) }()
	select {
	case at := <-listening:
		r.api, r.admin = "http://"+at[0], "http://"+at[1]
	case err := <-r.ended:
		t.Fatalf("it does not serve: %v", err)
	}
	t.Cleanup(r.stop)
	return r
}

func (r *running) do(method, url, body string, headers ...string) (int, string) {
	r.t.Helper()
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := r.client.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	if len(res.Header.Get("X-Request-ID")) != 26 {
		r.t.Errorf("%s %s: no request id", method, url)
	}
	return res.StatusCode, string(text)
}

func (r *running) want(status int, part, method, url, body string, headers ...string) string {
	r.t.Helper()
	got, text := r.do(method, url, body, headers...)
	if got != status || !strings.Contains(text, part) {
		r.t.Errorf("%s %s: %d %.300s, want %d %s", method, url, got, text, status, part)
	}
	return text
}

func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in 20 s: %s", what)
		}
	}
}
