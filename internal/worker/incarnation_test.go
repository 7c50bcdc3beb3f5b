package worker

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/custody"
	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/event"
	"github.com/shuntmq/shunt/internal/lane"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
)

// What lies in an idle worker's list and in nobody's hands is found, whatever has brought it there.
func TestStrayIsHandedOver(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	keys := store.KeysOf(redistest.Name(t))
	handled := make(chan *Item, 1)
	r := testPool(t, s, keys, 3, func(c *Config) {
		c.Handle = func(it *Item) *custody.Verdict { handled <- it; return custody.Ack }
	})
	r.Start()
	redistest.Until(t, 5*time.Second, "all are parked", func() bool { return len(r.parking.list()) == 3 })
	e := element.Element{Serial: element.NewSerial(), Payload: []byte("x")}
	before := r.Sites[0].Live().Name
	s.Do("LPUSH", keys.Doing(r.Sites[0].Live(), 1), e.Encode())
	select {
	case it := <-handled:
		if it.Serial != e.Serial || r.Sites[0].Live().Name == before {
			t.Errorf("%v handled by %s, which was %s", it.Serial, r.Sites[0].Live().Name, before)
		}
	case <-time.After(20 * time.Second):
		t.Error("it is stranded")
	}
	endPool(t, r)
}

func endPool(t *testing.T, r *Pool) {
	t.Helper()
	r.StopTaking()
	if returned, still, err := r.End(); returned+still > 0 || err != nil {
		t.Errorf("%d returned, %d still run, %v", returned, still, err)
	}
}

// Idle workers without a stray are never handed over.
func TestStillIdle(t *testing.T) {
	a, b := &worker{n: 0}, &worker{n: 1}
	in := &lane.Lane{}
	some := []idleState{{a, in, "x", 3}, {b, in, "x", 7}}
	for _, c := range []struct {
		now  []idleState
		want int
	}{
		{some, 2},
		{nil, 0},
		{[]idleState{{a, in, "x", 3}}, 1},
		{[]idleState{{a, in, "x", 4}, {b, in, "x", 7}}, 1}, // a has made a step
		{[]idleState{{a, in, "y", 3}, {b, in, "y", 7}}, 0}, // of another incarnation
	} {
		if got := stillIdle(some, c.now); len(got) != c.want {
			t.Errorf("%v: %v", c.now, got)
		}
	}
}

// cut is a pool behind a proxy, with what it emits.
type cut struct {
	*Pool
	proxy  *redistest.Proxy
	server *redistest.Server
	keys   *store.Keys
	events chan event.Event
}

func newCut(t *testing.T, s *redistest.Server, workers int, change func(*Config)) *cut {
	p := redistest.NewProxy(t, s.Addr())
	c := &cut{proxy: p, server: s, keys: store.KeysOf(redistest.Name(t)), events: make(chan event.Event, 100_000)}
	pool, err := link.NewPool(p.URL())
	if err != nil {
		t.Fatal(err)
	}
	node := link.NewNode(pool, link.Settings{DialTimeout: time.Second, MaxBackoff: 100 * time.Millisecond})
	server := &link.Server{
		Node:  node,
		Data:  link.New(node, time.Second, true),
		Pulse: link.New(node, time.Second, false),
	}
	conf := Config{
		Lease:         3 * time.Second,
		Grace:         200 * time.Millisecond,
		Timeout:       time.Minute,
		ReplyTimeout:  time.Second,
		Prefetch:      16,
		PrefetchBytes: 256 << 10,
		Values:        context.Background(),
		Judge:         func(*Item, any, error) *custody.Verdict { return custody.Ack },
		Every:         true,
		Emit: func(evs ...event.Event) {
			for _, e := range evs {
				c.events <- e
			}
		},
	}
	change(&conf)
	c.Pool = NewPool(workers, []*lane.Lane{lane.New(c.keys, server, noPromoter{})}, conf)
	if err := c.Join(context.Background()); err != nil {
		t.Fatal(err)
	}
	c.Start()
	t.Cleanup(func() {
		c.StopTaking()
		c.CancelHandlers()
		c.End()
		server.Data.Close()
		server.Pulse.Close()
		pool.Close()
	})
	return c
}

// An incarnation whose register was executed, and answered to nobody, leaves the living however many attempts follow.
func TestAbandonedRegistersGo(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	c := newCut(t, s, 2, func(conf *Config) { conf.Handle = func(*Item) *custody.Verdict { return custody.Ack } })
	registered := c.proxy.On(redistest.ByScript(store.Register)(c.keys.Name), 1, redistest.CutAfter)
	removed := c.proxy.On(redistest.Command("ZREM", c.keys.Receivers), 1, redistest.CutBefore)
	c.Sites[0].MustHandOver(custody.ErrLeaseLost)
	redistest.Until(t, 10*time.Second, "it has another incarnation", func() bool { return !c.Sites[0].MustEnd() })
	if registered.Struck() != 1 || removed.Struck() != 1 {
		t.Fatalf("%d registers and %d removals were cut", registered.Struck(), removed.Struck())
	}
	redistest.Until(t, 5*time.Second, "only the live one is among the living", func() bool {
		living, err := redis.Strings(s.Do("ZRANGE", c.keys.Receivers, 0, -1), nil)
		return err == nil && slices.Equal(living, []string{c.Sites[0].Live().Name})
	})
}

// wait waits for an event of a kind and returns it.
func (c *cut) wait(t *testing.T, kind event.Kind) event.Event {
	t.Helper()
	late := time.After(15 * time.Second)
	for {
		select {
		case e := <-c.events:
			if e.Kind == kind {
				return e
			}
		case <-late:
			t.Fatalf("no %s", kind)
		}
	}
}

// dead are the incarnations that were ended, by how.
func (c *cut) dead() (superseded, counted int) {
	ms, _ := c.server.Do("ZRANGE", c.keys.DeadReceivers, 0, -1).([]any)
	for _, m := range ms {
		switch d, _ := store.ParseDeadReceiver(string(m.([]byte))); {
		case d.Counted:
			counted++
		default:
			superseded++
		}
	}
	return superseded, counted
}

// A handover that fails at any step loses what is held, as a lost lease does, and goes on with empty hands. Nothing is
// lost for good, nothing stays in a list that nobody looks at, and the workers take again.
func TestHandoverFails(t *testing.T) {
	t.Parallel()
	for name, act := range map[string]redistest.Action{
		"cut before":  redistest.CutBefore,
		"cut after":   redistest.CutAfter,
		"refused":     redistest.ReplyError("CLUSTERDOWN Hash slot not served"),
		"out of time": redistest.Delay(1500 * time.Millisecond),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var n atomic.Int64
			running, ended := make(chan struct{}), make(chan error, 1)
			c := newCut(t, redistest.Shared(t), 4, func(c *Config) {
				c.Prefetch = 1
				c.Handle = func(it *Item) *custody.Verdict {
					if n.Add(1) == 1 {
						close(running)
						<-it.Done()
						ended <- context.Cause(it)
					}
					return custody.Ack
				}
			})
			fill(c.server, c.keys, 1)
			<-running
			c.proxy.On(redistest.ByScript(store.Handover)(c.keys.Name), 1, act)
			redistest.Until(
				t,
				5*time.Second,
				"the others are parked",
				func() bool { return len(c.parking.list()) == 3 },
			)
			redistest.Until(t, 5*time.Second, "the waiter blocks", func() bool {
				return c.Lanes[0].Waiter.Blocked.Load() && c.proxy.Count(redistest.Command("BRPOPLPUSH")) > 0
			})
			c.proxy.CutAll() // the waiter is owed an answer
			if e := c.wait(t, event.LeaseLost); e.Err == nil {
				t.Error("no reason")
			}
			if cause := <-ended; cause != custody.ErrLeaseLost {
				t.Errorf("the handler ended by %v", cause)
			}
			c.wait(t, event.HandedOver)
			before := n.Load()
			fill(c.server, c.keys, 10)
			redistest.Until(t, 5*time.Second, "it takes again", func() bool { return n.Load() >= before+10 })
			redistest.Until(
				t,
				10*time.Second,
				"the old ones are listed as dead",
				func() bool { s, _ := c.dead(); return s >= 2 },
			)
			living, _ := c.server.Do("ZRANGE", c.keys.Receivers, 0, -1).([]any)
			if len(living) != 1 || string(living[0].([]byte)) != c.Sites[0].Live().Name {
				t.Errorf("living: %q", living)
			}
			redistest.Until(
				t,
				5*time.Second,
				"only what the handler held is left, in a list that a sweep finds",
				func() bool {
					lists, _ := c.server.Do("KEYS", "{"+c.keys.Name+"}.doing.*").([]any)
					return len(lists) == 1 && !strings.Contains(string(lists[0].([]byte)), c.Sites[0].Live().Name)
				},
			)
		})
	}
}

// A verdict that Redis answers by closing the connection costs its own message's attempt. The others' handlers run on.
// Its message stays in a list whose reap counts.
func TestPoisonVerdict(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "proto-max-bulk-len 1mb")
	long, running := make(chan struct{}), make(chan struct{})
	var causes atomic.Int64
	c := newCut(t, s, 4, func(c *Config) {
		c.Prefetch = 1
		c.Handle = func(it *Item) *custody.Verdict {
			switch string(it.Payload) {
			case "long":
				close(running)
				select {
				case <-long:
				case <-it.Done():
					causes.Add(1)
				}
			case "poison":
				next := slices.Repeat([]byte("x"), 2<<20)
				return &custody.Verdict{Verdict: store.Verdict{Fate: store.Retried, Next: next}}
			}
			return custody.Ack
		}
	})
	defer close(long)
	put := func(payload string) {
		e := element.Element{Serial: element.NewSerial(), Payload: []byte(payload)}
		s.Do("LPUSH", c.keys.Prepare, e.Encode())
	}
	put("long")
	<-running
	put("poison")
	redistest.Until(
		t,
		10*time.Second,
		"it is listed as counted",
		func() bool { _, counted := c.dead(); return counted > 0 },
	)
	fill(s, c.keys, 100)
	redistest.Until(
		t,
		10*time.Second,
		"the others are handled",
		func() bool { return s.Do("LLEN", c.keys.Prepare) == int64(0) },
	)
	if causes.Load() > 0 {
		t.Error("another handler was ended")
	}
}

// A handover of much goes in pipelines of bounded size.
func TestHandoverInParts(t *testing.T) {
	t.Parallel()
	const workers, size = 60, 100 << 10
	var begun atomic.Int64
	goOn := make(chan struct{})
	c := newCut(t, redistest.Shared(t), workers+1, func(c *Config) {
		c.Prefetch, c.Lease = 1, 15*time.Second
		c.Handle = func(it *Item) *custody.Verdict {
			begun.Add(1)
			<-goOn
			return &custody.Verdict{Verdict: store.Verdict{Fate: store.Retried, Wait: time.Hour,
				Next: slices.Clone(it.Raw)}}
		}
	})
	for range workers {
		e := element.Element{Serial: element.NewSerial(), Payload: make([]byte, size)}
		c.server.Do("LPUSH", c.keys.Prepare, e.Encode())
	}
	redistest.Until(t, 15*time.Second, "all run", func() bool { return begun.Load() == workers })
	var most atomic.Int64
	finish := sync.OnceFunc(func() { close(goOn); time.Sleep(300 * time.Millisecond) })
	// Every register: CutAll may cut the first one's connection before that register has gone on.
	c.proxy.On(redistest.ByScript(store.Register)(c.keys.Name), 0, redistest.Call(finish))
	retry := redistest.ByScript(store.Retry)(c.keys.Name)
	c.proxy.On(func(args [][]byte) bool {
		if retry(args) {
			n := 0
			for _, a := range args {
				n += len(a)
			}
			most.Add(int64(n))
		}
		return false
	}, 0, redistest.Pass)
	c.proxy.CutAll()
	c.wait(t, event.HandedOver)
	redistest.Until(
		t,
		10*time.Second,
		"all retries are executed",
		func() bool { return c.server.Do("ZCARD", c.keys.Delay) == int64(workers) },
	)
	if sent := most.Load(); sent < workers*size {
		t.Errorf("%d bytes of verdicts", sent)
	}
}

// A register that fails leaves at most one name behind, which the next takes away.
func TestRegisterLeavesNothing(t *testing.T) {
	t.Parallel()
	c := newCut(t, redistest.Shared(t), 1,
		func(c *Config) { c.Handle = func(*Item) *custody.Verdict { return custody.Ack } })
	lost := c.proxy.On(redistest.ByScript(store.Register)(c.keys.Name), 1, redistest.CutAfter)
	c.Sites[0].MustHandOver(fmt.Errorf("a test"))
	c.wait(t, event.HandedOver)
	if lost.Struck() != 1 {
		t.Error("the fault never struck")
	}
	living, _ := c.server.Do("ZRANGE", c.keys.Receivers, 0, -1).([]any)
	if len(living) != 1 || !strings.HasPrefix(string(living[0].([]byte)), c.Sites[0].Live().Name) {
		t.Errorf("living: %q, and it is %s", living, c.Sites[0].Live().Name)
	}
}

// A worker that was suspended between its step and the mark marks nothing: others may have the message by then.
func TestZombieMarksNothing(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	keys := store.KeysOf(redistest.Name(t))
	r := testPool(t, s, keys, 1, func(*Config) {})
	w := r.workers[0]
	it := &Item{
		Element: element.Element{Serial: element.NewSerial(), Extra: &element.Extra{ID: "id"}},
		Lane:    r.Lanes[0],
	}
	w.items, w.passed = []*Item{it}, allLanes
	w.now = time.Now() // of the step
	r.Sites[0].Lease.Lose()
	if w.index.mark(r.Lanes[0]) || s.Do("EXISTS", keys.Running) != int64(0) {
		t.Error("it marked a message after its lease")
	}
	w.items = nil
	r.StopTaking()
}
