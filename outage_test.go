package shunt

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
)

var outage = flag.Duration("outage", 4*time.Second, "how long TestOutage keeps Redis away; the stated bar is 30s")

// cpu is the processor time that this process has used, where the system tells.
func cpu(t testing.TB) time.Duration {
	b, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		t.Log("no processor time on this system")
		return 0
	}
	f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	user, _ := strconv.Atoi(f[11])
	system, _ := strconv.Atoi(f[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}

// Redis is killed and started again, or stopped and continued, under load. Nothing acknowledged is lost, the process is
// quiet meanwhile, it resumes by itself, and a pause makes nobody reap the living.
func TestOutage(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"kill", "stop"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t, "appendonly yes", "appendfsync always")
			redistest.Leaks(t)
			p := redistest.NewProxy(t, s.Addr())
			const receivers, workers = 4, 8
			var qs []*bench
			seen := newTally()
			for i := range receivers {
				q := newBench(t, p.URL(), func(q *Queue) { q.Prefetch = 16 })
				if i > 0 {
					q.name = qs[0].name
				}
				q.receive(workers, func(_ context.Context, i int) error { seen.add(i); return nil })
				qs = append(qs, q)
			}
			var mu sync.Mutex
			known, unknown := make(map[int]bool), make(map[int]bool)
			ctx, stop := context.WithCancel(context.Background())
			defer stop()
			var load sync.WaitGroup
			for w := range 4 {
				load.Go(func() {
					k := qs[w].kind(nil)
					for i := w; ctx.Err() == nil; i += 4 {
						err := qs[w].Enqueue(context.Background(), k.Message(i))
						mu.Lock()
						if err == nil {
							known[i] = true
						} else if errors.Is(err, ErrUnknown) {
							unknown[i] = true
						}
						mu.Unlock()
					}
				})
			}
			redistest.Until(t, 20*time.Second, "load", func() bool { return seen.distinct() > 2000 })
			end := time.Now().Add(*outage)
			if kind == "kill" {
				s.Kill()
				p.Refuse(true)
				for _, q := range qs { // what is measured is the rest
					q.wait(EventDisconnected, 1, 5*time.Second)
				}
			} else {
				s.Stop()
			}
			dials, used, began := p.Dials(), cpu(t), time.Now()
			time.Sleep(time.Until(end)) // the fault's own length
			dials, used = p.Dials()-dials, cpu(t)-used
			away := time.Since(began)
			if kind == "kill" {
				s.Restart()
				p.Refuse(false)
			} else {
				s.Cont()
			}
			before := seen.distinct()
			back := redistest.Until(t, 20*time.Second, "resumed", func() bool { return seen.distinct() > before+1000 })
			stop()
			load.Wait()
			redistest.Until(t, 20*time.Second, "drained", func() bool {
				st, err := qs[0].Stats(context.Background(), qs[0].name)
				return err == nil &&
					st[StatePrepare].Count+st[StateDoing].Count+st[StateDelay].Count+st[StateSuspect].Count == 0
			})
			lost := 0
			seen.mu.Lock()
			for i := range known {
				if seen.n[i] == 0 {
					lost++
				}
			}
			seen.mu.Unlock()
			perSecond := float64(dials) / away.Seconds() / receivers
			t.Logf(
				"%s for %v: %.2f dials/s a Queue, %.2f %% of a core (all %d Queues), resumed after %v, %d enqueued, "+
					"%d unknown, %d lost, %d extra, died %d, succeeded %d",
				kind,
				*outage,
				perSecond,
				100*used.Seconds()/away.Seconds(),
				receivers,
				back,
				len(known),
				len(unknown),
				lost,
				seen.extra(),
				qs[0].count(
					EventReceiversDied,
				)+qs[1].count(
					EventReceiversDied,
				)+qs[2].count(
					EventReceiversDied,
				)+qs[3].count(
					EventReceiversDied,
				),
				qs[0].count(EventHandedOver),
			)
			if lost > 0 {
				t.Errorf("%d lost", lost)
			}
			if extra := seen.extra(); extra > receivers*workers*16 {
				t.Errorf("%d duplicates, %d were in flight at most", extra, receivers*workers*16)
			}
			for _, q := range qs {
				if q.sum(EventSuspected)+q.sum(EventPoisoned) > 0 {
					t.Error("the living were reaped")
				}
			}
		})
	}
}

// away takes Redis away from who is behind the proxy.
func away(p *redistest.Proxy) {
	p.Refuse(true)
	p.CutAll()
}

// While a handover waited for Redis, every look of the watcher left one more goroutine for each stalled slot at the
// gate.
func TestAbsenceStartsNoGoroutines(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	label := redistest.Name(t)
	pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), pprof.Labels("absence", label)))
	defer pprof.SetGoroutineLabels(context.Background())
	goroutines := func() (sum int) {
		var b bytes.Buffer
		pprof.Lookup("goroutine").WriteTo(&b, 1)
		for stack := range strings.SplitSeq(b.String(), "\n\n") {
			if strings.Contains(stack, label) {
				n := 0
				fmt.Sscan(stack[strings.LastIndex(stack[:strings.Index(stack, " @ ")], "\n")+1:], &n)
				sum += n
			}
		}
		return sum
	}
	p := redistest.NewProxy(t, s.Addr())
	q := newBench(t, p.URL())
	release := make(chan struct{})
	defer close(release)
	// What a worker has handled without an ack on its way is decided and in its hands.
	var open [2]atomic.Int32
	one, several := redistest.ByName("LREM", ".doing")(q.name), redistest.ByScript(store.Ack)(q.name)
	p.On(func(args [][]byte) bool {
		worker := func(list []byte) *atomic.Int32 { return &open[list[len(list)-1]-'0'] }
		if one(args) {
			worker(args[1]).Add(-1)
		} else if several(args) {
			n, _ := strconv.Atoi(string(args[4]))
			worker(args[3]).Add(-int32(n))
		}
		return false
	}, 0, redistest.Pass)
	var stalled atomic.Bool
	q.enqueue(0, 3000)
	q.receive(2, func(ctx context.Context, _ int) error {
		info, _ := FromContext(ctx)
		if open[info.Worker].Add(1) > 1 && stalled.CompareAndSwap(false, true) {
			take := redistest.ByName(
				"RPOPLPUSH",
				".prepare",
			)(
				q.name,
			) // the other worker's, so that nothing but a reply is lost
			p.On(take, 1, redistest.Call(func() { p.Refuse(true) }))
			p.On(take, 1, redistest.CutAfter)
			<-release
		}
		return nil
	})
	q.wait(EventDisconnected, 1, 5*time.Second)
	time.Sleep(100 * time.Millisecond)
	before := goroutines()
	time.Sleep(time.Second)
	if after := goroutines(); before == 0 || after > before+5 {
		t.Errorf("%d goroutines, a second later %d", before, after)
	}
	p.Refuse(false)
}

// With 1,025 calls without an answer the link could owe no more. The question whether it lives, due after a second,
// waited for the reader that had gone.
func TestLinkOutlivesManyUnanswered(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := redistest.Start(t)
	pool, err := NewPool(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	node := link.NewNode(pool, link.Settings{DialTimeout: time.Second, MaxBackoff: 50 * time.Millisecond})
	l := link.New(node, 1700*time.Millisecond, true)
	ask := func() error {
		c := link.NewCall()
		c.Add("PING")
		l.Do(context.Background(), c)
		return c.Replies[0].Err
	}
	if err := ask(); err != nil {
		t.Fatal(err)
	}
	s.Stop()
	var back atomic.Int32
	var all sync.WaitGroup
	for range 1025 {
		all.Go(func() { ask(); back.Add(1) })
	}
	time.Sleep(1200 * time.Millisecond) // until the connection counts as stale
	all.Go(func() { ask(); back.Add(1) })
	time.Sleep(700 * time.Millisecond) // beyond the link's patience
	s.Cont()
	redistest.Until(t, 5*time.Second, "all calls are back", func() bool { return back.Load() == 1026 })
	all.Wait()
	redistest.Until(t, 5*time.Second, "the link works", func() bool { return ask() == nil })
	l.Close()
}

// Cuts at every command and on every side of its execution, for 5 s: each message is handled to its end, and nothing
// stays.
func TestCutsEverywhere(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	p := redistest.NewProxy(t, s.Addr())
	q := newBench(t, p.URL(), func(q *Queue) {
		q.Lease = 2 * time.Second
		q.Grace = 100 * time.Millisecond
		q.Backoff = func(int) time.Duration { return 10 * time.Millisecond }
		q.MaxAttempts = -1
	})
	source := newBench(t, s.URL())
	source.name = q.name
	seen := newTally()
	handle := func(ctx context.Context, i int) error {
		first := seen.add(i) == 1
		switch {
		case first && i%50 == 7:
			return errors.New("once")
		case first && i%211 == 0:
			runtime.Goexit()
		case i%97 == 0:
			select {
			case <-time.After(300 * time.Millisecond):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	}
	down := []Shutdown{q.receive(8, handle), q.receive(4, handle)}
	commands := []string{"RPOPLPUSH", "BRPOPLPUSH", "LREM", "EVALSHA", "EVAL", ""}
	cuts := []redistest.Action{redistest.CutAfter, redistest.CutBefore, redistest.CutUnread}
	n, struck := 0, 0
	began := time.Now()
	for round := 0; time.Since(began) < 5*time.Second || struck < 5 && time.Since(began) < time.Minute; round++ {
		source.enqueue(n, n+200)
		n += 200
		r := p.On(redistest.Command(commands[round%len(commands)]), 1+round%7, cuts[round/2%len(cuts)])
		time.Sleep(time.Duration(50+round%5*60) * time.Millisecond)
		r.Remove()
		struck += r.Struck()
		if round%10 == 9 {
			p.CutAll()
		}
	}
	if struck < 5 {
		t.Errorf("only %d cuts", struck)
	}
	source.until(15*time.Second, "all are handled", func() bool { return seen.distinct() == n })
	source.until(15*time.Second, "nothing is left", func() bool { _, left := source.leaves(q.name); return left == 0 })
	for _, shutdown := range down {
		if err := shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	}
	if living := members(t, s, store.KeysOf(q.name).Receivers); len(living) > 0 {
		t.Errorf("still among the living: %v", living)
	}
	t.Logf("%d messages, %d cuts, %d handovers, %d extra", n, struck, q.count(EventHandedOver), seen.extra())
}

// A password that is changed while receivers run is reported as what waiting does not mend.
func TestPasswordChanged(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	redistest.Leaks(t)
	q := newBench(t, s.URL())
	q.receive(1, func(context.Context, int) error { return nil })
	s.Do("CONFIG", "SET", "requirepass", "secret")
	s.TryDo("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
	q.until(10*time.Second, "it is reported", func() bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		return slices.ContainsFunc(q.events, func(e Event) bool {
			return e.Kind == EventDisconnected && e.Fatal && strings.Contains(e.Err.Error(), "NOAUTH")
		})
	})
	s.TryDo("CONFIG", "SET", "requirepass", "")
}
