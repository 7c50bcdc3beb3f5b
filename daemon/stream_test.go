package daemon

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/shuntmq/shunt/daemon/config"
	"github.com/shuntmq/shunt/daemon/lmstfy"
	"github.com/shuntmq/shunt/daemon/serve"
	"github.com/shuntmq/shunt/internal/redistest"
)

// At the end streams do not wait for the grace.
func TestDashboardStop(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	url := redistest.Start(t).URL()
	r := serving(t, url, withBoards, func(c *config.Config) {
		c.Pools["second"] = c.Pools[lmstfy.DefaultPool]
		c.Grace = time.Minute
	})
	var streams []*bufio.Scanner
	for i := range 6 {
		name := []string{"default", "second"}[i%2]
		lines, end := r.live(fmt.Sprintf("%s/dashboard/%s/live", r.admin, name), "Basic", bob)
		defer end()
		streams = append(streams, lines)
	}
	begun := time.Now()
	r.stop()
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("the end took %v", took)
	}
	for _, lines := range streams {
		for nextEvent(lines) {
			continue
		}
		if err := lines.Err(); err != nil {
			t.Error(err)
		}
	}
	if log := r.log.String(); strings.Contains(log, "ran on") {
		t.Error(log)
	}
}

// No timeout of the server cuts a stream, and one cuts a form that does not come.
func TestDashboardTimeouts(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	r := serving(t, redistest.Start(t).URL(), withBoards)
	c := r.Config
	c.Limits.BodyTimeout = 200 * time.Millisecond
	if err := r.Reload(c); err != nil {
		t.Fatal(err)
	}
	const short = 1500 * time.Millisecond
	front := &serve.Front{Name: "short", Log: slog.New(slog.DiscardHandler), MaxTime: short,
		Handler: r.Daemon.boards.before(http.NotFoundHandler())}
	s := &serve.Server{Name: "short", Listen: "127.0.0.1:0", Handler: front, Log: front.Log, HeaderTimeout: short,
		IdleTimeout: short}
	if err := s.Open(); err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve() }()
	at := "http://" + s.Addr().String() + "/dashboard/default/"
	slow, write := io.Pipe()
	req, err := http.NewRequest("POST", at+"act", slow)
	if err != nil {
		t.Fatal(err)
	}
	req.SetBasicAuth("ann", "anns-password")
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	res, err := r.client.Transport.RoundTrip(req)
	_ = write.Close()
	if err != nil || res.StatusCode != 400 {
		t.Errorf("a form that does not come: %v %v", res, err)
	}
	if res != nil {
		_ = res.Body.Close()
	}
	lines, end := r.live(at+"live", "Basic", ann)
	if !nextEvent(lines) { // 2 s later
		t.Errorf("the stream was cut: %v", lines.Err())
	}
	end()
	r.client.CloseIdleConnections()
	if err := s.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}
