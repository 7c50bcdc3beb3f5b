package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/redistest"
)

var hint = regexp.MustCompile(`--(?:resume|from) (\S+)`)

// hinted is how an interrupted command said that it goes on.
func hinted(t *testing.T, r result) string {
	t.Helper()
	found := hint.FindStringSubmatch(r.err)
	if r.code != exitInterrupted || found == nil {
		t.Fatalf("exit %d, and no word of how to go on:\n%s", r.code, r.err)
	}
	return found[1]
}

// ending is input that ends a context after so many bytes, and then has no end.
type ending struct {
	from io.Reader
	left int
	end  func()
	stop <-chan struct{}
}

func (e *ending) Read(b []byte) (int, error) {
	if e.left <= 0 {
		e.end()
		<-e.stop
		return 0, io.EOF
	}
	n, err := e.from.Read(b[:min(len(b), e.left)])
	e.left -= n
	return n, err
}

// whole fails the test unless there are n messages, and all differ.
func whole(t *testing.T, got []string, n int) {
	t.Helper()
	sorted := slices.Compact(slices.Sorted(slices.Values(got)))
	if len(got) != n || len(sorted) != n {
		t.Errorf("%d messages, of which %d differ: want %d", len(got), len(sorted), n)
	}
}

func TestDeliverInterrupted(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	q := queueOn(t, s)
	const n = 1234
	input := numbered(n, `{"n":%d}`)
	ctx, cancel := context.WithCancel(t.Context())
	in := &ending{from: strings.NewReader(input), left: len(input) / 2, end: cancel, stop: t.Context().Done()}
	in.stop = ctx.Done()
	r := call{url: s.URL(), in: in, ctx: ctx}.do("deliver", "mail", "--lines")
	name := hinted(t, r)
	some := payloads(t, q, "mail", shunt.StatePrepare)
	if len(some) == 0 || len(some) >= n {
		t.Fatalf("%d messages of %d after the interruption", len(some), n)
	}
	// Their handling must not matter.
	handle(t, s, "mail", len(some))
	again := call{url: s.URL(), in: strings.NewReader(input)}
	again.good(t, "deliver", "mail", "--lines", "--resume", name)
	rest := payloads(t, q, "mail", shunt.StatePrepare)
	whole(t, append(rest, some...), n)
	if !slices.Equal(append(some, rest...), strings.Fields(input)) {
		t.Error("the order is not that of the input")
	}
	again.in = strings.NewReader(input)
	if r := again.good(t, "deliver", "mail", "--lines", "--resume", name); !strings.Contains(r.out, "delivered 0") {
		t.Errorf("the third run delivers: %s", r.out)
	}
}

// A reply that is lost, and a Redis that is away for a moment, double and lose nothing.
func TestDeliverOverBrokenLink(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := redistest.NewProxy(t, s.Addr())
	after := p.On(redistest.Command("EVALSHA", "{mail}.once"), 3, redistest.CutAfter)
	before := p.On(redistest.Command("EVALSHA", "{mail}.once"), 7, redistest.CutBefore)
	c := call{url: p.URL(), in: strings.NewReader(numbered(1000, "%d"))}
	r := c.good(t, "deliver", "mail", "--text", "--resume", "broken")
	if after.Struck() != 1 || before.Struck() != 1 {
		t.Fatalf("the link broke %d and %d times: want once each", after.Struck(), before.Struck())
	}
	whole(t, payloads(t, queueOn(t, s), "mail", shunt.StatePrepare), 1000)
	if !strings.Contains(r.out, "delivered 1000 messages") && !strings.Contains(r.out, "before") {
		t.Error(r.out)
	}
}

// A terminal or a slow pipe does not wait for a full chunk.
func TestDeliverSlowInput(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	q := queueOn(t, s)
	in, write := io.Pipe()
	done := make(chan result)
	go func() { done <- call{url: s.URL(), in: in}.do("deliver", "mail", "--text", "--resume", "slow") }()
	for i := range 3 {
		fmt.Fprintln(write, i)
		redistest.Until(t, 5e9, "the line is delivered", func() bool {
			return len(payloads(t, q, "mail", shunt.StatePrepare)) == i+1
		})
	}
	_ = write.Close()
	if r := <-done; r.code != exitOK {
		t.Fatal(r.err)
	}
	// The chunks of this run are others than those of the first.
	c := call{url: s.URL(), in: strings.NewReader("0\n1\n2\n3\n")}
	r := c.good(t, "deliver", "mail", "--text", "--resume", "slow")
	if got := payloads(t, q, "mail", shunt.StatePrepare); !slices.Equal(got, []string{"0", "1", "2", "3"}) {
		t.Errorf("%v: %s", got, r.out)
	}
}

// A chunk of which all were refused is noted, too: the next run does not begin another one there.
func TestDeliverRefused(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	q := queueOn(t, s)
	if err := q.Enqueue(t.Context(), shunt.Raw("mail", []byte("x")), shunt.ID("a"), shunt.In(time.Hour)); err != nil {
		t.Fatal(err)
	}
	in, write := io.Pipe()
	refused := make(chan bool, 1)
	c := call{url: s.URL(), in: in, err: func(said string) {
		if strings.Contains(said, "1 of the input") {
			refused <- true
		}
	}}
	args := []string{"deliver", "mail", "--lines", "--id-from", "id", "--resume", "r"}
	done := make(chan result)
	go func() { done <- c.do(args...) }()
	fmt.Fprintln(write, `{"id":"a"}`)
	<-refused
	fmt.Fprintln(write, `{"id":"b"}`)
	_ = write.Close()
	if r := <-done; r.code != exitOK || !strings.Contains(r.out, "refused 1") {
		t.Fatal(r)
	}
	handle(t, s, "mail", 1)
	c = call{url: s.URL(), in: strings.NewReader(`{"id":"a"}` + "\n" + `{"id":"b"}` + "\n")}
	r := c.good(t, args...)
	if again := payloads(t, q, "mail", shunt.StatePrepare); len(again) > 0 ||
		!strings.Contains(r.out, "delivered 0 messages, and 1 before; refused 1") {
		t.Errorf("again: %q, %s", again, r.out)
	}
}

// Each flag of deliver becomes an option of the message.
func TestDeliverOptions(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	q := queueOn(t, s)
	common := []string{"--type", "T", "--header", "a=1", "--header", "b=x=y", "--in", "1h", "--retain", "1d",
		"--unique-for", "2h", "--max-attempts", "3", "--handling-timeout", "5s", "--deadline", "+2d",
		"--expire", "1d", "--expire-to-dead"}
	c := call{url: s.URL()}
	c.good(t, append([]string{"deliver", "mail", "one", "--id", "1"}, common...)...)
	c.in = strings.NewReader(`{"id":2}` + "\n" + `{"id":3}` + "\n")
	c.good(t, append([]string{"deliver", "mail", "--lines", "--id-from", "id"}, common...)...)
	for id, payload := range map[string]string{"1": "one", "2": `{"id":2}`, "3": `{"id":3}`} {
		e, err := q.Peek(t.Context(), shunt.ByID("mail", id))
		if in := time.Until(e.DueAt); err != nil || e.Type != "T" || string(e.Payload) != payload ||
			!maps.Equal(e.Headers, map[string]string{"a": "1", "b": "x=y"}) || in < 59*time.Minute || in > time.Hour {
			t.Errorf("message %s: %v, due in %v: %+v", id, err, in, e)
		}
	}
	// What an Entry does not have shows when the messages are handled: after that their ids are still taken.
	c.good(t, "promote", "--all", "mail", "--yes")
	handle(t, s, "mail", 3)
	st, err := q.Status(t.Context(), shunt.ByID("mail", "2"))
	if err != nil || st.State != shunt.StateDone || st.UniqueUntil.IsZero() || st.Outcome.KeptUntil.IsZero() {
		t.Errorf("%v: %+v", err, st)
	}
}
