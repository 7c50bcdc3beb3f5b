package lane

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/event"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// noPromoter is a lane's promoter that promotes nothing.
type noPromoter struct{}

func (noPromoter) ScheduledHere(time.Duration) {}
func (noPromoter) Yield()                      {}

// bed is a receiver's lanes without a receiver.
type bed struct {
	*Site
	server *redistest.Server
	proxy  *redistest.Proxy
	stop   context.CancelFunc // of taking

	woken, renewed, lost atomic.Int32
	mu                   sync.Mutex
	events               []event.Event
}

func newBed(t *testing.T, lanes int) *bed {
	redistest.Leaks(t)
	b := &bed{server: redistest.Shared(t)}
	b.proxy = redistest.NewProxy(t, b.server.Addr())
	pool, err := link.NewPool(b.proxy.URL())
	if err != nil {
		t.Fatal(err)
	}
	node := link.NewNode(pool, link.Settings{DialTimeout: time.Second, MaxBackoff: 100 * time.Millisecond})
	s := &link.Server{Node: node, Data: link.New(node, time.Second, true), Pulse: link.New(node, time.Second, false)}
	taking, stop := context.WithCancel(t.Context())
	running, end := context.WithCancel(context.Background())
	b.stop = stop
	var all []*Lane
	for range lanes {
		all = append(all, New(store.KeysOf(redistest.Name(t)), s, noPromoter{}))
	}
	sites := Sites(all, &Config{
		Lease: 1500 * time.Millisecond, ReplyTimeout: time.Second, Workers: 2,
		Emit: func(evs ...event.Event) {
			b.mu.Lock()
			b.events = append(b.events, evs...)
			b.mu.Unlock()
		},
		Wake: func() { b.woken.Add(1) }, Renewed: func() { b.renewed.Add(1) }, Lost: func(*Site) { b.lost.Add(1) },
		Adopt: func(*Site) {}, Taking: taking, Running: running,
	})
	if len(sites) != 1 || sites[0].Mask != 1<<lanes-1 {
		t.Fatalf("%d sites", len(sites))
	}
	b.Site = sites[0]
	t.Cleanup(func() {
		stop()
		end()
		b.Large.Close()
		s.Data.Close()
		s.Pulse.Close()
		pool.Close()
	})
	return b
}

// joins enters the incarnation among the living, and starts the heart.
func (b *bed) joins(t *testing.T) {
	t.Helper()
	if err := b.Join(t.Context()); err != nil {
		t.Fatal(err)
	}
	go b.Beat()
}

// channels are those of the events of a kind, in order.
func (b *bed) channels(kind event.Kind) (names []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.events {
		if e.Kind == kind {
			names = append(names, e.Channel)
		}
	}
	return names
}

func (b *bed) count(kind event.Kind) int { return len(b.channels(kind)) }

func (b *bed) living(l *Lane) []string {
	names, _ := redis.Strings(b.server.TryDo("ZRANGE", l.Receivers, 0, -1))
	return names
}

// A lane gives the permit unless something is in its way, and says what.
func TestPermit(t *testing.T) {
	b := newBed(t, 2)
	b.joins(t)
	redistest.Until(t, 5*time.Second, "the first beat is answered", func() bool { return b.renewed.Load() > 0 })
	l, other := b.Lanes[0], b.Lanes[1]
	closed := errors.New("a test")
	for _, c := range []struct {
		name  string
		do    func()
		why   error
		later bool // it says when to ask again
		start bool // what is held may be started
	}{
		{"open", func() {}, nil, false, true},
		{"closed", func() { l.Close(t.Context(), closed) }, closed, false, false},
		{"opened", func() { l.Open() }, nil, false, true},
		{"unreadable", func() { l.CouldNotBeRead() }, errUnreadable, true, true},
		{"no other is open", func() { other.Close(t.Context(), closed) }, nil, false, true},
		{"neither can be read", func() { other.Open(); other.CouldNotBeRead() }, nil, false, true},
		{"another can be read again", func() { other.unreadable.Begin(time.Now(), 0) }, errUnreadable, true, true},
		{"the gate is closed", func() { b.CloseGate(t.Context()) }, errHandover, false, false},
		{"the lease is old", func() {
			b.OpenGate()
			b.Lease.extend(b.Lease.Last(), time.Now().Add(-time.Hour))
		}, errStale, false, false},
		{"stopped", b.stop, errStopped, false, false},
	} {
		c.do()
		now := time.Now()
		n, again, why := l.MayTake(now)
		if why != c.why || (n > 0) != (why == nil) || again.IsZero() == c.later || l.MayStart(now) != c.start {
			t.Errorf("%s: %d, %v, %v, start %v", c.name, n, again, why, l.MayStart(now))
		}
	}
	if b.woken.Load() == 0 {
		t.Error("nobody was woken")
	}
}

// The end of a lane's permit ends its own blocked take and no other.
func TestCloseUnblocks(t *testing.T) {
	b := newBed(t, 2)
	b.joins(t)
	ended := make(chan *Lane, 2)
	for _, l := range b.Lanes {
		if err := l.Waiter.Connect(t.Context()); err != nil {
			t.Fatal(err)
		}
		l.Waiter.Blocked.Store(true)
		go func() {
			store.BlockingTake(l.Waiter.Waiter, l.Keys, l.Lists[0], 5*time.Second)
			l.Waiter.Blocked.Store(false)
			ended <- l
		}()
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	b.Lanes[1].Close(ctx, errors.New("a test"))
	if l := <-ended; l != b.Lanes[1] || !b.Lanes[0].Waiter.Blocked.Load() {
		t.Errorf("lane %d was unblocked", l.Index)
	}
	if !b.CloseGate(ctx) {
		t.Error("the gate was not closed")
	}
	if l := <-ended; l != b.Lanes[0] {
		t.Errorf("lane %d was unblocked", l.Index)
	}
	for _, l := range b.Lanes {
		l.Waiter.Close()
	}
}

// Beats keep the entries of all lanes alive, and give the fence. An entry that is gone is a lost lease.
func TestBeat(t *testing.T) {
	b := newBed(t, 2)
	b.joins(t)
	var f store.Fence
	redistest.Until(t, 10*time.Second, "it has beaten three times, at last in time", func() bool {
		f = b.Fence()
		return b.renewed.Load() >= 3 && !f.At.IsZero()
	})
	if f.Age != b.Lease.Length*3/4/2 {
		t.Errorf("%+v of a term of %v", f, b.Lease.Length)
	}
	for _, l := range b.Lanes {
		if names := b.living(l); len(names) != 1 || names[0] != b.Live().Name {
			t.Errorf("%v live, and it is %s", names, b.Live().Name)
		}
	}
	b.server.Do("DEL", b.Lanes[1].Receivers)
	b.RequestBeat()
	redistest.Until(t, 5*time.Second, "the lease is lost", func() bool { return b.lost.Load() == 1 && b.MustEnd() })
	if b.count(event.LeaseLost) != 1 || b.Enter() {
		t.Errorf("%d events, and the gate is open", b.count(event.LeaseLost))
	}
	b.mu.Lock()
	for _, e := range b.events {
		if e.Channel != b.Lanes[0].Name {
			t.Errorf("an Event of the whole site names %q", e.Channel)
		}
	}
	b.mu.Unlock()
	b.LoseLease(errors.New("again"))
	if why := <-b.Broken(); why == nil || b.lost.Load() != 1 {
		t.Errorf("%v, lost %d times", why, b.lost.Load())
	}
	if !b.CloseGate(t.Context()) {
		t.Fatal("the gate stays open")
	}
	before := b.Live().Name
	b.Succeed(b.RegisterNext())
	b.OpenGate()
	if b.Live().Name == before || !b.Enter() || b.Lease.Lost() {
		t.Error("it does not go on")
	}
	b.Leave()
}

// An entry of somebody else that has run out is found by the beat, which asks for a sweep.
func TestBeatSeesTheDead(t *testing.T) {
	b := newBed(t, 2)
	b.server.Do("ZADD", b.Lanes[1].Receivers, 1, store.NewIncarnation(1, time.Second).Name)
	b.joins(t)
	select {
	case l := <-b.SweepRequests():
		if l != b.Lanes[1] {
			t.Errorf("lane %d is to be swept", l.Index)
		}
	case <-time.After(5 * time.Second):
		t.Error("no sweep is asked for")
	}
}

// A beat that fails is tried again soon, and not at once.
func TestBeatsThatFail(t *testing.T) {
	b := newBed(t, 1)
	failed := b.proxy.On(redistest.ByScript(store.Beat)(b.Lanes[0].Name), 0, redistest.ReplyError("TRYAGAIN not now"))
	began := time.Now()
	b.joins(t)
	redistest.Until(t, 10*time.Second, "it has failed four times", func() bool { return failed.Struck() >= 4 })
	if took := time.Since(began); took < 3*minBeatRetry*9/10 {
		t.Errorf("four beats in %v", took)
	}
	failed.Remove()
	redistest.Until(t, 5*time.Second, "it beats", func() bool { return b.renewed.Load() > 0 || b.woken.Load() > 0 })
}

// Where an entry has run out, the next beat comes as soon as the row of beats is old enough to judge its receiver.
func TestBeatsWhenItMayJudge(t *testing.T) {
	b := newBed(t, 1)
	b.server.Do("ZADD", b.Lanes[0].Receivers, 1, store.NewIncarnation(1, time.Second).Name)
	if err := b.Join(t.Context()); err != nil {
		t.Fatal(err)
	}
	h := &b.heart
	redistest.Until(t, 20*time.Second, "a beat comes early", func() bool {
		began := time.Now()
		h.seen.Store(&sight{sent: began, server: began, since: began.Add(-h.lease * 2 / 5)})
		wait, err := h.beat(began)
		if err != nil {
			t.Fatal(err)
		}
		return wait <= h.lease/10+5*time.Millisecond // it is later only where Redis took long to answer
	})
}

// A register without an answer leaves no name behind, however many attempts follow.
func TestRegisterNext(t *testing.T) {
	b := newBed(t, 1)
	b.joins(t)
	register := redistest.ByScript(store.Register)(b.Lanes[0].Name)
	lost := b.proxy.On(register, 1, redistest.CutAfter)
	refused := b.proxy.On(register, 2, redistest.ReplyError("NOPERM no"))
	next := b.RegisterNext()
	if next == nil || lost.Struck()+refused.Struck() != 2 || b.count(event.ReceiverError) == 0 {
		t.Fatalf("%v after %d and %d", next, lost.Struck(), refused.Struck())
	}
	if names := b.living(b.Lanes[0]); len(names) != 2 {
		t.Errorf("%v live: the old one and the next are two", names)
	}
	b.Debts.abandon("nobody")
	b.Debts.Forget(t.Context())
	if len(b.Debts.abandoned) > 0 {
		t.Error("what is forgotten is remembered")
	}
	forget := redistest.Command("ZREM", b.Lanes[0].Receivers)
	asked := b.proxy.Count(forget)
	if b.Debts.Forget(t.Context()); asked == 0 || b.proxy.Count(forget) != asked {
		t.Errorf("%d commands to forget, and %d more for nobody", asked, b.proxy.Count(forget)-asked)
	}
}

// A site pays its debts at each lane, as soon as Redis executes that. A refusal is one Event, and names the first lane.
func TestDebtsArePaid(t *testing.T) {
	b := newBed(t, 2)
	b.joins(t)
	go b.Debts.Loop()
	supersede := redistest.ByScript(store.Supersede)(b.Lanes[1].Name)
	refused := b.proxy.On(supersede, 1, redistest.ReplyError("NOPERM no"))
	b.Debts.Add(store.NewIncarnation(2, time.Second), true)
	redistest.Until(t, 5*time.Second, "all is paid", func() bool { return len(b.Debts.List()) == 0 })
	told := b.channels(event.ReceiverError)
	if refused.Struck() != 1 || !slices.Equal(told, []string{b.Lanes[0].Name}) {
		t.Errorf("%d refused, told of %v", refused.Struck(), told)
	}
	for _, l := range b.Lanes {
		if n := b.server.Do("ZCARD", l.DeadReceivers); n != int64(1) {
			t.Errorf("%v dead at lane %d", n, l.Index)
		}
	}
}

// A reply that is lost ends the incarnation; one that is an error does not.
func TestExchange(t *testing.T) {
	b := newBed(t, 1)
	b.joins(t)
	send := func() {
		c := link.NewCall()
		c.Add("LLEN", b.Lanes[0].Prepare)
		b.Enter()
		b.Exchange(c)
		b.Leave()
	}
	match := redistest.Command("LLEN", b.Lanes[0].Prepare)
	b.proxy.On(match, 1, redistest.ReplyError("ERR no"))
	if send(); b.MustEnd() {
		t.Error("an error ends it")
	}
	dials := b.Dials()
	b.proxy.On(match, 1, redistest.CutAfter)
	if send(); !b.MustEnd() {
		t.Error("a lost reply does not end it")
	}
	if err := b.Do(t.Context(), link.NewCall()); err != nil || b.Run() == nil || dials == 0 {
		t.Errorf("%v", err)
	}
	for err, cut := range map[error]bool{
		errors.New("x"): false, redis.Error("ERR Protocol error: invalid bulk length"): true, redis.Error("ERR"): false,
		&link.Error{Class: link.Unknown}: true,
	} {
		if WasCut(err) != cut {
			t.Errorf("%v: cut %v", err, !cut)
		}
	}
}

// Suspects are one at a time, and wait where Redis refuses to give any.
func TestSuspects(t *testing.T) {
	b := newBed(t, 2)
	b.joins(t)
	l, now := b.Lanes[1], time.Now()
	if b.SuspectsWait(now) || b.Suspects.Claim(l, now) {
		t.Error("there are none")
	}
	l.MayHaveSuspects.Store(true)
	if !b.SuspectsWait(now) || b.Suspects.Claim(b.Lanes[0], now) || !b.Suspects.Claim(l, now) {
		t.Error("there are some")
	}
	if b.SuspectsWait(now) || b.Suspects.Claim(l, now) {
		t.Error("two at once")
	}
	if wait := b.Suspects.Refused(redis.Error("NOPERM no")); wait < link.MinTrouble {
		t.Errorf("refused for %v", wait)
	}
	b.Suspects.Done()
	if b.Suspects.Claim(l, now) || !b.Suspects.Claim(l, now.Add(time.Minute)) {
		t.Error("it does not wait, or for ever")
	}
	b.Suspects.Granted()
}

// After a large element there is a connection of its own, until enough small ones were seen.
func TestLarge(t *testing.T) {
	b := newBed(t, 1)
	large := &b.Large
	if large.On() || large.link() != b.Server.Data {
		t.Error("large from the start")
	}
	large.Saw(largeInFlight)
	own := large.link()
	if !large.On() || own == b.Server.Data || own != large.link() {
		t.Error("no link of its own")
	}
	n := large.Reserve()
	if n != largeInFlight || large.Reserve() != 0 {
		t.Errorf("%d bytes are reserved, and more", n)
	}
	large.Release(n)
	large.Release(0)
	for range largeFor {
		large.Saw(1)
	}
	if large.On() || large.Reserve() != 1 {
		t.Error("large for ever")
	}
	large.Saw(largeElement + 1)
	large.Close()
	if large.link() != b.Server.Data {
		t.Error("a link after the end")
	}
}

// The end of the connection for large elements waits for replies, and workers that outlast a shutdown do not wait for
// that.
func TestLargeClosesBehind(t *testing.T) {
	b := newBed(t, 1)
	large := &b.Large
	large.Saw(largeElement + 1)
	own := large.link()
	dropped := b.proxy.On(redistest.ByName("LLEN", ".prepare")(b.Lanes[0].Name), 1, redistest.DropReply)
	call := link.NewCall()
	call.Add("LLEN", b.Lanes[0].Prepare)
	own.Post(call)
	if err := dropped.Wait(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	gone, seen := make(chan struct{}), make(chan struct{})
	go func() {
		large.Close()
		close(gone)
	}()
	<-own.Closed()
	go func() {
		large.Saw(1)
		close(seen)
	}()
	select {
	case <-seen:
	case <-gone:
		t.Error("a worker has waited for the end of the connection")
	}
	<-gone
	<-seen
}
