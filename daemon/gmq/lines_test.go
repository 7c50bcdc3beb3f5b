package gmq

import (
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
	"github.com/shuntmq/shunt/daemon/budget"
	"github.com/shuntmq/shunt/internal/redistest"
)

// What is no object of JSON, comes too slowly or is too long ends its connection with an error, and no other one.
func TestLines(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t, func(v *Server) {
		v.Limits.IdleTimeout = time.Second
		v.Budget = bounded(budget.Limits{MaxBody: 1, BodyTimeout: time.Second})
	})
	refusal := func(err error) string { return fmt.Sprintf(`{"id":null,"result":null,"error":"%v"}`+"\n", err) }
	for _, x := range []struct{ name, text, want string }{
		{"nothing", "", ""},
		{"blanks", " \r\n\t\n\n", ""},
		{"HTTP", "POST / HTTP/1.1\r\nHost: x\r\n\r\n", refusal(errNoObject)},
		{"HTTP with a body", "POST / HTTP/1.1\r\n\r\n" + strings.Repeat("x", 200_000), refusal(errNoObject)},
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
	for _, b := range []byte(`{"method":"Service.Ack","params":["}}}\"{[\\"],"id":"\\\"}"}`) {
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
	s := newSite(t, func(v *Server) { v.Limits.MaxPops, v.Budget = 2, bounded(budget.Limits{MaxWaiting: 3}) })
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

// Who is not allowed gets nothing; connections and bytes are bounded.
func TestBounds(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t, func(v *Server) {
		v.Limits.MaxConnections, v.Budget = 2, bounded(budget.Limits{MaxBody: 4 << 20, MaxBodies: 2 << 20})
	})
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
	if got := third.send(`{"method":"` + strings.Repeat("x", 3<<20)).line(); !strings.Contains(
		got,
		budget.ErrFull.Error(),
	) {
		t.Error(got)
	}
	_ = third.Close()
	s.until("nothing is held", func() bool { return s.server.Budget.Bodies() == 0 })
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
	s := newSite(t, func(v *Server) { v.Limits.IdleTimeout = time.Second })
	c := s.dial().send(`{"method":"Service.Pop","params":[["q"]],"id":1}`)
	begun := time.Now()
	if a := c.answer(); a.err != string(errEmpty) || time.Since(begun) < popWait {
		t.Errorf("%+v after %v", a, time.Since(begun))
	}
	if got := c.rest(); got != "" {
		t.Error(got)
	}
}
