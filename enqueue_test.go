package shunt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"golang.org/x/sync/errgroup"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
)

// EnqueueAll uses the memory of chunks again: what it enqueued must not change while others are made, whatever their
// sizes.
func TestEnqueueAllReuses(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, back redistest.Backend) {
		q := newBench(t, back.URL())
		const callers, calls = 8, 15
		var g errgroup.Group
		for caller := range callers {
			g.Go(func() error {
				random := rand.New(rand.NewPCG(1, uint64(caller)))
				for call := range calls {
					var ms []IMessage
					for i := range 1 + random.IntN(120) {
						text := fmt.Sprintf("%d-%d-%d ", caller, call, i)
						ms = append(ms, Raw(fmt.Sprint(q.name, i%2), bytes.Repeat([]byte(text), 1+random.IntN(40))))
					}
					if err := q.EnqueueAll(t.Context(), ms); err != nil {
						return err
					}
				}
				return nil
			})
		}
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
		seen := make(map[string]bool)
		for i := range 2 {
			elements, err := redis.ByteSlices(
				back.Do("LRANGE", store.KeysOf(fmt.Sprint(q.name, i)).Prepare, 0, -1),
				nil,
			)
			if err != nil {
				t.Fatal(err)
			}
			for _, raw := range elements {
				e, err := element.Decode(raw)
				text, _, _ := bytes.Cut(e.Payload, []byte(" "))
				if err != nil || e.Bare || seen[string(text)] ||
					!bytes.Equal(bytes.Repeat(append(text, ' '), len(e.Payload)/(len(text)+1)), e.Payload) {
					t.Fatalf("%q is there twice or not as it was enqueued: %q, %v", text, raw, err)
				}
				seen[string(text)] = true
			}
		}
		q.until(
			5*time.Second,
			fmt.Sprintf("%d Enqueued", len(seen)),
			func() bool { return q.sum(EventEnqueued) == len(seen) },
		)
	})
}

// A chunk whose reply is lost is unknown, message by message; the others are there.
func TestEnqueueAllTellsEach(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	q := newBench(t, p.URL())
	var ms []IMessage
	var odd []int
	for i := range 10 {
		ms = append(ms, Raw(fmt.Sprint(q.name, i%2), []byte{byte(i)}))
		if i%2 == 1 {
			odd = append(odd, i)
		}
	}
	ms[4] = Raw("no channel", nil)
	lost := p.On(redistest.ByName("LPUSH", ".prepare")(q.name+"1"), 1, redistest.CutAfter)
	err := q.EnqueueAll(t.Context(), ms)
	strikes(t, lost, 1)
	var told *EnqueueError
	if !errors.As(err, &told) || !errors.Is(told.Unknown[1], ErrUnknown) {
		t.Fatal(err)
	}
	// What was on its way on the same connection may be unknown too.
	for _, i := range odd {
		if told.Unknown[i] == nil {
			t.Errorf("message %d is not unknown: %v", i, err)
		}
	}
	if failed := slices.Collect(maps.Keys(told.Failed)); !slices.Equal(failed, []int{4}) {
		t.Errorf("failed: %v", failed)
	}
	for i, want := range []int64{4, 5} {
		got := s.Do("LLEN", store.KeysOf(fmt.Sprint(q.name, i)).Prepare)
		if got != want &&
			(i == 1 || got != int64(0) || told.Unknown[0] == nil) { // a chunk is there as a whole or not at all
			t.Errorf("%v in channel %d, want %d", got, i, want)
		}
	}
}

// Chunks have at most 1,000 elements or 1 MB, and keep the order.
func TestEnqueueAllChunks(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	q := newBench(t, p.URL())
	enqueue := func(n, size int) {
		t.Helper()
		var ms []IMessage
		for i := range n {
			ms = append(ms, Raw(q.name, fmt.Appendf(bytes.Repeat([]byte("."), size), "%04d", i)))
		}
		if err := q.EnqueueAll(t.Context(), ms); err != nil {
			t.Fatal(err)
		}
	}
	pushes := redistest.ByName("LPUSH", ".prepare")(q.name)
	enqueue(2500, 0)
	if n := p.Count(pushes); n != 3 {
		t.Errorf("2,500 messages went in %d commands, want 3", n)
	}
	elements, err := redis.ByteSlices(s.Do("LRANGE", store.KeysOf(q.name).Prepare, 0, -1), nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, raw := range slices.Backward(elements) {
		e, _ := element.Decode(raw)
		if want := fmt.Sprintf("%04d", len(elements)-1-i); string(e.Payload) != want {
			t.Fatalf("%q at the place of %s", e.Payload, want)
		}
	}
	p.ResetCounts()
	enqueue(5, 400<<10)
	if n := p.Count(pushes); n != 3 {
		t.Errorf("5 messages of 400 KB went in %d commands, want 3", n)
	}
}

// An enqueue for later whose reply is lost is sent again while Redis comes and goes.
func TestEnqueueLaterInDoubt(t *testing.T) {
	t.Parallel()
	setup := func(t *testing.T) (*redistest.Server, *redistest.Proxy, *bench) {
		t.Parallel()
		s := redistest.Shared(t)
		redistest.Leaks(t)
		p := redistest.NewProxy(t, s.Addr())
		q := newBench(t, p.URL())
		match := redistest.ByScript(store.Later)(q.name)
		p.On(match, 1, redistest.Call(func() { p.Refuse(true) }))
		p.On(match, 1, redistest.CutAfter)
		return s, p, q
	}
	// The first one was handled before Redis was back for the second, which added it once more.
	t.Run("twice", func(t *testing.T) {
		s, p, q := setup(t)
		seen := newTally()
		other := newBench(t, s.URL())
		other.name = q.name
		other.receive(1, func(_ context.Context, i int) error { seen.add(i); return nil })
		told := make(chan error, 1)
		go func() { told <- q.Enqueue(context.Background(), q.kind(nil).Message(1), In(1600*time.Millisecond)) }()
		other.wait(EventAcked, 1, 5*time.Second)
		p.Refuse(false)
		if err := <-told; !errors.Is(err, ErrUnknown) {
			t.Errorf("the reply was lost, and it is handled: %v", err)
		}
		if left, n := other.leaves(q.name); n > 0 || seen.extra() > 0 {
			t.Errorf("it is there again: %v, handled %v", left, seen.n)
		}
	})
	// The second was not sent at all, and its error stood for both.
	t.Run("not at all", func(t *testing.T) {
		s, _, q := setup(t)
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		err := q.Enqueue(ctx, q.kind(nil).Message(1), In(time.Hour))
		if n := s.Do("ZCARD", store.KeysOf(q.name).Delay).(int64); n != 1 || !errors.Is(err, ErrUnknown) {
			t.Errorf("%d are there: %v", n, err)
		}
	})
}

// An enqueue whose context had ended before was sent all the same, and then called unknown.
func TestEnqueueCancelledBefore(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	q := newBench(t, s.URL())
	q.enqueue(0, 1)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	err := q.Enqueue(ctx, q.kind(nil).Message(1))
	q.enqueue(2, 3) // behind it on the same connection
	_, n := q.leaves(q.name)
	if errors.Is(err, ErrUnknown) || n != 2 {
		t.Errorf("%v; %d are there", err, n)
	}
}

// Many tracked enqueues at once leave more receipts than Lua unpacks.
func TestManyReceipts(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	b := newBench(t, s.URL())
	ctx := context.Background()
	var g sync.WaitGroup
	var bad atomic.Int32
	var mu sync.Mutex
	var first error
	for w := range 24 {
		g.Add(1)
		go func() {
			defer g.Done()
			var ms []IMessage
			for i := range 1000 {
				ms = append(ms, With(b.kind(nil).Message(i), ID(fmt.Sprint(w, "-", i))))
			}
			if err := b.EnqueueAll(ctx, ms); err != nil {
				bad.Add(1)
				mu.Lock()
				first = err
				mu.Unlock()
			}
		}()
	}
	g.Wait()
	st, _ := b.Stats(ctx, b.name)
	e1 := b.one(1, ID("x"))
	_, e2 := b.Status(ctx, ByID(b.name, "x"))
	e3 := b.one(1, ID("y"))
	t.Logf(
		"bad calls %d (%.150v), prepare %d; one more: %v, its status: %v; and one more: %v",
		bad.Load(),
		first,
		st[StatePrepare].Count,
		e1,
		e2,
		e3,
	)
	if bad.Load() > 0 || e1 != nil {
		t.Fail()
	}
}

// entering matches every script that enqueues messages with an id.
func (b *bench) entering() redistest.Match {
	return redistest.Command("", "{"+b.name+"}.prepare", "{"+b.name+"}.receipts")
}

// The reply is lost, and then memory is short: what was enqueued is known all the same.
func TestDoubtThenRefused(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	b := newBench(t, p.URL())
	b.must(b.one(0, ID("warm")))
	lost := p.On(b.entering(), 1, redistest.CutAfter)
	full := p.On(b.entering(), 2, redistest.ReplyError("OOM command not allowed when used memory > 'maxmemory'."))
	b.must(b.one(1, ID("a")))
	b.status("a")
	strikes(t, lost, 1)
	strikes(t, full, 1)
}

// The reply to several is lost, of which one was refused: that one is looked at anew, and the others are not enqueued
// again.
func TestDoubtOfSeveral(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		p := redistest.NewProxy(t, s.Addr())
		b, o := newBench(t, p.URL()), newBench(t, s.URL())
		o.name = b.name
		ctx, seen := context.Background(), newTally()
		for _, free := range []bool{false, true} {
			id := func(i int) Option { return ID(fmt.Sprint(free, i)) }
			b.must(o.one(100, id(2)))
			lost := p.On(b.entering(), 1, redistest.CutAfter)
			if free {
				p.Refuse(true)
			}
			done := make(chan error, 1)
			go func() {
				var ms []IMessage
				for i := range 5 {
					ms = append(ms, With(b.kind(nil).Message(i), id(i)))
				}
				done <- b.EnqueueAll(ctx, ms)
			}()
			strikes(t, lost, 1)
			if free {
				_, err := o.Cancel(ctx, ByID(b.name, fmt.Sprint(free, 2)))
				b.must(err)
				p.Refuse(false)
			}
			err := <-done
			var of *EnqueueError
			if errors.As(err, &of) == free || !free && (len(of.Failed) != 1 || !errors.Is(of.Failed[2], ErrDuplicate)) {
				t.Errorf("its ID free %v: %v", free, err)
			}
		}
		shutdown := o.receive(4, func(_ context.Context, i int) error { seen.add(i); return nil })
		o.wait(EventAcked, 10, 5*time.Second)
		b.must(shutdown(ctx))
		if seen.n[100] != 1 || seen.n[2] != 1 || seen.n[0] != 2 || seen.n[4] != 2 {
			t.Errorf("handled %v", seen.n)
		}
	})
}

// Options within options all count.
func TestWithinWith(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	b := newBench(t, s.URL())
	b.must(b.Enqueue(context.Background(), With(With(b.kind(nil).Message(1), ID("a")), In(time.Hour))))
	if _, err := b.Status(context.Background(), ByID(b.name, "a")); err != nil {
		t.Error(err)
	}
}

// Lost replies at each script, then a handover: nothing lost, doubled or leaked.
func TestLostRepliesOfIDs(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	scripts := map[string]*link.Script{
		"start":    store.Start,
		"settle":   store.Settle,
		"follow":   store.Follow,
		"retry":    store.Retry,
		"reject":   store.Reject,
		"release":  store.Release,
		"enqueue":  store.Enqueue,
		"handover": store.Handover,
	}
	for name, script := range scripts {
		for kind, act := range map[string]redistest.Action{"after": redistest.CutAfter, "before": redistest.CutBefore,
			"unread": redistest.CutUnread} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				t.Parallel()
				p := redistest.NewProxy(t, s.Addr())
				b := newBench(
					t,
					p.URL(),
					func(q *Queue) { q.Backoff = func(int) time.Duration { return 0 }; q.Lease = 2 * time.Second },
				)
				o := newBench(t, s.URL())
				o.name = b.name
				next := Define(b.name+".next", func(context.Context, int) error { return nil })
				for i := 1; i <= 4; i++ {
					p.On(redistest.ByScript(script)(b.name), 3*i, act)
				}
				if name != "handover" {
					p.On(redistest.ByScript(store.Handover)(b.name), 2, redistest.CutAfter)
				} else {
					p.On(redistest.ByScript(store.Settle)(b.name), 3, redistest.CutAfter)
				}
				seen := newTally()
				b.receive(3, func(ctx context.Context, i int) error {
					seen.add(i)
					if i%10 == 7 {
						time.Sleep(60 * time.Millisecond)
					}
					info, _ := FromContext(ctx)
					switch i % 4 {
					case 1:
						if info.Attempt == 1 {
							return errors.New("again")
						}
					case 2:
						return Then(ctx, With(next.Message(i), ID(fmt.Sprint("n", i))), next.Message(i+1000))
					case 3:
						return Reject(errors.New("no"))
					}
					return nil
				})
				const n = 60
				for i := range n {
					var err error
					for range 3 {
						if err = b.one(i, ID(fmt.Sprint(i)), Retain(time.Hour)); err == nil ||
							errors.Is(err, ErrDuplicate) {
							break
						}
					}
					if err != nil {
						t.Errorf("enqueue %d: %v", i, err)
					}
				}
				k := store.KeysOf(b.name)
				o.until(20*time.Second, "the end", func() bool { // a message that moves may be in no count
					left, m := o.leaves(b.name)
					return m-left[StateDead].Count-left[StateDone].Count == 0 && left[StateDone].Count == n
				})
				if v := s.Do("HGETALL", k.IDs).([]any); len(v) != 0 {
					t.Errorf("ids are left: %q", v)
				}
				if v := s.Do("EXISTS", k.Cancelled).(int64); v != 0 {
					t.Error("tombstones")
				}
				if seen.distinct() != n {
					t.Errorf("%d handled", seen.distinct())
				}
				es, err := o.List(context.Background(), b.name+".next", StatePrepare, 0, 0)
				if err != nil || len(es) != n/2 {
					t.Errorf("%d followed, want %d: %v", len(es), n/2, err)
				}
				done, err := o.List(context.Background(), b.name, StateDone, 0, 0)
				if err != nil || len(done) != n {
					t.Errorf("%d kept, want %d: %v", len(done), n, err)
				}
				st, _ := o.Stats(context.Background(), b.name)
				if st[StateDead].Count != n/4 {
					t.Errorf("dead %d", st[StateDead].Count)
				}
			})
		}
	}
}

// Concurrent enqueues by id share scripts; each has its own answer, and one whose context ends leaves.
func TestEnqueuesByIDTogether(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		b := newBench(t, s.URL())
		var g sync.WaitGroup
		var dups, ok atomic.Int32
		for i := range 400 {
			g.Add(1)
			go func() {
				defer g.Done()
				switch err := b.one(i, ID(fmt.Sprint(i/2))); {
				case err == nil:
					ok.Add(1)
				case errors.Is(err, ErrDuplicate):
					dups.Add(1)
				default:
					t.Error(err)
				}
			}()
		}
		g.Wait()
		if ok.Load() != 200 || dups.Load() != 200 || s.Do("LLEN", store.KeysOf(b.name).Prepare).(int64) != 200 {
			t.Errorf("%d enqueued, %d duplicates", ok.Load(), dups.Load())
		}
	})
}

// Enqueues that go together have each its own time: the end of its context, however short EnqueueTimeout is.
func TestEnqueuesTogetherHaveTheirTime(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	b := newBench(t, p.URL(), func(q *Queue) { q.EnqueueTimeout = 100 * time.Millisecond })
	redistest.Until(t, 5*time.Second, "it is connected", func() bool { return b.one(-1) == nil })
	p.Refuse(true)
	p.CutAll()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	patient, hasty := make(chan error, 10), make(chan error, 10)
	for i := range 10 {
		go func() { patient <- b.Enqueue(ctx, b.kind(nil).Message(i), ID(fmt.Sprint(i))) }()
		go func() { hasty <- b.one(i, ID(fmt.Sprint("hasty-", i))) }()
	}
	for range 10 {
		if err := <-hasty; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("in the time of EnqueueTimeout: %v", err)
		}
	}
	p.Refuse(false)
	for range 10 {
		if err := <-patient; err != nil {
			t.Error(err)
		}
	}
}

// The same ended an enqueue after ids had been taken, which then had no message.
func TestEnqueueBesideForeignRunning(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]Option{"now": nil, "expire": {Expire(time.Hour)}, "later": {In(time.Hour)}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Shared(t)
			redistest.Leaks(t)
			b := newBench(t, s.URL())
			b.expires(s, "x")
			var ms []IMessage
			for i, id := range []string{"a", "x", "b"} {
				ms = append(ms, With(b.kind(nil).Message(i), ID(id)))
			}
			err := b.EnqueueAll(context.Background(), ms, opts...)
			var all *EnqueueError
			if !errors.As(err, &all) || len(all.Failed) != 1 || !errors.Is(all.Failed[1], ErrDuplicate) ||
				len(all.Unknown) > 0 {
				t.Errorf("want that x is taken: %v", err)
			}
			if taken, waiting := fmt.Sprint(b.taken(s)), fmt.Sprint(b.waiting()); taken != "[a b x]" ||
				waiting != taken {
				t.Errorf("the ids %s are taken, and there are %s", taken, waiting)
			}
		})
	}
}
