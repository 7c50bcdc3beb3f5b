package dashboard

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/redistest"
)

// While nothing moves, open pages cost less than a command a second, however many channels there are and whether
// receivers live or not; what moves is on them as soon as ever.
func TestIdleStream(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ channels, receivers int }{
		"few channels": {10, 0}, "1000 channels": {1000, 0}, "1000 channels, 20 receivers": {1000, 20},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			idle(t, c.channels, c.receivers)
		})
	}
}

func idle(t *testing.T, channels, receivers int) {
	redistest.Leaks(t)
	s := redistest.Start(t)
	proxy := redistest.NewProxy(t, s.Addr())
	d := deskOn(t, s, proxy.Addr())
	d.q = &shunt.Queue{Pool: s.Pool(t), NoCounts: true, Quiet: true, Lease: time.Second} // it goes another way
	defer func() {
		if err := d.q.Close(); err != nil {
			t.Error(err)
		}
	}()
	ms := make([]shunt.IMessage, channels)
	for i := range ms {
		ms[i] = shunt.Raw(fmt.Sprint("idle-", i), []byte("x"))
	}
	if err := d.q.EnqueueAll(context.Background(), ms); err != nil {
		t.Fatal(err)
	}
	for i := range receivers {
		nothing := shunt.Define(fmt.Sprint("busy-", i), func(context.Context, int) error { return nil })
		if _, err := d.q.Receive(context.Background(), nothing, 2); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	defer func() { stop() }()
	other, leave := context.WithCancel(context.Background())
	defer leave()
	b := d.as("vera")
	d.d.hub.settle = pollEvery
	es := b.listen(ctx, "live?sort=waiting")
	one := b.listen(other, "live?c=idle-7")
	seen := false
	rest := func() { // all channels have been asked for, and what was enqueued there has settled
		calm, last := time.Now(), 0
		for until := calm.Add(time.Minute); time.Since(calm) < 5*time.Second && time.Now().Before(until); {
			select {
			case <-es:
			case <-one:
			case <-time.After(pollEvery):
			}
			if n := proxy.Commands(); n > last+10 || n < channels {
				calm, last = time.Now(), n
			}
		}
	}
	rest()
	before, began := proxy.Commands(), time.Now()
	for after := time.After(3 * turnPolls * restEvery); after != nil; {
		select {
		case e := <-es:
			seen = seen || e.Seen != ""
			if e.Stale || e.Error != "" {
				t.Errorf("%+v", e)
			}
		case <-one:
		case <-after:
			after = nil
		}
	}
	took := time.Since(began)
	if n := proxy.Commands() - before; float64(n) >= took.Seconds() || n < 5 {
		t.Errorf("%d commands in %v: %v", n, took, proxy.Log())
	} else {
		redistest.Tell(fmt.Sprintf("dashboard: %s: %.2f commands a second\n", t.Name(), float64(n)/took.Seconds()))
	}
	if !seen {
		t.Error("it does not say how old the figures may be")
	}
	shown := func(what, channel, field, want string) {
		t.Helper()
		after := time.Now()
		for e := range es {
			if e.Rows[channel][field] == want {
				break
			}
		}
		if took := time.Since(after); took > 3*pollEvery {
			t.Errorf("%s is shown after %v", what, took)
		}
	}
	d.enqueue("idle-3", "y")
	shown("a message", "idle-3", "waiting", "2")
	d.enqueue("idle-3", "y", shunt.In(time.Hour))
	shown("a delayed message", "idle-3", "delay", "1")
	leave()
	for range one {
	}
	one = nil
	moves := func() int64 {
		n, err := d.q.Moves(context.Background())
		if err != nil {
			t.Error(err)
		}
		return n
	}
	again := func() int { // a page is opened again, as a browser does by itself, once in 10 minutes
		rest()
		stop()
		for range es {
		}
		redistest.Until(t, 5*time.Second, "the listeners leave", func() bool { return d.listeners() == 0 })
		before := proxy.Commands()
		ctx, stop = context.WithCancel(context.Background())
		es = b.listen(ctx, "live?sort=waiting")
		if e := <-es; e.Rows["idle-3"]["waiting"] != "2" {
			t.Errorf("%+v", e)
		}
		return proxy.Commands() - before
	}
	const most = 6 // INFO for moves and for Health, a turn, and PING
	known := moves()
	n := again()
	for ; n > most && moves() != known; n = again() { // a slow machine has ended a receiver's lease
		known = moves()
	}
	if n > most {
		t.Errorf("%d commands for a page that is opened again", n)
	}
	stop()
	for range es {
	}
}

// A poller that ends while it asks whether anything moves leaves what it knows to the next one.
func TestPollerEndsAmidAPoll(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	proxy := redistest.NewProxy(t, s.Addr())
	d := deskOn(t, s, proxy.Addr())
	d.enqueue("mail", "x")
	h := newHub(d.q, d.d.o.Log, func() bool { return false })
	moved := time.Now().Add(-time.Hour)
	h.moves, h.moved, h.looked = 7, moved, moved.Add(h.settle)
	ctx, stop := context.WithCancel(context.Background())
	info := redistest.Command("INFO")
	proxy.On(info, 1, redistest.Call(stop))
	proxy.On(info, 1, redistest.Delay(50*time.Millisecond))
	h.poll(ctx, nil, make(chan struct{}))
	if h.moves != 7 || !h.moved.Equal(moved) {
		t.Errorf("%d moves, the last at %v: the next page looks at all channels", h.moves, h.moved)
	}
}

// What waits grows older on a page at rest, and what happened long ago is no rate any more.
func TestSightAges(t *testing.T) {
	t.Parallel()
	o := shunt.Overview{OldestAge: time.Minute, NextDueIn: time.Minute, Trend: 5, TrendOver: time.Minute}
	o.Lately.Enqueued = 7
	for _, c := range []struct {
		ago, age, due time.Duration
		enqueued      int64
	}{{time.Second, time.Minute + time.Second, time.Minute - time.Second, 7},
		{time.Hour, time.Hour + time.Minute, time.Minute - time.Hour, 0}} {
		now := sight{&o, time.Now().Add(-c.ago)}.now()
		if now.OldestAge.Round(time.Second) != c.age || now.NextDueIn.Round(time.Second) != c.due ||
			now.Lately.Enqueued != c.enqueued || (now.Trend == 0) != (c.enqueued == 0) {
			t.Errorf("%v later: %+v", c.ago, now)
		}
	}
	if o.OldestAge != time.Minute {
		t.Error("what was seen is written to")
	}
	var nothing shunt.Overview
	if now := (sight{&nothing, time.Now().Add(-time.Minute)}).now(); now.OldestAge != 0 || now.NextDueIn != 0 {
		t.Errorf("%+v", now)
	}
}

// At rest the channel that was not looked at for longest has its turn: of those on open pages, of those with
// receivers, and of all.
func TestTurns(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	h := newHub(d.q, d.d.o.Log, func() bool { return false })
	began := time.Now()
	for i, name := range []string{"a", "b", "open", "taken"} {
		d.enqueue(name, "x")
		o := &shunt.Overview{Channel: name}
		if name == "taken" {
			o.Receivers = 1
		}
		h.seen[name] = sight{o, began.Add(time.Duration(i-10) * time.Hour)}
	}
	h.ears[make(chan *snapshot, 1)] = "open"
	var turns []string
	for range 6 {
		h.polls += turnPolls
		before := make(map[string]time.Time)
		for name, s := range h.seen {
			before[name] = s.at
		}
		h.turn(context.Background(), time.Now())
		for name, s := range h.seen {
			if s.at.After(before[name]) {
				turns = append(turns, name)
			}
		}
		if o := h.seen["taken"].o; o.Receivers > 0 { // it is there still, as far as anybody knows
			continue
		}
		h.seen["taken"] = sight{&shunt.Overview{Channel: "taken", Receivers: 1}, h.seen["taken"].at}
	}
	if got := fmt.Sprint(turns); got != "[taken a open taken b open]" {
		t.Error(got)
	}
}
