//go:build !windows

package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/redistest"
)

// Two processes post to an endpoint, and one of them is killed in the middle: each message is posted.
func TestKilledPusher(t *testing.T) {
	redistest.Leaks(t)
	b := redistest.Start(t)
	var mu sync.Mutex
	posted, times := make(map[string]bool), 0
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(posted)
	}
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		time.Sleep(5 * time.Millisecond) // so that the kill meets requests under way
		mu.Lock()
		defer mu.Unlock()
		posted[string(body)] = true
		times++
	}))
	t.Cleanup(endpoint.Close)
	dir, err := os.MkdirTemp("", "d")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "a")
	allow := "-push.allow=127.0.0.0/8"
	first, second := start(t, b.URL(), allow), start(t, b.URL(), allow, "-admin.listen=unix:"+socket)
	admin := &process{client: &http.Client{Transport: &http.Transport{DialContext: dialer(socket)}}}
	t.Cleanup(admin.client.CloseIdleConnections)
	group := fmt.Sprintf(`{"queues":["q"],"endpoint":"%s","unsigned":true,"workers":4}`, endpoint.URL)
	if status, text := admin.ask("POST", "/push/ns/g", group); status != 201 {
		t.Fatalf("%d %s", status, text)
	}
	const n = 1000
	for i := range n {
		if status, text := second.ask("PUT", "/api/ns/q?tries=20", fmt.Sprint(i)); status != 201 {
			t.Fatalf("%d %s", status, text)
		}
		if i == n/2 {
			redistest.Until(t, 10*time.Second, "messages are posted", func() bool { return count() > n/10 })
			first.kill()
		}
	}
	// What the dead one held comes back after its lease of 10 s.
	redistest.Until(t, 30*time.Second, "each is posted", func() bool { return count() == n })
	mu.Lock() // a second posting may be under way
	twice := times - n
	mu.Unlock()
	redistest.Tell(fmt.Sprintf("shuntd: a pusher killed under %d messages: lost 0, posted twice %d\n", n, twice))
	if status, text := admin.ask("DELETE", "/push/ns/g", ""); status != 204 {
		t.Errorf("%d %s", status, text)
	}
}
