package link

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"pgregory.net/rapid"

	"github.com/shuntmq/shunt/internal/resp"
)

// The model of a link is what its callers may believe. Each call ends exactly once. A call that ends as NotExecuted was
// never sent whole. One that ends as Unknown was executed at most once, and Done means once. Calls go over the wire in
// the order in which they were queued, each in one piece. Replies are counted in that order. A caller is not kept
// beyond its context. Close forgets no call and leaves no goroutine. It is checked on a wire in memory that breaks in
// all the ways of fault, on synctest's clock.
func TestModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := drawScenario(rt)
		var complaints []string
		synctest.Test(t, func(t *testing.T) { complaints = s.run() })
		if len(complaints) > 0 {
			rt.Fatalf("%+v:\n%s", s, strings.Join(complaints, "\n"))
		}
	})
}

// scenario is all that a run does; only the scheduler adds to it.
type scenario struct {
	Foreign bool // the pool is not NewPool's: redigo speaks
	Check   bool
	Callers [][]step
	Faults  []fault       // of the first connections, one each; later ones have none
	CloseAt time.Duration // 0: when all callers have returned
}

// step is what a caller does next.
type step struct {
	Pause  time.Duration // before it
	Post   int           // so many calls without waiting in between; 0: one Do
	Of     int           // commands a call
	Size   int           // bytes of each command's element
	Limit  time.Duration // of Within; 0: none
	Cancel time.Duration // of the context; 0: never
}

// fault is how a connection goes wrong, at its command After, counted from 1.
type fault struct {
	Kind  string
	After int
	Delay time.Duration // of each reply; for "idle" the time after which the server hangs up
}

var faultKinds = []string{
	"none",
	"refuse",         // the dial fails
	"cut before",     // the command is not executed, the connection ends
	"cut after",      // it is executed, and the connection ends in place of the reply
	"cut in a reply", // the connection ends in the middle of it
	"mute",           // it is executed, and no reply comes any more
	"deaf",           // nothing is read any more
	"readonly",       // it is refused, and so are those behind it
	"idle",           // the connection ends when nothing came for a time
	"forgotten",      // when nothing came for cutAfter it is cut on the way, which neither side hears of
	"garbage",        // what comes is no reply
}

// cutAfter is when an idle connection is forgotten: a link that checks has asked before.
var cutAfter = StaleAfter * 3 / 2

func drawScenario(t *rapid.T) (s scenario) {
	s.Foreign = rapid.IntRange(0, 5).Draw(t, "foreign") == 5
	s.Check = rapid.Bool().Draw(t, "check")
	pauses := rapid.SampledFrom([]time.Duration{
		0, 0, 0, time.Microsecond, time.Millisecond, 300 * time.Millisecond, 2 * time.Second,
	})
	limits := rapid.SampledFrom([]time.Duration{0, 0, 0, 1, time.Millisecond, 400 * time.Millisecond, 3 * time.Second})
	sizes := rapid.SampledFrom([]int{1, 1, 1, 150, 3000, 40_000})
	if rapid.IntRange(0, 5).Draw(t, "of one size") == 5 {
		sizes = rapid.Just(3000)
	}
	for range rapid.SampledFrom([]int{1, 2, 2, 3, 5, 20}).Draw(t, "callers") {
		steps := make([]step, rapid.IntRange(1, 6).Draw(t, "steps"))
		for i := range steps {
			steps[i] = step{Pause: pauses.Draw(t, "pause"), Post: max(0, rapid.IntRange(-8, 5).Draw(t, "post")),
				Of: max(1, rapid.IntRange(-2, 3).Draw(t, "of")), Size: sizes.Draw(t, "size"),
				Limit: limits.Draw(t, "limit"), Cancel: limits.Draw(t, "cancel")}
		}
		s.Callers = append(s.Callers, steps)
	}
	for range rapid.IntRange(0, 4).Draw(t, "faults") {
		s.Faults = append(s.Faults, fault{rapid.SampledFrom(faultKinds).Draw(t, "fault"),
			rapid.IntRange(1, 12).Draw(t, "after"), pauses.Draw(t, "delay")})
	}
	closes := rapid.SampledFrom([]time.Duration{0, 0, 1, time.Millisecond, 350 * time.Millisecond, 4 * time.Second})
	s.CloseAt = closes.Draw(t, "close")
	return s
}

// trial is a run of a scenario.
type trial struct {
	scenario
	link *Link

	mu         sync.Mutex
	serves     sync.WaitGroup
	dials      int
	received   []arrival   // whole commands, as they came
	executed   map[int]int // how often, by the command's number
	calls      []*attempt
	complaints []string
}

type arrival struct{ conn, command int }

// attempt is a call and what became of it.
type attempt struct {
	*Call
	first    int // number of its first command
	of       int
	caller   int
	err      error // of Do
	returned bool  // with all replies, or posted
}

func (r *trial) complain(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.complaints = append(r.complaints, fmt.Sprintf(format, args...))
}

func (s scenario) run() []string {
	r := &trial{scenario: s, executed: make(map[int]int)}
	pool := &redis.Pool{DialContext: r.dial}
	node := NewNode(pool, Settings{DialTimeout: time.Second, MaxBackoff: time.Second})
	r.link = New(node, time.Second, s.Check)
	var closing, callers sync.WaitGroup
	if s.CloseAt > 0 {
		closing.Go(func() { time.Sleep(s.CloseAt); r.link.Close() })
	}
	for i, steps := range s.Callers {
		callers.Go(func() {
			for _, st := range steps {
				time.Sleep(st.Pause)
				r.step(i, st)
			}
		})
	}
	callers.Wait()
	closing.Wait()
	if s.CloseAt == 0 {
		r.link.Close()
	}
	pool.Close()
	r.serves.Wait()
	r.judge()
	return r.complaints
}

// step makes the calls of one step, and waits for them as long as it may.
func (r *trial) step(caller int, st step) {
	if st.Post > 0 {
		posted := make([]*attempt, st.Post)
		for i := range posted {
			posted[i] = r.attempt(caller, st)
			posted[i].returned = true
			began := time.Now()
			r.link.Post(posted[i].Call)
			if took := time.Since(began); took > 0 {
				r.complain("Post of command %d took %v", posted[i].first, took)
			}
		}
		for _, a := range posted {
			select {
			case <-a.done:
			case <-time.After(10 * time.Minute):
				r.complain("command %d was forgotten", a.first)
				a.returned = false
			}
		}
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if st.Cancel > 0 {
		ctx, cancel = context.WithTimeout(ctx, st.Cancel)
		defer cancel()
	}
	a := r.attempt(caller, st)
	allowed, end := 10*time.Minute, time.Now()
	for _, d := range []time.Duration{st.Limit, st.Cancel} {
		if d > 0 {
			allowed = min(allowed, d)
		}
	}
	a.err = r.link.DoFor(ctx, st.Limit, a.Call)
	a.returned = a.err == nil
	if took := time.Since(end); took > allowed {
		r.complain("the caller of command %d was kept for %v, with %v", a.first, took, allowed)
	}
	if a.Answered != a.returned {
		r.complain("command %d: Answered is %v with error %v", a.first, a.Answered, a.err)
	}
}

var run = NewCommand(2, "RUN")

// attempt makes a call whose commands have numbers of their own.
func (r *trial) attempt(caller int, st step) *attempt {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := &attempt{Call: NewCall(), first: 10 * (1 + len(r.calls)), of: st.Of, caller: caller}
	r.calls = append(r.calls, a)
	for i := range st.Of {
		if caller%2 == 0 {
			a.AddReady(run, strconv.AppendInt(nil, int64(a.first+i), 10), make([]byte, st.Size))
			continue
		}
		a.Add("RUN", a.first+i)
		a.AddElements(make([]byte, st.Size))
	}
	return a
}

// dial makes the next connection, with its fault.
func (r *trial) dial(ctx context.Context) (redis.Conn, error) {
	r.mu.Lock()
	f := fault{Kind: "none"}
	if r.dials < len(r.Faults) {
		f = r.Faults[r.dials]
	}
	r.dials++
	number := r.dials
	r.mu.Unlock()
	if f.Kind == "refuse" {
		return nil, errors.New("refused")
	}
	client, server := newPipe()
	if to, ok := ctx.Value(socketKey{}).(*net.Conn); ok && !r.Foreign {
		*to = client
	}
	r.serves.Go(func() { r.serve(number, server, f) })
	return redis.NewConn(client, time.Second, time.Second), nil
}

// serve is the server's side of a connection. The PING of the dial is no command.
func (r *trial) serve(number int, c *pipe, f fault) {
	defer c.Close()
	in := bufio.NewReader(c)
	for n := 0; ; {
		switch {
		case f.Kind == "idle" && f.Delay > 0:
			c.SetReadDeadline(time.Now().Add(f.Delay))
		case f.Kind == "forgotten":
			c.SetReadDeadline(time.Now().Add(cutAfter))
		}
		_, args, err := resp.ReadCommand(in, nil)
		if err != nil && f.Kind == "forgotten" && errors.Is(err, os.ErrDeadlineExceeded) {
			c.SetReadDeadline(time.Time{})
			io.Copy(io.Discard, c)
		}
		if err != nil {
			return
		}
		if string(args[0]) == "PING" {
			if f.Kind != "mute" || n < f.After { // a reply alone cannot be lost
				c.Write([]byte("+PONG\r\n"))
			}
			continue
		}
		command, _ := strconv.Atoi(string(args[1]))
		n++
		kind := f.Kind
		if n < f.After {
			kind = "none"
		}
		if !r.receive(number, command, kind) {
			return
		}
		if f.Kind != "idle" && f.Kind != "forgotten" {
			time.Sleep(f.Delay)
		}
		reply := ":" + strconv.Itoa(command) + "\r\n"
		switch kind {
		case "cut after":
			return
		case "cut in a reply":
			c.Write([]byte(reply[:2]))
			return
		case "mute":
			continue
		case "deaf":
			time.Sleep(time.Hour) // the client has gone long before
			return
		case "readonly":
			reply = "-READONLY you can't write\r\n"
		case "garbage":
			reply = "what?\r\n"
		}
		c.Write([]byte(reply))
	}
}

// receive notes a command, and executes it unless the fault forbids that; false: the connection ends.
func (r *trial) receive(conn, command int, kind string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.received = append(r.received, arrival{conn, command})
	if kind != "cut before" && kind != "readonly" {
		r.executed[command]++
	}
	return kind != "cut before"
}

// harmless reports whether no fault may be noticed: a link that checks finds a forgotten connection before it sends
// on it.
func (r *trial) harmless() bool {
	return !slices.ContainsFunc(r.Faults, func(f fault) bool {
		return (f.Kind != "none" || f.Delay > 0) && (f.Kind != "forgotten" || !r.Check)
	})
}

// judge compares what the callers were told with what came over the wire.
func (r *trial) judge() {
	at := make(map[int]int) // where a command arrived
	for i, a := range r.received {
		if _, twice := at[a.command]; twice {
			r.complain("command %d was sent twice", a.command)
		}
		at[a.command] = i
	}
	for _, a := range r.calls {
		r.judgeCall(a, at)
	}
	r.judgeOrder(at)
}

// judgeCall checks the outcome of each command of a call.
func (r *trial) judgeCall(a *attempt, at map[int]int) {
	select {
	case <-a.done:
		if a.returned {
			r.complain("call %d was answered twice", a.first)
		}
	default:
	}
	if a.returned && len(a.Replies) != a.of {
		r.complain("call %d of %d commands has %d replies", a.first, a.of, len(a.Replies))
		return
	}
	certain := true
	for i := range a.of {
		err := a.err
		if a.returned {
			err = a.Replies[i].Err
		}
		command := a.first + i
		_, arrived := at[command]
		class, n := Classify(err), r.executed[command]
		var own *Error
		switch {
		case class == Done && (n != 1 || a.Replies[i].Value != int64(command) || !certain):
			r.complain("command %d is done, with reply %v: executed %d times", command, a.Replies[i].Value, n)
		case class == NotExecuted && n > 0:
			r.complain("command %d is not executed (%v): executed %d times", command, err, n)
		case class == NotExecuted && errors.As(err, &own) && arrived:
			r.complain("command %d was not sent (%v): it arrived", command, err)
		case class == Unknown && n > 1:
			r.complain("command %d is unknown: executed %d times", command, n)
		case class == Fatal, class == Failed:
			r.complain("command %d: %v", command, err)
		case class != Done && r.harmless() && r.CloseAt == 0 && a.returned:
			r.complain("command %d: %v without a fault that explains it", command, err)
		}
		certain = certain && class != Unknown // what comes behind a lost reply is lost too
	}
}

// adjacent reports whether two commands came one after the other on one connection.
func (r *trial) adjacent(before, here int) bool {
	conn := r.received[here].conn
	between := r.received[before+1 : here]
	return r.received[before].conn == conn &&
		!slices.ContainsFunc(between, func(o arrival) bool { return o.conn == conn })
}

// judgeOrder checks that each call was sent in one piece, and that a caller's calls arrived in its order. Replies must
// be numbered in the order of the wire.
func (r *trial) judgeOrder(at map[int]int) {
	last := make(map[int]int) // of each caller's calls
	for _, a := range r.calls {
		for i := 1; i < a.of; i++ {
			here, arrived := at[a.first+i]
			before, preceded := at[a.first+i-1]
			if arrived && (!preceded || !r.adjacent(before, here)) {
				r.complain("call %d was not sent in one piece", a.first)
			}
		}
		if here, arrived := at[a.first]; arrived {
			// A connection that ended may have its last commands executed after the first ones of the next.
			before, any := last[a.caller]
			conns := [2]int{r.received[before].conn, r.received[here].conn}
			if any && (conns[0] > conns[1] || conns[0] == conns[1] && before > here) {
				r.complain("call %d came before one that its caller had queued earlier", a.first)
			}
			last[a.caller] = here
		}
	}
	answered := slices.DeleteFunc(slices.Clone(r.calls), func(a *attempt) bool {
		_, arrived := at[a.first]
		return !a.returned || a.Order == 0 || !arrived
	})
	slices.SortFunc(answered, func(a, b *attempt) int { return at[a.first] - at[b.first] })
	orders := make(map[int]int64)
	for _, a := range answered {
		conn := r.received[at[a.first]].conn
		if a.Order < orders[conn] {
			r.complain("the replies of call %d are numbered %d, after %d", a.first, a.Order, orders[conn])
		}
		orders[conn] = a.Order
	}
}

// A link that is closed between a caller's entry into the queue and its own send leaves the call to the writer, which
// ends it.
func TestSendInlineWhenClosed(t *testing.T) {
	b := shared(t)
	l := b.link(patience)
	b.want(Done, outcome(b.within(patience), l, b.push("first")))
	c := b.push("late")
	l.sending.Lock()
	if first, open := l.queue.push(c); !first || !open {
		t.Fatal(first, open)
	}
	l.queue.close()
	done := l.sendInline()
	l.sending.Unlock()
	if done || l.queue.len() != 1 {
		t.Errorf("done is %v, %d calls are left", done, l.queue.len())
	}
	l.Close()
	<-c.done
	b.want(NotExecuted, c.Replies[0].Err)
}
