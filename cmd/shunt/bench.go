package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/shuntmq/shunt"
)

// What bench does, as docs/performance.md did.
const (
	benchChannel = "shunt-bench"
	benchSize    = 128 // bytes of a payload
	benchWorkers = 64
	benchBatch   = 100
	benchWakes   = 200
)

// measure is one figure. Documented is that of docs/performance.md, which a test compares with this table.
type measure struct {
	Name       string  `json:"name"`
	Unit       string  `json:"unit"`
	Here       float64 `json:"here"`
	Documented float64 `json:"documented"`
}

func measures() []measure {
	return []measure{
		{Name: "enqueued, one a call", Unit: "/s", Documented: 245_755},
		{Name: "enqueued, 100 a call", Unit: "/s", Documented: 2_994_524},
		{Name: "handled", Unit: "/s", Documented: 740_868},
		{Name: "wake-up, median", Unit: "ms", Documented: 0.26},
		{Name: "wake-up, 99th percentile", Unit: "ms", Documented: 0.49},
	}
}

func benchCommands(a *app) []*cobra.Command {
	n := 200_000
	cmd := &cobra.Command{
		Use: "bench", Short: "Measure this Redis from here, beside the figures of the documentation",
		Long: `Measure this Redis from here: enqueue messages of 128 bytes by 64 goroutines, one a call and 100 a call,
handle all of them with 64 workers whose handler does nothing, and wake a receiver that is idle.

It loads the Redis that it measures, and uses the channel shunt-bench, which it leaves empty. It is short: figures
differ by a third from run to run. Those of the documentation are of two cores that Redis and its clients share,
and were measured for longer.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.bench(cmd.Context(), n) },
	}
	cmd.Flags().IntVarP(&n, "number", "n", n, "how many messages each way, 1000 to 1000000")
	return []*cobra.Command{cmd}
}

// benched is the prototype of what bench handles.
type benched struct {
	payload []byte
	handle  func([]byte)
}

func (*benched) Channel() string            { return benchChannel }
func (b *benched) Marshal() ([]byte, error) { return b.payload, nil }
func (b *benched) Unmarshal(payload []byte) (shunt.IMessage, error) {
	return &benched{payload, b.handle}, nil
}
func (b *benched) Resolve(context.Context) error { b.handle(b.payload); return nil }

func (a *app) bench(ctx context.Context, n int) (err error) {
	if n < 1000 || n > 1_000_000 {
		return usage("--number %d: want 1000 to 1000000", n)
	}
	n -= n % benchBatch
	q, err := a.open()
	if err != nil {
		return err
	}
	s, err := q.Stats(ctx, benchChannel)
	if err != nil {
		return err
	}
	for state, of := range s {
		if of.Count > 0 {
			return fmt.Errorf("channel %s has %s in %s: another bench runs, or purge it", benchChannel,
				messages(of.Count), state)
		}
	}
	err = a.confirm(ctx, "enqueue and handle %d messages of channel %q on this Redis", 2*n, benchChannel)
	if err != nil {
		return err
	}
	defer func() {
		a.audit(ctx, shunt.AuditEntry{Verb: "bench", Channel: benchChannel, Count: 2 * n}, err)
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.timeout)
		defer cancel()
		_, e := q.Purge(bounded, benchChannel, shunt.StatePrepare, shunt.StateDelay, shunt.StateSuspect,
			shunt.StateDead)
		err = errors.Join(err, e)
	}()
	ms := measures()
	if ms[0].Here, err = benchEnqueue(ctx, q, n, 1); err != nil {
		return err
	}
	if ms[1].Here, err = benchEnqueue(ctx, q, n, benchBatch); err != nil {
		return err
	}
	if ms[2].Here, err = benchHandle(ctx, q, 2*n); err != nil {
		return err
	}
	if ms[3].Here, ms[4].Here, err = benchWake(ctx, q); err != nil {
		return err
	}
	if a.json {
		return a.document(ms)
	}
	t := table{head: []string{"MEASURE", ">HERE", ">DOCUMENTED", ">RATIO", "UNIT"}}
	for _, m := range ms {
		form := "%.0f"
		if m.Unit == "ms" {
			form = "%.2f"
		}
		t.add(m.Name, fmt.Sprintf(form, m.Here), fmt.Sprintf(form, m.Documented),
			fmt.Sprintf("%.2f", m.Here/m.Documented), m.Unit)
	}
	a.print(t)
	return nil
}

// benchEnqueue gives the rate at which n messages were enqueued.
func benchEnqueue(ctx context.Context, q *shunt.Queue, n, batch int) (float64, error) {
	g, ctx := errgroup.WithContext(ctx)
	var next atomic.Int64
	began := time.Now()
	for range benchWorkers {
		g.Go(func() error {
			payload := make([]byte, benchSize)
			ms := make([]shunt.IMessage, batch)
			for i := range ms {
				ms[i] = &benched{payload: payload}
			}
			for int(next.Add(int64(batch))) <= n {
				var err error
				if batch == 1 {
					err = q.Enqueue(ctx, ms[0])
				} else {
					err = q.EnqueueAll(ctx, ms)
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	err := g.Wait()
	return float64(n) / time.Since(began).Seconds(), err
}

// benchHandle gives the rate at which the n messages that wait are handled, from the first to the last.
func benchHandle(ctx context.Context, q *shunt.Queue, n int) (float64, error) {
	var handled, first atomic.Int64
	done := make(chan time.Time, 1)
	began := time.Now()
	shutdown, err := q.Receive(context.WithoutCancel(ctx), &benched{handle: func([]byte) {
		switch handled.Add(1) {
		case 1:
			first.Store(int64(time.Since(began)))
		case int64(n):
			done <- time.Now()
		}
	}}, benchWorkers)
	if err != nil {
		return 0, err
	}
	var end time.Time
	select {
	case end = <-done:
	case <-ctx.Done():
		err = errInterrupted
	case <-time.After(time.Minute + time.Duration(n)*time.Millisecond):
		err = fmt.Errorf("%d of %d messages were handled in time", handled.Load(), n)
	}
	return float64(n-1) / (end.Sub(began) - time.Duration(first.Load())).Seconds(), stopped(err, shutdown)
}

func stopped(err error, shutdown shunt.Shutdown) error {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	return errors.Join(err, shutdown(ctx))
}

// benchWake gives percentiles of the time, in ms, from just before an enqueue until the handler runs.
func benchWake(ctx context.Context, q *shunt.Queue) (p50, p99 float64, err error) {
	woken := make(chan uint64, 1)
	shutdown, err := q.Receive(context.WithoutCancel(ctx), &benched{handle: func(payload []byte) {
		woken <- binary.BigEndian.Uint64(payload)
	}}, benchWorkers)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = stopped(err, shutdown) }()
	took := make([]float64, 0, benchWakes)
	payload := make([]byte, benchSize)
	for len(took) < benchWakes {
		select {
		case <-time.After(2*time.Millisecond + rand.N(6*time.Millisecond)): // so that it is idle again
		case <-ctx.Done():
			return 0, 0, errInterrupted
		}
		binary.BigEndian.PutUint64(payload, uint64(len(took)))
		began := time.Now()
		if err := q.Enqueue(ctx, &benched{payload: payload}); err != nil {
			return 0, 0, err
		}
		select {
		case <-woken:
			took = append(took, float64(time.Since(began))/float64(time.Millisecond))
		case <-ctx.Done():
			return 0, 0, errInterrupted
		case <-time.After(time.Minute):
			return 0, 0, errors.New("a message was not handled within a minute")
		}
	}
	slices.Sort(took)
	return took[benchWakes/2], took[benchWakes*99/100], nil
}
