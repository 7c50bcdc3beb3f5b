package topics

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
)

// A line that is cut for some seconds between a pull and the job's own lease costs the job no try: nobody has had it.
func TestCutAtATake(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	b := redistest.Shared(t)
	p := redistest.NewProxy(t, b.Addr())
	open := func(url string) *shunt.Queue {
		t.Helper()
		pool, err := shunt.NewPool(url)
		if err != nil {
			t.Fatal(err)
		}
		q := &shunt.Queue{Pool: pool, Quiet: true}
		if err := q.Upkeep(context.Background()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = q.Close()
			_ = pool.Close()
		})
		return q
	}
	here, other := open(p.URL()), open(b.URL())
	ts, channel := Topics{Queue: here}, redistest.Name(t)
	m := shunt.With(shunt.Raw(channel, []byte("x")), shunt.ID("1"), shunt.MaxAttempts(1))
	if err := other.Enqueue(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	cut := false
	d := Demand{Channels: []string{channel}, Lease: func(*shunt.Leased) time.Duration {
		if !cut {
			cut = true
			p.Refuse(true)
			p.CutAll()
			time.AfterFunc(4*time.Second, func() { p.Refuse(false) })
		}
		return 20 * time.Second
	}}
	l, err := ts.Take(t.Context(), d)
	s, bad := other.Status(t.Context(), shunt.ByID(channel, "1"))
	if err != nil || bad != nil || l == nil || s.State != shunt.StateLeased {
		t.Errorf("%v, %v: %s %v", l, err, s.State, bad)
	}
}

// An ack whose reply was lost ends no job of the same id in another topic.
func TestLostReplyOfAnAck(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	b := redistest.Shared(t)
	p := redistest.NewProxy(t, b.Addr())
	pool, err := shunt.NewPool(p.URL())
	if err != nil {
		t.Fatal(err)
	}
	q, prefix := &shunt.Queue{Pool: pool, Quiet: true}, redistest.Name(t)+"/"
	t.Cleanup(func() {
		_ = q.Close()
		_ = pool.Close()
	})
	ts := Topics{Queue: q, Prefix: prefix}
	for _, topic := range []string{"a", "b"} {
		if err := q.Enqueue(t.Context(), shunt.With(shunt.Raw(prefix+topic, nil), shunt.ID("1"))); err != nil {
			t.Fatal(err)
		}
		ls, err := q.Pull(t.Context(), shunt.PullOptions{Channels: []string{prefix + topic}, Lease: time.Minute})
		if err != nil || len(ls) != 1 {
			t.Fatal(ls, err)
		}
		if topic == "a" {
			ts.Popped(ls[0])
		}
	}
	p.On(redistest.ByScript(store.Settle)(prefix+"a"), 1, redistest.CutAfter)
	_, err = ts.Ack(t.Context(), "1", "", nil)
	other, bad := q.Status(t.Context(), shunt.ByID(prefix+"b", "1"))
	if err != nil || bad != nil || other.State != shunt.StateLeased {
		t.Errorf("%v: %s, %v", err, other.State, bad)
	}
}

// A job whose own lease is shorter than that of a pull gets its own.
func TestShortLeases(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	pool, err := shunt.NewPool(redistest.Shared(t).URL())
	if err != nil {
		t.Fatal(err)
	}
	q, channel := &shunt.Queue{Pool: pool, Quiet: true}, redistest.Name(t)
	t.Cleanup(func() {
		_ = q.Close()
		_ = pool.Close()
	})
	ts := Topics{Queue: q}
	for _, want := range []time.Duration{20 * time.Second, 3 * time.Second, 0, 5 * time.Second, time.Hour} {
		if err := q.Enqueue(t.Context(), shunt.Raw(channel, []byte("x"))); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		l, err := ts.Take(t.Context(), Demand{Channels: []string{channel},
			Lease: func(*shunt.Leased) time.Duration { return want }})
		if err != nil || l == nil || l.Attempt != 1 {
			t.Fatalf("%v: %v, %v", want, l, err)
		}
		es, err := q.List(t.Context(), channel, shunt.StateLeased, 0, 1)
		if err != nil || len(es) != 1 {
			t.Fatal(es, err)
		}
		want = max(want, time.Second)
		if has := es[0].LeaseEndsAt.Sub(began); has < want-time.Second/2 || has > want+5*time.Second {
			t.Errorf("it has %v, want %v", has, want)
		}
		if err := l.Ack(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// A job with a short lease shortens that of pulls for a minute.
func TestFirstLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ts Topics
		wants := func(want time.Duration) {
			t.Helper()
			if got := ts.firstLease(); got != want {
				t.Errorf("it is %v, want %v", got, want)
			}
		}
		wants(mostFirst)
		ts.shortens(3 * time.Second)
		wants(3 * time.Second)
		time.Sleep(shortFor / 2)
		ts.shortens(2 * time.Second)
		wants(2 * time.Second)
		time.Sleep(shortFor - time.Nanosecond)
		wants(2 * time.Second)
		time.Sleep(time.Nanosecond)
		wants(mostFirst)
		ts.shortens(5 * time.Second)
		wants(5 * time.Second)
	})
}
