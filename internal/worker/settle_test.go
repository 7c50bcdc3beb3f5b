package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/custody"
	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/event"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/meter"
	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
)

// Redis may refuse a verdict for a reason that waiting does not mend. That holds up no other channel, nor its worker
// for ever: after a while its message goes back.
func TestRefusedVerdictHoldsUpNobody(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	f := newFake(t, s, s.URL(), 2, 4, func(_ *Item, n int) error {
		if n < 100 {
			return retry(time.Hour)
		}
		return nil
	}, func(c *Config) { c.Order, c.RefusedFor = NewOrder([]int{1, 1}), time.Second })
	s.Do("SET", f.keys[0].Delay, "foreign")
	f.enqueue(0, 0, 8)
	f.until(5*time.Second, "each worker has a verdict refused",
		func() bool { return f.count(event.ReceiverError) >= 4 })
	f.enqueue(1, 100, 200)
	f.until(3*time.Second, "the other channel is handled", func() bool { return f.seen(100, 200) == 100 })
	f.until(10*time.Second, "the refused are put back", func() bool { return f.count(event.Released) > 0 })
	s.Do("DEL", f.keys[0].Delay)
	f.until(15*time.Second, "all are retried", func() bool { return f.count(event.Retried) == 8 })
	if n := f.length("ZCARD", f.keys[0].Delay); n != 8 {
		t.Errorf("%d in delay", n)
	}
}

// Where Redis does not take a message back either, its worker lets go of it, and End puts it back.
func TestRefusedReleaseIsLetGo(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	f := newFake(t, s, p.URL(), 1, 1, func(_ *Item, n int) error {
		if n == 0 {
			return retry(time.Hour)
		}
		return nil
	}, func(c *Config) { c.RefusedFor = time.Millisecond })
	wrong := redistest.ReplyError("WRONGTYPE Operation against a key holding the wrong kind of value")
	rules := []*redistest.Rule{p.On(redistest.ByScript(store.Retry)(f.keys[0].Name), 0, wrong),
		p.On(redistest.ByScript(store.Release)(f.keys[0].Name), 0, wrong)}
	f.enqueue(0, 0, 1)
	f.until(20*time.Second, "both are refused", func() bool { return rules[1].Struck() >= 2 })
	f.enqueue(0, 1, 2)
	f.until(8*time.Second, "the next is handled", func() bool { return f.seen(1, 2) == 1 })
	for _, r := range rules {
		r.Remove()
	}
	f.stop()
	if n := f.length("LLEN", f.keys[0].Prepare); n != 1 {
		t.Errorf("%d in prepare", n)
	}
}

// Where Redis refuses to give suspects, plain messages are taken all the same.
func TestRefusedSuspectsHoldUpNobody(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	f := newFake(t, s, p.URL(), 1, 1, func(*Item, int) error { return nil })
	refused := p.On(redistest.ByScript(store.Take)(f.keys[0].Name), 0,
		redistest.ReplyError("NOPERM this user has no permissions to access one of the keys used as arguments"))
	s.Do("LPUSH", f.keys[0].Suspect, "-1")
	for i := range 50 {
		f.Suspects(f.Lanes[0])
		f.enqueue(0, i, i+1)
		f.until(2*time.Second, "it is handled", func() bool { return f.seen(i, i+1) == 1 })
	}
	if refused.Struck() == 0 || f.count(event.ReceiverError) == 0 {
		t.Errorf("%d refused, %d told of", refused.Struck(), f.count(event.ReceiverError))
	}
	refused.Remove()
	f.until(10*time.Second, "the suspect is handled", func() bool { return f.seen(-1, 0) == 1 })
}

// An ack of a bare payload is not sent again when its reply is lost. An Event says that its outcome is unknown.
func TestBareAckWithoutReply(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	f := newFake(t, s, p.URL(), 1, 1, func(*Item, int) error { return nil })
	p.On(redistest.ByName("LREM", ".doing")(f.keys[0].Name), 1, redistest.CutAfter)
	s.Do("LPUSH", f.keys[0].Prepare, "7")
	f.until(5*time.Second, "it says so", func() bool { return f.count(event.UnconfirmedVerdict) == 1 })
	f.until(5*time.Second, "it hands over", func() bool { return f.count(event.HandedOver) == 1 })
	f.stop()
	if f.count(event.UnconfirmedVerdict) != 1 || f.count(event.Acked)+f.count(event.LateVerdict) != 0 || f.seen(7,
		8) != 1 {
		t.Errorf("%d unconfirmed, %d acked, %d late", f.count(event.UnconfirmedVerdict), f.count(event.Acked),
			f.count(event.LateVerdict))
	}
}

// A failed handler's message goes back when its receiver ends. Where a bare one goes back without a reply, its error is
// told all the same, and counted as late, once. Of one that nobody has handled there is nothing to tell.
func TestBareReleaseWithoutReply(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	for _, failure := range []error{errors.New("oops"), nil} {
		p := redistest.NewProxy(t, s.Addr())
		keys := store.KeysOf(redistest.Name(t))
		events := make(chan event.Event, 100)
		var begun atomic.Int32
		r := newTestPool(t, p.URL(), []*store.Keys{keys}, 1, func(c *Config) {
			c.Count, c.Every = true, true
			c.Handle = func(*Item) *custody.Verdict {
				if begun.Add(1) > 1 {
					return custody.Ack
				}
				if failure == nil {
					return custody.Release
				}
				return &custody.Verdict{Verdict: custody.Release.Verdict, Err: failure}
			}
			c.Emit = func(evs ...event.Event) {
				for _, e := range evs {
					switch e.Kind {
					case event.UnconfirmedVerdict, event.Acked:
						events <- e
					}
				}
			}
		})
		p.On(redistest.ByScript(store.Release)(keys.Name), 1, redistest.CutAfter)
		r.Start()
		s.Do("LPUSH", keys.Prepare, "7")
		var told []error
		for e := <-events; e.Kind != event.Acked; e = <-events {
			told = append(told, e.Err)
		}
		r.StopTaking()
		_, _, err := r.End()
		late := 0
		r.Tally(func(_ string, sums *meter.Sums) { late += int(sums[meter.Late]) })
		want := 0
		if failure != nil {
			want = 1
		}
		if err != nil || late != want || len(events) > 0 || len(told) != want || want > 0 && told[0] != failure {
			t.Errorf("%v: %v; %d are late, told of %v, and %d more Events", failure, err, late, told, len(events))
		}
	}
}

// What a worker had in hand and released unbegun was taken in time: it does not expire any more.
func TestReleasedDoesNotExpire(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	goOn := make(chan struct{})
	f := newFake(t, s, s.URL(), 1, 1, nil)
	f.handles(func(_ *Item, n int) error {
		if n >= 300 && f.length("LLEN", f.keys[0].Doing(f.Sites[0].Live(), 0)) > 1 {
			<-goOn
		}
		return nil
	})
	args := []any{f.keys[0].Prepare}
	expires := time.Now().Add(2 * time.Second)
	for i := range 400 {
		e := element.Element{Serial: element.NewSerial(), Payload: fmt.Append(nil, i)}
		if i > 300 {
			e.Extra = &element.Extra{Expires: expires.UnixMilli()}
			if i > 350 {
				f.withID(0, fmt.Sprint("id", i), *e.Extra)(&e)
			}
		}
		args = append(args, e.Encode())
	}
	s.Do("LPUSH", args...)
	f.until(5*time.Second, "what has not begun is released", func() bool { return f.count(event.Released) > 0 })
	taken := f.count(event.Released)
	time.Sleep(time.Until(expires) + 50*time.Millisecond) // what it is about is that this time passes
	close(goOn)
	f.until(5*time.Second, "all are over", func() bool { return f.seen(0, 400)+f.count(event.Expired) >= 400 })
	if n := f.seen(301, 400); n < taken {
		t.Errorf("%d of at least %d that had been taken were handled", n, taken)
	}
}

// What is to be kept of messages is kept where many leave together.
func TestKeptTogether(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	f := newFake(t, s, s.URL(), 1, 1, func(*Item, int) error { return nil })
	args := []any{f.keys[0].Prepare}
	const quick, kept = 200, 300
	for i := range quick + kept {
		e := element.Element{Serial: element.NewSerial(), Payload: fmt.Append(nil, i)}
		if i >= quick { // by now several are taken at once
			f.withID(0, fmt.Sprint("id", i), element.Extra{Retain: time.Hour.Milliseconds()})(&e)
		}
		args = append(args, e.Encode())
	}
	s.Do("LPUSH", args...)
	f.until(10*time.Second, "all are acked", func() bool { return f.count(event.Acked) == quick+kept })
	if n := s.Do("ZCOUNT", f.keys[0].Kept, "-inf", "(0"); n != int64(kept) {
		t.Errorf("%d of %d outcomes are kept", n, kept)
	}
}

// A site is slowed down for the first reason of those that Redis gave together.
func TestFirstTrouble(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	r := testPool(t, s, store.KeysOf(redistest.Name(t)), 1, func(*Config) {})
	d := &dispatches{worker: r.workers[0]}
	var replies []link.Reply
	for _, text := range []redis.Error{"TRYAGAIN not now", "BUSY running a script", "OOM command not allowed"} {
		it := &Item{Lane: r.Lanes[0], state: decided, verdict: custody.Ack}
		d.add(single, it)
		replies = append(replies, link.Reply{Err: text})
	}
	if err := d.settle(replies); link.Code(err) != "TRYAGAIN" {
		t.Error(err)
	}
}

// A verdict that Redis does not answer before the receiver ends is counted as late, once. The end says what kept it. A
// handler that failed because its receiver ends has such a verdict, too. Its Event has the handler's error.
func TestUnsettled(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	oops := errors.New("oops")
	for name, c := range map[string]struct {
		v    *custody.Verdict
		late int
		says error
	}{
		"acked":     {custody.Ack, 1, errEnded},
		"failed":    {&custody.Verdict{Verdict: custody.Release.Verdict, Err: oops}, 1, oops},
		"unhandled": {custody.Release, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := redistest.NewProxy(t, s.Addr())
			keys := store.KeysOf(redistest.Name(t))
			returned, events := make(chan bool, 1), make(chan event.Event, 100)
			r := newTestPool(t, p.URL(), []*store.Keys{keys}, 1, func(conf *Config) {
				conf.Count, conf.ReplyTimeout = true, 500*time.Millisecond
				conf.Handle = func(*Item) *custody.Verdict {
					p.Hole(true)
					returned <- true
					return c.v
				}
				conf.Emit = func(evs ...event.Event) {
					for _, e := range evs {
						if e.Kind == event.UnconfirmedVerdict {
							events <- e
						}
					}
				}
			})
			r.Start()
			fill(s, keys, 1)
			<-returned
			r.StopTaking()
			_, _, err := r.End()
			late := 0
			r.Tally(func(_ string, sums *meter.Sums) { late += int(sums[meter.Late]) })
			if !errors.Is(err, ErrUnanswered) || late != c.late || len(events) != c.late {
				t.Fatalf("%v; %d are late, of %d Events", err, late, len(events))
			}
			if c.late > 0 {
				if e := <-events; !errors.Is(e.Err, c.says) || !errors.Is(e.Err, errEnded) {
					t.Errorf("told of %v", e.Err)
				}
			}
		})
	}
}

// The error of a shutdown names what kept Redis from answering.
func TestOutage(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	site := testPool(t, s, store.KeysOf(redistest.Name(t)), 1, func(*Config) {}).Sites[0]
	refusal := redis.Error("NOPERM no")
	for _, c := range []struct{ err, want error }{
		{nil, nil},
		{refusal, refusal},
		{context.Canceled, ErrUnanswered},
		{&link.Error{Class: link.NotExecuted, Err: ErrUnanswered}, ErrUnanswered},
		{&link.Error{Class: link.Unknown, Err: ErrUnanswered}, ErrUnanswered},
	} {
		if got := outage(site, c.err); got != c.want {
			t.Errorf("%v: %v, want %v", c.err, got, c.want)
		}
	}
	if err := outage(site, &link.Error{Class: link.Unknown, Err: io.EOF}); !errors.Is(err, io.EOF) || err == io.EOF {
		t.Error(err)
	}
}
