package shunt

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
)

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

// crowdIsUnderWay has 32 pull one message each, the first script for several of them answered only after so long. It
// returns when that is under way, and says how many were given out when all have returned.
func (b *bench) crowdIsUnderWay(o *bench, p *redistest.Proxy, hold time.Duration) (given func() int) {
	b.t.Helper()
	b.enqueue(0, 64)
	p.On(redistest.ByScript(store.TakeLease)(b.name), 0, redistest.Delay(5*time.Millisecond))
	d := p.On(redistest.ByScript(store.LeaseEach)(b.name), 1, redistest.Delay(hold))
	var all sync.WaitGroup
	var got atomic.Int64
	for range 32 {
		all.Go(func() {
			ms, _ := o.Pull(context.Background(), PullOptions{Channels: []string{b.name}, Lease: time.Minute})
			got.Add(int64(len(ms)))
		})
	}
	strikes(b.t, d, 1)
	time.Sleep(50 * time.Millisecond) // it is executed, and its reply is held
	return func() int { all.Wait(); return int(got.Load()) }
}

// What was taken for several whose reply is lost is given out or given back, although the next sending cannot be made
// at once, and although the Queue is closed meanwhile.
func TestPullCrowdStrandsNothing(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	for name, closes := range map[string]bool{"cut": false, "closed": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := redistest.NewProxy(t, s.Addr())
			b := newBench(t, s.URL())
			o := b.through(p)
			given := b.crowdIsUnderWay(o, p, 300*time.Millisecond)
			if !closes {
				p.Refuse(true)
				p.CutAll()
				time.Sleep(500 * time.Millisecond)
				p.Refuse(false)
				given()
			}
			b.must(o.Close())
			leased, waiting, out := b.state(StateLeased), b.state(StatePrepare), given()
			if leased != out || leased+waiting != 64 {
				t.Errorf("%d given out, %d leased, %d wait", out, leased, waiting)
			}
		})
	}
}

// An Event tells of a channel that pulls cannot read, also where each pull finds something in another channel.
func TestPullTellsOfUnread(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	b := newBench(t, s.URL())
	bad := b.name + "bad"
	s.Do("SET", store.KeysOf(bad).Prepare, "no list")
	const n = 20
	b.enqueue(0, n)
	for range n {
		ms, err := b.Pull(context.Background(), PullOptions{Channels: []string{bad, b.name}})
		if err != nil || len(ms) != 1 {
			t.Fatalf("%d pulled, %v", len(ms), err)
		}
	}
	b.wait(EventReceiverError, 1, 5*time.Second)
	b.mu.Lock()
	defer b.mu.Unlock()
	told := 0
	for _, e := range b.events {
		if e.Kind == EventReceiverError {
			if told++; e.Channel != bad || !e.Fatal || !strings.Contains(e.Err.Error(), store.KeysOf(bad).Prepare) {
				t.Errorf("%+v", e)
			}
		}
	}
	if told > n/2 {
		t.Errorf("told %d times", told)
	}
}

// A right that a pull lacks is no foreign key.
func TestPullWithoutRight(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	user := aclUser(s, "on", ">secret", "~*", "&*", "+@all", "-llen")
	b := newBench(t, "redis://"+user+":secret@"+s.Addr())
	_, err := b.Pull(context.Background(), PullOptions{Channels: []string{b.name}})
	if err == nil || strings.Contains(err.Error(), "holds something") {
		t.Error(err)
	}
}
