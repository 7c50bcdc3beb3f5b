package shunt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
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

// rewind kills a server that had saved its state at the first release, and starts it again with that.
func rewind(t *testing.T, opts func(i int) []Option) {
	s := redistest.Start(t, "save 3600 1000000")
	p := redistest.NewProxy(t, s.Addr())
	b := newBench(t, p.URL(), func(q *Queue) { q.Lease = time.Second })
	seen := newTally()
	goOn, saved := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(goOn) })
	defer release()
	save := sync.OnceFunc(func() { s.TryDo("SAVE"); close(saved) })
	p.On(redistest.ByScript(store.Release)(b.name), 0, redistest.Call(save))
	var ms []IMessage
	for i := range 400 {
		ms = append(ms, With(b.kind(nil).Message(i), opts(i)...))
	}
	// a backlog: no worker parks, so the waiter has no connection
	if err := b.EnqueueAll(context.Background(), ms); err != nil {
		t.Fatal(err)
	}
	var stuck sync.Once
	b.receive(1, func(_ context.Context, i int) error {
		seen.add(i)
		begun := seen.distinct() - b.count(EventAcked) // all that lie in the list and are not to be released, or more
		if i >= 200 {                                  // as many are taken at once by now as the machine allows
			doings, _ := redis.Strings(s.TryDo("KEYS", "{"+b.name+"}.doing.*")) // the server may be killed by now
			for _, key := range doings {
				if n, err := redis.Int(s.TryDo("LLEN", key)); err == nil && n > begun {
					stuck.Do(func() { <-goOn })
				}
			}
		}
		return nil
	})
	select {
	case <-saved:
	case <-time.After(10 * time.Second):
		t.Fatal("nothing was released")
	}
	b.until(5*time.Second, "released", func() bool { return b.sum(EventReleased) >= 1 })
	time.Sleep(100 * time.Millisecond) // so that nothing is owed an answer
	s.Kill()
	s.Restart()
	b.wait(EventHandedOver, 1, 20*time.Second)
	release()
	b.until(15*time.Second, "all are handled", func() bool { return seen.distinct() == 400 })
	b.until(10*time.Second, "nothing is left", func() bool { _, n := b.leaves(b.name); return n == 0 })
}

// Redis came back with an older state, in which the list of a living receiver has what it had put back long ago.
func TestRestartWithOlderState(t *testing.T) {
	t.Parallel()
	t.Run("plain", func(t *testing.T) { t.Parallel(); rewind(t, func(int) []Option { return nil }) })
	t.Run("with ids", func(t *testing.T) {
		t.Parallel()
		rewind(t, func(i int) []Option { return []Option{ID(fmt.Sprint("id", i))} })
	})
}

// All workers were busy, and a retry was executed, when Redis came back with a state from before it. No look at idle
// workers finds that.
func TestRestartUnderBusyWorkers(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "save 3600 1000000")
	p := redistest.NewProxy(t, s.Addr())
	b := newBench(t, p.URL(), func(q *Queue) {
		q.Lease, q.Prefetch, q.Backoff = 2*time.Second, 1, func(int) time.Duration { return 300 * time.Millisecond }
	})
	long, busy := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(long) })
	defer release()
	var handled atomic.Int32
	p.On(redistest.ByScript(store.Retry)(b.name), 1, redistest.Call(func() { s.TryDo("SAVE") }))
	b.enqueue(0, 2)
	b.receive(1, func(ctx context.Context, i int) error {
		switch {
		case i == 0 && handled.Add(1) == 1:
			return errors.New("again")
		case i == 1:
			close(busy)
			<-long // it ignores its context
		}
		return nil
	})
	b.wait(EventRetried, 1, 5*time.Second)
	<-busy
	s.Kill()
	s.Restart()
	b.wait(EventHandedOver, 1, 15*time.Second)
	other := newBench(t, s.URL(), func(q *Queue) { q.Lease = 2 * time.Second })
	other.name = b.name
	other.receive(1, func(_ context.Context, i int) error {
		if i == 0 {
			handled.Add(1)
		}
		return nil
	})
	other.until(
		10*time.Second,
		"it is handled again while the worker is busy",
		func() bool { return handled.Load() >= 2 },
	)
}

// A key that is not shunt's at receivers.dead let no handover end, and that held up all else.
func TestForeignDeadReceivers(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	b := newBench(t, p.URL(), func(q *Queue) { q.Lease = time.Second })
	seen := newTally()
	b.receive(4, func(_ context.Context, i int) error { seen.add(i); return nil })
	b.enqueue(0, 10)
	b.until(5*time.Second, "ten", func() bool { return seen.distinct() == 10 })
	k := store.KeysOf(b.name)
	s.Do("SET", k.DeadReceivers, "foreign")
	p.On(
		redistest.Command("BRPOPLPUSH", k.Prepare),
		1,
		redistest.CutAfter,
	) // a take of unknown outcome asks for a handover
	redistest.Until(t, 10*time.Second, "it goes on", func() bool {
		_ = b.Enqueue(context.Background(), b.kind(nil).Message(10+seen.distinct()))
		time.Sleep(20 * time.Millisecond)
		return seen.distinct() > 20
	})
	if n := s.Do("ZCARD", k.Receivers).(int64); n > 4 {
		t.Errorf("%d among the living", n)
	}
	began := time.Now()
	err := b.Close()
	if took := time.Since(began); took > 5*time.Second || err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
		t.Errorf("Close took %v: %v", took, err)
	}
}

// An element whose take broke the connection each time was put back where it was taken next, for ever; nobody suspected
// it.
func TestPoisonTake(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "client-output-buffer-limit normal 1mb 0 0")
	b := newBench(t, s.URL(), func(q *Queue) { q.Lease = 2 * time.Second })
	ctx := context.Background()
	var handled sync.Map
	var n atomic.Int32
	k := Define(b.name, func(_ context.Context, v string) error {
		if _, twice := handled.LoadOrStore(v, true); !twice {
			n.Add(1)
		}
		return nil
	})
	var ms []IMessage
	for i := range 500 {
		ms = append(ms, k.Message(fmt.Sprint("small", i)))
	}
	poison := k.Message(strings.Repeat("x", 3<<20))
	for _, err := range []error{b.EnqueueAll(ctx, ms), b.Enqueue(ctx, poison), b.EnqueueAll(ctx, renamed(k, 500))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	b.starts(func() (Shutdown, error) { return b.Receive(ctx, k, 8) })
	b.until(
		45*time.Second,
		"the innocent are handled, and the poison is dead",
		func() bool { return n.Load() == 1000 && b.sum(EventPoisoned) == 1 },
	)
	keys := store.KeysOf(b.name)
	if dead := s.Do("ZCARD", keys.Dead).(int64); dead != 1 {
		t.Errorf("%d dead", dead)
	}
}

func renamed(k *Kind[string], n int) (ms []IMessage) {
	for i := range n {
		ms = append(ms, k.Message(fmt.Sprint("later", i)))
	}
	return ms
}

// Redis is killed twice in a row, and comes back with a state in which a message that was acked since lies in a list of
// its receiver. That message has broken no connection.
func TestOlderStateIsNoPoison(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "appendonly yes", "appendfsync always")
	b := newBench(t, s.URL())
	begun, end := make(chan struct{}, 2), make(chan struct{})
	b.receive(1, func(context.Context, int) error { begun <- struct{}{}; <-end; return nil })
	s.Kill()
	s.Restart()
	b.wait(EventHandedOver, 1, 10*time.Second)
	b.enqueue(0, 1)
	<-begun
	s.Keep()
	close(end)
	b.wait(EventAcked, 1, 5*time.Second)
	s.Kill()
	s.RestartKept()
	b.wait(EventHandedOver, 2, 10*time.Second)
	b.wait(EventAcked, 2, 10*time.Second)
	if n := b.sum(EventRecovered) + b.sum(EventSuspected); n > 0 {
		t.Errorf("%d recovered from dying hands", n)
	}
}

// Redis comes back with a state in which an incarnation is among the living that its receiver has ended since. No
// process has died.
func TestOlderStateRevivesNobody(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "appendonly yes", "appendfsync always")
	p := redistest.NewProxy(t, s.Addr())
	b := newBench(t, p.URL(), func(q *Queue) { q.Lease = 2 * time.Second })
	begun, end := make(chan struct{}, 3), make(chan struct{})
	var recovered int
	b.receive(1, func(ctx context.Context, _ int) error {
		info, _ := FromContext(ctx)
		recovered += info.Recoveries
		begun <- struct{}{}
		<-end
		return nil
	})
	first := members(t, s, b.keys().Receivers)[0]
	b.enqueue(0, 1)
	<-begun
	s.Keep()
	waits := p.On(redistest.ByName("BRPOPLPUSH", ".prepare")(b.name), 1, redistest.CutAfter)
	close(end)
	b.wait(EventAcked, 1, 5*time.Second)
	b.enqueue(1, 2)
	strikes(t, waits, 1)
	b.wait(EventAcked, 2, 5*time.Second)
	redistest.Until(t, 5*time.Second, "the first one is superseded", func() bool {
		return !slices.Contains(members(t, s, b.keys().Receivers), first)
	})
	s.Kill()
	s.RestartKept()
	b.wait(EventAcked, 3, 20*time.Second)
	if n := b.sum(EventReceiversDied); n+recovered > 0 {
		t.Errorf("%d recoveries, %d receivers have died", recovered, n)
	}
}

// Close ends within its bound whatever Redis does.
func TestCloseIsBounded(t *testing.T) {
	t.Parallel()
	refuse := func(script interface{ Digest() string }, text string) func(*testing.T, *bench, *redistest.Proxy) {
		return func(_ *testing.T, b *bench, p *redistest.Proxy) {
			p.On(redistest.ByScript(script)(b.name), 0, redistest.ReplyError(text))
			p.CutAll()
		}
	}
	for name, fault := range map[string]func(t *testing.T, b *bench, p *redistest.Proxy){
		"Redis away": func(_ *testing.T, _ *bench, p *redistest.Proxy) { p.Refuse(true); p.CutAll() },
		"a black hole": func(t *testing.T, _ *bench,
			p *redistest.Proxy) {
			p.Hole(true)
			t.Cleanup(func() { p.Hole(false) })
		},
		"register refused":   refuse(store.Register, "TRYAGAIN not now"),
		"handover refused":   refuse(store.Handover, "CLUSTERDOWN Hash slot not served"),
		"supersede refused":  refuse(store.Supersede, "NOPERM no"),
		"unregister refused": refuse(store.Unregister, "CLUSTERDOWN Hash slot not served"),
		"verdicts refused": func(_ *testing.T, b *bench, p *redistest.Proxy) {
			p.On(redistest.ByScript(store.Retry)(b.name), 0, redistest.ReplyError("OOM command not allowed"))
		},
		"handover cut each time": func(_ *testing.T, b *bench, p *redistest.Proxy) {
			p.On(redistest.ByScript(store.Handover)(b.name), 0, redistest.CutBefore)
			p.CutAll()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := redistest.NewProxy(t, redistest.Shared(t).Addr())
			b := newBench(t, p.URL(), func(q *Queue) {
				q.Grace, q.ReplyTimeout, q.Lease = 500*time.Millisecond, time.Second, 4*time.Second
				q.Backoff = func(int) time.Duration { return time.Hour }
			})
			begun, end := make(chan struct{}), make(chan struct{})
			b.idles(p, 4, func(_ context.Context, i int) error {
				if i == 0 {
					close(begun)
					<-end
				}
				return errors.New("it failed")
			})
			b.enqueue(0, 1)
			<-begun
			fault(t, b, p)
			time.Sleep(300 * time.Millisecond)
			close(end)
			began := time.Now()
			err := b.Close()
			took := time.Since(began)
			t.Logf("Close took %v: %v", took, err)
			if took > b.Queue.ReplyTimeout+time.Second {
				t.Errorf("Close took %v: %v", took, err)
			}
			if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
				t.Errorf("an error of a context that nobody gave: %v", err)
			}
		})
	}
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
	other.until(15*time.Second, "both entries are dead", func() bool { return other.sum(EventReceiversDied) == 2 })
	p.Refuse(false)
	q.wait(EventHandedOver, 1, 10*time.Second)
	k := store.KeysOf(q.name)
	dead := strings.Join(members(t, s, k.DeadReceivers), "\n")
	for _, name := range members(t, s, k.Receivers) {
		if strings.Contains(dead, name) {
			t.Errorf("%s is among the living and among\n%s", name, dead)
		}
	}
}

// A beat in the old name was taken for a lost lease. It was sent while the handover had ended that name but did not
// know that yet.
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

// The last step of a handover was refused, when what handlers held lay in the new lists already. The next attempt
// looked for it in the old ones only and called it lost. It stayed in the new ones for as long as the receiver lived.
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
	q.until(30*time.Second, "all handled", func() bool { return q.count(EventAcked) == 100 })
	redistest.Until(
		t,
		30*time.Second,
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
	q.until(10*time.Second, "two were enqueued, and two are handled", func() bool {
		_, n := q.leaves(q.name)
		return n == 0 && handled.Load() >= 2
	})
}

// The register of a handover was executed by one channel and refused by the other. When it was tried again, a lease
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
	q.starts(func() (Shutdown, error) { return q.ReceiveOrdered(ctx, 1, ks[0], ks[1]) })
	strikes(t, blocks, 2)
	ko := Define(ks[0].channel, func(context.Context, int) error { return nil })
	other.starts(func() (Shutdown, error) { return other.Receive(ctx, ko, 1) })
	second := redistest.ByScript(store.Register)(ks[1].channel)
	r := p.On(second, 0, redistest.ReplyError("READONLY You can't write against a read only replica."))
	p.CutAll() // whatever waits; it may meet the first register, too
	strikes(t, r, 1)
	time.Sleep(20 * time.Millisecond)
	away(p)
	r.Remove()
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

// The new incarnation's lease counts from when its entry was sent, but its first beat came when the old one's next
// would have. So a second pause, of less than a lease, lost it.
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

// A handover keeps the attempt of what a handler holds, and names the new holder.
func TestHolderAfterHandover(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	b := newBench(t, p.URL(), func(q *Queue) { q.Backoff = func(int) time.Duration { return 0 } })
	o := newBench(t, s.URL())
	o.name = b.name
	in, out := make(chan string, 1), make(chan struct{})
	b.receive(2, func(ctx context.Context, i int) error {
		info, _ := FromContext(ctx)
		if i == 1 && info.Attempt == 1 {
			return errors.New("again")
		}
		if i == 1 {
			in <- info.Receiver
			<-out
		}
		return nil
	})
	b.must(o.one(1, ID("a")))
	before := <-in
	p.On(redistest.ByName("LREM", "")(b.name), 1, redistest.CutAfter)
	b.must(o.one(2))
	b.wait(EventHandedOver, 1, 5*time.Second)
	if st := o.status("a"); st.State != StateDoing || st.Attempt != 2 || st.Receiver == before ||
		time.Since(st.StartedAt).Abs() > time.Minute {
		t.Errorf("before in the hands of %s: %+v", before, st)
	}
	close(out)
	b.until(5*time.Second, "both are over", func() bool {
		return b.count(EventAcked)+b.count(EventUnconfirmedVerdict) == 2
	})
	o.noID("a")
}
