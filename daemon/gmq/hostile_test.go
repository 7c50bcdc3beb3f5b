package gmq

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/redistest"
)

// Whatever a field is, the answer is clear, and the connection goes on.
func TestFields(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t, func(v *Server) { v.Limits.MaxBody = 100 })
	c := s.dial()
	long := strings.Repeat("x", 300)
	for _, x := range []struct {
		request     string // without its id
		result, err any
	}{
		{`"method":"Service.Push","params":[{}]`, "job.id is empty", nil},
		{`"method":"Service.Push","params":[]`, "job.id is empty", nil},
		{`"method":"Service.Push","params":[null]`, "job.id is empty", nil},
		{`"method":"Service.Push","params":[{"id":null,"topic":"q"}]`, "job.id is empty", nil},
		{`"method":"Service.Push","params":[{"id":"a"}]`, "job.topic is empty", nil},
		{`"method":"Service.Push","params":[{"id":"` + long + `","topic":"q"}]`, "job.id is wrong: want an id of up " +
			"to 255 bytes that does not begin with serial:", nil},
		{`"method":"Service.Push","params":[{"id":"serial:x","topic":"q"}]`, "job.id is wrong: want an id of up " +
			"to 255 bytes that does not begin with serial:", nil},
		{`"method":"Service.Push","params":[{"id":"a","topic":"` + long + `"}]`, "job.topic is wrong: want a name " +
			"without slashes, braces, blanks and control characters, of up to 200 bytes with the prefix", nil},
		{`"method":"Service.Push","params":[{"id":"a","topic":"a b"}]`, "job.topic is wrong: want a name " +
			"without slashes, braces, blanks and control characters, of up to 200 bytes with the prefix", nil},
		{`"method":"Service.Push","params":[{"id":"a","topic":"q","body":"` + long + `"}]`, "job.body is too large", nil},
		{`"method":"Service.Push","params":[{"id":"a","topic":"q","delay":-1}]`, nil,
			"json: cannot unmarshal number into Go value of type string"},
		{`"method":"Service.Push","params":[{"id":["a"],"topic":"q"}]`, nil,
			"json: cannot unmarshal array into Go value of type string"},
		{`"method":"Service.Push","params":["a"]`, nil,
			"json: cannot unmarshal string into Go value of type map[string]string"},
		{`"method":"Service.Push","params":{"id":"a"}`, nil,
			"json: cannot unmarshal object into Go value of type [1]map[string]string"},
		{`"method":"Service.Push","params":null`, nil, string(errNoParams.Error())},
		{`"method":"Service.Push"`, nil, errNoParams.Error()},
		{`"method":"Service.Push","params":[{"id":"neg","topic":"q","delay":"-9223372036854775809","TTR":"-1"}]`, "success",
			nil},
		{`"method":"Service.Push","params":[{"id":"big","topic":"later","delay":"99999999999999999999","TTR":` +
			`"99999999999999999999"}]`, "success", nil},
		{`"method":"Service.Push","params":[{"id":"huge","topic":"huge","TTR":"99999999999999999999"}, 5, "more"]`,
			"success", nil},
		{`"method":"Service.Push","params":[{"id":"nul","topic":"q","body":"\u0000\ud800","other":"y"}]`, "success", nil},
		{`"method":"Service.Push","params":[{"id":"` + "\xff" + `","topic":"q"}]`, nil, errUTF8.Error()},
		{`"method":"Service.Pop","params":[[]]`, nil, string(errNoTopics)},
		{`"method":"Service.Pop","params":[null]`, nil, string(errNoTopics)},
		{`"method":"Service.Pop","params":[[""]]`, nil, "a topic is wrong: want a name without slashes, braces, blanks " +
			"and control characters, of up to 200 bytes with the prefix"},
		{`"method":"Service.Pop","params":["q"]`, nil, "json: cannot unmarshal string into Go value of type []string"},
		{`"method":"Service.Pop","params":[[1]]`, nil, "json: cannot unmarshal number into Go value of type string"},
		{`"method":"Service.Pop","params":[` + topicsUpTo(65) + `]`, nil, string(errTopics)},
		{`"method":"Service.Pop"`, nil, errNoParams.Error()},
		{`"method":"Service.Ack","params":[1]`, nil, "json: cannot unmarshal number into Go value of type string"},
		{`"method":"Service.Ack","params":[]`, nil, string(errNotReserved)},
		{`"method":"Service.Ack"`, nil, errNoParams.Error()},
		{`"method":"Service.Nothing","params":[1]`, nil, "rpc: can't find service Service.Nothing"},
		{`"method":"nothing"`, nil, "rpc: service/method request ill-formed: nothing"},
		{`"method":""`, nil, "rpc: service/method request ill-formed: "},
		{`"x":1`, nil, "rpc: service/method request ill-formed: "},
		{`"method":5`, nil, "json: cannot unmarshal number into Go struct field request.method of type string"},
		{`"method":"` + strings.Repeat("é", 5000) + `"`, nil, "rpc: service/method request ill-formed: " +
			strings.Repeat("é", 80) + "…"},
	} {
		for _, id := range []string{"1", `"a"`, "null", `{"a":[1,2]}`, "1e400"} {
			if _, ok := x.result.(string); ok && x.result == "success" && id != "1" {
				continue
			}
			a := c.send(fmt.Sprintf("{%s,\"id\":%s}", x.request, id)).answer()
			if a.result != x.result || a.err != x.err || a.id != id {
				t.Errorf("%.120s: %+v, want %v, %v", x.request, a, x.result, x.err)
			}
		}
	}
	if a := c.send(`{"method":"Service.Ack","params":["x"]}`).answer(); a.id != "null" {
		t.Errorf("without an id: %+v", a)
	}
	got := s.pop(s.client(), "huge")
	if got["TTR"] != "9223372036854775807" {
		t.Error(got)
	}
	es, err := s.queue.List(context.Background(), s.server.Topics.Prefix+"later", shunt.StateDelay, 0, 0)
	if err != nil || len(es) != 1 || es[0].DueAt.Before(time.Now().AddDate(98, 0, 0)) {
		t.Error(es, err)
	}
	if log := s.log.String(); log != "" {
		t.Error(log)
	}
}

func topicsUpTo(n int) string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf(`"q%d"`, i)
	}
	return "[" + strings.Join(names, ",") + "]"
}

// What is no object of JSON, comes too slowly or is too long ends its connection with an error, and no other one.
func TestLines(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t, func(v *Server) {
		v.Limits.RequestTimeout, v.Limits.IdleTimeout, v.Limits.MaxBody = 300*time.Millisecond, 300*time.Millisecond, 1
	})
	refusal := func(err error) string { return fmt.Sprintf(`{"id":null,"result":null,"error":"%v"}`+"\n", err) }
	for _, x := range []struct{ name, text, want string }{
		{"nothing", "", ""},
		{"blanks", " \r\n\t\n\n", ""},
		{"HTTP", "POST / HTTP/1.1\r\nHost: x\r\n\r\n", refusal(errNoObject)},
		{"an array", `[{"method":"Service.Ack"}]`, refusal(errNoObject)},
		{"a number", "5\n", refusal(errNoObject)},
		{"zero bytes", "\x00\x00\x00\x00", refusal(errNoObject)},
		{"TLS", "\x16\x03\x01\x02\x00\x01", refusal(errNoObject)},
		{"half a line", `{"method":"Service.Push","par`, refusal(errSlow)},
		{"half a line and another", `{"method":"Service.Push","par` + "\n" + `{"method":"Service.Ack","id":1}` + "\n",
			refusal(errSlow)},
		{"other brackets", `{"method":"Service.Ack","params":["x"},"id":1]`, refusal(errNoJSON)},
		{"no JSON", `{method}`, refusal(errNoJSON)},
		{"deep", strings.Repeat(`{"a":`, 1900), refusal(errSlow)},
		{"a long line", `{"method":"` + strings.Repeat("x", 70000) + `"}`, refusal(errTooLong)},
		{"an endless line", `{"method":"` + strings.Repeat("x", 2<<20), refusal(errTooLong)},
		{"endless brackets", strings.Repeat("{", 2<<20), refusal(errTooLong)},
	} {
		t.Run(x.name, func(t *testing.T) {
			c, err := net.Dial("tcp", s.server.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(20 * time.Second))
			_, _ = io.WriteString(c, x.text) // of an endless one not all is taken
			got, err := io.ReadAll(c)
			var reset *net.OpError
			if string(got) != x.want && !(errors.As(err, &reset) && len(x.text) > 1<<20) {
				t.Errorf("%q %v, want %q", got, err, x.want)
			}
		})
	}
}

// A request that comes byte by byte, and many that come at once, are answered each.
func TestPieces(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	c := s.dial()
	for _, b := range []byte(`{"method":"Service.Ack","params":["}\"{[\\"],"id":"\\\"}"}`) {
		c.send(string(b))
	}
	if a := c.answer(); a.id != `"\\\"}"` || a.err != string(errNotReserved) {
		t.Errorf("%+v", a)
	}
	const n = 500
	var all strings.Builder
	for i := range n { // without blanks between
		fmt.Fprintf(&all, `{"method":"Service.Push","params":[{"id":"%d","topic":"q","body":"%s"}],"id":%d}`, i,
			strings.Repeat("x", i), i)
	}
	go c.send(all.String())
	var ids []string
	for range n {
		a := c.answer()
		if a.result != "success" {
			t.Fatalf("%+v", a)
		}
		ids = append(ids, a.id)
	}
	slices.Sort(ids)
	if len(slices.Compact(ids)) != n {
		t.Error("an id was answered twice")
	}
	if got := s.count("q", shunt.StatePrepare); got != n {
		t.Error(got)
	}
}

// A pop does not hold up what comes behind it; pops that are too many are refused.
func TestPipelined(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t, func(v *Server) { v.Limits.MaxPops, v.Limits.MaxWaiting = 2, 3 })
	c := s.dial()
	const popQ = `{"method":"Service.Pop","params":[["q"]],"id":%d}`
	for i := range 3 {
		c.send(fmt.Sprintf(popQ, i))
	}
	if a := c.answer(); a.id != "2" || a.err != string(errPops) {
		t.Errorf("%+v", a)
	}
	other := s.dial()
	other.send(fmt.Sprintf(popQ+popQ, 0, 1))
	if a := other.answer(); a.err != string(errBusy) {
		t.Errorf("%+v", a)
	}
	c.send(`{"method":"Service.Push","params":[{"id":"1","topic":"q","TTR":"60"}],"id":9}`)
	got := make(map[string]answer)
	for range 3 {
		a := c.answer()
		got[a.id] = a
	}
	if got["9"].result != "success" || len(got) != 3 {
		t.Errorf("%+v", got)
	}
}

// A client that leaves while it waits costs nothing: no job is taken for it, or what was is back without a count.
func TestClientGone(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	mine := s.client()
	for _, ttr := range []string{"60", "0"} {
		for i := range 20 {
			c := s.dial().send(`{"method":"Service.Pop","params":[["q"]],"id":1}`)
			s.until("it waits", func() bool { return s.server.Waiting() == 1 })
			id := fmt.Sprint(ttr, "-", i)
			if i%2 == 0 { // a reset
				_ = c.Conn.(*net.TCPConn).SetLinger(0)
			}
			_ = c.Close()
			s.until("its leaving is seen", func() bool { return s.server.Waiting() == 0 })
			s.push(mine, "id", id, "topic", "q", "TTR", ttr)
			job := s.pop(mine, "q")
			if job["id"] != id || job["consume_num"] != "0" {
				t.Error(job)
			}
			if ttr != "0" && ack(mine, id) != nil {
				t.Error("not acked")
			}
		}
	}
}

// held is a connection whose write waits, and fails then.
type held struct {
	net.Conn
	reached chan struct{}
	fail    chan struct{}
}

func (h *held) Write([]byte) (int, error) {
	close(h.reached)
	<-h.fail
	return 0, errors.New("broken pipe")
}

// What was popped and could not be written is taken next, and no attempt is counted; also a job without a TTR.
func TestNotWritten(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	mine := s.client()
	for topic, ttr := range map[string]string{"with": "60", "without": "0"} {
		s.push(mine, "id", ttr, "topic", topic, "TTR", ttr)
		s.push(mine, "id", "behind"+ttr, "topic", topic, "TTR", "60")
		ours, theirs := net.Pipe()
		h := &held{Conn: theirs, reached: make(chan struct{}), fail: make(chan struct{})}
		s.server.take(h)
		if _, err := fmt.Fprintf(ours, `{"method":"Service.Pop","params":[["%s"]],"id":1}`, topic); err != nil {
			t.Fatal(err)
		}
		<-h.reached
		if n := s.count(topic, shunt.StateLeased); n != 1 {
			t.Error(n)
		}
		close(h.fail)
		s.until("it is back", func() bool { return s.count(topic, shunt.StatePrepare) == 2 })
		for _, id := range []string{ttr, "behind" + ttr} {
			if job := s.pop(mine, topic); job["id"] != id || job["consume_num"] != "0" {
				t.Error(job)
			}
		}
		s.until("that without a TTR is acked", func() bool {
			return ttr != "0" || s.count(topic, shunt.StateLeased) == 1
		})
		_ = ours.Close()
	}
}

// A client that reads nothing loses its connection; what was popped for it is back.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t, func(v *Server) { v.Limits.WriteTimeout = 300 * time.Millisecond })
	mine := s.client()
	const n = 40
	for i := range n {
		s.push(mine, "id", fmt.Sprint(i), "topic", "q", "TTR", "600", "body", strings.Repeat("x", 1<<20))
	}
	ours, theirs := net.Pipe() // which has no buffer
	s.server.take(theirs)
	for i := range n {
		if _, err := fmt.Fprintf(ours, `{"method":"Service.Pop","params":[["q"]],"id":%d}`, i); err != nil {
			break // it was closed already
		}
	}
	s.until("all are back", func() bool { return s.count("q", shunt.StatePrepare) == n })
	if job := s.pop(mine, "q"); job["consume_num"] != "0" {
		t.Error(job["id"], job["consume_num"])
	}
	_ = ours.Close()
}

// The end answers pops that wait, lets what runs come to its end, and leaves no half answer.
func TestStop(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	waiting, idle, half := s.dial(), s.dial(), s.dial()
	waiting.send(`{"method":"Service.Pop","params":[["q"]],"id":1}`)
	half.send(`{"method":"Service.Push"`)
	idle.send(`{"method":"Service.Ack","params":["x"],"id":1}`).answer()
	s.until("it waits", func() bool { return s.server.Waiting() == 1 })
	begun := time.Now()
	if err := s.stop(); err != nil {
		t.Error(err)
	}
	if took := time.Since(begun); took > popWait/2 {
		t.Errorf("it took %v", took)
	}
	if got := waiting.rest(); got != `{"id":1,"result":null,"error":"empty"}`+"\n" {
		t.Errorf("%q", got)
	}
	if a, b := idle.rest(), half.rest(); a+b != "" {
		t.Errorf("%q %q", a, b)
	}
}

// Jobs that come while the server stops are delivered, or wait as if nobody had taken them.
func TestStopLosesNothing(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	const n = 30
	answers := make(chan string, n)
	for i := range n {
		c := s.dial().send(fmt.Sprintf(`{"method":"Service.Pop","params":[["q"]],"id":%d}`, i))
		go func() { answers <- c.rest() }()
	}
	s.until("all wait", func() bool { return s.server.Waiting() == n })
	stopped := make(chan error, 1)
	for i := range n {
		if i == n/2 {
			go func() { stopped <- s.stop() }()
		}
		m := shunt.Raw(s.server.Topics.Prefix+"q", []byte("x"))
		if err := s.queue.Enqueue(context.Background(), m); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	delivered := 0
	for range n {
		if strings.Contains(<-answers, `"status":"3"`) {
			delivered++
		}
	}
	left, err := s.queue.List(context.Background(), s.server.Topics.Prefix+"q", shunt.StatePrepare, 0, 0)
	if err != nil || delivered+len(left) != n {
		t.Errorf("%d delivered and %d left of %d, %v", delivered, len(left), n, err)
	}
	for _, e := range left {
		if e.Attempts != 0 {
			t.Errorf("an attempt was counted: %+v", e)
		}
	}
}

// When the grace is over connections are closed, and Shutdown says so.
func TestGraceIsOver(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	ours, theirs := net.Pipe()
	defer ours.Close()
	s.server.take(theirs)
	if _, err := io.WriteString(ours, `{"method":"Service.Ack","params":["x"],"id":1}`); err != nil {
		t.Fatal(err)
	}
	s.until("it runs", func() bool {
		s.server.mu.Lock()
		defer s.server.mu.Unlock()
		for c := range s.server.conns {
			return c.running.Load() == 1
		}
		return false
	})
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	begun := time.Now()
	if err := s.server.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) > 5*time.Second {
		t.Errorf("%v after %v", err, time.Since(begun))
	}
}

// Who is not allowed gets nothing; connections and bytes are bounded.
func TestBounds(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t, func(v *Server) { v.Limits.MaxConnections, v.Limits.MaxBytes = 2, 100_000 })
	s.server.Allow([]netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")})
	if got := s.dial().rest(); got != "" {
		t.Errorf("%q", got)
	}
	s.server.Allow([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")})
	const ask = `{"method":"Service.Ack","params":["x"],"id":1}`
	first, second := s.dial().send(ask), s.dial().send(ask)
	first.answer()
	second.answer()
	third := s.dial().send(ask)
	_ = first.Close()
	third.answer()
	if got := third.send(`{"method":"` + strings.Repeat("x", 200_000)).line(); !strings.Contains(got, errFull.Error()) {
		t.Error(got)
	}
	_ = third.Close()
	s.until("nothing is held", func() bool { return s.server.budget.Held() == 0 })
	families, err := s.metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "shuntd_gmq_refused_total" && f.GetMetric()[0].GetCounter().GetValue() != 1 {
			t.Error(f)
		}
	}
}

// A connection that is idle is closed, and one whose pop waits is not idle.
func TestIdle(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t, func(v *Server) { v.Limits.IdleTimeout = 100 * time.Millisecond })
	c := s.dial().send(`{"method":"Service.Pop","params":[["q"]],"id":1}`)
	begun := time.Now()
	if a := c.answer(); a.err != string(errEmpty) || time.Since(begun) < popWait {
		t.Errorf("%+v after %v", a, time.Since(begun))
	}
	if got := c.rest(); got != "" {
		t.Error(got)
	}
}
