package push

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/redistest"
)

// asPusher has this test binary run a Pusher on the Redis that it names.
const asPusher = "TEST_PUSHER"

func pushUntilKilled(url string) {
	queues, err := shunt.NewPool(url)
	if err != nil {
		panic(err)
	}
	q := &shunt.Queue{Pool: queues, Lease: time.Second}
	p := &Pusher{Pools: map[string]*shunt.Queue{"default": q}, Redis: queues, Allow: loopback, Grace: 5 * time.Second}
	fmt.Println(p.Run(context.Background()))
}

// One of two processes is killed again and again while messages come: none is lost.
func TestKill(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	b := redistest.Start(t)
	s := newSite(t, b.URL(), "default")
	e := newEndpoint(t, func(http.ResponseWriter, *http.Request, string) {
		time.Sleep(2 * time.Millisecond) // so that a kill meets requests under way
	})
	s.group("g", e.URL, map[string]any{"queues": []string{"q", "p"}, "workers": 8})
	n, kills := 4000, 4
	if testing.Short() {
		n, kills = 1500, 2
	}
	var work sync.WaitGroup
	work.Go(func() {
		for i := range n {
			s.publish([]string{"q", "p"}[i%2], fmt.Sprint(i))
		}
	})
	for range kills {
		c := redistest.Run(t, []string{asPusher + "=" + b.URL()}, os.Args[0])
		met := len(e.all())
		until(t, "the other one works, too", func() bool {
			holding := 0
			for _, r := range s.receivers("q") {
				holding += r.Workers
			}
			return holding == 16 && (len(e.all()) > met+50 || len(e.all()) >= n)
		})
		c.Kill()
	}
	work.Wait()
	s.empty("q")
	s.empty("p")
	seen, twice := map[string]int{}, 0
	for _, g := range e.all() {
		if seen[g.body]++; seen[g.body] > 1 {
			twice++
		}
	}
	if len(seen) != n {
		t.Errorf("%d of %d messages are lost", n-len(seen), n)
	}
	redistest.Tell(fmt.Sprintf("push: %d kills under %d messages: lost %d, posted twice %d\n", kills, n,
		n-len(seen), twice))
	if twice > kills*64*2 {
		t.Errorf("%d were posted twice", twice)
	}
}
