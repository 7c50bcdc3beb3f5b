package shunt

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/redistest"
)

// counted is a plain message of 100 bytes.
type counted struct{ handled func() }

func (counted) Channel() string                       { return "counted" }
func (counted) Marshal() ([]byte, error)              { return make([]byte, 100), nil }
func (m counted) Unmarshal([]byte) (IMessage, error)  { return m, nil }
func (m counted) Resolve(context.Context) (err error) { m.handled(); return nil }

// BenchmarkCounts has the same work done in turns by a Queue that counts and by one with NoCounts, in short rounds, so
// that what else the machine does hits both: the metrics are medians of the rounds' ratios of time, in percent.
func BenchmarkCounts(b *testing.B) {
	const each, callers, rounds = 60_000, 64, 40
	s := redistest.Start(b)
	var queues [2]*Queue
	for i, off := range []bool{false, true} {
		pool, err := NewPool(s.URL())
		if err != nil {
			b.Fatal(err)
		}
		queues[i] = &Queue{Pool: pool, NoCounts: off, Quiet: true}
		defer pool.Close()
		defer queues[i].Close()
	}
	enqueue := func(q *Queue) {
		var all sync.WaitGroup
		for range callers {
			all.Go(func() {
				for range each / callers {
					if err := q.Enqueue(context.Background(), counted{}); err != nil {
						b.Error(err)
					}
				}
			})
		}
		all.Wait()
	}
	handle := func(q *Queue) {
		var all sync.WaitGroup
		all.Add(each / callers * callers)
		shutdown, err := q.Receive(context.Background(), counted{handled: all.Done}, callers)
		if err != nil {
			b.Fatal(err)
		}
		all.Wait()
		if err := shutdown(context.Background()); err != nil {
			b.Error(err)
		}
	}
	for b.Loop() {
		var ratios [2][]float64
		for round := range rounds {
			var took [2][2]time.Duration // of what, by whom
			for k := range queues {
				i := (round + k) % 2
				for what, do := range []func(*Queue){enqueue, handle} {
					began := time.Now()
					do(queues[i])
					took[what][i] = time.Since(began)
				}
			}
			for what := range ratios {
				ratios[what] = append(ratios[what], float64(took[what][0])/float64(took[what][1]))
			}
		}
		for what, unit := range []string{"%enqueue", "%process"} {
			slices.Sort(ratios[what])
			b.ReportMetric((ratios[what][rounds/2]-1)*100, unit)
		}
	}
}
