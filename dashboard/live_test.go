package dashboard

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/redistest"
)

// listen opens a stream, and gives its events until ctx ends.
func (b *browser) listen(ctx context.Context, path string) <-chan event {
	b.Helper()
	r, _ := http.NewRequestWithContext(ctx, "GET", b.at+path, nil)
	r.SetBasicAuth(b.user, logins[b.user].Password)
	resp, err := b.c.Do(r)
	if err != nil || resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		b.Fatal(resp, err)
	}
	es := make(chan event, 100)
	go func() {
		defer close(es)
		defer resp.Body.Close()
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			if data, is := strings.CutPrefix(lines.Text(), "data: "); is {
				var e event
				if err := json.Unmarshal([]byte(data), &e); err != nil {
					b.Error(err)
				}
				es <- e
			}
		}
	}()
	return es
}

func (d *desk) listeners() int {
	d.d.hub.mu.Lock()
	defer d.d.hub.mu.Unlock()
	return len(d.d.hub.ears)
}

// calls is how many commands of each kind the server has executed, but for INFO, and for PING, by which a Queue
// watches its connection.
func (d *desk) calls() map[string]int {
	d.Helper()
	calls := make(map[string]int)
	for line := range strings.Lines(string(d.redis.Do("INFO", "commandstats").([]byte))) {
		name, rest, is := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
		var n int
		if _, err := fmt.Sscanf(rest, "%d", &n); is && err == nil && name != "info" && name != "ping" {
			calls[name] = n
		}
	}
	return calls
}

// overviews is how many Overviews of one channel there were: each is one script.
func (d *desk) overviews() int {
	d.Helper()
	calls := d.calls()
	return calls["evalsha"] + calls["eval"]
}

// Twenty streams cost Redis what one costs, less than one Overview a second, and nothing once they are gone.
func TestStreamsShareOnePoller(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	// Counts would be sent 10 s after an enqueue, by whoever counts.
	d.q = &shunt.Queue{Pool: d.q.Pool, NoCounts: true}
	d.enqueue("mail", "x")
	b := d.as("vera")
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	began := time.Now()
	before := d.overviews()
	streams := make([]<-chan event, 20)
	for i := range streams {
		streams[i] = b.listen(ctx, []string{"live", "live?c=mail"}[i%2])
	}
	for _, es := range streams {
		if e := <-es; e.Error != "" || e.Rows["mail"]["waiting"] != "1" {
			t.Fatalf("%+v", e)
		}
	}
	d.enqueue("mail", "y")
	after := time.Now()
	for _, es := range streams { // two polls later, each has what has changed alone
		for e := range es {
			if _, same := e.Rows["mail"]["dead"]; same {
				t.Error("what has not changed was sent again")
			}
			if e.Rows["mail"]["waiting"] == "2" {
				break
			}
		}
	}
	if took := time.Since(after); took > 3*pollEvery {
		t.Errorf("a change took %v", took)
	}
	polls := d.overviews() - before
	if most := int(time.Since(began)/pollEvery) + 1; polls > most || polls < 2 {
		t.Errorf("%d Overviews in %v, want at most %d", polls, time.Since(began), most)
	}
	if float64(polls-1) >= time.Since(began).Seconds() {
		t.Errorf("%d Overviews in %v: one a second or more", polls, time.Since(began))
	}
	stop()
	for _, es := range streams {
		for range es {
		}
	}
	if err := d.q.Close(); err != nil {
		t.Error(err)
	}
	redistest.Until(t, 5*time.Second, "the listeners leave", func() bool { return d.listeners() == 0 })
	d.d.hub.mu.Lock()
	ended := d.d.hub.ended
	d.d.hub.mu.Unlock()
	<-ended // the poller
	idle := d.calls()
	time.Sleep(pollEvery + pollEvery/2) // what must not happen has no event
	if later := d.calls(); !maps.Equal(later, idle) {
		t.Errorf("commands while nobody listened: %v, then %v", idle, later)
	}
}

// A stream says what goes wrong, tells of channels that come, starts again, and ends by Close.
func TestStreamLife(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.enqueue("mail", "x")
	b := d.as("vera")
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	es := b.listen(ctx, "live")
	<-es
	d.enqueue("other", "x")
	for e := range es {
		if e.Stale {
			break
		}
	}
	stop()
	for range es {
	}
	es = b.listen(context.Background(), "live?c=other") // a poller follows the one that ends
	if e := <-es; e.Rows["other"]["waiting"] != "1" || e.Rows["mail"] != nil {
		t.Errorf("%+v", e)
	}
	d.redis.Do("SET", "shunt.channels", "junk")
	for e := range es {
		if e.Error != "" {
			break
		}
	}
	d.redis.Do("DEL", "shunt.channels")
	for e := range es {
		if e.Error == "" {
			break
		}
	}
	if err := d.d.Close(); err != nil {
		t.Fatal(err)
	}
	for range es { // it ends
	}
	d.as("vera").get(503, "live")
}
