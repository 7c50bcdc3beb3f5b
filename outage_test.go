package shunt

import (
	"context"
	"errors"
	"flag"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/redistest"
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
