package shunt

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
)

// told waits for what a channel's receivers tell.
func (b *bench) told(channel, what string, ok func([]Receiver) bool) {
	b.t.Helper()
	b.until(10*time.Second, what, func() bool {
		rs, err := b.Receivers(context.Background(), channel)
		if err != nil {
			b.t.Fatal(err)
		}
		return ok(rs)
	})
}

// here says whether a receiver tells that it is one of this process.
func here(r Receiver) bool {
	host, _ := os.Hostname()
	return r.Host == host && r.PID == os.Getpid() && r.Program == filepath.Base(os.Args[0]) && r.Shunt != "" &&
		time.Since(r.StartedAt) < time.Minute && time.Until(r.StartedAt) < time.Minute
}

// aboutLeft are the keys in which incarnations of a channel have told something.
func aboutLeft(t *testing.T, s redistest.Backend, channel string) []string {
	return slices.DeleteFunc(keysLeft(t, s, channel), func(key string) bool {
		return !strings.Contains(key, "}.about.")
	})
}

// A receiver tells where it runs, and what a worker has been busy with for a while. Nothing of that is left.
func TestAbout(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		t.Parallel()
		q := newBench(t, s.URL(), func(q *Queue) { q.Lease = time.Second })
		ctx := context.Background()
		hold, started := make(chan struct{}), make(chan time.Time, 1)
		shutdown := q.receive(2, func(context.Context, int) error { started <- time.Now(); <-hold; return nil })
		q.told(q.name, "where it runs", func(rs []Receiver) bool { return len(rs) == 1 && here(rs[0]) })
		began := time.Now()
		q.must(q.one(1, ID("an order")))
		var busy BusyWorker
		q.told(q.name, "busy", func(rs []Receiver) bool {
			if len(rs[0].Busy) != 1 || !here(rs[0]) {
				return false
			}
			busy = rs[0].Busy[0]
			return true
		})
		doing, err := q.List(ctx, q.name, StateDoing, 0, 0)
		q.must(err)
		if len(doing) != 1 || busy.Serial != doing[0].Serial || busy.ID != "an order" ||
			busy.Worker != doing[0].Worker || busy.Since.Sub(began) < -time.Second || // the clocks may differ
			busy.Since.Sub(<-started) > time.Second {
			t.Errorf("%+v, and in doing %+v", busy, doing)
		}
		close(hold)
		q.told(q.name, "idle", func(rs []Receiver) bool { return len(rs[0].Busy) == 0 && here(rs[0]) })
		q.must(shutdown(ctx))
		if left := aboutLeft(t, s, q.name); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	})
}

// A receiver that ends at once, while its first beat may be under way, leaves nothing.
func TestAboutShort(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		t.Parallel()
		q := newBench(t, s.URL())
		for range 20 {
			q.must(q.receive(1, func(context.Context, int) error { return nil })(context.Background()))
		}
		q.must(q.Close())
		if left := keysLeft(t, s, q.name); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	})
}

// Of two channels of one receiver each tells of its own messages.
func TestAboutOrdered(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		t.Parallel()
		q := newBench(t, s.URL(), func(q *Queue) { q.Lease = time.Second })
		hold := make(chan struct{})
		ks := q.ranks(2, func(context.Context, int, int) error { <-hold; return nil })
		shutdown := q.starts(func() (Shutdown, error) {
			return q.ReceiveOrdered(context.Background(), 2, ks[0], ks[1])
		})
		q.must(q.Enqueue(context.Background(), With(ks[1].Message(1), ID("low"))))
		busy := func(n int, id string) func([]Receiver) bool {
			return func(rs []Receiver) bool {
				return len(rs) == 1 && here(rs[0]) && len(rs[0].Busy) == n && (n == 0 || rs[0].Busy[0].ID == id)
			}
		}
		q.told(ks[1].channel, "the lower is busy", busy(1, "low"))
		q.told(ks[0].channel, "the higher is not", busy(0, ""))
		q.must(q.Enqueue(context.Background(), With(ks[0].Message(1), ID("high"))))
		q.told(ks[0].channel, "the higher is busy", busy(1, "high"))
		q.told(ks[1].channel, "the lower still is", busy(1, "low"))
		close(hold)
		q.must(shutdown(context.Background()))
		for _, k := range ks {
			if left := aboutLeft(t, s, k.channel); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		}
	})
}

// A killed process is known for as long as it is listed among the dead, with what it was busy with; not for ever.
func TestAboutKilled(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	q := newBench(t, s.URL(), func(q *Queue) { q.Lease = time.Second })
	dying := startWorker(t, orders{URL: s.URL(), Channel: q.name, Log: filepath.Join(t.TempDir(), "log"), Workers: 1,
		Lease: time.Second, Takes: time.Minute, Killer: -1})
	q.must(q.one(1, ID("deadly")))
	theirs := func(r Receiver) bool {
		return r.PID != 0 && r.PID != os.Getpid() && r.Host != "" && len(r.Busy) == 1 && r.Busy[0].ID == "deadly"
	}
	q.told(q.name, "busy", func(rs []Receiver) bool { return len(rs) == 1 && theirs(rs[0]) })
	dying.Kill()
	seen := newTally()
	shutdown := q.receive(1, func(_ context.Context, i int) error { seen.add(i); return nil })
	q.wait(EventReceiversDied, 1, 10*time.Second)
	q.until(10*time.Second, "recovered", func() bool { return seen.distinct() == 1 })
	q.told(q.name, "the dead one is known", func(rs []Receiver) bool {
		return len(rs) == 2 && rs[0].Alive && here(rs[0]) && !rs[1].Alive && theirs(rs[1])
	})
	q.must(shutdown(context.Background()))
	left := aboutLeft(t, s, q.name)
	if len(left) != 1 {
		t.Fatalf("left: %v", left)
	}
	ttl := time.Duration(s.Do("PTTL", left[0]).(int64)) * time.Millisecond
	if ttl < 80*time.Minute || ttl > store.AboutFor {
		t.Errorf("what is told of the dead one stays for %v", ttl)
	}
}

// After a handover the next incarnation tells what the last one did, and of the last one nothing is left.
func TestAboutHandover(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	q := newBench(t, p.URL(), func(q *Queue) { q.Lease = 3 * time.Second })
	hold := make(chan struct{})
	shutdown := q.receive(1, func(context.Context, int) error { <-hold; return nil })
	q.must(q.one(1, ID("held")))
	var first Receiver
	q.told(q.name, "busy", func(rs []Receiver) bool {
		first = rs[0]
		return here(first) && len(first.Busy) == 1
	})
	lost := p.On(redistest.ByScript(store.Register)(q.name), 0, redistest.Pass)
	p.On(redistest.Command("RPOPLPUSH", q.name), 1, redistest.CutAfter)
	p.On(redistest.Command("BRPOPLPUSH", q.name), 1, redistest.CutAfter)
	// Its take is cut, and that is both's connection.
	other := q.receive(1, func(context.Context, int) error { return nil })
	q.wait(EventHandedOver, 1, 10*time.Second)
	if lost.Struck() == 0 {
		t.Fatal("nothing was registered")
	}
	q.must(other(context.Background()))
	q.told(q.name, "the next one tells", func(rs []Receiver) bool {
		i := slices.IndexFunc(rs, func(r Receiver) bool { return r.Alive && len(r.Busy) == 1 })
		return i >= 0 && here(rs[i])
	})
	close(hold)
	q.must(shutdown(context.Background()))
	q.told(q.name, "what ended itself tells nothing", func(rs []Receiver) bool {
		return len(rs) > 0 && !slices.ContainsFunc(rs, func(r Receiver) bool { return r.Alive || r.Host != "" })
	})
	if left := aboutLeft(t, s, q.name); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// After Redis was flushed the next incarnation tells, and nothing of the last one comes back.
func TestAboutFlushed(t *testing.T) {
	t.Parallel()
	redistest.EachOwn(t, func(t *testing.T, s redistest.Backend) {
		t.Parallel()
		q := newBench(t, s.URL(), func(q *Queue) { q.Lease = time.Second })
		shutdown := q.receive(1, func(context.Context, int) error { return nil })
		q.told(q.name, "it tells", func(rs []Receiver) bool { return len(rs) == 1 && here(rs[0]) })
		s.Do("FLUSHALL")
		q.wait(EventHandedOver, 1, 10*time.Second)
		q.told(q.name, "the next one tells", func(rs []Receiver) bool {
			return len(rs) > 0 && rs[0].Alive && here(rs[0])
		})
		if left := aboutLeft(t, s, q.name); len(left) != 1 {
			t.Errorf("told: %v", left)
		}
		q.must(shutdown(context.Background()))
		if left := aboutLeft(t, s, q.name); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	})
}

// What is refused or lost of it costs no lease, is no error, and is not sent with each beat.
func TestAboutRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		do    redistest.Action
		most  int // times that it is sent while a second message is handled
		tells bool
	}{
		"refused": {redistest.ReplyError("NOPERM no rights"), 1, false},
		"moving":  {redistest.ReplyError("TRYAGAIN Multiple keys request during rehashing of slot"), 100, false},
		"lost":    {redistest.CutAfter, 100, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Shared(t)
			p := redistest.NewProxy(t, s.Addr())
			q := newBench(t, p.URL(), func(q *Queue) { q.Lease = time.Second })
			times := 0
			if c.tells {
				times = 1
			}
			r := p.On(redistest.ByScript(store.SetAbout)(q.name), times, c.do)
			beats := p.On(redistest.ByScript(store.Beat)(q.name), 0, redistest.Pass)
			var running atomic.Int32
			shutdown := q.receive(1, func(context.Context, int) error {
				running.Add(1)
				time.Sleep(2 * time.Second) // it becomes busy, and is no more
				return nil
			})
			q.enqueue(0, 2)
			q.wait(EventAcked, 2, 20*time.Second)
			if n := r.Struck(); n == 0 || n > c.most || running.Load() != 2 || beats.Struck() < 8 {
				t.Errorf("%d were struck, and there were %d beats", n, beats.Struck())
			}
			q.told(q.name, fmt.Sprint("tells: ", c.tells), func(rs []Receiver) bool {
				return len(rs) == 1 && here(rs[0]) == c.tells
			})
			if n := q.count(EventLeaseLost) + q.count(EventReceiverError) + q.count(EventHandedOver); n > 0 {
				t.Errorf("%d events", n)
			}
			q.must(shutdown(context.Background()))
		})
	}
}
