package link

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/redistest"
)

// bed is a proxy before a server, and a node on it with all that it told.
type bed struct {
	*redistest.Proxy
	t     *testing.T
	s     *redistest.Server
	pool  *redis.Pool
	node  *Node
	key   string
	told  chan bool // up or down
	dials chan time.Time
}

// patience bounds what should come at once, on a busy machine too.
const patience = 20 * time.Second

func newBed(t *testing.T, s *redistest.Server) *bed {
	t.Helper()
	p := redistest.NewProxy(t, s.Addr())
	b := &bed{
		Proxy: p,
		t:     t,
		s:     s,
		key:   "{" + redistest.Name(t) + "}",
		told:  make(chan bool, 100),
		dials: make(chan time.Time, 10000),
	}
	b.pool, _ = NewPool("redis://" + p.Addr())
	if strings.Contains(t.Name(), "OverTLS") {
		b.pool, _ = NewPool("rediss://" + redistest.TLSWith(t, p.Addr(), trusted))
	}
	if strings.Contains(t.Name(), "Foreign") {
		b.pool = &redis.Pool{MaxIdle: 8, DialContext: func(ctx context.Context) (redis.Conn, error) {
			return redis.DialContext(
				ctx,
				"tcp",
				p.Addr(),
				redis.DialConnectTimeout(time.Second),
				redis.DialReadTimeout(3*time.Second),
				redis.DialWriteTimeout(3*time.Second),
			)
		}}
	}
	dial := b.pool.DialContext
	b.pool.DialContext = func(ctx context.Context) (redis.Conn, error) {
		b.dials <- time.Now()
		return dial(ctx)
	}
	t.Cleanup(func() { b.pool.Close() })
	b.node = NewNode(
		b.pool,
		Settings{DialTimeout: time.Second, MaxBackoff: time.Second, Changed: func(up, _ bool, err error) {
			if up != (err == nil) {
				t.Errorf("up %v with error %v", up, err)
			}
			b.told <- up
		}},
	)
	return b
}

// shared is a bed on the shared server, for a test that leaves no goroutine behind.
func shared(t *testing.T) *bed {
	t.Helper()
	t.Parallel()
	redistest.Leaks(t)
	return newBed(t, redistest.Shared(t))
}

// link is closed with the test.
func (b *bed) link(timeout time.Duration) *Link {
	l := New(b.node, timeout, true)
	b.t.Cleanup(l.Close)
	return l
}

func (b *bed) within(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	b.t.Cleanup(cancel)
	return ctx
}

func (b *bed) hears(up bool) {
	b.t.Helper()
	select {
	case got := <-b.told:
		if got != up {
			b.t.Fatalf("told up %v, want %v", got, up)
		}
	case <-time.After(patience):
		b.t.Fatalf("never told up %v", up)
	}
}

// pushed is how often the value is in the bed's list.
func (b *bed) pushed(value string) (n int) {
	b.t.Helper()
	vs, err := redis.Strings(b.s.Do("LRANGE", b.key, 0, -1), nil)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, v := range vs {
		if v == value {
			n++
		}
	}
	return n
}

// push is a call whose execution leaves a trace.
func (b *bed) push(value string) *Call {
	c := patientCall()
	c.Add("RPUSH", b.key, value)
	return c
}

// outcome sends a call of one command.
func outcome(ctx context.Context, l *Link, c *Call) error {
	if err := l.Do(ctx, c); err != nil {
		return err
	}
	return c.Replies[0].Err
}

func (b *bed) want(class Class, err error) {
	b.t.Helper()
	if Classify(err) != class {
		b.t.Fatalf("%v: class %d, want %d; commands:\n%v", err, Classify(err), class, b.Log())
	}
}

// Every caller gets its own replies, of all its commands and in their order.
func TestPipelining(t *testing.T) {
	b := shared(t)
	l := b.link(patience)
	script := NewScript("return ARGV[1] .. KEYS[1]")
	var all sync.WaitGroup
	for g := range 64 {
		all.Go(func() {
			c := patientCall()
			for i := range 100 {
				c.Reset()
				n := 1 + rand.IntN(5)
				for j := range n {
					want := fmt.Sprint(g, ".", i, ".", j)
					switch {
					case j == 3:
						c.Add("NOSUCHCOMMAND", want)
					case (i+j)%3 == 0:
						c.AddScript(script, 1, b.key, want)
					default:
						c.Add("ECHO", want+b.key)
					}
				}
				if err := l.Do(context.Background(), c); err != nil || len(c.Replies) != n || c.Len() != n {
					t.Errorf("%v, %d replies to %d commands", err, len(c.Replies), n)
					return
				}
				for j, r := range c.Replies {
					want := fmt.Sprint(g, ".", i, ".", j, b.key)
					if got, err := redis.String(r.Bulk, r.Err); j == 3 && Classify(err) != Failed ||
						j != 3 && (err != nil || got != want) {
						t.Errorf("%q, %v, want %q", got, err, want)
						return
					}
				}
			}
		})
	}
	all.Wait()
	if n := b.Dials(); n != 1 {
		t.Errorf("%d connections", n)
	}
}

// More callers than replies may be owed, and replies that are slow to come.
func TestMoreThanInflight(t *testing.T) {
	b := shared(t)
	l := b.link(patience)
	b.On(redistest.Command("ECHO"), 1, redistest.Delay(200*time.Millisecond))
	var all sync.WaitGroup
	for i := range 3 * maxInflight {
		all.Go(func() {
			c := patientCall()
			c.Add("ECHO", i)
			if err := l.Do(context.Background(), c); err != nil {
				t.Error(err)
			} else if n, err := redis.Int(c.Replies[0].Bulk, c.Replies[0].Err); err != nil || n != i {
				t.Errorf("%d, %v, want %d", n, err, i)
			}
		})
	}
	all.Wait()
}

// A connection that breaks at a command leaves its outcome unknown, whether it was executed or not, and it is not sent
// again.
func TestCut(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		act  redistest.Action
		runs int
	}{
		{"before the execution", redistest.CutBefore, 0},
		{"after the execution, before the reply", redistest.CutAfter, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := shared(t)
			l := b.link(patience)
			ctx := b.within(patience)
			b.want(Done, outcome(ctx, l, b.push("first")))
			r := b.On(redistest.Command("RPUSH", "<cut>"), 1, c.act)
			both := b.push("before")
			both.Add("RPUSH", b.key, "<cut>")
			both.Add("RPUSH", b.key, "behind")
			if err := l.Do(ctx, both); err != nil {
				t.Fatal(err)
			}
			if r.Struck() != 1 || len(both.Replies) != 3 {
				t.Fatalf("struck %d times, %d replies", r.Struck(), len(both.Replies))
			}
			b.want(Done, both.Replies[0].Err)
			b.want(Unknown, both.Replies[1].Err)
			b.want(Unknown, both.Replies[2].Err)
			b.want(Done, outcome(ctx, l, b.push("last")))
			if b.pushed("before") != 1 || b.pushed("<cut>") != c.runs || b.pushed("behind") != 0 ||
				b.pushed("last") != 1 {
				t.Errorf("executed: %v", b.s.Do("LRANGE", b.key, 0, -1))
			}
			if n := b.Dials(); n != 2 {
				t.Errorf("%d connections", n)
			}
		})
	}
}

// With the server gone what was sent is unknown and what was not waits; when it is back, it goes on.
func TestServerRestart(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	b := newBed(t, redistest.Start(t))
	l := b.link(patience)
	ctx := b.within(time.Minute)
	b.want(Done, outcome(ctx, l, b.push("first")))
	b.hears(true)
	b.s.Kill()
	if err := outcome(ctx, l, b.push("lost")); Classify(err) != Unknown {
		t.Fatalf("%v: class %d", err, Classify(err))
	}
	done := make(chan error, 1)
	go func() { done <- outcome(ctx, l, b.push("kept")) }()
	b.hears(false)
	if b.node.Why() == nil {
		t.Error("nobody knows why")
	}
	select {
	case err := <-done:
		t.Fatalf("came back from a dead server: %v", err)
	default:
	}
	b.s.Restart()
	b.want(Done, <-done)
	b.hears(true)
	if b.node.Why() != nil {
		t.Error(b.node.Why())
	}
	if b.pushed("kept") != 1 || b.pushed("lost") != 0 {
		t.Errorf("executed: %v", b.s.Do("LRANGE", b.key, 0, -1))
	}
}

// A black hole is noticed by the reply timeout.
func TestBlackHole(t *testing.T) {
	b := shared(t)
	const timeout = time.Second // calls beside the hole have no longer
	l := b.link(timeout)
	ctx := b.within(patience)
	b.want(Done, outcome(ctx, l, b.push("first")))
	b.Hole(true)
	began := time.Now()
	b.want(Unknown, outcome(ctx, l, b.push("swallowed")))
	if took := time.Since(began); took < timeout || took > timeout+2*time.Second {
		t.Errorf("noticed after %v", took)
	}
	b.Hole(false)
	b.want(Done, outcome(ctx, l, b.push("last")))
	if b.pushed("last") != 1 || b.pushed("swallowed") > 1 {
		t.Errorf("executed: %v", b.s.Do("LRANGE", b.key, 0, -1))
	}
}

// A server that has changed its role, or is not ready, is left; one that only refuses the command is not.
func TestRefusals(t *testing.T) {
	t.Parallel()
	for _, r := range replies {
		if r.code == "NOSCRIPT" {
			continue
		}
		t.Run(r.code, func(t *testing.T) {
			b := shared(t)
			l := b.link(patience)
			ctx := b.within(patience)
			b.want(Done, outcome(ctx, l, b.push("first")))
			b.hears(true)
			b.On(redistest.Command("RPUSH", "refused"), 1, redistest.ReplyError(r.code+" "+r.text))
			began := time.Now()
			b.want(r.class, outcome(ctx, l, b.push("refused")))
			err := outcome(ctx, l, b.push("last"))
			for Classify(err) == NotExecuted && sentAway(err) { // until the next dial, which tells more
				time.Sleep(time.Millisecond)
				err = outcome(ctx, l, b.push("last"))
			}
			b.want(Done, err)
			if r.drops {
				b.hears(false)
				b.hears(true)
				if took := time.Since(began); took < minBackoff {
					t.Errorf("dialled again after %v", took)
				}
			}
			if want := map[bool]int{false: 1, true: 2}[r.drops]; b.Dials() != want {
				t.Errorf("%d connections, want %d", b.Dials(), want)
			}
			if b.pushed("refused") != 0 || b.pushed("last") != 1 {
				t.Errorf("executed: %v", b.s.Do("LRANGE", b.key, 0, -1))
			}
		})
	}
}

// Some calls come while the server is away. One in a hurry comes back, and the others are sent when the server is there
// again.
func TestAway(t *testing.T) {
	b := shared(t)
	l := b.link(patience)
	ctx := b.within(patience)
	b.want(Done, outcome(ctx, l, b.push("first")))
	b.hears(true)
	b.On(redistest.Command("RPUSH", "<cut>"), 1, redistest.Call(func() { b.Refuse(true) }))
	b.On(redistest.Command("RPUSH", "<cut>"), 1, redistest.CutBefore)
	b.want(Unknown, outcome(ctx, l, b.push("<cut>")))
	const n = 10
	kept := make(chan error, n)
	for i := range n {
		go func() { kept <- outcome(ctx, l, b.push(fmt.Sprint("kept ", i))) }()
	}
	hurried := b.push("hurried")
	hurried.KeepWhileDown = false
	b.want(NotExecuted, outcome(ctx, l, hurried))
	b.hears(false)
	select {
	case err := <-kept:
		t.Fatalf("a call came back: %v", err)
	default:
	}
	b.Refuse(false)
	for range n {
		b.want(Done, <-kept)
	}
	b.hears(true)
	for i := range n {
		if got := b.pushed(fmt.Sprint("kept ", i)); got != 1 {
			t.Errorf("call %d was executed %d times", i, got)
		}
	}
	if b.pushed("<cut>") != 0 || b.pushed("hurried") != 0 {
		t.Errorf("executed: %v", b.s.Do("LRANGE", b.key, 0, -1))
	}
}

// Calls that wait for the server keep their order.
func TestAwayKeepsOrder(t *testing.T) {
	b := shared(t)
	b.Refuse(true)
	l := b.link(patience)
	calls := make([]*Call, 100)
	for i := range calls {
		calls[i] = b.push(fmt.Sprint(i))
		l.Post(calls[i])
		if i == len(calls)/2 {
			b.hears(false)
		}
	}
	b.Refuse(false)
	for _, c := range calls {
		<-c.done
		b.want(Done, c.Replies[0].Err)
	}
	vs, err := redis.Ints(b.s.Do("LRANGE", b.key, 0, -1), nil)
	if err != nil || len(vs) != len(calls) {
		t.Fatal(vs, err)
	}
	for i, v := range vs {
		if v != i {
			t.Fatalf("executed in the order %v", vs)
		}
	}
}

// A password that is wrong is no reason to wait for.
func TestWrongPassword(t *testing.T) {
	b := shared(t)
	b.On(redistest.Command("PING"), 0, redistest.ReplyError("NOAUTH Authentication required."))
	l := b.link(patience)
	err := outcome(b.within(patience), l, b.push("kept"))
	b.want(NotExecuted, err)
	if Code(err) != "NOAUTH" || b.pushed("kept") != 0 {
		t.Errorf("%v, executed %d times", err, b.pushed("kept"))
	}
}

var errEnough = errors.New("enough")

func TestCancelBeforeTheSend(t *testing.T) {
	b := shared(t)
	b.Refuse(true)
	l := b.link(patience)
	ctx, cancel := context.WithCancelCause(b.within(patience))
	done := make(chan error, 1)
	go func() { done <- l.Do(ctx, b.push("cancelled")) }()
	b.hears(false) // it was tried
	cancel(errEnough)
	err := <-done
	b.want(NotExecuted, err)
	if !errors.Is(err, errEnough) {
		t.Errorf("%v does not tell the cause", err)
	}
	b.Refuse(false)
	b.want(Done, outcome(b.within(patience), l, b.push("last")))
	if n := b.Count(redistest.Command("RPUSH", "cancelled")); n != 0 {
		t.Errorf("sent %d times", n)
	}
}

func TestCancelAfterTheSend(t *testing.T) {
	b := shared(t)
	l := b.link(patience)
	ctx, cancel := context.WithCancelCause(b.within(patience))
	r := b.On(redistest.Command("RPUSH", "sent"), 1, redistest.Delay(2*time.Second))
	b.On(redistest.Command("RPUSH", "sent"), 1, redistest.Call(func() { cancel(errEnough) }))
	err := l.Do(ctx, b.push("sent"))
	b.want(Unknown, err)
	if !errors.Is(err, errEnough) {
		t.Errorf("%v does not tell the cause", err)
	}
	// Its reply goes to nobody, and the next call gets its own.
	c := patientCall()
	c.Add("ECHO", "own")
	if err := l.Do(b.within(patience), c); err != nil {
		t.Fatal(err)
	}
	if got, err := redis.String(c.Replies[0].Bulk, c.Replies[0].Err); got != "own" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if b.pushed("sent") != 1 || r.Struck() != 1 || b.Dials() != 1 {
		t.Errorf("executed %d times, %d connections", b.pushed("sent"), b.Dials())
	}
}

// Cancellation and the send may meet: each call is either executed, or told truthfully that it is not.
func TestCancelRaces(t *testing.T) {
	b := shared(t)
	l := b.link(patience)
	var not, unknown, done atomic.Int64
	var all sync.WaitGroup
	for g := range 16 {
		all.Go(func() {
			for i := range 100 {
				ctx, cancel := context.WithCancel(context.Background())
				name := fmt.Sprint(g, ".", i)
				c := b.push(name)
				go cancel()
				switch err := outcome(ctx, l, c); Classify(err) {
				case NotExecuted:
					not.Add(1)
					if c.state.Load() == sent {
						t.Errorf("%s: %v, and yet sent", name, err)
					}
				case Unknown:
					unknown.Add(1)
				case Done:
					done.Add(1)
				default:
					t.Errorf("%s: %v", name, err)
				}
			}
		})
	}
	all.Wait()
	l.Close()
	if n := int64(b.Count(redistest.Command("RPUSH"))); n != done.Load()+unknown.Load() {
		t.Errorf("%d sent, %d done, %d unknown, %d not executed", n, done.Load(), unknown.Load(), not.Load())
	}
}

// An idle connection that the server has cut is not trusted with a call that must not be lost.
func TestIdleLinkIsAsked(t *testing.T) {
	for _, how := range []string{"killed", "alive", "may not ping"} {
		t.Run(how, func(t *testing.T) {
			b := shared(t)
			l := b.link(patience)
			ctx := b.within(patience)
			c := patientCall()
			c.Add("CLIENT", "ID")
			b.want(Done, outcome(ctx, l, c))
			b.hears(true)
			if how == "killed" {
				if n, err := redis.Int(b.s.Do("CLIENT", "KILL", "ID", c.Replies[0].Value), nil); n != 1 || err != nil {
					t.Fatal(n, err)
				}
			}
			if how == "may not ping" {
				b.On(
					redistest.Command("PING"),
					0,
					redistest.ReplyError("NOPERM this user has no permissions to run the 'ping' command"),
				)
			}
			pings := b.On(redistest.Command("PING"), 0, redistest.Pass)
			time.Sleep(StaleAfter + StaleAfter/10) // what makes it idle is time
			b.want(Done, outcome(ctx, l, b.push("last")))
			if want := map[bool]int{false: 1, true: 2}[how == "killed"]; b.Dials() != want {
				t.Errorf("%d connections", b.Dials())
			}
			if how == "alive" && pings.Struck() != 1 {
				t.Errorf("asked %d times", pings.Struck())
			}
			b.want(Done, outcome(ctx, l, b.push("at once")))
			if how == "alive" && pings.Struck() != 1 {
				t.Errorf("asked %d times", pings.Struck())
			}
			if b.pushed("last") != 1 {
				t.Errorf("executed %d times", b.pushed("last"))
			}
		})
	}
}

// A call that wants a connection which is older than a time is not sent on a younger one.
func TestCallBefore(t *testing.T) {
	b := shared(t)
	l := New(b.node, time.Second, true)
	b.t.Cleanup(l.Close)
	b.want(Done, l.Run(b.within(patience), b.push("first")))
	send := func(element string, before time.Time) error {
		call := b.push(element)
		call.Before = before
		return l.Run(b.within(patience), call)
	}
	now := time.Now()
	b.want(Done, send("older", now))
	b.CutAll()
	err := send("younger", now)
	for Classify(err) == Unknown { // the end of the connection is not noticed yet
		err = send("younger", now)
	}
	if b.want(NotExecuted, err); !errors.Is(err, ErrYoung) {
		t.Error(err)
	}
	b.want(Done, send("older again", time.Now()))
	if b.pushed("younger") > 0 {
		t.Error("it was sent")
	}
}

// A link whose commands may be sent twice sends a call again where its connection has ended. So does any link where the
// call says so itself. A reply that does not come in time is not waited for twice.
func TestCallIsRepeated(t *testing.T) {
	for _, c := range []struct {
		name        string
		check, said bool
		fault       redistest.Action
		want        Class
		times       int
	}{
		{"cut while it was idle", false, false, redistest.CutBefore, Done, 1},
		{"its reply is lost", false, false, redistest.CutAfter, Done, 2},
		{"it says so itself", true, true, redistest.CutAfter, Done, 2},
		{"it may not be sent twice", true, false, redistest.CutAfter, Unknown, 1},
		{"refused", false, false, redistest.ReplyError("LOADING not yet"), NotExecuted, 0},
		{"mute", false, false, redistest.DropReply, Unknown, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := shared(t)
			l := New(b.node, time.Second, c.check)
			b.t.Cleanup(l.Close)
			b.On(redistest.Command("RPUSH", b.key), 1, c.fault)
			call := b.push("it")
			call.Repeats = c.said
			b.want(c.want, l.Run(b.within(patience), call))
			if n := b.pushed("it"); n != c.times || call.Repeated != (c.want == Done) {
				t.Errorf("executed %d times, repeated %v", n, call.Repeated)
			}
			if !call.Answered || len(call.Replies) != 1 {
				t.Errorf("answered %v, by %v", call.Answered, call.Replies)
			}
		})
	}
}

// What was answered in part is not sent again: who called hears of that part.
func TestAnsweredInPart(t *testing.T) {
	b := shared(t)
	l := New(b.node, patience, false)
	b.t.Cleanup(l.Close)
	b.On(redistest.Command("RPUSH", b.key, "second"), 1, redistest.CutAfter)
	call := b.push("first")
	call.Add("RPUSH", b.key, "second")
	b.want(Unknown, l.Run(b.within(patience), call))
	if b.pushed("first") != 1 || call.Replies[0].Err != nil {
		t.Errorf("executed %d times: %v", b.pushed("first"), call.Replies)
	}
}

// A writer that finds nothing to send does not make an idle connection look used.
func TestIdleForNothing(t *testing.T) {
	b := shared(t)
	l := b.link(patience)
	ctx := b.within(patience)
	b.want(Done, outcome(ctx, l, b.push("first")))
	b.hears(true)
	pings := b.On(redistest.Command("PING"), 0, redistest.Pass)
	for range 2 {
		time.Sleep(StaleAfter * 3 / 5) // what makes it idle is time
		c := b.push("never")
		c.state.Store(cancelled) // as by who no longer waits
		l.Post(c)
		redistest.Until(t, patience, "the writer has had it", func() bool { return l.queue.len() == 0 })
	}
	b.want(Done, outcome(ctx, l, b.push("last")))
	if n := pings.Struck(); n != 1 && n != 2 { // by the writer itself, if the machine was slow
		t.Errorf("asked %d times", n)
	}
}

// A script goes as text once a connection, and once more where the server has forgotten it.
func TestScripts(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	b := newBed(t, redistest.Start(t))
	l := b.link(patience)
	ctx := b.within(patience)
	script := NewScript("return redis.call('RPUSH', KEYS[1], ARGV[1])")
	run := func(c *Call, want Class) {
		t.Helper()
		b.want(want, outcome(ctx, l, c))
	}
	sent := func(evals, shas int) {
		t.Helper()
		if e, s := b.Count(redistest.Command("EVAL")), b.Count(redistest.Command("EVALSHA",
			script.Digest())); e != evals ||
			s != shas {
			t.Fatalf("%d EVAL and %d EVALSHA, want %d and %d", e, s, evals, shas)
		}
	}
	c := patientCall()
	c.AddScript(script, 1, b.key, "a")
	run(c, Done)
	sent(1, 0)
	for range 3 {
		c.Reset()
		c.AddScript(script, 1, b.key, "a")
		run(c, Done)
	}
	sent(1, 3)
	b.s.Do("SCRIPT", "FLUSH")
	c.Reset()
	c.AddScript(script, 1, b.key, "a")
	run(c, NotExecuted)
	if Code(c.Replies[0].Err) != "NOSCRIPT" {
		t.Errorf("%v", c.Replies[0].Err)
	}
	sent(1, 4)
	c = c.Only([]int{0})
	run(c, Done)
	sent(2, 4)
	c = c.Only([]int{0})
	run(c, Done)
	sent(2, 5)
	// A connection knows nothing of what the one before it had sent.
	b.On(redistest.Command("RPUSH", "<cut>"), 1, redistest.CutBefore)
	b.want(Unknown, outcome(ctx, l, b.push("<cut>")))
	c = c.Only([]int{0})
	run(c, Done)
	sent(3, 5)
	if n := b.pushed("a"); n != 7 {
		t.Errorf("executed %d times", n)
	}
	// Two of a kind in one call, of which the second may rely on the first.
	other := NewScript("return redis.call('LLEN', KEYS[1])")
	c.Reset()
	for range 3 {
		c.AddScript(other, 1, b.key)
	}
	run(c, Done)
	for _, r := range c.Replies {
		if n, err := redis.Int(r.Value, r.Err); n != 7 || err != nil {
			t.Error(n, err)
		}
	}
	sent(4, 5)
}

// Only sends some of a call's commands again, as they were, whatever had become of their text.
func TestOnly(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	b := newBed(t, redistest.Start(t))
	l := b.link(patience)
	ctx := b.within(patience)
	one, two := NewScript("return 'one' .. ARGV[1]"), NewScript("return 'two' .. ARGV[1]")
	c := patientCall()
	c.AddScript(one, 1, b.key, "a")
	c.Add("ECHO", "b")
	c.AddScript(two, 1, b.key, "c")
	c.AddScript(one, 1, b.key, "d")
	ready := NewCommand(1, "ECHO")
	for _, e := range []string{"e", "f", "g"} {
		c.AddReady(ready, []byte(e))
	}
	c.AddScript(two, 1, b.key, "h")
	all := []string{"onea", "b", "twoc", "oned", "e", "f", "g", "twoh"}
	for i, is := range [][]int{{0, 1, 2, 3, 4, 5, 6, 7}, {2, 3}, {1}, {0, 3}, {}, {5}, {4, 6, 7}, {0, 1, 2, 3, 4, 5,
		6, 7}} {
		if i%2 == 1 {
			b.s.Do("SCRIPT", "FLUSH")
		}
		o := c.Only(is)
		if o.Len() != len(is) || !o.KeepWhileDown || len(o.Replies) != 0 {
			t.Fatalf("%d commands, %d replies, kept while down: %v", o.Len(), len(o.Replies), o.KeepWhileDown)
		}
		for again := 0; again < 2; again++ { // the second time with the text
			if err := l.Do(ctx, o); err != nil {
				t.Fatal(err)
			}
			var missing []int
			for j, r := range o.Replies {
				got, err := redis.String(r.Bulk, r.Err)
				if Code(err) == "NOSCRIPT" && again == 0 {
					missing = append(missing, j)
				} else if want := all[is[j]]; got != want || err != nil {
					t.Errorf("%v: %q, %v, want %q", is, got, err, want)
				}
			}
			if len(missing) == 0 {
				break
			}
			kept := make([]int, len(missing))
			for k, j := range missing {
				kept[k] = is[j]
			}
			o, is = o.Only(missing), kept
		}
	}
	if c.Len() != 8 {
		t.Errorf("%d commands left in the first", c.Len())
	}
}

// The calls of a link are numbered in the order in which their replies came.
func TestOrder(t *testing.T) {
	b := shared(t)
	l := b.link(patience)
	before := Order()
	calls := make([]*Call, 100)
	for i := range calls {
		calls[i] = b.push(fmt.Sprint(i))
		l.Post(calls[i])
	}
	for _, c := range calls {
		<-c.done
		if c.Order <= before {
			t.Fatalf("%d after %d", c.Order, before)
		}
		before = c.Order
	}
	if after := Order(); after <= before {
		t.Errorf("%d after %d", after, before)
	}
}

// Close gives what was sent its replies.
func TestCloseWithCallsInFlight(t *testing.T) {
	b := shared(t)
	l := b.link(patience)
	ctx := b.within(patience)
	sent := make(chan struct{})
	b.On(redistest.Command("ECHO", "9"), 1, redistest.Call(func() { close(sent) }))
	b.On(redistest.Command("ECHO", "0"), 1, redistest.Delay(300*time.Millisecond))
	done := make(chan error, 10)
	c := make([]*Call, 10)
	for i := range c {
		c[i] = patientCall()
		c[i].Add("ECHO", i)
		l.Post(c[i])
	}
	go func() {
		for i := range c {
			<-c[i].done
			n, err := redis.Int(c[i].Replies[0].Bulk, c[i].Replies[0].Err)
			if err == nil && n != i {
				err = fmt.Errorf("%d is the reply to %d", n, i)
			}
			done <- err
		}
	}()
	// The proxy sees the last only when the first nine are answered, so it waits at their side of the link.
	select {
	case <-sent:
	case <-ctx.Done():
		t.Fatal("never sent")
	}
	l.Close()
	for range c {
		b.want(Done, <-done)
	}
	err := outcome(ctx, l, b.push("late"))
	b.want(NotExecuted, err)
	if !errors.Is(err, ErrClosed) || b.pushed("late") != 0 {
		t.Errorf("%v", err)
	}
	l.Close() // again
}

// Close waits for a reply no longer than any caller would.
func TestCloseInABlackHole(t *testing.T) {
	b := shared(t)
	const timeout = time.Second // the first call has no longer
	l := New(b.node, timeout, true)
	ctx := b.within(patience)
	b.want(Done, outcome(ctx, l, b.push("first")))
	r := b.On(redistest.Command("RPUSH", "swallowed"), 1, redistest.DropReply)
	done := make(chan error, 1)
	go func() { done <- outcome(ctx, l, b.push("swallowed")) }()
	if err := r.Wait(ctx, 1); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	l.Close()
	if took := time.Since(began); took > timeout+2*time.Second {
		t.Errorf("closed after %v", took)
	}
	b.want(Unknown, <-done)
}

// Abort waits for no reply, neither to a call nor to the question whether an idle connection is alive.
func TestAbortInABlackHole(t *testing.T) {
	for _, asks := range []bool{false, true} {
		t.Run(fmt.Sprint(asks), func(t *testing.T) {
			b := shared(t)
			l := b.link(patience)
			b.want(Done, outcome(b.within(patience), l, b.push("first")))
			swallowed := redistest.Command("RPUSH", "swallowed")
			if asks {
				time.Sleep(StaleAfter)
				swallowed = func(args [][]byte) bool { return string(args[0]) == "PING" }
			}
			r := b.On(swallowed, 1, redistest.DropReply)
			done := make(chan error, 1)
			go func() { done <- outcome(b.within(patience), l, b.push("swallowed")) }()
			if err := r.Wait(b.within(patience), 1); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			l.Abort()
			if took := time.Since(began); took > patience/4 {
				t.Errorf("ended after %v", took)
			}
			if class := Classify(<-done); class != Unknown && class != NotExecuted {
				t.Errorf("the call was %v", class)
			}
			l.Close() // again
		})
	}
}

// Close does not wait for a server that takes the connection and does not answer.
func TestCloseWhileItDialsAMuteServer(t *testing.T) {
	b := shared(t)
	b.node.set.DialTimeout = patience
	ping := b.On(func(args [][]byte) bool { return string(args[0]) == "PING" }, 1, redistest.DropReply)
	l := b.link(patience)
	done := make(chan error, 1)
	go func() { done <- outcome(b.within(patience), l, b.push("kept")) }()
	if err := ping.Wait(b.within(patience), 1); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	l.Close()
	if took := time.Since(began); took > patience/4 {
		t.Errorf("closed after %v", took)
	}
	b.want(NotExecuted, <-done)
}

// Close while the server is away fails what was never sent.
func TestCloseWhileAway(t *testing.T) {
	b := shared(t)
	b.Refuse(true)
	l := b.link(patience)
	ctx := b.within(patience)
	done := make(chan error, 1)
	go func() { done <- outcome(ctx, l, b.push("kept")) }()
	b.hears(false)
	began := time.Now()
	l.Close()
	if took := time.Since(began); took > minBackoff/2 {
		t.Errorf("closed after %v", took)
	}
	err := <-done
	b.want(NotExecuted, err)
	if !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

// A link that nobody uses dials nothing, and can be closed.
func TestUnusedLink(t *testing.T) {
	b := shared(t)
	l := b.link(patience)
	l.Close()
	if b.Dials() != 0 {
		t.Errorf("%d connections", b.Dials())
	}
}

// A call without commands comes back as it went.
func TestEmptyCall(t *testing.T) {
	b := shared(t)
	l := b.link(patience)
	c := patientCall()
	if err := l.Do(b.within(patience), c); err != nil || len(c.Replies) != 0 {
		t.Errorf("%v, %v", err, c.Replies)
	}
}

// Whoever has learnt that a connection broke sends nothing more on it.
func TestAfterACut(t *testing.T) {
	b := shared(t)
	l := b.link(patience)
	ctx := b.within(time.Minute)
	b.On(redistest.Command("RPUSH", "<cut>"), 0, redistest.CutBefore)
	for i := range 1000 {
		b.want(Unknown, outcome(ctx, l, b.push("<cut>")))
		b.want(Done, outcome(ctx, l, b.push(fmt.Sprint(i))))
	}
}

// The question whether a connection lives must not wait for ever behind the replies that it owes.
func TestBreakWithAllInFlight(t *testing.T) {
	b := shared(t)
	l := New(b.node, 2*StaleAfter, true)
	b.On(redistest.Command("ECHO", "first"), 1, redistest.Delay(StaleAfter+StaleAfter/5))
	b.On(redistest.Command("ECHO", "second"), 1, redistest.DropReply)
	done := make([]*Call, maxInflight+3)
	for i := range done {
		done[i] = patientCall()
		switch i {
		case 0:
			done[i].Add("ECHO", "first")
		case 1:
			done[i].Add("ECHO", "second")
		default:
			done[i].Add("ECHO", i)
		}
		l.Post(done[i])
	}
	ctx := b.within(patience)
	for i, c := range done {
		select {
		case <-c.done:
			if want := map[bool]Class{true: Done, false: Unknown}[i == 0]; i < maxInflight &&
				Classify(c.Replies[0].Err) != want {
				t.Errorf("call %d: %v", i, c.Replies[0].Err)
			}
		case <-ctx.Done():
			t.Fatalf("call %d never came back", i)
		}
	}
	l.Close()
}

// A call whose context has ended is not sent.
func TestCancelledBefore(t *testing.T) {
	b := shared(t)
	l := b.link(patience)
	b.want(Done, outcome(b.within(patience), l, b.push("first")))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	sent := 0
	for i := range 100 {
		if err := outcome(ctx, l, b.push(fmt.Sprint(i))); Classify(err) != NotExecuted {
			sent++
		}
	}
	if sent > 0 {
		t.Errorf("%d of 100 were sent though their context had ended before", sent)
	}
}

// Only a link parts with the idle connections of its pool.
func TestDialLeavesIdle(t *testing.T) {
	b := shared(t)
	var cs []redis.Conn
	for range 5 {
		c := b.pool.Get()
		c.Do("PING")
		cs = append(cs, c)
	}
	for _, c := range cs {
		c.Close()
	}
	w := NewWaiter(b.node, time.Second)
	w.Connect(context.Background())
	defer w.Close()
	if n := b.pool.IdleCount(); n < 4 {
		t.Errorf("5 idle before a waiter dialled, %d after", n)
	}
}

// A call that is not used for a while keeps nothing of what it was about.
func TestDrop(t *testing.T) {
	t.Parallel()
	c := patientCall()
	c.Add("ECHO", "a")
	c.AddElements([]byte("b"))
	c.Into = new(Memory)
	c.Replies = append(c.Replies, Reply{Bulk: []byte("c")}, Reply{Value: "d"})
	c.Reset()
	c.Replies = append(c.Replies, Reply{Bulk: []byte("e")})
	c.Drop()
	for _, r := range c.Replies[:cap(c.Replies)] {
		if r.Any() != nil {
			t.Errorf("it keeps %v", r.Any())
		}
	}
	if c.Into != nil || c.Len() != 0 || c.args[:1][0] != nil || c.elems[:1][0] != nil {
		t.Errorf("it keeps %v, %v, %v", c.Into, c.args[:1], c.elems[:1])
	}
}

// What was sent twice is in doubt, also where the second sending surely was not executed.
func TestRepeatedIsInDoubt(t *testing.T) {
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	pool, err := NewPool(p.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	l := New(NewNode(pool, Settings{DialTimeout: time.Second, MaxBackoff: time.Second}), time.Second, false)
	defer l.Close()
	key := redistest.Name(t)
	c := NewCall()
	c.Add("SET", key, "x")
	p.On(redistest.Command("SET"), 1, redistest.CutAfter)
	p.On(redistest.Command("SET"), 2, redistest.ReplyError("OOM command not allowed"))
	err = l.Run(t.Context(), c)
	if Classify(err) != Unknown || Classify(c.Replies[0].Err) != Unknown || Code(err) != "OOM" {
		t.Errorf("class %d of %v", Classify(err), err)
	}
	c = NewCall()
	c.Add("SET", key, "y")
	p.On(redistest.Command("SET"), 1, redistest.CutAfter)
	p.Refuse(true)
	if err := l.Run(t.Context(), c); Classify(err) != Unknown || string(s.Do("GET", key).([]byte)) != "y" {
		t.Errorf("class %d of %v", Classify(err), err)
	}
}

// Sent is when the connection had come for which a call waited, and not when Do began. Of a Call that is used again
// nobody knows it.
func TestSent(t *testing.T) {
	b := shared(t)
	const dial = 300 * time.Millisecond
	b.On(redistest.Command("PING"), 1, redistest.Call(func() { <-time.After(dial) }))
	began := time.Now()
	l := b.link(patience)
	c := b.push("first")
	c.Timed = true
	b.want(Done, outcome(b.within(patience), l, c))
	if waited, took := c.Sent.Sub(began), time.Since(c.Sent); waited < dial || took > dial/2 {
		t.Errorf("it was sent after %v, and answered %v later", waited, took)
	}
	if c.Reset(); !c.Sent.IsZero() || c.Timed {
		t.Errorf("after Reset: sent at %v, timed %v", c.Sent, c.Timed)
	}
}
