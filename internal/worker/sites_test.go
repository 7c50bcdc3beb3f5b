package worker

import (
	"context"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/event"
	"github.com/shuntmq/shunt/internal/lane"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
)

// sites is a fake whose lanes lie on two servers, each behind a proxy: lane i on the one that of[i] names, a or b.
type sites struct {
	*fake
	a, b *redistest.Proxy
}

func newSites(t *testing.T, of string, workers int, order *Order, handle func(*Item, int) error) *sites {
	s := redistest.Shared(t)
	f := &sites{a: redistest.NewProxy(t, s.Addr()), b: redistest.NewProxy(t, s.Addr())}
	f.fake = &fake{t: t, s: s, handle: handle, handled: make(map[int]int), more: make(chan struct{})}
	servers := make(map[rune]*link.Server)
	for name, p := range map[rune]*redistest.Proxy{'a': f.a, 'b': f.b} {
		pool, err := link.NewPool(p.URL())
		if err != nil {
			t.Fatal(err)
		}
		node := link.NewNode(pool, link.Settings{DialTimeout: time.Second, MaxBackoff: 200 * time.Millisecond})
		server := &link.Server{Node: node, Data: link.New(node, time.Second, true),
			Pulse: link.New(node, time.Second, false)}
		servers[name] = server
		t.Cleanup(func() {
			server.Data.Close()
			server.Pulse.Close()
			pool.Close()
		})
	}
	var lanes []*lane.Lane
	for _, name := range of {
		k := store.KeysOf(redistest.Name(t))
		f.keys = append(f.keys, k)
		lanes = append(lanes, lane.New(k, servers[name], noPromoter{}))
	}
	f.Pool = NewPool(workers, lanes, Config{Lease: 3 * time.Second, Grace: time.Second, Timeout: time.Minute,
		ReplyTimeout: time.Second, Prefetch: 64, PrefetchBytes: 256 << 10, MaxSize: 1 << 20,
		Values: context.Background(), Order: order, Handle: f.run, Judge: f.judge, Every: true, Emit: f.note})
	if err := f.Join(context.Background()); err != nil {
		t.Fatal(err)
	}
	f.Start()
	t.Cleanup(f.stop)
	f.until(5*time.Second, "all waiters block", func() bool {
		for _, l := range lanes {
			if !l.Waiter.Blocked.Load() {
				return false
			}
		}
		return true
	})
	return f
}

// A higher lane's server refuses to be asked. What a waiter brings of a lower lane, of another server, starts all the
// same, and the server is not asked without a wait: it was 50,000 times a second.
func TestStrictOrderBesideARefusingSite(t *testing.T) {
	t.Parallel()
	f := newSites(t, "ab", 1, NewOrder(nil), func(*Item, int) error { return nil })
	take := redistest.Either(redistest.ByScript(store.Take), redistest.ByName("RPOPLPUSH", ".prepare"))
	refused := f.a.On(take(f.keys[0].Name), 0, redistest.ReplyError("MISCONF no"))
	for i := range 5 {
		f.enqueue(1, i, i+1)
		f.until(2*time.Second, "the lower one is handled", func() bool { return f.seen(i, i+1) == 1 })
	}
	time.Sleep(300 * time.Millisecond)
	if n := refused.Struck(); n == 0 || n > 20 {
		t.Errorf("asked %d times", n)
	}
	if n := f.count(event.ReceiverError); n > 20 {
		t.Errorf("%d events", n)
	}
	refused.Remove()
}

// In strict order a lane that is asked after lanes of another server starts nothing before those above it were asked
// once more.
func TestStrictOrderOverSites(t *testing.T) {
	t.Parallel()
	begun, goOn := make(chan int, 10), make(chan struct{})
	f := newSites(t, "aba", 1, NewOrder(nil), func(_ *Item, n int) error {
		begun <- n
		if n == 0 {
			<-goOn
		}
		return nil
	})
	f.enqueue(0, 0, 1)
	<-begun
	f.until(5*time.Second, "the waiters' blocks have ended", func() bool {
		for _, l := range f.Lanes {
			if l.Waiter.Blocked.Load() {
				return false
			}
		}
		return true
	})
	slow := f.b.On(redistest.ByScript(store.Take)(f.keys[1].Name), 1, redistest.Call(func() {
		f.enqueue(0, 1, 2) // the highest was asked
		f.enqueue(2, 2, 3)
	}))
	close(goOn)
	if first := <-begun; first != 1 || slow.Struck() != 1 {
		t.Errorf("%d began first, after %d", first, slow.Struck())
	}
	<-begun
}

// A verdict for a server that is away does not keep its worker from being parked: the others are not polled.
func TestHeldVerdictLetsItsWorkerPark(t *testing.T) {
	t.Parallel()
	goOn := make(chan struct{})
	f := newSites(t, "ab", 1, NewOrder(nil), func(_ *Item, n int) error {
		if n == 0 {
			<-goOn
		}
		return nil
	})
	f.enqueue(0, 0, 1)
	f.until(2*time.Second, "it has begun", func() bool { return f.seen(0, 1) == 1 })
	f.a.Refuse(true)
	f.a.CutAll()
	f.until(5*time.Second, "its server is away", func() bool { return f.Sites[0].Pausing() })
	close(goOn)
	f.enqueue(1, 1, 2)
	f.until(2*time.Second, "the other's is handled", func() bool { return f.seen(1, 2) == 1 })
	takes := f.b.On(redistest.ByScript(store.Take)(f.keys[1].Name), 0, redistest.Pass)
	time.Sleep(500 * time.Millisecond)
	if n := takes.Struck(); n > 3 {
		t.Errorf("%d takes in half a second", n)
	}
	f.a.Refuse(false)
	f.until(10*time.Second, "its verdict is executed", func() bool { return f.count(event.Acked) == 2 })
}

// A server whose connection is a new one is left out until its beat. The worker asks the next one at once.
func TestYoungSiteIsPassedOver(t *testing.T) {
	t.Parallel()
	f := newSites(t, "ab", 1, NewOrder(nil), func(*Item, int) error { return nil })
	polled := f.b.On(redistest.Command("BRPOPLPUSH"), 0, redistest.ReplyError("ERR unknown command"))
	f.until(5*time.Second, "the lower one is polled", func() bool { return polled.Struck() > 0 })
	f.a.On(redistest.ByScript(store.Beat)(f.keys[0].Name), 0, redistest.ReplyError("BUSY a test"))
	id := link.NewCall()
	id.Add("CLIENT", "ID")
	if err := f.Sites[0].Do(context.Background(), id); err != nil {
		t.Fatal(err)
	}
	dials := f.a.Dials()
	f.s.Do("CLIENT", "KILL", "ID", id.Replies[0].Any())
	f.enqueue(1, 0, 1)
	f.until(5*time.Second, "the higher one's connection is a new one", func() bool { return f.a.Dials() > dials })
	f.until(500*time.Millisecond, "the lower one is handled", func() bool { return f.seen(0, 1) == 1 })
}
