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
	go func() { o, err := w.Wait(context.Background(), ByID(b.name, "a")); c <- end{o, err} }()
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
		_, err := b.Wait(context.Background(), ByID(b.name, id))
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
	go func() { _, err := b.Wait(context.Background(), ByID(b.name, "a")); ended <- err }()
	b.waited(s, 1)
	b.must(b.Close())
	began := time.Now()
	err := <-ended
	t.Logf("ended %v after Close with %v", time.Since(began), err)
	if time.Since(began) > 3*time.Second {
		t.Fail()
	}
}

// Close ends a Wait amid its question too, and nobody takes the message for one that may not have been enqueued.
func TestWaitEndsAmidItsQuestion(t *testing.T) {
	t.Parallel()
	p := redistest.NewProxy(t, redistest.Shared(t).Addr())
	b := newBench(t, p.URL(), func(q *Queue) { q.ReplyTimeout = time.Second })
	asked := make(chan struct{}, 1)
	p.On(redistest.ByScript(store.Wait)(b.name), 1, redistest.Call(func() { asked <- struct{}{} }))
	p.On(redistest.ByScript(store.Wait)(b.name), 0, redistest.DropReply)
	ended := make(chan error, 1)
	go func() { _, err := b.EnqueueAndWait(context.Background(), b.kind(nil).Message(1)); ended <- err }()
	<-asked
	b.must(b.Close())
	err := <-ended
	if !errors.Is(err, ErrClosed) || errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), "is enqueued") {
		t.Error(err)
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
			if o, err := b.Wait(context.Background(), ByID(b.name, fmt.Sprint(i))); err != nil || o.Kind != EventAcked {
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

// EnqueueAndWait has the outcome of every message, however soon it is over.
func TestEnqueueAndWait(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	q := newBench(t, s.URL())
	q.receive(4, func(ctx context.Context, i int) error {
		if i%10 == 9 {
			return Reject(errOops)
		}
		return SetResult(ctx, fmt.Append(nil, i))
	})
	var all sync.WaitGroup
	for w := range 5 {
		all.Go(func() {
			for i := w; i < 500; i += 5 {
				opts := []Option{ID(fmt.Sprint("id", i))}
				if i%2 == 0 {
					opts = nil
				}
				out, err := q.EnqueueAndWait(t.Context(), q.kind(nil).Message(i), opts...)
				switch {
				case err != nil:
					t.Errorf("%d: %v", i, err)
				case i%10 == 9 && (out.Kind != EventRejected || out.Failure != "oops"),
					i%10 != 9 && (out.Kind != EventAcked || string(out.Result) != fmt.Sprint(i)):
					t.Errorf("%d: %+v", i, out)
				}
			}
		})
	}
	all.Wait()
}

// What EnqueueAndWait cannot bring is said: a taken id, and a wait that ended first.
func TestEnqueueAndWaitFails(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	q := newBench(t, s.URL())
	m := With(q.kind(nil).Message(1), ID("a"))
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := q.EnqueueAndWait(ctx, m)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), `"a"`) ||
		!strings.Contains(err.Error(), "is enqueued") {
		t.Errorf("%v", err)
	}
	if _, err := q.EnqueueAndWait(t.Context(), m); !errors.Is(err, ErrDuplicate) {
		t.Errorf("%v", err)
	}
	if st, err := q.Status(t.Context(), ByID(q.name, "a")); err != nil || st.State != StatePrepare {
		t.Errorf("%+v, %v", st, err)
	}
	_, err = q.Wait(t.Context(), ByID(q.name, "b"))
	if !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), "EnqueueAndWait") {
		t.Errorf("%v", err)
	}
}

// A message that Redis has lost is not over: Wait says lost.
func TestWaitForLost(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(s *redistest.Server){
		"flushed":   func(s *redistest.Server) { s.Do("FLUSHALL") },
		"restarted": func(s *redistest.Server) { s.Kill(); s.Restart() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t, "save \"\"", "appendonly no")
			redistest.Leaks(t)
			q := newBench(t, s.URL())
			q.enqueue(0, 1, ID("a"))
			ended := make(chan error, 1)
			go func() {
				_, err := q.Wait(t.Context(), ByID(q.name, "a"))
				ended <- err
			}()
			q.waited(s, 1)
			lose(s)
			select {
			case err := <-ended:
				if !errors.Is(err, ErrLost) {
					t.Errorf("%v", err)
				}
			case <-time.After(20 * time.Second):
				t.Error("Wait waits for what is lost")
			}
		})
	}
}

// A message that ends while the waiter's connection is cut is found by its outcome, and not taken for lost.
func TestWaitWhileCut(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	p := redistest.NewProxy(t, s.Addr())
	q, w := newBench(t, s.URL()), newBench(t, p.URL())
	q.enqueue(0, 1, ID("a"))
	type end struct {
		Outcome
		error
	}
	ended := make(chan end, 1)
	go func() {
		out, err := w.Wait(t.Context(), ByID(q.name, "a"))
		ended <- end{out, err}
	}()
	q.waited(s, 1)
	p.Refuse(true)
	p.CutAll()
	q.receive(1, func(context.Context, int) error { return nil })
	q.wait(EventAcked, 1, 5*time.Second)
	p.Refuse(false)
	if e := <-ended; e.error != nil || e.Kind != EventAcked {
		t.Errorf("%+v", e)
	}
}

// A result that nobody could ever get is an error of SetResult.
func TestSetResultOfNobody(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	q := newBench(t, s.URL())
	set := make(chan error, 2)
	q.receive(1, func(ctx context.Context, _ int) error { set <- SetResult(ctx, nil); return nil })
	q.enqueue(0, 1)
	if err := <-set; err == nil || !strings.Contains(err.Error(), "without an ID") {
		t.Errorf("%v", err)
	}
	q.enqueue(1, 2, ID("a"))
	if err := <-set; err != nil {
		t.Errorf("%v", err)
	}
}

// looksAgain has the Waits of a bench behind a proxy ask Redis once more, and returns when they have had the answer.
func (b *bench) looksAgain(p *redistest.Proxy, channel string, waits int) {
	b.t.Helper()
	looks := p.On(redistest.ByScript(store.Wait)(channel), 0, redistest.Pass)
	p.CutAll()
	b.until(10*time.Second, "they look", func() bool { return looks.Struck() >= waits })
	_, _ = b.Status(b.t.Context(), ByID(channel, "none")) // behind it on its connection
}

// A message that has expired is over when a worker meets it. Until then Wait waits for it, though another message has
// its ID by now.
func TestWaitForExpiredWithoutItsID(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	p := redistest.NewProxy(t, s.Addr())
	q, w := newBench(t, s.URL()), newBench(t, p.URL())
	type end struct {
		Outcome
		error
	}
	ended := make(chan end, 1)
	go func() {
		out, err := w.EnqueueAndWait(t.Context(), q.kind(nil).Message(1), ID("a"), Expire(time.Second))
		ended <- end{out, err}
	}()
	q.waited(s, 1)
	q.passes(s, 1001*time.Millisecond)
	q.must(q.one(2, ID("a")))
	w.looksAgain(p, q.name, 1)
	q.receive(1, func(context.Context, int) error { return nil })
	if e := <-ended; e.error != nil || e.Kind != EventExpired {
		t.Errorf("%+v", e)
	}
}

// Of a message whose outcome another's has replaced, or which went for the channel's bounds, Wait says that nothing is
// kept. Redis has not lost it.
func TestWaitForDropped(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	for name, id := range map[string]string{"bounds": "b", "the same id": "a"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redistest.Leaks(t)
			p := redistest.NewProxy(t, s.Addr())
			q, w := newBench(t, s.URL(), func(q *Queue) { q.MaxDone = 1 }), newBench(t, p.URL())
			q.must(q.one(1, ID("a")))
			ended := make(chan error, 1)
			go func() {
				_, err := w.Wait(t.Context(), ByID(q.name, "a"))
				ended <- err
			}()
			q.waited(s, 1)
			_, _ = w.Status(t.Context(), ByID(q.name, "none")) // behind the answer that it lives
			p.Refuse(true)
			p.CutAll()
			q.receive(1, func(context.Context, int) error { return nil })
			q.wait(EventAcked, 1, 5*time.Second)
			q.passes(s, 2*time.Millisecond) // so that it is the older one
			q.must(q.one(2, ID(id), Retain(time.Minute)))
			q.wait(EventAcked, 2, 5*time.Second)
			p.Refuse(false)
			if err := <-ended; !errors.Is(err, ErrNotKept) {
				t.Errorf("%v", err)
			}
		})
	}
}

// A message that is cancelled before EnqueueAndWait has begun to wait was not lost.
func TestEnqueueAndWaitForCancelled(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	p := redistest.NewProxy(t, s.Addr())
	q, w := newBench(t, s.URL()), newBench(t, p.URL())
	var cancelled error
	p.On(redistest.ByScript(store.Wait)(q.name), 1, redistest.Call(func() {
		_, cancelled = q.Cancel(context.Background(), ByID(q.name, "a"))
	}))
	_, err := w.EnqueueAndWait(t.Context(), q.kind(nil).Message(1), ID("a"))
	if cancelled != nil || !errors.Is(err, ErrNotKept) {
		t.Errorf("%v, cancelled: %v", err, cancelled)
	}
}
