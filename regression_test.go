package shunt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
)

// Faults that a hostile reading once found, each with the schedule that showed it.

// idles starts a receiver behind the proxy and waits until it waits for a message.
func (b *bench) idles(p *redistest.Proxy, workers int, handle func(context.Context, int) error) Shutdown {
	b.t.Helper()
	blocks := p.On(redistest.ByName("BRPOPLPUSH", ".prepare")(b.name), 1, redistest.Pass)
	shutdown := b.receive(workers, handle)
	strikes(b.t, blocks, 1)
	return shutdown
}

// leaves says what a channel still has, by state.
func (b *bench) leaves(channel string) (left Stats, n int) {
	b.t.Helper()
	left, err := b.Stats(context.Background(), channel)
	for tries := 1; err != nil; tries++ {
		if tries == 3 || !timedOut(err) {
			b.t.Fatal(err)
		}
		left, err = b.Stats(context.Background(), channel)
	}
	for _, st := range left {
		n += st.Count
	}
	return left, n
}

// corpse leaves in the bench's channel what a dead receiver with so many workers leaves, a message in each list, to be
// looked at from a time of the server's on, in ms; how is r of one that was called dead, and s of a superseded one.
func (b *bench) corpse(s redistest.Backend, workers int, payload, how string, look int64) {
	dead, k := store.NewIncarnation(workers, 2*time.Second), store.KeysOf(b.name)
	s.Do("ZADD", k.DeadReceivers, look, fmt.Sprintf("%s %d %s", dead.Name, look, how))
	for _, list := range k.AllDoing(dead) {
		s.Do("LPUSH", list, payload)
	}
}

// strikes waits for a rule.
func strikes(t testing.TB, r *redistest.Rule, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := r.Wait(ctx, n); err != nil {
		t.Fatal(err)
	}
}

// away takes Redis away from who is behind the proxy.
func away(p *redistest.Proxy) {
	p.Refuse(true)
	p.CutAll()
}

// members are a sorted set's.
func members(t *testing.T, s *redistest.Server, key any) []string {
	t.Helper()
	ms, err := redis.Strings(s.Do("ZRANGE", key, 0, -1), nil)
	if err != nil {
		t.Fatal(err)
	}
	return ms
}

// The handover held the gate for as long as Redis was away, and the way down waited for the gate.
func TestShutdownWithRedisAway(t *testing.T) {
	for name, leave := range map[string]func(t *testing.T, q *bench, p *redistest.Proxy){
		"in a handover": func(t *testing.T, q *bench, p *redistest.Proxy) {
			ack := redistest.ByName("LREM", ".doing")(q.name)
			p.On(ack, 1, redistest.Call(func() { p.Refuse(true) }))
			p.On(ack, 1, redistest.CutAfter)
			q.enqueue(0, 1)
			q.wait(EventDisconnected, 1, 5*time.Second) // so the handover has dialled
			p.CutAll()
		},
		"idle": func(t *testing.T, q *bench, p *redistest.Proxy) {
			p.Hole(true)
			t.Cleanup(func() { p.Hole(false) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Shared(t)
			redistest.Leaks(t)
			p := redistest.NewProxy(t, s.Addr())
			q := newBench(t, p.URL(), func(q *Queue) { q.Grace = 200 * time.Millisecond })
			shutdown := q.idles(p, 2, func(context.Context, int) error { return nil })
			leave(t, q, p)
			ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
			defer cancel()
			began := time.Now()
			err := shutdown(ctx)
			if took := time.Since(began); took > time.Second {
				t.Errorf("ctx and Grace are 200 ms each, shutdown took %v: %v", took, err)
			}
			if name == "in a handover" { // whose verdict is unknown to the end
				q.wait(EventUnconfirmedVerdict, 1, 5*time.Second)
			}
			p.Hole(false)
			p.Refuse(false)
		})
	}
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

// The beat was sent while the lease was fresh and answered when it was not; the waiter had come back in between, and
// nobody woke it any more.
func TestIdleGoesOnAfterLateBeat(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := redistest.Start(t)
	p := redistest.NewProxy(t, s.Addr())
	q := newBench(t, p.URL(), func(q *Queue) { q.Lease = 3 * time.Second })
	beats := redistest.ByScript(store.Beat)(q.name)
	refused := p.On(beats, 0, redistest.ReplyError("TRYAGAIN not now"))
	seen := newTally()
	began := time.Now()
	q.idles(p, 2, func(_ context.Context, i int) error { seen.add(i); return nil })
	time.Sleep(time.Until(began.Add(1950 * time.Millisecond)))
	late := p.On(beats, 1, redistest.Delay(950*time.Millisecond)) // within the 1 s that a beat has
	refused.Remove()
	strikes(t, late, 1)
	time.Sleep(time.Until(began.Add(2800 * time.Millisecond))) // two thirds of the term are over
	clients, _ := redis.String(s.Do("CLIENT", "LIST"), nil)
	for line := range strings.Lines(clients) {
		if strings.Contains(line, " cmd=brpoplpush ") {
			var id int
			fmt.Sscanf(line, "id=%d ", &id)
			s.Do("CLIENT", "UNBLOCK", id)
		}
	}
	time.Sleep(time.Until(began.Add(3200 * time.Millisecond))) // the beat is answered
	q.enqueue(0, 5)
	q.until(3*time.Second, "all handled", func() bool { return seen.distinct() == 5 })
}

// The reply to the release of a lower channel's message was lost, and nobody took the incarnation for broken.
func TestLostReleaseBeforeHigher(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	p := redistest.NewProxy(t, s.Addr())
	q := newBench(t, p.URL())
	seen := newTally()
	ks := q.ranks(2, func(_ context.Context, _, i int) error { seen.add(i); return nil })
	ctx := context.Background()
	blocks := p.On(redistest.Command("BRPOPLPUSH"), 0, redistest.Pass)
	if _, err := q.ReceiveOrdered(ctx, 1, ks[0], ks[1]); err != nil {
		t.Fatal(err)
	}
	strikes(t, blocks, 2)
	on := func(i int, script *link.Script, act redistest.Action) *redistest.Rule {
		return p.On(redistest.ByScript(script)(ks[i].channel), 1, act)
	}
	on(
		0,
		store.Take,
		redistest.Call(func() { s.TryDo("LPUSH", store.KeysOf(ks[0].channel).Prepare, "100", "101", "102") }),
	)
	lost := on(1, store.Release, redistest.CutAfter)
	if err := q.Enqueue(ctx, ks[1].Message(1)); err != nil {
		t.Fatal(err)
	}
	strikes(t, lost, 1)
	q.until(5*time.Second, "all handled", func() bool { return seen.distinct() == 4 })
	for i, k := range ks {
		if err := q.Enqueue(ctx, k.Message(2+i)); err != nil {
			t.Fatal(err)
		}
	}
	q.until(5*time.Second, "it goes on", func() bool { return seen.distinct() == 6 })
	for _, k := range ks {
		q.until(5*time.Second, "nothing is left", func() bool { _, n := q.leaves(k.channel); return n == 0 })
	}
}

// As many orphans as workers: the verdict of the one that left its slot empty waited there for a worker.
func TestVerdictInVacantSlot(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	q := newBench(t, s.URL(), func(q *Queue) {
		q.Grace = 50 * time.Millisecond
		q.Backoff = func(int) time.Duration { return 0 }
	})
	block := make(chan struct{})
	defer close(block)
	q.receive(1, func(context.Context, int) error { <-block; return nil })
	q.enqueue(0, 2, Timeout(50*time.Millisecond))
	q.wait(EventWorkersMissing, 1, 5*time.Second)
	seen := newTally()
	other := newBench(t, s.URL())
	other.name = q.name
	other.receive(2, func(_ context.Context, i int) error { seen.add(i); return nil })
	q.until(5*time.Second, "another handles both", func() bool { return seen.distinct() == 2 })
}

// A slow handler in the midst of a batch: what came after it was released the oldest first, so that the newest was
// next.
func TestReleasedKeepOrder(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	q := newBench(t, s.URL())
	const n = 2000
	var order []int
	done := make(chan struct{})
	q.enqueue(0, n)
	q.receive(1, func(_ context.Context, i int) error {
		order = append(order, i)
		if i%300 == 299 {
			time.Sleep(100 * time.Millisecond)
		}
		if len(order) == n {
			close(done)
		}
		return nil
	})
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("not all handled")
	}
	for i, got := range order {
		if got != i {
			t.Fatalf("place %d: %v", i, order[max(0, i-3):min(n, i+20)])
		}
	}
	if q.count(EventReleased) == 0 {
		t.Error("nothing was released")
	}
}

// A take of a connection that broke was still to be executed when shutdown came; the entry was taken away with its
// lists empty, and nobody looked at them again.
func TestLateTakeAfterShutdown(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	p := redistest.NewProxy(t, s.Addr())
	q := newBench(t, p.URL(), func(q *Queue) { q.Grace = 2 * time.Second })
	shutdown := q.idles(p, 1, func(context.Context, int) error { return nil })
	handover := p.On(redistest.ByScript(store.Register)(q.name), 0, redistest.ReplyError("TRYAGAIN not now"))
	cut := p.On(redistest.ByName("BRPOPLPUSH", ".prepare")(q.name), 1, redistest.CutUnread)
	q.enqueue(0, 1) // ends the block under way
	strikes(t, cut, 1)
	strikes(t, handover, 1) // and nobody unblocks the waiter any more
	k := store.KeysOf(q.name)
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if err := shutdown(ended); err != nil {
		t.Error(err)
	}
	if living, gone := members(t, s, k.Receivers), members(t, s, k.DeadReceivers); len(living) != 0 || len(gone) == 0 {
		t.Errorf("living %v, dead %v", living, gone)
	}
	s.Do("LPUSH", k.Prepare, "1") // the server still blocks for the old take
	redistest.Until(t, time.Second, "it is taken", func() bool { return s.Do("LLEN", k.Prepare).(int64) == 0 })
	seen := newTally()
	other := newBench(t, s.URL())
	other.name = q.name
	other.receive(1, func(_ context.Context, i int) error { seen.add(i); return nil })
	q.until(5*time.Second, "it is found", func() bool { return seen.distinct() == 1 })
}

// A handover's register was executed without a reply, its entry ran out and was listed as dead, and then it was
// registered again.
func TestNeverLiveAndDead(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	p := redistest.NewProxy(t, s.Addr())
	lease := func(q *Queue) { q.Lease = time.Second }
	q, other := newBench(t, p.URL(), lease), newBench(t, s.URL(), lease)
	other.name = q.name
	handle := func(context.Context, int) error { return nil }
	q.idles(p, 2, handle)
	register := redistest.ByScript(store.Register)(q.name)
	p.On(register, 1, redistest.Call(func() { p.Refuse(true) }))
	lost := p.On(register, 1, redistest.CutAfter)
	p.On(redistest.ByName("LREM", "")(q.name), 1, redistest.CutAfter)
	q.enqueue(0, 1)
	strikes(t, lost, 1)
	p.CutAll()
	other.receive(1, handle)
	other.until(5*time.Second, "both entries are dead", func() bool { return other.sum(EventReceiversDied) == 2 })
	p.Refuse(false)
	q.wait(EventHandedOver, 1, 5*time.Second)
	k := store.KeysOf(q.name)
	dead := strings.Join(members(t, s, k.DeadReceivers), "\n")
	for _, name := range members(t, s, k.Receivers) {
		if strings.Contains(dead, name) {
			t.Errorf("%s is among the living and among\n%s", name, dead)
		}
	}
}

// Close waited for a receiver whose Receive failed, and that never was to end.
func TestCloseBesideFailingReceive(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	p := redistest.NewProxy(t, s.Addr())
	p.Hole(true)
	defer p.Hole(false)
	q := newBench(t, p.URL())
	failed := make(chan error, 1)
	go func() {
		_, err := q.Receive(context.Background(), q.kind(nil), 1)
		failed <- err
	}()
	redistest.Until(t, 5*time.Second, "Receive is under way", func() bool { return p.Dials() > 0 })
	time.Sleep(100 * time.Millisecond)
	closed := make(chan error, 1)
	go func() { closed <- q.Close() }()
	select {
	case <-closed:
	case <-time.After(3 * time.Second):
		t.Error("Close hangs")
	}
	if err := <-failed; err == nil {
		t.Error("Receive did not fail")
	}
}

// An enqueue for later whose reply is lost is sent again while Redis comes and goes.
func TestEnqueueLaterInDoubt(t *testing.T) {
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
		ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
		defer cancel()
		err := q.Enqueue(ctx, q.kind(nil).Message(1), In(time.Hour))
		if n := s.Do("ZCARD", store.KeysOf(q.name).Delay).(int64); n != 1 || !errors.Is(err, ErrUnknown) {
			t.Errorf("%d are there: %v", n, err)
		}
	})
}

// After an absence of Redis all leases have run out. The receiver with the short lease was back first, and judged the
// other after a quarter of its own.
func TestShortLeaseJudgesNoLongOne(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	pLong, pShort := redistest.NewProxy(t, s.Addr()), redistest.NewProxy(t, s.Addr())
	long := newBench(t, pLong.URL())
	short := newBench(t, pShort.URL(), func(q *Queue) { q.Lease = time.Second })
	short.name = long.name
	handle := func(context.Context, int) error { return nil }
	beats := pLong.On(redistest.ByScript(store.Beat)(long.name), 0, redistest.Pass)
	began := time.Now()
	long.receive(1, handle) // beats after 3 s
	k := store.KeysOf(long.name)
	name := members(t, s, k.Receivers)[0]
	short.idles(pShort, 1, handle)
	away(pShort)
	time.Sleep(time.Until(began.Add(1300 * time.Millisecond)))
	s.Do("ZADD", k.Receivers, "XX", 1, name) // as after 10 s
	sweeps := pShort.On(redistest.ByScript(store.Sweep)(short.name), 0, redistest.Pass)
	pShort.Refuse(false)
	strikes(t, beats, 1) // within 2.5 s
	if took := time.Since(began); sweeps.Struck() < 3 || took > 3600*time.Millisecond {
		t.Skipf("too slow a machine: %d sweeps, the beat after %v", sweeps.Struck(), took)
	}
	if short.count(EventReceiversDied) > 0 || long.count(EventLeaseLost) > 0 {
		t.Error("the living was judged")
	}
}

// An idle receiver took one suspect with each sweep, which is every 5 s.
func TestSuspectsOneAfterAnother(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	p := redistest.NewProxy(t, s.Addr())
	q := newBench(t, p.URL())
	seen := newTally()
	q.idles(p, 4, func(_ context.Context, i int) error { seen.add(i); return nil })
	k := store.KeysOf(q.name)
	redistest.Until(t, 5*time.Second, "it keeps", func() bool { return s.Do("EXISTS", k.Keeper).(int64) == 1 })
	time.Sleep(100 * time.Millisecond) // all are parked
	s.Do("LPUSH", k.Suspect, "0", "1", "2", "3", "4", "5")
	s.Do("PUBLISH", k.Delay, "vacant") // so it looks once
	q.until(3*time.Second, "all suspects are handled", func() bool { return seen.distinct() == 6 })
}

// A beat in the old name, sent while the handover had ended that one but not yet heard of it, was taken for a lost
// lease.
func TestBeatWhileSuperseding(t *testing.T) {
	t.Parallel()
	unlessAway(t, func() string {
		if beatsWhileSuperseding(t) {
			return "the lease is gone"
		}
		return ""
	})
}

func beatsWhileSuperseding(t *testing.T) (gone bool) {
	s := redistest.Shared(t)
	redistest.Leaks(t)
	p := redistest.NewProxy(t, s.Addr())
	q := newBench(t, p.URL(), func(q *Queue) { q.Lease = time.Second })
	started, finish := make(chan struct{}), make(chan struct{})
	var once sync.Once
	var cancelled atomic.Bool
	q.receive(2, func(ctx context.Context, i int) error {
		if i > 0 {
			return nil
		}
		once.Do(func() { close(started) })
		select {
		case <-finish:
		case <-ctx.Done():
			cancelled.Store(true)
		}
		return nil
	})
	defer sync.OnceFunc(func() { close(finish) })()
	q.enqueue(0, 1)
	<-started
	p.On(redistest.ByScript(store.Supersede)(q.name), 1, redistest.Delay(500*time.Millisecond))
	beats := p.On(redistest.ByScript(store.Beat)(q.name), 0, redistest.Pass)
	p.On(redistest.ByName("LREM", "")(q.name), 1, redistest.CutAfter)
	q.enqueue(1, 2)
	redistest.Until(
		t,
		5*time.Second,
		"it is superseded",
		func() bool { return s.Do("ZCARD", store.KeysOf(q.name).DeadReceivers).(int64) > 0 },
	)
	strikes(t, beats, beats.Struck()+1)
	q.wait(EventHandedOver, 1, 5*time.Second)
	return q.count(EventLeaseLost) > 0 || cancelled.Load()
}

// The last step of a handover was refused, when what handlers held lay in the new lists already: the next attempt
// looked for it in the old ones only, called it lost, and left it in the new ones for as long as the receiver lived.
func TestSupersedeRefused(t *testing.T) {
	t.Parallel()
	for _, ends := range []string{"between two attempts", "after both"} {
		t.Run(ends, func(t *testing.T) {
			t.Parallel()
			s := redistest.Shared(t)
			redistest.Leaks(t)
			p := redistest.NewProxy(t, s.Addr())
			q := newBench(t, p.URL())
			started, finish := make(chan struct{}), make(chan struct{})
			q.receive(2, func(ctx context.Context, i int) error {
				if i > 0 {
					return nil
				}
				close(started)
				select {
				case <-finish:
				case <-ctx.Done():
					t.Errorf("cancelled: %v", context.Cause(ctx))
				}
				return nil
			})
			end := sync.OnceFunc(func() { close(finish) })
			defer end()
			q.enqueue(0, 1)
			<-started
			refused := p.On(
				redistest.ByScript(store.Supersede)(q.name),
				1,
				redistest.ReplyError("CLUSTERDOWN Hash slot not served"),
			)
			p.On(redistest.ByName("LREM", "")(q.name), 1, redistest.CutAfter)
			q.enqueue(1, 2)
			strikes(t, refused, 1)
			if ends == "after both" {
				q.wait(EventHandedOver, 1, 5*time.Second)
			}
			end()
			q.until(5*time.Second, "nothing is left", func() bool { _, n := q.leaves(q.name); return n == 0 })
			if n := q.count(EventLateVerdict); n > 0 {
				t.Errorf("%d lost", n)
			}
		})
	}
}

// With 1,025 calls without an answer the link could owe no more; the question whether it lives, due after a second,
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

// A key of a higher channel that is not shunt's: a worker with a lower channel's message asked for it again and again.
func TestBrokenHigherChannel(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	p := redistest.NewProxy(t, s.Addr())
	q := newBench(t, p.URL(), func(q *Queue) { q.Grace = 2 * time.Second })
	seen := newTally()
	ks := q.ranks(2, func(_ context.Context, _, i int) error { seen.add(i); return nil })
	blocks := p.On(redistest.Command("BRPOPLPUSH"), 0, redistest.Pass)
	shutdown, err := q.ReceiveOrdered(context.Background(), 1, ks[0], ks[1])
	if err != nil {
		t.Fatal(err)
	}
	strikes(t, blocks, 2)
	broken := store.KeysOf(ks[0].channel).Prepare
	s.Do("SET", broken, "x")
	p.ResetCounts()
	s.Do("LPUSH", store.KeysOf(ks[1].channel).Prepare, "1")
	q.wait(EventReceiverError, 1, 5*time.Second)
	time.Sleep(500 * time.Millisecond)
	if n := p.Commands(); n > 50 {
		t.Errorf("%d commands in half a second", n)
	}
	ended, cancel := context.WithCancel(context.Background()) // a clean end would wait for what a WRONGTYPE costs: 5 s
	cancel()
	if err := shutdown(ended); err != nil {
		t.Error(err)
	}
	s.Do("DEL", broken)
	if left, n := q.leaves(ks[1].channel); n+seen.distinct() != 1 {
		t.Errorf("left: %v, handled: %d", left, seen.distinct())
	}
}

// The same key, while the lower channel has messages: when the higher one was asked again, 5 s later, the worker
// stopped for good.
func TestBrokenHigherChannelIsLeftOut(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	q := newBench(t, s.URL())
	seen := newTally()
	ks := q.ranks(2, func(_ context.Context, _, i int) error { seen.add(i); time.Sleep(time.Millisecond); return nil })
	s.Do("SET", store.KeysOf(ks[0].channel).Prepare, "x")
	var ms []IMessage
	for i := range 9000 {
		ms = append(ms, ks[1].Message(i))
	}
	if err := q.EnqueueAll(context.Background(), ms); err != nil {
		t.Fatal(err)
	}
	if _, err := q.ReceiveOrdered(context.Background(), 1, ks[0], ks[1]); err != nil {
		t.Fatal(err)
	}
	q.until(
		link.MaxTrouble+5*time.Second,
		"the channel is asked again",
		func() bool { return q.count(EventReceiverError) >= 2 },
	)
	n := seen.distinct()
	q.until(5*time.Second, "messages are handled after that", func() bool { return seen.distinct() > n+100 })
	s.Do("DEL", store.KeysOf(ks[0].channel).Prepare)
}

// A script that was refused as a whole counted against the first channel, so that the others' messages started before
// its.
func TestRefusedScriptIsNoChannels(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	p := redistest.NewProxy(t, s.Addr())
	q := newBench(t, p.URL())
	starts := make(chan int, 20)
	ks := q.ranks(3, func(_ context.Context, rank, _ int) error { starts <- rank; return nil })
	r := p.On(
		redistest.ByScript(store.Take)(ks[0].channel),
		1,
		redistest.ReplyError("NOPERM this user has no permissions to access one of the keys used as arguments"),
	)
	if _, err := q.ReceiveOrdered(context.Background(), 1, ks[0], ks[1], ks[2]); err != nil {
		t.Fatal(err)
	}
	strikes(t, r, 1)
	s.Do(
		"EVAL",
		"for k = 1, 2 do for i = 1, 10 do redis.call('LPUSH', KEYS[k], '7') end end",
		2,
		store.KeysOf(ks[0].channel).Prepare,
		store.KeysOf(ks[1].channel).Prepare,
	)
	q.wait(EventAcked, 20, 15*time.Second)
	for i := range 20 {
		if rank := <-starts; rank != i/10 {
			t.Fatalf("start %d is of rank %d", i, rank)
		}
	}
}

// The scripts that ask for all lists of a receiver gave Lua's unpack more than it takes.
func TestManyWorkers(t *testing.T) { // alone: 9,000 goroutines take their time from whatever runs beside them
	s := redistest.Shared(t)
	redistest.Leaks(t)
	q := newBench(t, s.URL())
	k := store.KeysOf(q.name)
	s.Do("ZADD", k.DeadReceivers, 1, store.NewIncarnation(9000, time.Second).Name+" 1 s") // dead for more than an hour
	seen := newTally()
	shutdown := q.receive(9000, func(_ context.Context, i int) error { seen.add(i); return nil })
	q.enqueue(0, 100)
	q.until(10*time.Second, "all handled", func() bool { return q.count(EventAcked) == 100 })
	redistest.Until(
		t,
		10*time.Second,
		"the dead one is forgotten",
		func() bool { return s.Do("EXISTS", k.DeadReceivers).(int64) == 0 },
	)
	if err := shutdown(context.Background()); err != nil {
		t.Error(err)
	}
	if left := keysLeft(t, s, q.name); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// Each list of a dead receiver cost a round trip, and the time in which its judgement held was over before the far
// ones.
func TestFarListIsReaped(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	p := redistest.NewProxy(t, s.Addr())
	q := newBench(t, p.URL(), func(q *Queue) { q.Lease = 2 * time.Second })
	dead := store.NewIncarnation(1000, 2*time.Second)
	k := store.KeysOf(q.name)
	s.Do("ZADD", k.Receivers, 1, dead.Name)
	s.Do("LPUSH", k.Doing(dead, 1), "1")
	s.Do("LPUSH", k.Doing(dead, 900), "2")
	p.Slow(500*time.Microsecond, 0, 0)
	seen := newTally()
	q.receive(2, func(_ context.Context, i int) error { seen.add(i); return nil })
	q.until(20*time.Second, "both are handled", func() bool { return seen.distinct() == 2 })
}

// Orphans that ended while shutdown waited for the workers gave their slots fresh goroutines, on a group that was at
// zero.
func TestOrphansEndAtShutdown(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	for round := range 8 {
		q := newBench(t, s.URL(), func(q *Queue) {
			q.Grace = 20 * time.Millisecond
			q.Backoff = func(int) time.Duration { return time.Hour }
		})
		block := make(chan struct{})
		shutdown := q.receive(2, func(context.Context, int) error { <-block; return nil })
		q.enqueue(0, 4, Timeout(20*time.Millisecond))
		q.wait(EventOrphaned, 4, 5*time.Second)
		time.AfterFunc(time.Duration(round)*100*time.Microsecond, func() { close(block) })
		if err := shutdown(context.Background()); err != nil {
			t.Error(round, err)
		}
		if left, n := q.leaves(q.name); left[StateDelay].Count != 4 || n != 4 {
			t.Errorf("round %d: %v", round, left)
		}
	}
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

// Lists are reaped several in one pipeline, but not those of large elements: nobody is to wait for Redis so long.
func TestLargeAreReapedOneByOne(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	p := redistest.NewProxy(t, s.Addr())
	q := newBench(t, p.URL(), func(q *Queue) { q.Lease = 2 * time.Second })
	q.corpse(s, 8, strings.Repeat("x", 100<<10), "s", 1)
	p.Slow(10*time.Millisecond, 0, 0) // so what waits for an answer comes 20 ms after what was asked before
	var mu sync.Mutex
	var last time.Time
	together := 0
	p.On(redistest.ByScript(store.Reap)(q.name), 0, redistest.Call(func() {
		mu.Lock()
		defer mu.Unlock()
		if time.Since(last) < 15*time.Millisecond {
			together++
		}
		last = time.Now()
	}))
	q.receive(2, nil)
	q.until(20*time.Second, "all are recovered", func() bool { return q.sum(EventRecovered) == 8 })
	mu.Lock()
	defer mu.Unlock()
	if together > 0 {
		t.Errorf("%d of 8 lists were reaped together with others", together)
	}
}

// A dead receiver that another had claimed, which was killed in turn, was looked at by the next sweep of a third: up to
// 5 s later.
func TestClaimOfTheDeadIsTakenUp(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	q := newBench(t, s.URL(), func(q *Queue) { q.Lease = 2 * time.Second })
	q.corpse(s, 1, "1", "r", time.Now().UnixMilli()+800)
	began := time.Now()
	q.receive(1, func(context.Context, int) error { return nil })
	q.wait(EventAcked, 1, 10*time.Second)
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("reaped after %v", took)
	}
}

// A sweep after beats that were answered too late may judge nobody; the next one came 5 s after it, however soon a beat
// was good.
func TestSweepAfterTheFirstGoodBeat(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	p := redistest.NewProxy(t, s.Addr())
	q := newBench(t, p.URL(), func(q *Queue) { q.Lease = 2 * time.Second })
	beat := redistest.ByScript(store.Beat)(q.name)
	beats := p.On(beat, 0, redistest.Pass)
	q.receive(1, func(context.Context, int) error { return nil })
	strikes(t, beats, 3)
	time.Sleep(
		450 * time.Millisecond,
	) // more than a sixth of the lease, and less than a third: the next beat comes with the sweep
	q.corpse(s, 1, "1", "r", 1)
	p.On(beat, 1, redistest.Delay(450*time.Millisecond)) // more than a sixth, too
	began := time.Now()
	s.Do("PUBLISH", store.KeysOf(q.name).Delay, "vacant") // which makes it sweep
	q.wait(EventAcked, 1, 10*time.Second)
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("reaped after %v", took)
	}
}

// What had run out when a row of beats began is judged as soon as the row is half a lease old, and not with a later
// beat.
func TestJudgesAsSoonAsItMay(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	lease := 6 * time.Second
	q := newBench(t, s.URL(), func(q *Queue) { q.Lease = lease })
	k, dead := store.KeysOf(q.name), store.NewIncarnation(1, lease)
	s.Do("ZADD", k.Receivers, 1, dead.Name)
	s.Do("LPUSH", k.Doing(dead, 0), "1")
	began := time.Now()
	q.receive(1, func(context.Context, int) error { return nil })
	q.wait(EventAcked, 1, 15*time.Second)
	if took := time.Since(began); took < lease/2 || took > lease/2+500*time.Millisecond {
		t.Errorf("judged after %v", took)
	}
}

// A slow reap delays no beat, and goes on with the lists that it has not emptied.
func TestSlowReapDelaysNoBeat(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	p := redistest.NewProxy(t, s.Addr())
	q := newBench(t, p.URL(), func(q *Queue) { q.Lease = 3 * time.Second })
	q.corpse(s, 40, "1", "s", 1)
	var mu sync.Mutex
	var last time.Time
	var longest time.Duration
	p.On(redistest.ByScript(store.Beat)(q.name), 0, redistest.Call(func() {
		mu.Lock()
		defer mu.Unlock()
		if now := time.Now(); !last.IsZero() {
			longest = max(longest, now.Sub(last))
		}
		last = time.Now()
	}))
	p.On(
		redistest.ByScript(store.Reap)(q.name),
		0,
		redistest.Delay(700*time.Millisecond),
	) // more than a sixth of the lease
	q.receive(2, func(context.Context, int) error { return nil })
	q.until(60*time.Second, "all are recovered", func() bool { return q.sum(EventRecovered) == 40 })
	mu.Lock()
	defer mu.Unlock()
	if longest > q.Lease/3+300*time.Millisecond {
		t.Errorf("%v between two beats", longest)
	}
}

// A sweep that gave way to a beat before it had said of an empty receiver that it is empty went on giving way, and
// never swept again.
func TestSlowSweepEnds(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	p := redistest.NewProxy(t, s.Addr())
	q := newBench(t, p.URL(), func(q *Queue) { q.Lease = 3 * time.Second })
	dead, k := store.NewIncarnation(1, time.Second), store.KeysOf(q.name)
	s.Do("ZADD", k.DeadReceivers, 1, dead.Name+" 1 s")
	p.On(
		redistest.Command("EXISTS", q.name),
		0,
		redistest.Delay(600*time.Millisecond),
	) // more than a sixth of the lease
	finishes := p.On(redistest.ByScript(store.Finish)(q.name), 0, redistest.Pass)
	sweeps := p.On(redistest.ByScript(store.Sweep)(q.name), 0, redistest.Pass)
	q.receive(1, func(context.Context, int) error { return nil })
	strikes(t, finishes, 1)
	strikes(t, sweeps, sweeps.Struck()+1)
}

// On a slow line those channels were never swept that came behind as many as there was time for in 5 s.
func TestEveryChannelIsSwept(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	p := redistest.NewProxy(t, s.Addr())
	q := newBench(t, p.URL(), func(q *Queue) { q.Lease = 3 * time.Second })
	var ms []IMessage
	var sweeps []*redistest.Rule
	for _, k := range q.ranks(26, func(context.Context, int, int) error { return nil }) {
		ms = append(ms, k)
		sweeps = append(sweeps, p.On(redistest.ByScript(store.Sweep)(k.channel), 0, redistest.Pass))
	}
	p.Slow(100*time.Millisecond, 0, 0)
	if _, err := q.ReceiveOrdered(context.Background(), 1, ms...); err != nil {
		t.Fatal(err)
	}
	q.until(30*time.Second, "all are swept", func() bool {
		return !slices.ContainsFunc(sweeps, func(r *redistest.Rule) bool { return r.Struck() == 0 })
	})
}

// Where the beat, the sweep and the questions for a dead one's lists took longer than what the beat allows, nothing was
// ever reaped: each sweep began with the questions.
func TestReapsOnSlowLine(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	p := redistest.NewProxy(t, s.Addr())
	q := newBench(t, p.URL(), func(q *Queue) { q.Lease = 3 * time.Second })
	q.corpse(s, 4000, "1", "r", 1)
	p.Slow(200*time.Millisecond, 0, 0)
	q.receive(2, func(context.Context, int) error { return nil })
	q.until(30*time.Second, "some are recovered", func() bool { return q.sum(EventRecovered) > 0 })
}

// A key of a wrong type at cancelled kept the dead from being looked after, as long as a message with an id was
// handled.
func TestBrokenCancelledKeepsNobodyUnburied(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	p := redistest.NewProxy(t, s.Addr())
	q := newBench(t, p.URL(), func(q *Queue) { q.Lease = 2 * time.Second })
	started, release := make(chan struct{}), make(chan struct{})
	q.receive(2, func(_ context.Context, i int) error {
		if i == 1 {
			close(started)
			<-release
		}
		return nil
	})
	defer close(release)
	if err := q.Enqueue(context.Background(), q.kind(nil).Message(1), ID("a")); err != nil {
		t.Fatal(err)
	}
	<-started
	s.Do("SET", store.KeysOf(q.name).Cancelled, "none of shunt's")
	looks := p.On(redistest.Command("SISMEMBER", q.name), 0, redistest.Pass)
	p.On(redistest.ByScript(store.Reap)(q.name), 1, redistest.Call(func() {
		if looks.Struck() == 0 { // a long burial would keep a handler from hearing that it is cancelled
			t.Error("the dead came before what was cancelled")
		}
	}))
	q.corpse(s, 1, "2", "s", 1)
	q.wait(EventRecovered, 1, 10*time.Second)
}

// A list of a wrong type in the hands of one dead receiver held up the others' that were claimed with it.
func TestBrokenListHoldsUpNobodyElse(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	q := newBench(t, s.URL(), func(q *Queue) { q.Lease = 2 * time.Second })
	k, broken := store.KeysOf(q.name), store.NewIncarnation(1, time.Second)
	s.Do("ZADD", k.DeadReceivers, 1, broken.Name+" 2 s") // died later, so it comes first
	s.Do("SET", k.Doing(broken, 0), "none of shunt's")
	q.corpse(s, 1, "1", "s", 1)
	q.receive(1, func(context.Context, int) error { return nil })
	q.wait(EventRecovered, 1, 10*time.Second)
	s.Do("DEL", k.Doing(broken, 0))
}

// Who goes on with a burial after its claim is over has to meet the same one first; those that died in one ms came in
// any order.
func TestClaimsComeInOneOrder(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	q := newBench(t, s.URL())
	k := store.KeysOf(q.name)
	for range 20 {
		s.Do("ZADD", k.DeadReceivers, 1, store.NewIncarnation(1, time.Second).Name+" 1 s")
	}
	first := ""
	for range 5 {
		replies, _, err := asker{q.Queue}.Ask(context.Background(), q.name, func(c *link.Call) {
			c.AddScript(
				store.Sweep,
				11,
				k.Receivers,
				k.DeadReceivers,
				k.Suspect,
				k.Delay,
				k.Keeper,
				k.IDs,
				k.Cancelled,
				k.Done,
				k.Kept,
				k.Running,
				k.Waited,
				0,
				1000,
				sweepClaims,
				"",
				1000,
				0,
				0,
			)
		})
		if err != nil {
			t.Fatal(err)
		}
		vs, err := redis.Values(replies[0].Any(), replies[0].Err)
		if err != nil || len(vs) != 6+sweepClaims {
			t.Fatalf("%v: %v", vs, err)
		}
		if claimed := string(vs[6].([]byte)); first == "" {
			first = claimed
		} else if claimed != first {
			t.Errorf("%s is first, and was %s", claimed, first)
		}
	}
}

// A sweep that cannot go on before a good beat does not make beats that fail come faster.
func TestSweepDoesNotHurryFailingBeats(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	p := redistest.NewProxy(t, s.Addr())
	q := newBench(t, p.URL(), func(q *Queue) { q.Lease = 3 * time.Second })
	q.corpse(s, 40, "1", "r", 1)
	beat, reap := redistest.ByScript(store.Beat)(q.name), redistest.ByScript(store.Reap)(q.name)
	beats := p.On(beat, 0, redistest.Pass)
	p.On(reap, 1, redistest.Delay(700*time.Millisecond)) // more than a sixth of the lease
	var refused *redistest.Rule
	p.On(reap, 1, redistest.Call(func() { refused = p.On(beat, 0, redistest.ReplyError("TRYAGAIN not now")) }))
	q.receive(1, func(context.Context, int) error { return nil })
	strikes(t, beats, 2)
	time.Sleep(time.Second) // in which a beat a round trip would be hundreds
	if n := beats.Struck(); n > 10 {
		t.Errorf("%d beats in 1 s, and 5 are allowed", n)
	}
	refused.Remove()
	q.until(20*time.Second, "all are recovered", func() bool { return q.sum(EventRecovered) == 40 })
}

// On a line of 50 ms a list was emptied each 1.2 s.
func TestManyListsOnSlowLine(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	p := redistest.NewProxy(t, s.Addr())
	q := newBench(t, p.URL(), func(q *Queue) { q.Lease = 2 * time.Second })
	q.corpse(s, 200, "1", "s", 1)
	p.Slow(25*time.Millisecond, 0, 0)
	q.receive(2, func(context.Context, int) error { return nil })
	q.until(20*time.Second, "all are recovered", func() bool { return q.sum(EventRecovered) == 200 })
}

// What a waiter brought of a higher channel, while its worker asked for one of a lower, was in that worker's hands, and
// started after it.
func TestHigherInHandStartsFirst(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	redistest.Leaks(t)
	p := redistest.NewProxy(t, s.Addr())
	q := newBench(t, p.URL())
	source := newBench(t, s.URL())
	starts := make(chan int, 3)
	ks := q.ranks(2, func(_ context.Context, rank, _ int) error { starts <- rank; return nil })
	blocks := p.On(redistest.Command("BRPOPLPUSH"), 0, redistest.Pass)
	if _, err := q.ReceiveOrdered(context.Background(), 1, ks[0], ks[1]); err != nil {
		t.Fatal(err)
	}
	strikes(t, blocks, 2)
	for deadline := time.Now().Add(5 * time.Second); strings.Count(string(s.Do("CLIENT", "LIST").([]byte)),
		"cmd=brpoplpush") < 2; {
		if time.Now().After(deadline) {
			t.Fatal("no two waiters block")
		}
	}
	ask := p.On(redistest.ByScript(store.Take)(ks[0].channel), 1, redistest.Delay(300*time.Millisecond))
	enqueue := func(rank int) {
		t.Helper()
		if err := source.Enqueue(context.Background(), ks[rank].Message(1)); err != nil {
			t.Fatal(err)
		}
	}
	enqueue(1)
	strikes(t, ask, 1)
	enqueue(0) // a waiter brings it
	enqueue(0) // and this one the worker has to ask for, although it has asked already
	if got := [3]int{<-starts, <-starts, <-starts}; got != [3]int{0, 0, 1} {
		t.Errorf("the ranks %v have started", got)
	}
}

// A sweep, and finding out which lists there are, took longer than a sweep may, a sixth of the lease: each began anew,
// and none came to reap. Three round trips of 80 ms are enough.
func TestSlowReapingGetsOn(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	p := redistest.NewProxy(t, s.Addr())
	q := newBench(t, p.URL(), func(q *Queue) { q.Lease = time.Second })
	dead := store.NewIncarnation(1, time.Second)
	k := store.KeysOf(q.name)
	s.Do("ZADD", k.DeadReceivers, 1, dead.Name+" 1 s")
	s.Do("LPUSH", k.Doing(dead, 0), "1")
	p.Slow(40*time.Millisecond, 0, 0)
	seen := newTally()
	q.receive(1, func(_ context.Context, i int) error { seen.add(i); return nil })
	q.until(5*time.Second, "it is handled", func() bool { return seen.distinct() == 1 })
}

// A receiver shut down before it heard that it had been made keeper, and the place stayed taken.
func TestUnheardKeeperYields(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	p := redistest.NewProxy(t, s.Addr())
	q := newBench(t, p.URL())
	sweep, keeper := redistest.ByScript(store.Sweep)(q.name), store.KeysOf(q.name).Keeper
	p.On(asksToKeep(sweep), 1, redistest.Delay(400*time.Millisecond))
	shutdown := q.receive(1, func(context.Context, int) error { return nil })
	redistest.Until(t, 5*time.Second, "it is keeper", func() bool { return s.Do("EXISTS", keeper).(int64) == 1 })
	if err := shutdown(context.Background()); err != nil {
		t.Error(err)
	}
	redistest.Until(t, 5*time.Second, "nothing is left", func() bool { return len(keysLeft(t, s, q.name)) == 0 })
}

// asksToKeep narrows the sweeps down to those that ask to be keeper.
func asksToKeep(sweep redistest.Match) redistest.Match {
	return func(args [][]byte) bool {
		if !sweep(args) {
			return false
		}
		keys, err := strconv.Atoi(string(args[2]))
		return err == nil && len(args) > keys+6 && len(args[keys+6]) > 0
	}
}

// The hint of a new earliest message came after the sweep had read delay and made its caller the keeper, and before the
// answer.
func TestHintBeforeKeeperKnows(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	p := redistest.NewProxy(t, s.Addr())
	q := newBench(t, p.URL())
	p.On(asksToKeep(redistest.ByScript(store.Sweep)(q.name)), 1, redistest.Delay(400*time.Millisecond))
	at := make(chan time.Time, 1)
	q.receive(1, func(context.Context, int) error { at <- time.Now(); return nil })
	redistest.Until(
		t,
		5*time.Second,
		"it is keeper",
		func() bool { return s.Do("EXISTS", store.KeysOf(q.name).Keeper).(int64) == 1 },
	)
	other := newBench(t, s.URL())
	due := time.Now().Add(500 * time.Millisecond)
	if err := other.Enqueue(context.Background(), q.kind(nil).Message(1), At(due)); err != nil {
		t.Fatal(err)
	}
	select {
	case a := <-at:
		if late := a.Sub(due); late > time.Second {
			t.Errorf("late by %v", late)
		}
	case <-time.After(10 * time.Second):
		t.Error("not handled")
	}
}

// The look for what no hint tells of came with a beat, which is every 20 s at a lease of a minute.
func TestLooksOftenWithLongLease(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	q := newBench(t, s.URL(), func(q *Queue) { q.Lease = time.Minute })
	at := make(chan time.Time, 1)
	q.receive(1, func(context.Context, int) error { at <- time.Now(); return nil })
	redistest.Until(
		t,
		5*time.Second,
		"it keeps",
		func() bool { return s.Do("EXISTS", store.KeysOf(q.name).Keeper).(int64) == 1 },
	)
	due := time.Now()
	s.Do("ZADD", store.KeysOf(q.name).Delay, due.UnixMilli(), "1") // by another hand, which does not publish
	select {
	case a := <-at:
		t.Logf("late by %v", a.Sub(due))
	case <-time.After(6500 * time.Millisecond):
		t.Error("not handled")
	}
}

// What is listed as the age of the oldest was always zero: a string that is a whole reply had got a field of its own.
func TestOldest(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		q := newBench(t, b.URL())
		q.enqueue(0, 1)
		q.until(5*time.Second, "the message that waits has an age", func() bool {
			st, err := q.Stats(t.Context(), q.name)
			if err != nil {
				t.Fatal(err)
			}
			return st[StatePrepare].Count == 1 && st[StatePrepare].OldestAge > 0
		})
	})
}

// sealed decodes in place, as cipher.AEAD's Open(payload[:0], …) does.
type sealed struct {
	channel string
	text    string
	handle  func(text string) error
}

func (s sealed) Channel() string          { return s.channel }
func (s sealed) Marshal() ([]byte, error) { return invert([]byte(s.text)), nil }
func (s sealed) Unmarshal(p []byte) (IMessage, error) {
	s.text = string(invert(p))
	return s, nil
}
func (s sealed) Resolve(context.Context) error { return s.handle(s.text) }

func invert(p []byte) []byte {
	for i := range p {
		p[i] ^= 0x55
	}
	return p
}

// An Unmarshal that decodes in place wrote into the element that was to be removed: the ack found nothing, and the
// element stayed.
func TestPayloadIsWritten(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		q := newBench(t, b.URL())
		var mu sync.Mutex
		handled := make(map[string]int)
		s := sealed{q.name, "", func(text string) error {
			mu.Lock()
			defer mu.Unlock()
			if handled[text]++; handled[text] == 1 {
				return RetryAfter(0, errors.New("once more"))
			}
			return nil
		}}
		var ms []IMessage
		for i := range 40 {
			ms = append(ms, sealed{q.name, strings.Repeat(fmt.Sprint(i, " "), 1+100*(i%5)), nil})
		}
		if err := q.EnqueueAll(t.Context(), ms); err != nil {
			t.Fatal(err)
		}
		if _, err := q.Receive(t.Context(), s, 2); err != nil {
			t.Fatal(err)
		}
		q.wait(EventAcked, len(ms), 10*time.Second)
		if _, n := q.leaves(q.name); n > 0 || q.count(EventLateVerdict) > 0 || len(handled) != len(ms) {
			t.Errorf("%d left, %d lost, %d texts of %d", n, q.count(EventLateVerdict), len(handled), len(ms))
		}
	})
}

// A verdict that was refused did not keep its worker from taking more and more.
func TestRefusedVerdictStopsTakes(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	q := newBench(t, p.URL(), func(q *Queue) { q.Prefetch = 16 })
	acks := redistest.Either(redistest.ByName("LREM", ".doing"), redistest.ByScript(store.Ack))
	r := p.On(acks(q.name), 0, redistest.ReplyError("NOREPLICAS Not enough good replicas to write."))
	seen := newTally()
	q.enqueue(0, 500)
	q.receive(1, func(_ context.Context, i int) error { seen.add(i); return nil })
	strikes(t, r, 5)
	if n := seen.distinct(); n > 16 {
		t.Errorf("one worker with Prefetch 16 has handled %d, of which none could be acked", n)
	}
	r.Remove()
	q.until(
		10*time.Second,
		"all is handled and acked",
		func() bool { _, n := q.leaves(q.name); return seen.distinct() == 500 && n == 0 },
	)
}

// Two handovers in a row asked the lists of both old incarnations for the same bare payload, and each gave one: the
// second was nobody's.
func TestTwinsInTwoIncarnations(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	q := newBench(t, p.URL())
	k := store.KeysOf(q.name)
	var handled atomic.Int64
	release := make(chan struct{})
	q.idles(p, 2, func(context.Context, int) error { handled.Add(1); <-release; return nil })
	blocks := p.On(redistest.ByName("BRPOPLPUSH", ".prepare")(q.name), 1, redistest.Pass)
	s.Do("LPUSH", k.Prepare, "7")
	redistest.Until(t, 5*time.Second, "it is handled", func() bool { return handled.Load() == 1 })
	strikes(t, blocks, 1)
	old := members(t, s, k.Receivers)[0]
	i, _ := store.ParseIncarnation(old)
	super := redistest.ByScript(store.Supersede)(q.name)
	worker := 0
	if s.Do("LLEN", k.Doing(i, 0)).(int64) == 0 {
		worker = 1
	}
	p.On(
		super,
		1,
		redistest.Call(func() { s.TryDo("LPUSH", k.Doing(i, worker), "7") }),
	) // what the broken connection's take does late
	p.On(super, 1, redistest.ReplyError("CLUSTERDOWN The cluster is down"))
	p.CutAll() // the waiter's block loses its reply
	func() {
		defer func() {
			if t.Failed() {
				close(release)
			}
		}()
		q.wait(EventHandedOver, 1, 10*time.Second)
	}()
	live := ""
	redistest.Until(t, 5*time.Second, "one is live", func() bool {
		m := members(t, s, k.Receivers)
		if len(m) == 1 {
			live = m[0]
		}
		return len(m) == 1
	})
	l, _ := store.ParseIncarnation(live)
	t.Logf("live list: %q", s.Do("LRANGE", k.Doing(l, worker), 0, -1))
	close(release)
	time.Sleep(3 * time.Second)
	left, n := q.leaves(q.name)
	t.Logf("handled %d, left %v", handled.Load(), left)
	if n > 0 || handled.Load() < 2 {
		t.Errorf(
			"two were enqueued, %d handled, %v left, receivers %v",
			handled.Load(),
			left,
			members(t, s, k.Receivers),
		)
	}
}

// The register of a handover was executed by one channel and refused by the other; when it was tried again, a lease
// later, the same incarnation was among the dead already.
func TestRegisteredByHalf(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	lease := func(q *Queue) { q.Lease = time.Second }
	q, other := newBench(t, p.URL(), lease), newBench(t, s.URL(), lease)
	ks := q.ranks(2, func(context.Context, int, int) error { return nil })
	ctx := context.Background()
	blocks := p.On(redistest.Command("BRPOPLPUSH"), 0, redistest.Pass)
	if _, err := q.ReceiveOrdered(ctx, 1, ks[0], ks[1]); err != nil {
		t.Fatal(err)
	}
	strikes(t, blocks, 2)
	ko := Define(ks[0].channel, func(context.Context, int) error { return nil })
	if _, err := other.Receive(ctx, ko, 1); err != nil {
		t.Fatal(err)
	}
	second := redistest.ByScript(store.Register)(ks[1].channel)
	r := p.On(second, 1, redistest.ReplyError("READONLY You can't write against a read only replica."))
	p.CutAll() // whatever waits
	strikes(t, r, 1)
	time.Sleep(20 * time.Millisecond)
	away(p)
	other.until(15*time.Second, "both entries are dead", func() bool { return other.sum(EventReceiversDied) >= 2 })
	p.Refuse(false)
	q.wait(EventHandedOver, 1, 10*time.Second)
	k := store.KeysOf(ks[0].channel)
	t.Logf("living %v\ngone %v", members(t, s, k.Receivers), members(t, s, k.DeadReceivers))
	gone := fmt.Sprint(members(t, s, k.DeadReceivers))
	for _, name := range members(t, s, k.Receivers) {
		if bytes.Contains([]byte(gone), []byte(name)) {
			t.Errorf("%s is among the living and among %s", name, gone)
		}
	}
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

// nilError's nil pointer is an error whose Unwrap panics.
type nilError struct{ inner error }

func (e *nilError) Error() string { return "nil" }
func (e *nilError) Unwrap() error { return e.inner }

// An error whose methods panic took the process down.
func TestErrorThatPanics(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	q := newBench(t, s.URL())
	q.receive(1, func(context.Context, int) error { var e *nilError; return e })
	q.enqueue(0, 1)
	q.wait(EventRetried, 1, 5*time.Second)
	q.wait(EventReceiverError, 1, 5*time.Second)
}

// What a lower channel had brought was started after two thirds of the term, and its timeout ran while the higher ones
// were asked.
func TestAskedHigherLate(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	q := newBench(t, p.URL(), func(q *Queue) { q.Lease = 3 * time.Second })
	began := time.Now()
	started := make(chan [2]time.Duration, 1)
	ks := q.ranks(2, func(ctx context.Context, _, _ int) error {
		end, _ := ctx.Deadline()
		started <- [2]time.Duration{time.Since(began), time.Until(end)}
		return nil
	})
	beats := redistest.ByScript(store.Beat)(ks[0].channel)
	p.On(beats, 0, redistest.ReplyError("TRYAGAIN not now"))
	blocks := p.On(redistest.Command("BRPOPLPUSH"), 0, redistest.Pass)
	if _, err := q.ReceiveOrdered(context.Background(), 1, ks[0], ks[1]); err != nil {
		t.Fatal(err)
	}
	joined := time.Since(began)
	strikes(t, blocks, 2)
	time.Sleep(time.Second)
	p.On(redistest.ByScript(store.Take)(ks[0].channel), 1, redistest.Delay(1500*time.Millisecond))
	if err := q.Enqueue(context.Background(), ks[1].Message(1), Timeout(time.Second)); err != nil {
		t.Fatal(err)
	}
	select {
	case at := <-started:
		t.Logf("joined after %v", joined)
		if at[0] > 2667*time.Millisecond+joined || at[1] < 900*time.Millisecond {
			t.Errorf(
				"started %v after the last good beat at a term of 4s; of a timeout of 1s %v was left",
				at[0],
				at[1],
			)
		}
	case <-time.After(2 * time.Second):
		t.Log("not started")
	}
}

// A handover sent each worker's verdicts in a round trip of its own, one after another, while nobody beat for the new
// incarnation.
func TestHandoverOfMany(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	lease := func(q *Queue) { q.Lease = 3 * time.Second }
	q, other := newBench(t, p.URL(), lease), newBench(t, s.URL(), lease)
	other.name = q.name
	const n = 200
	var running atomic.Int32
	release := make(chan struct{})
	var mu sync.Mutex
	var causes []error
	seen := newTally()
	q.enqueue(0, n)
	q.receive(n+1, func(ctx context.Context, i int) error {
		seen.add(i)
		running.Add(1)
		<-release
		if i == 0 { // one that goes on
			select {
			case <-ctx.Done():
				mu.Lock()
				causes = append(causes, context.Cause(ctx))
				mu.Unlock()
			case <-time.After(15 * time.Second):
			}
		}
		return nil
	})
	redistest.Until(t, 20*time.Second, "all run", func() bool { return running.Load() == n })
	time.Sleep(500 * time.Millisecond)
	p.On(
		redistest.ByScript(store.Register)(q.name),
		1,
		redistest.Call(func() { close(release); time.Sleep(200 * time.Millisecond) }),
	)
	other.receive(1, func(_ context.Context, i int) error { seen.add(i); return nil })
	p.Slow(20*time.Millisecond, 0, 0)
	p.CutAll() // one worker is parked, so the waiter is owed an answer
	began := time.Now()
	q.wait(EventHandedOver, 1, 60*time.Second)
	t.Logf("handover took %v", time.Since(began))
	time.Sleep(5 * time.Second) // more than a term
	mu.Lock()
	t.Logf(
		"lease-gone %d, succeeded %d, died seen by the other %d, extra %d, causes %v",
		q.count(EventLeaseLost),
		q.count(EventHandedOver),
		other.sum(EventReceiversDied),
		seen.extra(),
		causes,
	)
	mu.Unlock()
	if q.count(EventLeaseLost) > 0 || len(causes) > 0 || seen.extra() > 0 {
		t.Errorf("the new incarnation's lease was lost in its own handover: %d", q.count(EventLeaseLost))
	}
}

// One link was sent away by a Redis that served the other; a shutdown just then gave up after 10 ms, and left its
// entry.
func TestShutdownWhileBeatsAreRefused(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	p := redistest.NewProxy(t, s.Addr())
	q := newBench(t, p.URL(), func(q *Queue) { q.Lease = time.Second })
	shutdown := q.idles(p, 2, func(context.Context, int) error { return nil })
	refused := p.On(
		redistest.ByScript(store.Beat)(q.name),
		0,
		redistest.ReplyError("READONLY You can't write against a read only replica."),
	)
	strikes(t, refused, 2)
	p.Refuse(true) // new connections, so that it stays away
	redistest.Until(t, 5*time.Second, "the link has been sent away", func() bool { return q.server.Why() != nil })
	p.On(redistest.ByScript(store.Unregister)(q.name), 1, redistest.Delay(50*time.Millisecond))
	if err := shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if left := members(t, s, store.KeysOf(q.name).Receivers); len(left) > 0 {
		t.Errorf("%v is still among the living", left)
	}
}

// The server's clock was cut to the millisecond before the wait was added: a message was due up to 1 ms early.
func TestDueIsNeverEarly(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	q := newBench(t, s.URL())
	now := func() int64 { // µs
		at, err := redis.Int64s(s.TryDo("TIME"))
		if err != nil {
			t.Error(err)
			return 0
		}
		return at[0]*1_000_000 + at[1]
	}
	const wait = time.Hour
	dues := func() []int64 { // ms
		var vs []int64
		raw, _ := redis.Strings(s.Do("ZRANGE", store.KeysOf(q.name).Delay, 0, -1, "WITHSCORES"), nil)
		for i := 1; i < len(raw); i += 2 {
			due, err := strconv.ParseInt(raw[i], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			vs = append(vs, due)
		}
		return vs
	}
	check := func(what string, said []int64) {
		t.Helper()
		got := dues()
		slices.Sort(said)
		if len(got) != len(said) {
			t.Fatalf("%s: %d in delay, want %d", what, len(got), len(said))
		}
		for i, due := range got {
			if early := time.Duration(said[i]+wait.Microseconds()-due*1000) * time.Microsecond; early > 0 {
				t.Errorf("%s: due %v early", what, early)
			}
		}
	}
	var mu sync.Mutex
	var said []int64
	for i := range 100 {
		said = append(said, now())
		q.enqueue(i, i+1, In(wait))
	}
	check("In", said)
	s.Do("DEL", store.KeysOf(q.name).Delay)
	said = nil
	q.receive(1, func(context.Context, int) error {
		mu.Lock()
		defer mu.Unlock()
		said = append(said, now())
		return RetryAfter(wait, errors.New("later"))
	})
	for i := range 100 {
		q.enqueue(i, i+1)
		q.wait(EventRetried, i+1, 5*time.Second)
	}
	mu.Lock()
	defer mu.Unlock()
	check("RetryAfter", said)
}

// Redis stood still for nineteen twentieths of a lease, from up to a third after the last beat: most receivers lost
// theirs.
func TestLeaseOutlivesPause(t *testing.T) {
	t.Parallel()
	unlessAway(t, func() string {
		if n, died := outlivesPause(t); n+died > 0 {
			return fmt.Sprintf("%d leases lost, %d called dead", n, died)
		}
		return ""
	})
}

func outlivesPause(t *testing.T) (lost, died int) {
	s := redistest.Start(t)
	q := newBench(t, s.URL(), func(q *Queue) { q.Lease = 8 * time.Second })
	for range 4 {
		q.receive(2, func(context.Context, int) error { return nil })
	}
	for i := range 2 {
		time.Sleep(
			600*time.Millisecond + time.Duration(i)*600*time.Millisecond,
		) // from a beat on; the next comes after some 2.7 s
		s.Stop()
		time.Sleep(7600 * time.Millisecond)
		s.Cont()
		q.enqueue(i, i+1)
		q.wait(EventAcked, i+1, 10*time.Second)
	}
	return q.count(EventLeaseLost), q.sum(EventReceiversDied)
}

// The new incarnation's lease counts from when its entry was sent for, but its first beat came when the old one's next
// would have: so a second pause, of less than a lease, lost it.
func TestSuccessorBeatsAtOnce(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	p := redistest.NewProxy(t, s.Addr())
	q := newBench(t, p.URL(), func(q *Queue) { q.Lease = 12 * time.Second })
	beats := p.On(redistest.ByScript(store.Beat)(q.name), 0, redistest.Pass)
	q.receive(1, func(context.Context, int) error { return nil })
	strikes(t, beats, 1)
	p.On(redistest.Command("LREM"), 1, redistest.CutAfter)
	q.enqueue(0, 1)
	q.wait(EventHandedOver, 1, 5*time.Second)
	q.until(2*time.Second, "it beats before a third of the lease is over", func() bool { return beats.Struck() >= 2 })
}

// A sweep's reply was lost with whom it had claimed. A hint in between swept at once, found the claim, and put the next
// sweep off by 5 s.
func TestHintBesideFailedSweep(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	p := redistest.NewProxy(t, s.Addr())
	q := newBench(t, p.URL(), func(q *Queue) { q.Lease = 4 * time.Second }) // a claim lasts half of it
	k, gone := store.KeysOf(q.name), store.NewIncarnation(1, time.Second)
	s.Do("LPUSH", k.Doing(gone, 0), "1")
	s.Do("ZADD", k.DeadReceivers, 1, gone.Name+" 1 s")
	claimed := redistest.ByScript(store.Sweep)(q.name)
	lost, sweeps := p.On(claimed, 1, redistest.CutAfter), p.On(claimed, 0, redistest.Pass)
	q.receive(1, func(context.Context, int) error { return nil })
	strikes(t, lost, 1)
	began := time.Now()
	before := sweeps.Struck()
	redistest.Until(t, time.Second, "it sweeps on the hint", func() bool {
		s.Do("PUBLISH", k.Delay, "vacant")
		return sweeps.Struck() > before
	})
	q.wait(EventRecovered, 1, 10*time.Second)
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("recovered after %v, which is not when the claim was over", took)
	}
	q.wait(EventAcked, 1, 5*time.Second)
}

// An empty payload that a worker took for itself was taken for none: it lay in the list of a living worker, whom nobody
// looks after.
func TestEmptyPayloadIsTaken(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	q := newBench(t, s.URL())
	k := store.KeysOf(q.name)
	s.Do("LPUSH", k.Prepare, "", "", "")
	q.receive(1, func(context.Context, int) error { return nil })
	q.wait(EventUndecodable, 3, 5*time.Second)
}

// What was acked beside a retry that is refused, in the same batch, stayed in hand for as long as that was held off.
func TestAcksLeaveBesideRefusedRetry(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	q := newBench(t, p.URL(), func(q *Queue) { q.Backoff = func(int) time.Duration { return 0 } })
	var once atomic.Bool
	refused := p.On(
		redistest.ByScript(store.Retry)(q.name),
		0,
		redistest.ReplyError("WRONGTYPE Operation against a key holding the wrong kind of value"),
	)
	q.enqueue(0, 200)
	var most atomic.Int32
	held := func() (n int) {
		for _, key := range s.Do("KEYS", "{"+q.name+"}.doing.*").([]any) {
			n += int(s.Do("LLEN", key).(int64))
		}
		return n
	}
	q.receive(1, func(_ context.Context, i int) error {
		if i == 150 && once.CompareAndSwap(false, true) {
			most.Store(int32(held()))
			return errors.New("again")
		}
		return nil
	})
	strikes(t, refused, 1)
	q.until(time.Second, "only that is held", func() bool { return held() == 1 })
	if n := most.Load(); n < 4 {
		t.Errorf("it was one of %d", n)
	}
	refused.Remove()
	q.until(link.MaxTrouble+5*time.Second, "all are handled", func() bool { return q.count(EventAcked) == 200 })
}

// What a refused verdict holds up goes on as soon as a handover has settled that verdict.
func TestHandoverEndsHoldoff(t *testing.T) {
	t.Parallel()
	p := redistest.NewProxy(t, redistest.Shared(t).Addr())
	q := newBench(t, p.URL(), func(q *Queue) {
		q.Prefetch, q.Backoff = 1, func(int) time.Duration { return time.Hour }
	})
	refused := p.On(
		redistest.ByScript(store.Retry)(q.name),
		1,
		redistest.ReplyError("WRONGTYPE Operation against a key holding the wrong kind of value"),
	)
	waits := p.On(redistest.Command("BRPOPLPUSH", q.name), 1, redistest.Pass)
	q.enqueue(0, 1)
	var both sync.WaitGroup
	both.Add(2)
	q.receive(2, func(_ context.Context, i int) error {
		if i == 0 {
			return errors.New("again")
		}
		both.Done()
		both.Wait()
		return nil
	})
	strikes(t, refused, 1)
	began := time.Now()
	q.wait(EventReceiverError, 1, 5*time.Second) // the worker has heard of it
	strikes(t, waits, 1)                         // for the other one
	p.CutAll()
	q.wait(EventHandedOver, 1, 5*time.Second)
	q.enqueue(1, 3) // for both
	q.wait(EventAcked, 2, 10*time.Second)
	if took := time.Since(began); took > link.MaxTrouble*4/5 {
		t.Errorf("went on after %v", took)
	}
}

// A handler was given up, and the user's Backoff, which is asked then, did not return: shutdown looked at the verdict
// that was not there yet.
func TestShutdownWhileBackoffBlocks(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	asked, release := make(chan struct{}), make(chan struct{})
	q := newBench(t, s.URL(), func(q *Queue) {
		q.Timeout, q.Grace = 50*time.Millisecond, 50*time.Millisecond
		q.Backoff = func(int) time.Duration { close(asked); <-release; return 0 }
	})
	shutdown := q.receive(1, func(context.Context, int) error { <-release; return nil })
	defer close(release)
	q.enqueue(0, 1)
	<-asked
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	var left *ShutdownError
	if err := shutdown(ctx); !errors.As(err, &left) || left.Running != 1 {
		t.Errorf("shutdown: %v", err)
	}
}

// Scripts that Redis has forgotten held up all acks of a receiver, each worker's refusal more, for they had been plain
// commands before: now these are what they fall back to.
func TestForgottenScriptHoldsUpNoAcks(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	q := newBench(t, p.URL())
	forgotten := p.On(
		redistest.ByScript(store.Ack)(q.name),
		0,
		redistest.ReplyError("NOSCRIPT No matching script. Please use EVAL."),
	)
	q.enqueue(0, 3000)
	q.receive(16, func(context.Context, int) error { return nil })
	q.wait(EventAcked, 3000, 5*time.Second)
	if n := forgotten.Struck(); n < 10 || q.count(EventReceiverError) > 0 ||
		q.count(EventLateVerdict)+q.count(EventUnconfirmedVerdict) > 0 {
		t.Errorf(
			"forgotten %d times: %d times trouble, %d lost",
			n,
			q.count(EventReceiverError),
			q.count(EventLateVerdict)+q.count(EventUnconfirmedVerdict),
		)
	}
}
