package shunt

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/redistest"
)

// underWay is a call that waits for Redis. m is pulled.
type underWay func(ctx context.Context, b *bench, m *Leased) error

// posts is an enqueue of some messages.
func posts(n int, opts ...Option) underWay {
	return func(ctx context.Context, b *bench, _ *Leased) error {
		ms := make([]IMessage, n)
		for i := range ms {
			ms[i] = b.kind(nil).Message(i)
		}
		if n == 1 {
			return b.Enqueue(ctx, ms[0], opts...)
		}
		return b.EnqueueAll(ctx, ms, opts...)
	}
}

// callsUnderWay are those of one Queue each.
var callsUnderWay = map[string]map[string]underWay{
	"producer": {
		"Enqueue":             posts(1),
		"Enqueue later":       posts(1, In(time.Hour)),
		"Enqueue by ID":       posts(1, ID("b")),
		"Enqueue by ID later": posts(1, ID("c"), In(time.Hour)),
		"EnqueueAll":          posts(2),
		"EnqueueAll later":    posts(2, In(time.Hour)),
	},
	"one who waits": {
		"EnqueueOnce": func(ctx context.Context, b *bench, _ *Leased) error {
			_, err := b.EnqueueOnce(ctx, Once{Channel: b.name, Key: "k"}, b.kind(nil).Message(1))
			return err
		},
		"EnqueueAndWait": func(ctx context.Context, b *bench, _ *Leased) error {
			_, err := b.EnqueueAndWait(ctx, b.kind(nil).Message(1))
			return err
		},
		"Wait": func(ctx context.Context, b *bench, _ *Leased) error {
			_, err := b.Wait(ctx, ByID(b.name, "a"))
			return err
		},
	},
	"puller": {
		"Ack":    func(ctx context.Context, _ *bench, m *Leased) error { return m.Ack(ctx) },
		"Fail":   func(ctx context.Context, _ *bench, m *Leased) error { return m.Fail(ctx, errors.New("it failed")) },
		"Extend": func(ctx context.Context, _ *bench, m *Leased) error { return m.Extend(ctx, time.Minute) },
		"Pull": func(ctx context.Context, b *bench, _ *Leased) error {
			_, err := b.Pull(ctx, PullOptions{Channels: []string{b.name}, Wait: time.Minute})
			return err
		},
	},
	"operator": {
		"Stats": func(ctx context.Context, b *bench, _ *Leased) error {
			_, err := b.Stats(ctx, b.name)
			return err
		},
		"Cancel": func(ctx context.Context, b *bench, _ *Leased) error {
			_, err := b.Cancel(ctx, ByID(b.name, "a"))
			return err
		},
		"Purge": func(ctx context.Context, b *bench, _ *Leased) error {
			_, err := b.Purge(ctx, b.name, StateDelay)
			return err
		},
	},
}

// All that a Queue has under way in an outage has returned a ReplyTimeout after its Close began, and so has Close. What
// was sent again just before waited for a reply of its own, and Close waited for that, for the end of its subscription
// and for counts one after another.
func TestCloseEndsWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	const reply, slack = 2 * time.Second, 800 * time.Millisecond
	each := func(a redistest.Action) func(*redistest.Proxy) {
		return func(p *redistest.Proxy) {
			for _, name := range []string{"EVALSHA", "EVAL", "LPUSH", "LREM", "LLEN"} {
				p.On(redistest.Command(name), 0, a)
			}
		}
	}
	for fault, strike := range map[string]func(*redistest.Proxy){
		"refused":     func(p *redistest.Proxy) { p.Refuse(true); p.CutAll() },
		"hole":        func(p *redistest.Proxy) { p.Hole(true) },
		"mute":        each(redistest.DropReply),
		"not for now": each(redistest.ReplyError("TRYAGAIN later")),
	} {
		for who, calls := range callsUnderWay {
			t.Run(fault+", "+who, func(t *testing.T) {
				t.Parallel()
				redistest.Leaks(t)
				p := redistest.NewProxy(t, redistest.Shared(t).Addr())
				t.Cleanup(func() { p.Hole(false) })
				b := newBench(t, p.URL(), func(q *Queue) { q.ReplyTimeout = reply })
				b.must(b.one(0, ID("a")))
				var m *Leased
				if who == "puller" {
					m = b.pull(1, PullOptions{Lease: time.Minute})[0]
				}
				strike(p)
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				type end struct {
					call string
					at   time.Time
					err  error
				}
				ends := make(chan end, len(calls)+1)
				for name, call := range calls {
					go func() { err := call(ctx, b, m); ends <- end{name, time.Now(), err} }()
				}
				time.Sleep(reply * 9 / 10) // so that the first replies are given up just after Close has begun
				began := time.Now()
				go func() { err := b.Close(); ends <- end{"Close", time.Now(), err} }()
				for range cap(ends) {
					if e := <-ends; e.at.Sub(began) > reply+slack {
						t.Errorf("%s returned %v after Close began: %v", e.call, e.at.Sub(began), e.err)
					}
				}
			})
		}
	}
}
