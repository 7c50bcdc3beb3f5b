package link

import (
	"context"
	"errors"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/redistest"
)

// While the server is away a process dials it at most once a second, however many want it.
func TestBackoff(t *testing.T) {
	b := shared(t)
	b.Refuse(true)
	for range 8 {
		b.link(patience).Post(b.push("kept"))
	}
	sub := NewSubscription(b.node)
	l := sub.Listen(b.key, func(string) {}, func(bool) {})
	ctx, cancel := context.WithCancel(context.Background())
	var waiters sync.WaitGroup
	for range 8 {
		waiters.Go(func() {
			w := NewWaiter(b.node, patience)
			for ctx.Err() == nil {
				if err := w.Connect(ctx); Classify(err) != NotExecuted {
					t.Errorf("connected: %v", err)
				}
			}
		})
	}
	last := <-b.dials
	for range 3 {
		at := <-b.dials
		if gap := at.Sub(last); gap < minBackoff {
			t.Errorf("dialled again after %v", gap)
		}
		last = at
	}
	if n := b.Dials(); n > 5 {
		t.Errorf("%d connections in 3 s", n)
	}
	cancel()
	waiters.Wait()
	sub.Forget(b.within(patience), l)
}

// A caller had asked whether waiting is hopeless, and queued its call when the dial that shows so had failed. It waited
// for the next dial.
func TestHopelessSince(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	nobody := &redis.Pool{Dial: func() (redis.Conn, error) { return nil, syscall.ECONNREFUSED }}
	l := New(NewNode(nobody, Settings{DialTimeout: patience, MaxBackoff: patience}), patience, true)
	defer l.Close()
	ping := func(c *Call) *Call { c.Add("PING"); return c }
	if got := Classify(l.Run(t.Context(), ping(NewCall()))); got != NotExecuted || l.node.Hopeless() == nil {
		t.Fatalf("outcome %v, hopeless: %v", got, l.node.Hopeless())
	}
	for range 2 { // before the writer waits for its next dial, or while it does
		if err := l.DoFor(t.Context(), minBackoff/2, ping(patientCall())); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("it waited: %v", err)
		}
		l.Post(ping(NewCall()))
	}
}

// Of several that find out at once, whoever is late to tell does not have the last word with what is over.
func TestChangesInOrder(t *testing.T) {
	telling, goOn := make(chan struct{}), make(chan struct{})
	var told []bool
	n := NewNode(nil, Settings{Changed: func(up, _ bool, _ error) {
		if !up {
			close(telling)
			<-goOn
		}
		told = append(told, up)
	}})
	var all sync.WaitGroup
	all.Go(func() { n.failed(errors.New("away"), true) })
	<-telling
	all.Go(n.succeeded)
	time.Sleep(20 * time.Millisecond) // so that it wants to tell; if it does not, there is nothing to see
	close(goOn)
	all.Wait()
	if len(told) != 2 || told[0] || !told[1] {
		t.Errorf("told %v", told)
	}
}

// The wait grows to its bound, and by what no other process adds at the same time.
func TestBackoffGrows(t *testing.T) {
	t.Parallel()
	const bound = 5 * time.Second
	var down int
	n := NewNode(nil, Settings{MaxBackoff: bound, Changed: func(up, _ bool, err error) {
		if !up {
			down++
		}
	}})
	waits := make(map[time.Duration]bool)
	for i, want := range []time.Duration{1, 2, 4, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5} {
		want *= time.Second
		n.notBefore = time.Now().Add(-1) // the wait is over
		before := time.Now()
		n.failed(errEnough, true)
		wait := n.notBefore.Sub(before)
		if wait < want || wait > want+want/8+time.Second/2 {
			t.Errorf("failure %d: wait %v, want %v", i+1, wait, want)
		}
		waits[wait.Round(time.Millisecond)] = true
		until := n.notBefore
		n.failed(errEnough, true) // somebody else finds the same
		if n.notBefore != until || n.fails != i+1 {
			t.Errorf("failure %d was counted again", i+1)
		}
	}
	if len(waits) < 8 {
		t.Errorf("only %d different waits", len(waits))
	}
	if down != 1 {
		t.Errorf("told %d times", down)
	}
	n.succeeded()
	if n.fails != 0 || n.Why() != nil {
		t.Error("still away")
	}
}

// Whoever no longer wants a connection does not wait for one.
func TestDialEndsWithItsContext(t *testing.T) {
	b := shared(t)
	b.Refuse(true)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 3)
	for range cap(ended) { // one waits for the backoff and the others for their turn
		go func() {
			for {
				if _, err := b.node.Dial(ctx); ctx.Err() != nil {
					ended <- err
					return
				}
			}
		}()
	}
	b.hears(false)
	cancel()
	for range cap(ended) {
		select {
		case err := <-ended:
			if err == nil {
				t.Error("connected")
			}
		case <-time.After(minBackoff / 2):
			t.Fatal("still waiting")
		}
	}
}

// A Pool without a free connection is not taken for a server that does not answer.
func TestDialOfAFullPool(t *testing.T) {
	b := shared(t)
	b.pool.MaxActive, b.pool.Wait = 1, true
	c, err := b.node.Dial(b.within(patience))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	b.node.set.DialTimeout = 100 * time.Millisecond
	if _, err := b.node.Dial(b.within(patience)); err == nil ||
		!strings.Contains(err.Error(), "none of the Pool's 1 connections (MaxActive) was free within 100ms") {
		t.Error(err)
	}
}

// A server that accepts and does not answer is not there; a dial that nobody waits for says nothing about it.
func TestDialOfAMuteServer(t *testing.T) {
	b := shared(t)
	b.node.set.DialTimeout = 200 * time.Millisecond
	b.Hole(true)
	ctx, cancel := context.WithCancel(context.Background())
	began := time.Now()
	if _, err := b.node.Dial(ctx); err == nil || time.Since(began) > 2*time.Second {
		t.Errorf("%v after %v", err, time.Since(began))
	}
	// Nobody has given the context that ends, so the error does not speak of it.
	if _, _, err := b.node.DialOwn(ctx); err == nil || strings.Contains(err.Error(), "context") {
		t.Error(err)
	}
	b.hears(false)
	fails := b.node.fails
	<-b.dials
	<-b.dials
	b.node.set.DialTimeout = time.Minute // so that it is ctx that ends the next one
	done := make(chan error, 1)
	go func() {
		_, err := b.node.Dial(ctx)
		done <- err
	}()
	<-b.dials
	cancel()
	if err := <-done; err == nil || b.node.fails != fails {
		t.Errorf("%v, %d failures, were %d", err, b.node.fails, fails)
	}
	if _, err := b.node.Dial(ctx); !errors.Is(err, context.Canceled) || b.node.fails != fails {
		t.Errorf("%v, %d failures, were %d", err, b.node.fails, fails)
	}
	b.Hole(false)
	c, err := b.node.Dial(b.within(patience))
	if err != nil {
		t.Fatal(err)
	}
	b.hears(true)
	discard(c)
}

// A server that is not ready is not there either; one where nobody may PING is.
func TestDialAsks(t *testing.T) {
	for code, ok := range map[string]bool{"LOADING Redis is loading the dataset in memory": false,
		"NOAUTH Authentication required.":                               false,
		"NOPERM this user has no permissions to run the 'ping' command": true} {
		t.Run(code[:6], func(t *testing.T) {
			b := shared(t)
			b.On(redistest.Command("PING"), 1, redistest.ReplyError(code))
			c, err := b.node.Dial(b.within(patience))
			if (err == nil) != ok {
				t.Fatal(err)
			}
			b.hears(ok)
			if ok {
				discard(c)
			}
		})
	}
}

// What is discarded is not used again, and owes nobody anything.
func TestDiscard(t *testing.T) {
	b := shared(t)
	for range 3 {
		c, err := b.node.Dial(b.within(patience))
		if err != nil {
			t.Fatal(err)
		}
		c.Send("BLPOP", b.key, 0)
		c.Flush()
		began := time.Now()
		discard(c)
		if took := time.Since(began); took > time.Second {
			t.Errorf("took %v", took)
		}
	}
	if n := b.pool.IdleCount(); n != 0 || b.Dials() != 3 {
		t.Errorf("%d idle, %d connections", n, b.Dials())
	}
}

// Old connections that a pool has kept over a restart cost no wait each.
func TestOldConnectionsOfThePool(t *testing.T) {
	b := shared(t)
	var cs []redis.Conn
	for range 5 {
		c := b.pool.Get()
		if _, err := c.Do("PING"); err != nil {
			t.Fatal(err)
		}
		cs = append(cs, c)
	}
	for _, c := range cs {
		c.Close()
	}
	b.CutAll()
	l := b.link(patience)
	began := time.Now()
	b.want(Done, outcome(b.within(patience), l, b.push("first")))
	if took := time.Since(began); took > minBackoff {
		t.Errorf("took %v, though the server was there", took)
	}
}

// A pool of connections that cannot be read with a timeout is an error, not a loop.
func TestDialWithoutTimeouts(t *testing.T) {
	b := shared(t)
	pool := &redis.Pool{Dial: func() (redis.Conn, error) {
		c, err := redis.Dial("tcp", b.Addr(), redis.DialReadTimeout(time.Second))
		return struct{ redis.Conn }{c}, err
	}}
	t.Cleanup(func() { pool.Close() })
	done := make(chan error, 1)
	go func() {
		_, err := NewNode(pool, Settings{DialTimeout: time.Second, MaxBackoff: time.Second}).Dial(context.Background())
		done <- err
	}()
	select {
	case err := <-done:
		if err == nil {
			t.Error("connected")
		}
	case <-time.After(patience):
		t.Fatal("never came back")
	}
}
