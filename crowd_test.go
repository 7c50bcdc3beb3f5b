package shunt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
)

// A call that comes alone goes at once by itself. What comes while two are under way goes together, in order and so
// many at most; who leaves before goes not, and who leaves meanwhile is not waited for.
func TestCrowd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := new(Queue)
		k := store.KeysOf("c")
		var mu sync.Mutex
		var sent [][]int
		c := crowd[int]{q: q, send: func(_ *store.Keys, all []int) {
			mu.Lock()
			sent = append(sent, all)
			mu.Unlock()
			time.Sleep(time.Second)
		}}
		ctx := context.Background()
		var over []func()
		for range crowdsAtOnce {
			how, f := c.join(ctx, k, -1)
			if how != alone {
				t.Fatalf("the first goes %d", how)
			}
			over = append(over, f)
		}
		if how, f := c.join(ctx, store.KeysOf("other"), -1); how != alone {
			t.Fatalf("of another channel it goes %d", how)
		} else {
			f()
		}
		left, leave := context.WithCancel(ctx)
		results := make([]went, 2*crowdMost+2)
		var all sync.WaitGroup
		for i := range results {
			of := ctx
			if i == 0 || i == 5 {
				of = left
			}
			all.Go(func() { results[i], _ = c.join(of, k, i) })
			synctest.Wait() // they come in order
			if i == 5 {
				break
			}
		}
		leave()
		synctest.Wait()
		if results[0] != stayed || results[5] != stayed {
			t.Errorf("who has left went %d", results[0])
		}
		meanwhile, leave := context.WithCancel(ctx)
		for i := 6; i < len(results); i++ {
			of := ctx
			if i == 10 {
				of = meanwhile
			}
			all.Go(func() { results[i], _ = c.join(of, k, i) })
			synctest.Wait()
		}
		over[0]()
		synctest.Wait()
		leave()
		synctest.Wait()
		if results[10] != without {
			t.Errorf("who leaves meanwhile went %d", results[10])
		}
		over[1]()
		all.Wait()
		q.waits.Wait()
		var order []int
		for _, some := range sent {
			if len(some) > crowdMost {
				t.Errorf("%d went together", len(some))
			}
			order = append(order, some...)
		}
		if !slices.IsSorted(order) || len(order) != len(results)-2 || len(sent) != 2 {
			t.Errorf("they went as %v", sent)
		}
		for i, how := range results {
			if i != 0 && i != 5 && i != 10 && how != along {
				t.Errorf("%d went %d", i, how)
			}
		}
		if len(c.of) != 0 {
			t.Errorf("%d channels are remembered", len(c.of))
		}
	})
}

// crowded has many pull and ack one message at a time, until n were acked, and says how often each was handled.
func (b *bench) crowded(o *bench, n int) map[string]int {
	b.t.Helper()
	var mu sync.Mutex
	seen := make(map[string]int)
	var acked atomic.Int64
	end := time.Now().Add(20 * time.Second)
	var all sync.WaitGroup
	for range 48 {
		all.Go(func() {
			for acked.Load() < int64(n) && time.Now().Before(end) {
				ms, err := o.Pull(context.Background(), PullOptions{Channels: []string{b.name}, Lease: time.Minute,
					Wait: 50 * time.Millisecond})
				if err != nil {
					b.t.Error(err)
				}
				for _, m := range ms {
					mu.Lock()
					seen[string(m.Payload)]++
					mu.Unlock()
					if m.Attempt != 1 {
						b.t.Errorf("%s comes with attempt %d", m.Payload, m.Attempt)
					}
					if err := m.Ack(context.Background()); err != nil && !errors.Is(err, ErrUnconfirmed) {
						b.t.Error(err)
					}
					acked.Add(1)
				}
			}
		})
	}
	all.Wait()
	return seen
}

// Many who pull and ack one message at a time go together, and each message is handled once, whatever becomes of the
// scripts that they share.
func TestPullCrowd(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	for name, c := range map[string]struct {
		opts func(i int) []Option
		of   func(channel string) redistest.Match
		nth  int
		act  redistest.Action
	}{
		"plain":          {nil, redistest.ByScript(store.LeaseEach), 0, redistest.Pass},
		"by id":          {id, redistest.ByScript(store.LeaseEach), 0, redistest.Pass},
		"take cut":       {id, redistest.ByScript(store.LeaseEach), 2, redistest.CutAfter},
		"take not done":  {id, redistest.ByScript(store.LeaseEach), 2, redistest.CutBefore},
		"take refused":   {id, redistest.ByScript(store.LeaseEach), 2, redistest.ReplyError("LOADING so far")},
		"take forbidden": {id, redistest.ByScript(store.LeaseEach), 2, redistest.ReplyError("ERR no such thing")},
		"ack cut":        {id, redistest.ByScript(store.Settle), 2, redistest.CutAfter},
		"ack not done":   {id, redistest.ByScript(store.Settle), 2, redistest.CutBefore},
		"ack refused":    {id, redistest.ByScript(store.Settle), 2, redistest.ReplyError("LOADING so far")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const n = 600
			p := redistest.NewProxy(t, s.Addr())
			b := newBench(t, s.URL())
			o := b.through(p)
			for i := range n {
				var opts []Option
				if c.opts != nil {
					opts = c.opts(i)
				}
				b.must(b.one(i, opts...))
			}
			struck := p.On(c.of(b.name), c.nth, c.act)
			seen := b.crowded(o, n)
			if len(seen) != n {
				t.Errorf("%d were handled", len(seen))
			}
			for id, times := range seen {
				if times != 1 {
					t.Errorf("%s was handled %d times", id, times)
				}
			}
			if struck.Struck() == 0 {
				t.Error("nobody went together")
			}
			b.until(5*time.Second, "nothing is left", func() bool {
				return s.Do("EXISTS", b.keys().Prepare, b.keys().Leased, b.keys().Running, b.keys().IDs) == int64(0)
			})
		})
	}
}

func id(i int) []Option { return []Option{ID(fmt.Sprint("id", i))} }

// keys are those of the bench's channel.
func (b *bench) keys() *store.Keys { return store.KeysOf(b.name) }

// Who gives up while others take for it keeps nothing, and costs no message an attempt.
func TestPullCrowdGivesUp(t *testing.T) {
	t.Parallel()
	const n = 200
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	b := newBench(t, s.URL())
	o := b.through(p)
	b.enqueue(0, n)
	p.On(redistest.ByScript(store.LeaseEach)(b.name), 0, redistest.Delay(20*time.Millisecond))
	var all sync.WaitGroup
	var kept atomic.Int64
	for i := range 100 {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i%30)*time.Millisecond)
			defer cancel()
			ms, err := o.Pull(ctx, PullOptions{Channels: []string{b.name}, Lease: time.Minute})
			if kept.Add(int64(len(ms))); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	b.must(o.Close())
	leased, waiting := b.state(StateLeased), b.state(StatePrepare)
	if leased != int(kept.Load()) || leased+waiting != n {
		t.Errorf("%d are leased and %d wait, and %d were given out", leased, waiting, kept.Load())
	}
	es, err := b.List(context.Background(), b.name, StatePrepare, 0, 0)
	b.must(err)
	for _, e := range es {
		if e.Attempts > 0 {
			t.Errorf("%s has %d attempts", e.Serial, e.Attempts)
		}
	}
}
