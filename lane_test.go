package shunt

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/redistest"
)

// twoServers is a Queue whose channels lie on two servers: those of the far one have ".far" in their names.
type twoServers struct {
	*bench
	near, far *redistest.Server
	kinds     []*Kind[int] // near, far, near, far: the highest first

	mu      sync.Mutex
	handled map[string]map[int]time.Time // when last, by channel and number
}

func newTwoServers(t *testing.T, farTakes time.Duration) *twoServers {
	b := &twoServers{handled: make(map[string]map[int]time.Time)}
	b.near, b.far = redistest.Start(t), redistest.Start(t, "appendonly yes", "appendfsync always")
	redistest.Leaks(t)
	b.bench = newBench(t, b.near.URL(), func(q *Queue) { q.Lease, q.ReplyTimeout = 2*time.Second, time.Second })
	if err := b.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	pool, err := NewPool(b.far.URL())
	if err != nil {
		t.Fatal(err)
	}
	node := link.NewNode(pool, link.Settings{DialTimeout: time.Second, MaxBackoff: 200 * time.Millisecond})
	far := &link.Server{Node: node, Data: link.New(node, time.Second, true), Pulse: link.New(node, time.Second, false),
		Hints: link.NewSubscription(node)}
	near := b.server
	*b.router = *link.RouteBy(func(channel string) *link.Server {
		if strings.Contains(channel, ".far") {
			return far
		}
		return near
	})
	t.Cleanup(func() {
		b.Close()
		far.Data.Close()
		far.Pulse.Close()
		pool.Close()
	})
	for _, name := range []string{"0.near", "1.far", "2.near", "3.far"} {
		channel := b.name + "." + name
		b.handled[channel] = make(map[int]time.Time)
		b.kinds = append(b.kinds, Define(channel, func(_ context.Context, n int) error {
			if strings.HasSuffix(channel, ".far") {
				time.Sleep(farTakes)
			}
			b.mu.Lock()
			b.handled[channel][n] = time.Now()
			b.mu.Unlock()
			return nil
		}))
	}
	return b
}

// puts enqueues numbers to the channels of a server.
func (b *twoServers) puts(far bool, from, to int) {
	b.t.Helper()
	for i, k := range b.kinds {
		for n := from; i%2 == 1 == far && n < to; n++ {
			if err := b.Enqueue(context.Background(), k.Message(n)); err != nil {
				b.t.Fatal(err)
			}
		}
	}
}

// has says whether the numbers of each channel of a server were handled.
func (b *twoServers) has(far bool, from, to int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, k := range b.kinds {
		for n := from; i%2 == 1 == far && n < to; n++ {
			if b.handled[k.Message(n).Channel()][n].IsZero() {
				return false
			}
		}
	}
	return true
}

// eventsOf counts those of a kind whose channel is the far server's, or not.
func (b *twoServers) eventsOf(far bool, kind EventKind) (n int) {
	b.bench.mu.Lock()
	defer b.bench.mu.Unlock()
	for _, e := range b.events {
		if e.Kind == kind && strings.Contains(e.Channel, ".far") == far {
			n++
		}
	}
	return n
}

// One of two servers is killed, idle or busy, and comes back. The channels of the other go on meanwhile, without a
// handover. In the end all is handled.
func TestOneOfTwoServersIsKilled(t *testing.T) {
	t.Parallel()
	for _, busy := range []bool{false, true} {
		for order, receive := range map[string]func(b *twoServers, workers int) (Shutdown, error){
			"ordered": func(b *twoServers, workers int) (Shutdown, error) {
				return b.ReceiveOrdered(context.Background(), workers, b.kinds[0], b.kinds[1], b.kinds[2], b.kinds[3])
			},
			"weighted": func(b *twoServers, workers int) (Shutdown, error) {
				return b.ReceiveWeighted(context.Background(), workers, Share{b.kinds[0], 1}, Share{b.kinds[1], 2},
					Share{b.kinds[2], 3}, Share{b.kinds[3], 4})
			},
		} {
			t.Run(map[bool]string{true: "busy", false: "idle"}[busy]+" "+order, func(t *testing.T) {
				t.Parallel()
				b := newTwoServers(t, 10*time.Millisecond)
				workers := 4
				if busy {
					workers = 1 // which holds a far one
				}
				shutdown := b.starts(func() (Shutdown, error) { return receive(b, workers) })
				b.puts(false, 0, 20)
				b.puts(true, 0, 20)
				b.until(10*time.Second, "both servers' are handled", func() bool {
					return b.has(false, 0, 20) && b.has(true, 0, 20)
				})
				if busy {
					b.puts(true, 20, 100)
				}
				b.far.Kill()
				for n := 20; n < 60; n++ { // for some 2 s, a lease
					b.puts(false, n, n+1)
					b.until(time.Second, "the near one is handled at once", func() bool { return b.has(false, n, n+1) })
					time.Sleep(50 * time.Millisecond)
				}
				b.far.Restart()
				b.puts(true, 100, 120)
				b.until(15*time.Second, "the far ones are handled again", func() bool { return b.has(true, 100, 120) })
				if busy {
					b.until(15*time.Second, "and those from before", func() bool { return b.has(true, 20, 100) })
				}
				if n := b.eventsOf(false, EventHandedOver) + b.eventsOf(false, EventLeaseLost); n > 0 {
					t.Errorf("%d handovers or lost leases at the server that was there", n)
				}
				if b.eventsOf(true, EventHandedOver) == 0 {
					t.Error("no handover at the server that was killed")
				}
				if err := shutdown(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
	}
}
