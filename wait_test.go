package shunt

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
)

// waited waits until somebody waits for n messages.
func (b *bench) waited(s redistest.Backend, n int64) {
	b.t.Helper()
	b.until(
		10*time.Second,
		"a Wait is known",
		func() bool { return s.Do("SCARD", store.KeysOf(b.name).Waited).(int64) == n },
	)
}

// Wait that begins before the subscription is confirmed.
func TestWaitForQuick(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	b := newBench(t, s.URL())
	w := newBench(t, p.URL())
	w.name = b.name
	go_, in := make(chan struct{}), make(chan struct{})
	b.receive(1, func(context.Context, int) error { close(in); <-go_; return nil })
	b.must(b.one(1, ID("a")))
	<-in
	p.On(redistest.Command("SUBSCRIBE", ".done"), 1, redistest.Delay(200*time.Millisecond))
	type end struct {
		o   Outcome
		err error
	}
	c := make(chan end, 1)
	go func() { o, err := w.Wait(context.Background(), b.name, "a"); c <- end{o, err} }()
	b.waited(s, 1)
	close(go_)
	e := <-c
	if e.err != nil {
		t.Errorf("%+v", e)
	}
}

// The same with nothing delayed at all.
func TestWaitForQuickUnkept(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	b := newBench(t, s.URL())
	missed, n := 0, 300
	b.receive(4, func(context.Context, int) error { return nil })
	for i := range n {
		id := fmt.Sprint(i)
		b.must(b.one(i, ID(id), In(time.Duration(rand.IntN(4))*time.Millisecond)))
		_, err := b.Wait(context.Background(), b.name, id)
		if errors.Is(err, ErrNotKept) {
			missed++
		} else if err != nil && !errors.Is(err, ErrNotFound) {
			t.Fatal(err)
		}
	}
	t.Logf("%d of %d Waits missed the end", missed, n)
	if missed > 0 {
		t.Fail()
	}
}

// Close ends a Wait.
func TestWaitEndsWithClose(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	b := newBench(t, s.URL())
	b.must(b.one(1, ID("a")))
	ended := make(chan error, 1)
	go func() { _, err := b.Wait(context.Background(), b.name, "a"); ended <- err }()
	b.waited(s, 1)
	b.must(b.Close())
	began := time.Now()
	err := <-ended
	t.Logf("ended %v after Close with %v", time.Since(began), err)
	if time.Since(began) > time.Second {
		t.Fail()
	}
}

// Many Waits.
func TestManyWaits(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	b := newBench(t, p.URL())
	const n = 200
	for i := range n {
		b.must(b.one(i, ID(fmt.Sprint(i))))
	}
	asks := p.On(redistest.ByScript(store.Wait)(b.name), 0, redistest.Pass)
	var g sync.WaitGroup
	for i := range n {
		g.Add(1)
		go func() {
			defer g.Done()
			if o, err := b.Wait(context.Background(), b.name, fmt.Sprint(i)); err != nil || o.Kind != EventAcked {
				t.Errorf("%v %v", o, err)
			}
		}()
		b.waited(s, int64(i+1))
	}
	time.Sleep(500 * time.Millisecond)
	k := asks.Struck()
	t.Logf("%d Waits asked %d times", n, k)
	b.receive(4, func(context.Context, int) error { return nil })
	g.Wait()
	if k > 4*n {
		t.Errorf("%d Waits asked %d times", n, k)
	}
}
