package shunt

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/meter"
	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
)

// counted are the counts of the bench's channel in the last minutes.
func (b *bench) counted() Counts {
	b.t.Helper()
	all, err := b.Counts(context.Background(), CountsOptions{Channels: []string{b.name}})
	b.must(err)
	return all[0][0]
}

// byHand ends the flushes that come by themselves, at any moment of a Queue's first ten seconds: the test does them.
func (b *bench) byHand() {
	b.t.Helper()
	b.must(b.open(context.Background()))
	b.counter.stop()
}

// What happens to messages is counted once, by whoever does it, with what it took.
func TestCounts(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		t.Parallel()
		ctx := context.Background()
		b := newBench(t, s.URL())
		o := newBench(t, s.URL(), func(q *Queue) {
			q.MaxAttempts = 2
			q.Backoff = func(int) time.Duration { return 10 * time.Millisecond }
		})
		o.name = b.name
		began := time.Now()
		var mu sync.Mutex
		var longest time.Duration // that one of the first ten has waited, who are more than half of all
		o.enqueue(0, 10)
		two := []IMessage{Raw(b.name, []byte("10")), Raw(b.name, []byte("11"))}
		if err := o.EnqueueAll(ctx, two, ID("same")); !errors.Is(err, ErrDuplicate) {
			t.Fatal(err)
		}
		o.must(o.one(20, In(300*time.Millisecond)))
		o.must(o.one(21, ID("expired"), Expire(time.Millisecond)))
		b.passes(s, 400*time.Millisecond)
		shutdown := o.receive(2, func(ctx context.Context, i int) error {
			if info, _ := FromContext(ctx); i < 10 && info.Attempt == 1 {
				mu.Lock()
				longest = max(longest, time.Since(began))
				mu.Unlock()
			}
			switch i {
			case 1:
				return errors.New("failed")
			case 2:
				return Reject(errors.New("never"))
			case 3:
				time.Sleep(20 * time.Millisecond)
			case 4:
				return Then(ctx, Raw(b.name, []byte("30")))
			}
			return nil
		})
		o.until(10*time.Second, "all are handled", func() bool {
			return o.count(EventAcked) == 11 && o.count(EventRejected) == 2 && o.count(EventExpired) == 1
		})
		o.must(shutdown(ctx))
		o.must(o.Close())
		got := b.counted()
		wait, handling, total := got.Wait.Count(), got.Handling.Count(), got.EndToEnd.Count()
		if wait != 13 || handling != 14 || total != 11 {
			t.Errorf("%d waits, %d handlings and %d ends", wait, handling, total)
		}
		if p := got.Handling.Quantile(1); p < 16*time.Millisecond || p > 3*time.Second {
			t.Errorf("the longest took %v", p)
		}
		if p := got.Wait.Quantile(0.5); p > 2*longest+time.Millisecond { // as exact as a quantile is
			t.Errorf("the median waited for %v, the longest of ten for %v", p, longest)
		}
		if got.DeadLetters != 2 || got.Waiting != 0 || got.Delayed != 0 {
			t.Errorf("%+v", got)
		}
		got.last, got.DeadLetters = time.Time{}, 0
		got.From, got.To, got.EnqueuedBytes, got.Wait, got.Handling, got.EndToEnd = time.Time{}, time.Time{}, 0,
			Histogram{}, Histogram{}, Histogram{}
		if want := (Counts{Enqueued: 14, Acked: 11, Retried: 1, Dead: 2, Expired: 1}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	})
}

// What was pulled is counted, too, and a lease that ends.
func TestCountsOfPulls(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		t.Parallel()
		ctx := context.Background()
		b := newBench(t, s.URL())
		o := newBench(t, s.URL())
		o.name = b.name
		o.enqueue(0, 4)
		ms := o.pull(3, PullOptions{Max: 3, Lease: time.Minute})
		o.must(ms[0].Ack(ctx))
		o.must(ms[1].Fail(ctx, errors.New("failed")))
		o.must(o.Release(ctx, ms[2].Receipt))
		o.pull(1, PullOptions{Lease: 500 * time.Millisecond})
		o.wait(EventLapsed, 1, 5*time.Second)
		o.must(o.Close())
		got := b.counted()
		if got.Enqueued != 4 || got.Acked != 1 || got.Retried != 1 || got.Released != 1 || got.Recovered != 1 ||
			got.Wait.Count() != 4 || got.EndToEnd.Count() != 1 || got.Handling.Count() != 0 {
			t.Errorf("%+v", got)
		}
	})
}

// A flush whose reply is lost is sent again, and counted once; one that is refused is not kept.
func TestCountsOnce(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	for name, act := range map[string]redistest.Action{"executed": redistest.CutAfter,
		"not executed": redistest.CutBefore, "refused for now": redistest.ReplyError("LOADING so far")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := redistest.NewProxy(t, s.Addr())
			b := newBench(t, s.URL())
			o := b.through(p)
			o.byHand()
			lost := p.On(redistest.ByScript(store.Tally)(b.name), 1, act)
			b.must(o.one(1))
			o.counter.flush(context.Background())
			b.must(o.one(2))
			o.until(10*time.Second, "it is sent", func() bool {
				o.counter.flush(context.Background())
				return len(o.counter.sent) == 0 && len(o.counter.sums) == 0
			})
			if got := b.counted(); got.Enqueued != 2 || lost.Struck() != 1 {
				t.Errorf("%d were counted; %d replies were lost", got.Enqueued, lost.Struck())
			}
		})
	}
}

// Close sends what was counted, also where a handler has run for longer than a reply may take, and where the last reply
// was lost.
func TestCountsAtClose(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	for name, cut := range map[string]bool{"late handler": false, "lost reply": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := redistest.NewProxy(t, s.Addr())
			b := newBench(t, s.URL())
			o := b.through(p, func(q *Queue) { q.ReplyTimeout = time.Second }) // for all that Close sends at last
			begun := make(chan struct{})
			o.enqueue(0, 1)
			o.receive(1, func(context.Context, int) error {
				close(begun)
				time.Sleep(2 * o.ReplyTimeout)
				return nil
			})
			<-begun
			if cut {
				p.On(redistest.ByScript(store.Tally)(b.name), 1, redistest.CutAfter)
			}
			o.must(o.Close())
			if got := b.counted(); got.Enqueued != 1 || got.Acked != 1 || got.Handling.Count() != 1 {
				t.Errorf("%+v", got)
			}
		})
	}
}

// What Redis has not answered when Close ends is counted by nobody, and Close says so.
func TestCountsAtMuteClose(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	b := newBench(t, s.URL())
	o := b.through(p, func(q *Queue) { q.ReplyTimeout = 200 * time.Millisecond })
	o.enqueue(0, 1)
	p.On(redistest.ByScript(store.Tally)(b.name), 0, redistest.DropReply)
	o.must(o.Close())
	o.mu.Lock()
	defer o.mu.Unlock()
	told := func(e Event) bool { return e.Channel == b.name && errors.Is(e.Err, errUncounted) }
	if !slices.ContainsFunc(o.events, told) {
		t.Errorf("%+v", o.events)
	}
}

// Where records were dropped the counts are coarser, or said to be missing.
func TestCountsDropped(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		t.Parallel()
		ctx := context.Background()
		b := newBench(t, s.URL())
		b.byHand()
		b.must(b.one(1))
		b.counter.flush(ctx)
		now := time.Now()
		s.Do("HSET", b.keys().Counts, "mkept", now.Unix()/60)
		o := CountsOptions{Channels: []string{b.name}, From: now.Add(-time.Hour)}
		all, err := b.Counts(ctx, o)
		b.must(err)
		if got := all[0][0]; got.Enqueued != 1 || got.Missing || !got.From.Equal(got.From.Truncate(10*time.Minute)) {
			t.Errorf("as one part: %+v", got)
		}
		o.Step = time.Minute
		all, err = b.Counts(ctx, o)
		b.must(err)
		if parts := all[0]; len(parts) < 60 || !parts[0].Missing || parts[len(parts)-1].Missing {
			t.Errorf("by minute: %+v", parts)
		}
		far := CountsOptions{Channels: []string{b.name}, From: now.AddDate(-50, 0, 0), To: now.AddDate(7000, 0, 0)}
		all, err = b.Counts(ctx, far)
		b.must(err)
		if got := all[0][0]; got.Enqueued != 1 || got.Waiting != 1 {
			t.Errorf("of all time: %+v", got)
		}
		far.Step = 120 * 24 * time.Hour
		if all, err = b.Counts(ctx, far); err != nil || len(all[0]) != 4 || all[0][3].To.After(now.AddDate(0, 0, 3)) {
			t.Errorf("by 120 days: %+v, %v", all, err)
		}
	})
}

// What is handed back at a shutdown is counted as the Events say.
func TestCountsReleased(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	b := newBench(t, s.URL())
	ctx := context.Background()
	b.enqueue(0, 200)
	begun := make(chan struct{}, 200)
	shutdown := b.receive(2, func(ctx context.Context, i int) error {
		begun <- struct{}{}
		if i == 100 {
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	})
	for range 101 {
		<-begun
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	_ = shutdown(ended)
	o := newBench(t, s.URL())
	o.name = b.name
	b.must(b.Close()) // it flushes the counts, and waits until Events have been called
	got := o.counted()
	if n := b.sum(EventReleased); got.Released != int64(n) || n == 0 {
		t.Errorf("%d are counted, and %d told of", got.Released, n)
	}
}

// Of a message that was due, or handled without an attempt, or retried by hand, only what it has waited for counts.
func TestCountsWait(t *testing.T) {
	t.Parallel()
	b := newBench(t, redistest.Shared(t).URL())
	ctx := context.Background()
	var runs atomic.Int32
	b.must(b.one(1, At(time.Now().Add(-time.Hour))))
	b.receive(1, func(context.Context, int) error {
		switch runs.Add(1) {
		case 1:
			return Snooze(3 * time.Second)
		case 2:
			return Reject(errors.New("never"))
		}
		return nil
	})
	b.wait(EventRejected, 1, 10*time.Second)
	_, err := b.RetryAllDead(ctx, b.name, Filter{})
	b.must(err)
	b.wait(EventAcked, 1, 5*time.Second)
	b.counter.flush(ctx)
	got := b.counted()
	if n, p := got.Wait.Count(), got.Wait.Quantile(1); n != 2 || p > 2*time.Second {
		t.Errorf("%d waits, the longest %v", n, p)
	}
	if p := got.EndToEnd.Quantile(1); p > 2*time.Second {
		t.Errorf("%v from the retry to the end", p)
	}
}

// With NoCounts nothing is counted, and an idle Queue asks nothing.
func TestNoCounts(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	b := newBench(t, s.URL(), func(q *Queue) { q.NoCounts = true })
	o := newBench(t, s.URL())
	b.enqueue(0, 3)
	b.receive(1, func(context.Context, int) error { return nil })
	b.wait(EventAcked, 3, 5*time.Second)
	b.must(b.Close())
	if n := s.Do("EXISTS", store.KeysOf(b.name).Counts); n != int64(0) {
		t.Error("something was counted")
	}
	o.byHand()
	o.must(o.one(1))
	o.counter.flush(context.Background())
	before := o.server.Data.Dials()
	o.counter.flush(context.Background())
	if o.server.Data.Dials() != before || len(o.counter.sent) > 0 {
		t.Error("nothing was counted, and something was sent")
	}
}

// A quantile lies in the bucket of the true one.
func TestQuantile(t *testing.T) {
	t.Parallel()
	var s meter.Sums
	for i := 1; i <= 1000; i++ {
		s.Took(meter.Wait, time.Duration(i)*time.Millisecond)
	}
	var h Histogram
	h.add(&s, meter.Wait)
	for p, want := range map[float64]time.Duration{0: 0, 0.01: 10 * time.Millisecond, 0.5: 500 * time.Millisecond,
		0.99: 990 * time.Millisecond, 1: time.Second} {
		if got := h.Quantile(p); got < want/2 || got > 2*want+time.Millisecond {
			t.Errorf("%v: %v, want %v", p, got, want)
		}
	}
	if new(Histogram).Quantile(0.5) != 0 {
		t.Error("a median of nothing")
	}
}

// One flush is one script a channel, however much is counted meanwhile.
func TestCountsFlushEnds(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	b := newBench(t, s.URL())
	o := b.through(p)
	o.byHand()
	p.On(redistest.ByScript(store.Tally)(b.name), 0, redistest.Call(func() {
		o.counter.count(b.name, func(to meter.Adder) { to.Add(meter.Enqueued, 1) })
	}))
	o.must(o.one(0))
	before := o.counter.number
	o.counter.flush(context.Background())
	if n := o.counter.number - before; n != 1 {
		t.Errorf("%d scripts", n)
	}
}

// What somebody else has written into the counts neither holds up Redis nor stays there.
func TestCountsForeign(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		b := newBench(t, s.URL())
		k := b.keys()
		b.byHand()
		b.must(b.one(1))
		b.counter.flush(t.Context())
		current, _ := s.Do("HGET", k.Counts, "m").([]byte)
		damaged := string(current) + "\x63" + strings.Repeat("\xff", 400) + "\x01"
		s.Do("HSET", k.Counts, "m", damaged, "foreign", "1", "pnobody", "x", "t", "\xff")
		b.must(b.one(2))
		if !b.counter.flush(t.Context()) {
			t.Error("it was not counted")
		}
		if n := b.counted().Enqueued; n != 1 { // the first was in the record that is none now
			t.Errorf("%d are counted", n)
		}
		if s.Do("HEXISTS", k.Counts, "foreign").(int64) != 0 {
			t.Error("what is not shunt's stays")
		}
		o := newBench(t, s.URL())
		s.Do("SET", o.keys().Counts, "foreign")
		all, err := b.Counts(t.Context(), CountsOptions{Channels: []string{o.name, b.name}})
		if err == nil || !strings.Contains(err.Error(), o.keys().Counts) || all[0] != nil || all[1][0].Enqueued != 1 {
			t.Errorf("%+v, %v", all, err)
		}
		s.Do("DEL", o.keys().Counts)
	})
}

// After the clock of Redis was put back counts go on at once.
func TestCountsClockBack(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	b := newBench(t, s.URL())
	b.byHand()
	b.must(b.one(1))
	minute := uint64(time.Now().Unix() / 60)
	s.Do("HSET", b.keys().Counts, "m", binary.AppendUvarint(nil, minute+30), "t",
		binary.AppendUvarint(nil, minute/10+3))
	b.counter.flush(t.Context())
	if n := b.counted().Enqueued; n != 1 {
		t.Errorf("%d are counted", n)
	}
}

// A full Redis counts nothing, and holds up no Close.
func TestCountsOfFullRedis(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "maxmemory-policy noeviction")
	b := newBench(t, s.URL())
	b.byHand()
	b.must(b.one(1))
	s.Do("CONFIG", "SET", "maxmemory", "1")
	b.counter.flush(t.Context())
	if len(b.counter.sent) > 0 || len(b.counter.refused) != 1 {
		t.Errorf("%d are kept, %d refused", len(b.counter.sent), len(b.counter.refused))
	}
	b.wait(EventReceiverError, 1, 5*time.Second)
	began := time.Now()
	b.must(b.Close())
	if took := time.Since(began); took > b.conf.ReplyTimeout*2/3 {
		t.Errorf("Close took %v", took)
	}
}

// Close counts an enqueue that ends while Close sends the counts. Where Redis answers, no Event tells of an error.
func TestCountsWhileClosing(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	b := newBench(t, s.URL())
	o := b.through(p)
	o.enqueue(0, 1)
	p.On(redistest.Command("LPUSH", b.name), 1, redistest.Delay(300*time.Millisecond))
	p.On(redistest.ByScript(store.Tally)(b.name), 0, redistest.Delay(600*time.Millisecond))
	ended := make(chan error)
	go func() { ended <- o.one(1) }()
	b.until(5*time.Second, "the enqueue is on its way", func() bool { return b.state(StatePrepare) == 2 })
	o.counter.count(o.name, func(to meter.Adder) { to.Add(meter.Enqueued, 1) }) // so that Close has some to send
	go func() { ended <- o.Close() }()
	o.must(<-ended)
	o.must(<-ended)
	if n := b.counted().Enqueued; n != 3 || o.count(EventReceiverError) > 0 {
		t.Errorf("%d counted, and %d errors told", n, o.count(EventReceiverError))
	}
}

// The finest parts go as far back as is said, also for a caller whose From is some time old by now.
func TestCountsFarBack(t *testing.T) {
	t.Parallel()
	b := newBench(t, redistest.Shared(t).URL())
	for _, x := range []struct{ back, step time.Duration }{
		{3 * time.Hour, time.Minute}, {3*time.Hour + 2*time.Minute, 2 * time.Minute},
		{48 * time.Hour, 10 * time.Minute},
		{48*time.Hour + 20*time.Minute, 20 * time.Minute},
	} {
		o := CountsOptions{Channels: []string{b.name}, From: time.Now().Add(-x.back), To: time.Now(), Step: x.step}
		all, err := b.Counts(t.Context(), o)
		if n := int(x.back / x.step); err != nil || len(all[0]) != n && len(all[0]) != n+1 {
			t.Errorf("%v back in %v: %d parts, %v", x.back, x.step, len(all), err)
		}
	}
	o := CountsOptions{Channels: []string{b.name}, From: time.Now().Add(-4 * time.Hour), Step: time.Minute}
	if _, err := b.Counts(t.Context(), o); err == nil || !strings.Contains(err.Error(), "multiple of 10m0s that") {
		t.Error(err)
	}
}
