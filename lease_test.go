package shunt

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
)

// through is a bench on the same channel, behind a proxy.
func (b *bench) through(p *redistest.Proxy, set ...func(*Queue)) *bench {
	o := newBench(b.t, p.URL(), set...)
	o.name = b.name
	return o
}

// A reply that is lost after its command was executed costs no message an attempt: a take is asked again, and a verdict
// is sent again, which then cannot know whether the first one did it.
func TestPullLostReply(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	ctx := context.Background()
	for name, c := range map[string]struct {
		of     func(channel string) redistest.Match
		opts   []Option
		settle func(b *bench, m *Leased) error
		want   error
		left   State // where the message is afterwards; empty: nowhere
	}{
		"take":       {redistest.ByScript(store.TakeLease), nil, nil, nil, StateLeased},
		"take by id": {redistest.ByScript(store.TakeLease), []Option{ID("a")}, nil, nil, StateLeased},
		"extend": {redistest.ByScript(store.Extend), nil,
			func(b *bench, m *Leased) error { return m.Extend(ctx, time.Hour) }, nil, StateLeased},
		"find": {redistest.ByName("LRANGE", ".leased"), nil,
			func(b *bench, m *Leased) error { _, err := b.Leased(ctx, m.Receipt); return err }, nil, StateLeased},
		"ack": {redistest.ByName("LREM", ".leased"), nil,
			func(b *bench, m *Leased) error { return m.Ack(ctx) }, ErrUnconfirmed, ""},
		"ack by id": {redistest.ByScript(store.Settle), []Option{ID("a")},
			func(b *bench, m *Leased) error { return m.Ack(ctx) }, ErrUnconfirmed, ""},
		"fail": {redistest.ByScript(store.Retry), nil,
			func(b *bench, m *Leased) error { return m.Fail(ctx, RetryAfter(time.Hour, errOops)) }, ErrUnconfirmed,
			StateDelay},
		"reject": {redistest.ByScript(store.Reject), nil,
			func(b *bench, m *Leased) error { return m.Fail(ctx, Reject(errOops)) }, ErrUnconfirmed, StateDead},
		"release": {redistest.ByScript(store.Release), nil,
			func(b *bench, m *Leased) error { return m.Release(ctx) }, ErrUnconfirmed, StatePrepare},
		"unlease": {redistest.ByScript(store.Unlease), nil,
			func(b *bench, m *Leased) error { return m.Ack(ctx) }, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := redistest.NewProxy(t, s.Addr())
			b := newBench(t, s.URL())
			o := b.through(p)
			b.must(b.one(0, c.opts...))
			cut := p.On(c.of(b.name), 1, redistest.CutAfter)
			m := o.pull(1, PullOptions{Lease: time.Minute})[0]
			if c.settle != nil {
				if err := c.settle(o, m); !errors.Is(err, c.want) || c.want == nil && err != nil {
					t.Errorf("%v, want %v", err, c.want)
				}
			}
			if cut.Struck() != 1 {
				t.Fatalf("struck %d times", cut.Struck())
			}
			for _, state := range States {
				want := 0
				if state == c.left {
					want = 1
				}
				es, err := b.List(ctx, b.name, state, 0, 0)
				if err != nil || len(es) != want || state == StatePrepare && want == 1 && es[0].Attempts != 0 {
					t.Errorf("%d %s, %v: %+v", len(es), state, err, es)
				}
			}
		})
	}
}

// A reply that comes when its lease may be over brings nothing: the message is pulled anew.
func TestPullRepliedLate(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	b := newBench(t, s.URL())
	o := b.through(p)
	b.must(b.one(0))
	late := p.On(redistest.ByScript(store.TakeLease)(b.name), 1, redistest.Delay(1200*time.Millisecond))
	m := o.pull(1, PullOptions{Lease: time.Second, Wait: 10 * time.Second})[0]
	if !time.Now().Before(m.EndsAt) || late.Struck() != 1 {
		t.Errorf("its lease ended %v ago", time.Since(m.EndsAt))
	}
	b.must(m.Ack(context.Background()))
}

// Two bare payloads of the same bytes are two messages: no verdict on one, repeated or not, hits the other.
func TestPullTwins(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		t.Parallel()
		ctx := context.Background()
		b := newBench(t, s.URL())
		for _, payload := range []string{"twin", "twin", "\xc1\x00\xc1twin"} {
			s.Do("LPUSH", store.KeysOf(b.name).Prepare, payload)
		}
		ms := b.pull(3, PullOptions{Max: 3, Lease: time.Minute})
		if string(ms[0].Payload) != "twin" || string(ms[2].Payload) != "\xc1twin" || ms[0].Attempt != 1 ||
			ms[0].Receipt == ms[1].Receipt {
			t.Errorf("pulled are %+v, %+v", ms[0], ms[2])
		}
		b.must(b.Ack(ctx, ms[0].Receipt, ms[0].Receipt))
		if err := b.Ack(ctx, ms[0].Receipt); !errors.Is(err, ErrLeaseLost) {
			t.Errorf("acked twice: %v", err)
		}
		if n := b.state(StateLeased); n != 2 {
			t.Errorf("%d are left", n)
		}
		b.must(ms[1].Release(ctx))
		again := b.pull(1, PullOptions{})[0]
		if string(again.Payload) != "twin" || again.Attempt != 1 || again.Serial != ms[1].Serial {
			t.Errorf("released, it is %+v", again)
		}
	})
}

// What a take brings for somebody who has gone is given back, and costs no attempt.
func TestPullGivesBack(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	b := newBench(t, s.URL())
	o := b.through(p)
	b.enqueue(0, 3)
	held := p.On(redistest.ByScript(store.TakeLease)(b.name), 1, redistest.Delay(time.Second))
	ctx, cancel := context.WithCancelCause(context.Background())
	go func() {
		strikes(t, held, 1)
		cancel(errOops)
	}()
	ms, err := o.Pull(ctx, PullOptions{Channels: []string{b.name}, Max: 2, Lease: time.Minute})
	if !errors.Is(err, errOops) {
		t.Fatalf("%v, %v", ms, err)
	}
	o.wait(EventReleased, 1, 5*time.Second)
	for i, m := range b.pull(3, PullOptions{Max: 3}) {
		if string(m.Payload) != fmt.Sprint(i) || m.Attempt != 1 {
			t.Errorf("then comes %+v", m)
		}
	}
}

// A take that Close interrupts is given back before Close returns, also where Redis is busy at first.
func TestCloseGivesBack(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	b := newBench(t, s.URL())
	o := b.through(p)
	b.enqueue(0, 1)
	held := p.On(redistest.ByScript(store.TakeLease)(b.name), 1, redistest.Delay(time.Second))
	p.On(redistest.ByScript(store.Handover)(b.name), 1, redistest.ReplyError("BUSY for a while"))
	pulled := make(chan error, 1)
	go func() {
		_, err := o.Pull(context.Background(), PullOptions{Channels: []string{b.name}, Lease: time.Minute})
		pulled <- err
	}()
	strikes(t, held, 1)
	b.must(o.Close())
	if err := <-pulled; !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if m := b.pull(1, PullOptions{})[0]; m.Attempt != 1 {
		t.Errorf("%+v", m)
	}
}

// Close does not wait for those who wait, whether Redis is there, mute, or gone.
func TestCloseWhilePullsWait(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"there", "mute", "gone", "another pool"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			b := newBench(t, s.URL(), func(q *Queue) { q.ReplyTimeout = time.Second })
			if how == "another pool" {
				b.Pool = s.Pool(t)
			}
			pulled := make(chan error, 1)
			go func() {
				_, err := b.Pull(context.Background(), PullOptions{Channels: []string{b.name}, Wait: time.Minute})
				pulled <- err
			}()
			b.until(5*time.Second, "it waits", func() bool { return b.callers() == 1 })
			switch how {
			case "mute":
				s.Stop()
				t.Cleanup(s.Cont)
			case "gone":
				s.Kill()
			}
			began := time.Now()
			b.Close()
			if took := time.Since(began); took > 6*time.Second || how == "there" && took > time.Second {
				t.Errorf("Close took %v", took)
			}
			if err := <-pulled; !errors.Is(err, ErrClosed) {
				t.Error(err)
			}
		})
	}
}

// A lease that cannot be ended holds up neither other leases nor what is due.
func TestLapseRefused(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	ctx := context.Background()
	b := newBench(t, s.URL(), func(q *Queue) { q.MaxAttempts = 2 })
	s.Do("SET", store.KeysOf(b.name).Dead, "no sorted set")
	b.enqueue(0, lapseLeases+1, MaxAttempts(1))
	for range lapseLeases + 1 {
		b.pull(1, PullOptions{Lease: 50 * time.Millisecond})
	}
	b.wait(EventReceiverError, 1, 5*time.Second)
	b.enqueue(100, 101)
	b.pull(1, PullOptions{Lease: 50 * time.Millisecond})
	b.must(b.one(101, In(100*time.Millisecond)))
	for range 2 {
		ms, err := b.Pull(ctx, PullOptions{Channels: []string{b.name}, Wait: 5 * time.Second})
		b.must(err)
		if len(ms) != 1 || ms[0].number(t) < 100 {
			t.Fatalf("%d pulled", len(ms))
		}
		b.must(ms[0].Ack(ctx))
	}
}

// A receipt whose lease cannot be read fails alone.
func TestReceiptsFailAlone(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	b, o := newBench(t, s.URL()), newBench(t, s.URL())
	b.enqueue(0, 1)
	o.enqueue(0, 1)
	good, bad := b.pull(1, PullOptions{})[0].Receipt, o.pull(1, PullOptions{})[0].Receipt
	n, err := bad.parse()
	b.must(err)
	s.Do("SET", store.KeysOf(n.channel).LeaseList(n.lease.Name), "no list")
	var of *ReceiptError
	if err := b.Ack(context.Background(), bad, good); !errors.As(err, &of) || of.Receipt != bad ||
		errors.Is(err, ErrLeaseLost) {
		t.Error(err)
	}
	if n := b.state(StateLeased); n != 0 {
		t.Errorf("%d are left of the good one", n)
	}
}

// Whose lease ends while Redis is away can settle when it is back: the end is put off.
func TestLeaseOverAPause(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	b := newBench(t, s.URL())
	ctx := context.Background()
	const term = 2 * time.Second
	b.enqueue(0, 20)
	ms := b.pull(20, PullOptions{Max: 20, Lease: term})
	time.Sleep(longestBlink) // so that there is a row of looks that the pause can break
	s.Stop()
	time.Sleep(term + time.Second)
	s.Cont()
	for i, m := range ms[:10] {
		if err := m.Ack(ctx); err != nil {
			t.Errorf("%d: %v", i, err)
		}
	}
	b.until(5*time.Second, "the others come back", func() bool { return b.sum(EventLapsed) == 10 })
	for _, m := range b.pull(10, PullOptions{Max: 20}) {
		if m.Attempt != 2 {
			t.Errorf("%+v", m)
		}
	}
}

// A full Redis is drained by those who pull as by receivers.
func TestPullFromFullRedis(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	b := newBench(t, s.URL())
	ctx := context.Background()
	b.enqueue(0, 20)
	for i := range 10 {
		b.must(b.one(i, ID(fmt.Sprint(i)), Expire(time.Hour)))
	}
	s.Do("CONFIG", "SET", "maxmemory", "1")
	waited := make(chan error, 1)
	go func() {
		_, err := b.Pull(ctx, PullOptions{Channels: []string{b.name + "empty"}, Wait: 300 * time.Millisecond})
		waited <- err
	}()
	for i := range 6 {
		ms := b.pull(5, PullOptions{Max: 5, Lease: time.Minute})
		b.must(ms[0].Fail(ctx, errOops))
		b.must(ms[1].Fail(ctx, Reject(errOops)))
		b.must(ms[2].Ack(ctx))
		b.must(ms[3].Release(ctx))
		b.must(b.Ack(ctx, ms[4].Receipt))
		if i < 5 {
			b.must(b.Ack(ctx, b.pull(1, PullOptions{})[0].Receipt))
		}
	}
	b.must(<-waited)
	s.Do("CONFIG", "SET", "maxmemory", "0")
}

// Many pull, wait, settle and go away at once: each message is acked once.
func TestPullMany(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	b, o := newBench(t, s.URL()), newBench(t, s.URL())
	const n = 3000
	seen := newTally()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var all sync.WaitGroup
	for i := range 40 {
		q := []*bench{b, o}[i%2]
		all.Go(func() {
			for ctx.Err() == nil {
				ctx, cancel := context.WithTimeout(ctx, time.Duration(rand.IntN(50))*time.Millisecond)
				ms, err := q.Pull(ctx, PullOptions{Channels: []string{b.name + "empty", b.name}, Max: 1 + i%5,
					Wait: time.Minute})
				cancel()
				if err != nil && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				var rs []Receipt
				for j, m := range ms {
					if (i+j)%7 == 0 {
						if err := m.Release(context.Background()); err != nil {
							t.Error(err)
						}
						continue
					}
					seen.add(m.number(t))
					rs = append(rs, m.Receipt)
				}
				if err := q.Ack(context.Background(), rs...); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := 0; i < n; i += 100 {
		b.enqueue(i, i+100)
	}
	b.until(20*time.Second, "all are handled", func() bool { return seen.distinct() == n })
	stop()
	all.Wait()
	if extra := seen.extra(); extra > 0 {
		t.Errorf("%d were handled twice", extra)
	}
	b.until(5*time.Second, "nothing is left", func() bool {
		return b.state(StatePrepare)+b.state(StateLeased) == 0
	})
}

// number is the message's, as enqueue gave it.
func (m *Leased) number(t *testing.T) (i int) {
	if _, err := fmt.Sscan(strings.TrimSpace(string(m.Payload)), &i); err != nil {
		t.Error(err)
	}
	return i
}
