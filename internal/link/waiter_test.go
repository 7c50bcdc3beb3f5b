package link

import (
	"runtime"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/redistest"
)

// waiter is closed with the test.
func (b *bed) waiter(timeout time.Duration) *Waiter {
	b.t.Helper()
	w := NewWaiter(b.node, timeout)
	b.t.Cleanup(w.Close)
	if err := w.Connect(b.within(patience)); err != nil {
		b.t.Fatal(err)
	}
	return w
}

func TestWaiter(t *testing.T) {
	b := shared(t)
	w := NewWaiter(b.node, patience)
	if w.ID() != 0 || b.Dials() != 0 {
		t.Errorf("id %d, %d connections before the first is wanted", w.ID(), b.Dials())
	}
	w = b.waiter(patience)
	if id, err := redis.Int64(w.Do(0, "CLIENT", "ID")); err != nil || id != w.ID() || id == 0 {
		t.Errorf("id %d, want %d, %v", w.ID(), id, err)
	}
	b.s.Do("LPUSH", b.key, "there")
	if v, err := redis.String(w.Do(time.Second, "BRPOPLPUSH", b.key, b.key+"2", 1)); v != "there" || err != nil {
		t.Errorf("%q, %v", v, err)
	}
	b.On(redistest.Command("BRPOPLPUSH"), 1, redistest.Call(func() { b.s.TryDo("LPUSH", b.key, "late") }))
	if v, err := redis.String(w.Do(time.Second, "BRPOPLPUSH", b.key, b.key+"2", 1)); v != "late" || err != nil {
		t.Errorf("%q, %v", v, err)
	}
	if v, err := w.Do(50*time.Millisecond, "BRPOPLPUSH", b.key, b.key+"2", "0.05"); v != nil || err != nil {
		t.Errorf("%v, %v of an empty list", v, err)
	}
	if err := w.Connect(b.within(patience)); err != nil || b.Dials() != 1 {
		t.Errorf("%v, %d connections", err, b.Dials())
	}
	w.Close()
	if w.ID() != 0 {
		t.Errorf("id %d of no connection", w.ID())
	}
	w.Close() // again
}

// A block is ended from outside, with or without an error, and the list is left alone.
func TestWaiterUnblock(t *testing.T) {
	for how, class := range map[string]Class{"TIMEOUT": Done, "ERROR": NotExecuted} {
		t.Run(how, func(t *testing.T) {
			b := shared(t)
			w := b.waiter(patience)
			type reply struct {
				v   any
				err error
			}
			done := make(chan reply, 1)
			id := w.ID()
			go func() {
				v, err := w.Do(10*time.Second, "BRPOPLPUSH", b.key, b.key+"2", 10)
				done <- reply{v, err}
			}()
			began := time.Now()
			for { // one that comes before the block does nothing
				if n, err := redis.Int(b.s.TryDo("CLIENT", "UNBLOCK", id, how)); err != nil {
					t.Fatal(err)
				} else if n == 1 {
					break
				}
				runtime.Gosched()
			}
			r := <-done
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("took %v", took)
			}
			b.want(class, r.err)
			if r.v != nil {
				t.Errorf("got %v", r.v)
			}
			if (w.ID() == id) != (class == Done) {
				t.Errorf("id %d, was %d", w.ID(), id)
			}
			if err := w.Connect(b.within(patience)); err != nil {
				t.Fatal(err)
			}
			b.s.Do("LPUSH", b.key, "next")
			if v, err := redis.String(w.Do(time.Second, "BRPOPLPUSH", b.key, b.key+"2", 1)); v != "next" || err != nil {
				t.Errorf("%q, %v", v, err)
			}
			if want := map[Class]int{Done: 1, NotExecuted: 2}[class]; b.Dials() != want {
				t.Errorf("%d connections", b.Dials())
			}
		})
	}
}

// Abort ends a block at once, and the list is left alone; the next Connect makes a new connection, with a socket of its
// own. Before there is one, Abort does nothing.
func TestWaiterAbort(t *testing.T) {
	for _, how := range []string{"plain", "OverTLS"} {
		t.Run(how, func(t *testing.T) {
			b := shared(t)
			w := NewWaiter(b.node, patience)
			w.Own = true
			t.Cleanup(w.Close)
			if w.Abort(); w.CanAbort() {
				t.Error("it can abort what is not connected")
			}
			idle, err := b.node.Dial(b.within(patience))
			if err != nil {
				t.Fatal(err)
			}
			idle.Close() // the pool keeps it, and its socket is not known
			for round := range 2 {
				if err := w.Connect(b.within(patience)); err != nil {
					t.Fatal(err)
				}
				if !w.CanAbort() {
					t.Fatal("the socket is not known")
				}
				id, blocked := w.ID(), make(chan struct{})
				b.On(redistest.Command("BRPOPLPUSH"), 1, redistest.Call(func() { close(blocked) }))
				done := make(chan error, 1)
				began := time.Now()
				go func() {
					v, err := w.Do(10*time.Second, "BRPOPLPUSH", b.key, b.key+"2", 10)
					if v != nil {
						t.Errorf("got %v", v)
					}
					done <- err
				}()
				<-blocked
				w.Abort()
				w.Abort() // again
				b.want(Unknown, <-done)
				if took := time.Since(began); took > 5*time.Second {
					t.Errorf("took %v", took)
				}
				if w.CanAbort() || w.ID() != 0 {
					t.Errorf("round %d: the connection is there", round)
				}
				redistest.Until(t, patience, "the server has ended the block", func() bool {
					there, err := redis.String(b.s.Do("CLIENT", "LIST", "ID", id), nil)
					return there == "" && err == nil
				})
			}
			if err := w.Connect(b.within(patience)); err != nil {
				t.Fatal(err)
			}
			b.s.Do("LPUSH", b.key, "next")
			v, err := redis.String(w.Do(time.Second, "BRPOPLPUSH", b.key, b.key+"2", 1))
			if v != "next" || err != nil {
				t.Errorf("%q, %v", v, err)
			}
			if w.Close(); w.CanAbort() {
				t.Error("it can abort what is closed")
			}
		})
	}
}

// Without a known socket Abort does nothing: where the pool is not NewPool's, and where nobody has asked for one.
func TestWaiterCannotAbort(t *testing.T) {
	for how, own := range map[string]bool{"Foreign": true, "not its own": false} {
		t.Run(how, func(t *testing.T) {
			b := shared(t)
			w := NewWaiter(b.node, patience)
			w.Own = own
			t.Cleanup(w.Close)
			if err := w.Connect(b.within(patience)); err != nil {
				t.Fatal(err)
			}
			if w.Abort(); w.CanAbort() {
				t.Error("it can")
			}
			b.s.Do("LPUSH", b.key, "there")
			v, err := redis.String(w.Do(time.Second, "BRPOPLPUSH", b.key, b.key+"2", 1))
			if v != "there" || err != nil {
				t.Errorf("%q, %v", v, err)
			}
			if n := b.Dials(); n != 1 {
				t.Errorf("%d connections", n)
			}
		})
	}
}

// A connection that breaks, or does not answer, leaves the outcome unknown; the next Connect makes a new one.
func TestWaiterBreaks(t *testing.T) {
	for name, c := range map[string]struct {
		act   redistest.Action
		class Class
		moved bool
		least time.Duration
		again bool // on a new connection
	}{
		"cut before": {redistest.CutBefore, Unknown, false, 0, true},
		"cut after":  {redistest.CutAfter, Unknown, true, 0, true},
		"lost reply": {redistest.DropReply, Unknown, true, 200*time.Millisecond + blockMargin, true},
		"full": {redistest.ReplyError("OOM command not allowed when used memory > 'maxmemory'."), NotExecuted,
			false, 0, false},
		"wrong type": {redistest.ReplyError("WRONGTYPE Operation against a key holding the wrong kind of " +
			"value"), Fatal, false, 0, false},
		"replica": {redistest.ReplyError("READONLY You can't write against a read only replica."), NotExecuted, false,
			0, true},
		"no such": {redistest.ReplyError("ERR unknown command 'BRPOPLPUSH'"), Failed, false, 0, false},
		"role changed": {redistest.ReplyError("UNBLOCKED force unblock from blocking operation, instance state " +
			"changed (master -> replica?)"), NotExecuted, false, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := shared(t)
			w := b.waiter(100 * time.Millisecond)
			id := w.ID()
			b.s.Do("LPUSH", b.key, "e")
			b.On(redistest.Command("BRPOPLPUSH"), 1, c.act)
			began := time.Now()
			v, err := w.Do(100*time.Millisecond, "BRPOPLPUSH", b.key, b.key+"2", "0.1")
			if v != nil {
				t.Errorf("got %v", v)
			}
			b.want(c.class, err)
			if took := time.Since(began); took < c.least || took > c.least+3*time.Second {
				t.Errorf("took %v", took)
			}
			if n, err := redis.Int(b.s.Do("LLEN", b.key+"2"), nil); (n == 1) != c.moved || err != nil {
				t.Errorf("%d moved, %v", n, err)
			}
			if (w.ID() == 0) != c.again {
				t.Errorf("id %d", w.ID())
			}
			if err := w.Connect(b.within(patience)); err != nil {
				t.Fatal(err)
			}
			if (w.ID() != id) != c.again {
				t.Errorf("id %d, was %d", w.ID(), id)
			}
			if _, err := w.Do(0, "ECHO", "x"); err != nil {
				t.Error(err)
			}
		})
	}
}

// Where CLIENT is refused there is no id, and all else works.
func TestWaiterWithoutID(t *testing.T) {
	b := shared(t)
	b.On(
		redistest.Command("CLIENT"),
		0,
		redistest.ReplyError("NOPERM this user has no permissions to run the 'client|id' command"),
	)
	w := b.waiter(patience)
	if w.ID() != 0 {
		t.Errorf("id %d", w.ID())
	}
	if v, err := redis.String(w.Do(0, "ECHO", "x")); v != "x" || err != nil {
		t.Errorf("%q, %v", v, err)
	}
}

// A connection that was cut while it was idle, by a server's timeout for example, is found out before it is blocked on.
// The next command did not reach the server, and yet its outcome was unknown.
func TestWaiterCutWhileIdle(t *testing.T) {
	for _, how := range []string{"killed", "alive", "may not ping", "mute"} {
		t.Run(how, func(t *testing.T) {
			b := shared(t)
			w := b.waiter(patience)
			id := w.ID()
			pings := b.On(redistest.Command("PING"), 0, redistest.Pass)
			time.Sleep(StaleAfter + StaleAfter/10) // what makes it idle is time
			switch how {
			case "killed":
				if n, err := redis.Int(b.s.Do("CLIENT", "KILL", "ID", id), nil); n != 1 || err != nil {
					t.Fatal(n, err)
				}
			case "may not ping":
				b.On(
					redistest.Command("PING"),
					0,
					redistest.ReplyError("NOPERM this user has no permissions to run the 'ping' command"),
				)
			case "mute":
				b.On(redistest.Command("PING"), 1, redistest.DropReply)
			}
			began := time.Now()
			if err := w.Connect(b.within(patience)); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("Connect took %v", took)
			}
			b.s.Do("LPUSH", b.key, "there")
			if v, err := redis.String(w.Do(time.Second, "BRPOPLPUSH", b.key, b.key+"2", 1)); v != "there" ||
				err != nil {
				t.Errorf("%q, %v", v, err)
			}
			if cut := how == "killed" || how == "mute"; (w.ID() != id) != cut {
				t.Errorf("id %d, was %d", w.ID(), id)
			}
			// A connection in use is not asked.
			before := pings.Struck()
			if err := w.Connect(b.within(patience)); err != nil || pings.Struck() != before {
				t.Errorf("%v, asked %d times", err, pings.Struck()-before)
			}
		})
	}
}
