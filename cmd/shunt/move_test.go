package main

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/redistest"
)

func TestBulkInterrupted(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		args   []string
		to     shunt.State
		before func(t *testing.T, q *shunt.Queue, s *redistest.Server, n int)
	}{
		{[]string{"retry", "--all", "mail"}, shunt.StatePrepare, dying},
		{[]string{"delete", "--all", "mail"}, "", dying},
		{[]string{"promote", "--all", "mail"}, shunt.StatePrepare, delayed},
		{[]string{"cancel", "--all", "mail", "--state", "delay"}, "", delayed},
	} {
		t.Run(row.args[0], func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			q := queueOn(t, s)
			const n = 450
			row.before(t, q, s, n)
			ctx, cancel := context.WithCancel(t.Context())
			c := call{url: s.URL(), ctx: ctx, draws: 1}
			drawn := 0
			c.err = func(said string) {
				if strings.HasPrefix(said, "shunt: "+row.args[0]+":") {
					if drawn++; drawn == 250 {
						cancel()
					}
				}
			}
			r := c.do(append(row.args, "--yes")...)
			from := hinted(t, r)
			first := number1(t, r.out)
			if first == 0 || first >= n {
				t.Fatalf("%d of %d before the interruption: %s%s", first, n, r.out, r.err)
			}
			r = call{url: s.URL()}.good(t, append(row.args, "--yes", "--from", from)...)
			if second := number1(t, r.out); first+second != n {
				t.Errorf("%d, and then %d: want %d", first, second, n)
			}
			if row.to != "" {
				whole(t, payloads(t, q, "mail", row.to), n)
			}
			var es []shunt.AuditEntry
			if err := json.Unmarshal([]byte(call{url: s.URL()}.good(t, "audit", "--json").out), &es); err != nil {
				t.Fatal(err)
			}
			if len(es) != 2 || es[0].Count+es[1].Count != n || es[1].Error == "" {
				t.Errorf("the audit has %+v", es)
			}
		})
	}
}

// --from does not look again at what was looked at, and does not fit.
func TestBulkFrom(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	const n = 300
	dying(t, queueOn(t, s), s, n)
	c := call{url: s.URL()}
	var first, second moved
	args := []string{"delete", "--all", "mail", "--failure", "7", "--yes", "--json", "--limit", "20"}
	for _, m := range []*moved{&first, &second} {
		if err := json.Unmarshal([]byte(c.good(t, append(args, "--from", first.Next)...).out), m); err != nil {
			t.Fatal(err)
		}
	}
	if first.Changed != 20 || second.Changed != 20 || first.Looked < 40 || second.Looked > n-first.Looked {
		t.Errorf("%+v, and then %+v", first, second)
	}
}

func dying(t *testing.T, q *shunt.Queue, s *redistest.Server, n int) {
	enqueue(t, q, n)
	handle(t, s, "mail", n)
}

func delayed(t *testing.T, q *shunt.Queue, _ *redistest.Server, n int) {
	enqueue(t, q, n, shunt.In(24e12))
}

func enqueue(t *testing.T, q *shunt.Queue, n int, opts ...shunt.Option) {
	t.Helper()
	ms := make([]shunt.IMessage, n)
	for i := range ms {
		ms[i] = shunt.Raw("mail", fmt.Appendf(nil, "die %d", i))
	}
	if err := q.EnqueueAll(t.Context(), ms, opts...); err != nil {
		t.Fatal(err)
	}
}

// number1 is the first number in a text.
func number1(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(regexp.MustCompile(`\d+`).FindString(text))
	if err != nil {
		t.Fatalf("no number in %q", text)
	}
	return n
}

func TestPostponeAll(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	q := queueOn(t, s)
	const n = 250
	enqueue(t, q, n, shunt.In(time.Hour))
	enqueue(t, q, 5, shunt.In(20*24*time.Hour))
	c := call{url: s.URL()}
	if r := c.good(t, "postpone", "--all", "mail", "--in", "7d", "--dry-run"); number1(t, r.out) != n {
		t.Error(r.out)
	}
	if r := c.good(t, "postpone", "--all", "mail", "--in", "7d", "-y"); number1(t, r.out) != n {
		t.Error(r.out)
	}
	es, err := q.List(t.Context(), "mail", shunt.StateDelay, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range es {
		if in := time.Until(e.DueAt); in < 6*24*time.Hour || in > 8*24*time.Hour && i < n {
			t.Errorf("message %d of %d is due in %v", i, len(es), in)
		}
	}
}

// postpone --all heeds --limit, and each call goes on behind what the ones before have postponed.
func TestPostponeAllLimited(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	enqueue(t, queueOn(t, s), 25, shunt.In(time.Hour))
	c, to := call{url: s.URL()}, time.Now().Add(7*24*time.Hour).Format(time.RFC3339)
	for _, want := range []int{10, 10, 5} {
		r := c.good(t, "postpone", "--all", "mail", "--at", to, "--limit", "10", "--yes")
		if n := number1(t, r.out); n != want {
			t.Errorf("postponed %d, want %d", n, want)
		}
	}
}

// What a verb with --from asks for is what it then does: not what lies before that place.
func TestForeseenFrom(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	q := queueOn(t, s)
	dying(t, q, s, 200)
	c := call{url: s.URL()}
	var m moved
	r := c.good(t, "retry", "--all", "mail", "--failure", "7", "--limit", "10", "--yes", "--json")
	if err := json.Unmarshal([]byte(r.out), &m); err != nil || m.Next == "" {
		t.Fatalf("%+v, %v", m, err)
	}
	args := []string{"delete", "--all", "mail", "--from", m.Next}
	foreseen := number1(t, c.good(t, append(args, "--dry-run")...).out)
	if done := number1(t, c.good(t, append(args, "--yes")...).out); done != foreseen {
		t.Errorf("it would delete %d, and deleted %d", foreseen, done)
	}
}

// --like takes a failure of several lines as dead groups shows it.
func TestLikeOfSeveralLines(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	q := queueOn(t, s)
	ms := []shunt.IMessage{shunt.Raw("mail", []byte("die one\n\tand two")), shunt.Raw("mail", []byte("die other"))}
	if err := q.EnqueueAll(t.Context(), ms); err != nil {
		t.Fatal(err)
	}
	handle(t, s, "mail", 2)
	c := call{url: s.URL()}
	const like = `one\n\tand two`
	if shown := c.good(t, "dead", "groups", "mail").out; !strings.Contains(shown, like) {
		t.Fatal(shown)
	}
	r := c.good(t, "dead", "mail", "--like", like)
	if !strings.Contains(r.out, like) || strings.Contains(r.out, "other") {
		t.Errorf("%s%s", r.out, r.err)
	}
	if r := c.good(t, "retry", "--all", "mail", "--like", like, "--dry-run"); number1(t, r.out) != 1 {
		t.Error(r.out)
	}
	if r := c.good(t, "dead", "delete", "mail", "--like", like, "--yes"); number1(t, r.out) != 1 {
		t.Error(r.out)
	}
	if r := c.good(t, "dead", "groups", "mail", "--like", like); strings.Contains(r.out, like) {
		t.Error(r.out)
	}
}

// Where this machine's clock is ahead of that of Redis, postpone --all --in meets none twice all the same.
func TestPostponeAllClockAhead(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	q := queueOn(t, s)
	const n = 250
	enqueue(t, q, n, shunt.In(time.Minute))
	f := shunt.Filter{Until: time.Now().Add(time.Hour + time.Second)} // as a clock that is a second ahead gives it
	b, err := postponeAll(t.Context(), q, "mail", f, shunt.In(time.Hour))
	if err != nil || b.Changed != n || b.Next != "" {
		t.Errorf("of %d messages %d were postponed: %+v, %v", n, b.Changed, b, err)
	}
}

// What is no UTF-8 reaches no terminal as it is: 0x9b begins a command on some.
func TestPrintableBytes(t *testing.T) {
	t.Parallel()
	if got := printable("a\x9b2Jb"); strings.Contains(got, "\x9b") {
		t.Errorf("%q", got)
	}
}
