package shunttest

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/shuntmq/shunt"
)

func TestEnqueuedIsInOrder(t *testing.T) {
	t.Parallel()
	q := New(t)
	enqueue(t, q, &mail{To: "c"}, shunt.In(2*time.Hour))
	enqueue(t, q, &mail{To: "a"})
	enqueue(t, q, &mail{To: "d"}, shunt.In(time.Hour), shunt.Header("trace", "x"))
	enqueue(t, q, &mail{To: "b"})
	enqueue(t, q, shunt.Raw("other", []byte("e")))
	var got []string
	ds := q.Enqueued("mail")
	for _, d := range ds {
		got = append(got, string(d.Payload)+" "+string(d.State)+" "+d.Channel)
	}
	want := `{"To":"a"} prepare mail,{"To":"b"} prepare mail,{"To":"d"} delay mail,{"To":"c"} delay mail`
	if strings.Join(got, ",") != want {
		t.Errorf("have %s\nwant %s", strings.Join(got, ","), want)
	}
	if d := ds[2]; d.In() < time.Hour || d.In() > time.Hour+time.Minute || d.Headers["trace"] != "x" ||
		ds[0].In() != 0 {
		t.Errorf("due in %v with %v, and %v", d.In(), d.Headers, ds[0].In())
	}
	if got := strings.Join(channelsOf(q.redis), " "); got != "mail other" {
		t.Errorf("channels: %s", got)
	}
}

// What is asserted, of what is there, and what the failure says: nothing where there is none.
func TestAssertions(t *testing.T) {
	t.Parallel()
	fill := func(q *Queue) {
		enqueue(q.t, q, &mail{To: "ann"}, shunt.Header("trace", "x"))
		enqueue(q.t, q, &mail{To: "bob"}, shunt.In(30*time.Minute))
		enqueue(q.t, q, &mail{To: "cid"})
		enqueue(q.t, q, &mail{To: "cid"})
	}
	for name, c := range map[string]struct {
		assert func(q *Queue)
		says   []string
	}{
		"there":       {func(q *Queue) { q.AssertEnqueued(&mail{To: "ann"}) }, nil},
		"of any time": {func(q *Queue) { q.AssertEnqueued(&mail{To: "bob"}) }, nil},
		"later":       {func(q *Queue) { q.AssertEnqueued(&mail{To: "bob"}, In(30*time.Minute)) }, nil},
		"about then": {func(q *Queue) {
			q.AssertEnqueued(&mail{To: "bob"},
				In(30*time.Minute-500*time.Millisecond))
		}, nil},
		"now":             {func(q *Queue) { q.AssertEnqueued(&mail{To: "ann"}, In(0)) }, nil},
		"header":          {func(q *Queue) { q.AssertEnqueued(&mail{To: "ann"}, Header("trace", "x")) }, nil},
		"twice":           {func(q *Queue) { q.AssertEnqueued(&mail{To: "cid"}, Times(2)) }, nil},
		"not there":       {func(q *Queue) { q.AssertNotEnqueued(&mail{To: "dan"}) }, nil},
		"not then":        {func(q *Queue) { q.AssertNotEnqueued(&mail{To: "bob"}, In(time.Hour)) }, nil},
		"not now":         {func(q *Queue) { q.AssertNotEnqueued(&mail{To: "bob"}, In(0)) }, nil},
		"empty elsewhere": {func(q *Queue) { q.AssertEmpty("letters") }, nil},

		"missing": {func(q *Queue) { q.AssertEnqueued(&mail{To: "dan"}) }, []string{
			`enqueued to "mail": 0 of this message, want 1`,
			"\twant  any time  {\"To\":\"dan\"}\n" +
				"\thave  now       {\"To\":\"ann\"}  trace=\"x\"\n" +
				"\t      now       {\"To\":\"cid\"}\n" +
				"\t      now       {\"To\":\"cid\"}\n" +
				"\t      in 30m0s  {\"To\":\"bob\"}\n",
		}},
		"wrong time": {func(q *Queue) { q.AssertEnqueued(&mail{To: "bob"}, In(31*time.Minute)) }, []string{
			"0 of this message, want 1", "want  in 31m0s  {\"To\":\"bob\"}"}},
		"now, not later": {func(q *Queue) { q.AssertEnqueued(&mail{To: "ann"}, In(time.Minute)) },
			[]string{"0 of this message"}},
		"later, not now": {func(q *Queue) { q.AssertEnqueued(&mail{To: "bob"}, In(0)) }, []string{"0 of this message",
			"want  now  "}},
		"wrong header": {func(q *Queue) { q.AssertEnqueued(&mail{To: "ann"}, Header("trace", "y")) }, []string{
			"0 of this message", `{"To":"ann"}  trace="y"`}},
		"no header": {func(q *Queue) { q.AssertEnqueued(&mail{To: "cid"}, Header("trace", ""), Times(2)) },
			[]string{"0 of this message, want 2"}},
		"twice, not once": {func(q *Queue) { q.AssertEnqueued(&mail{To: "cid"}) },
			[]string{"2 of this message, want 1"}},
		"unwanted": {func(q *Queue) { q.AssertNotEnqueued(&mail{To: "ann"}) },
			[]string{"1 of this message, want 0"}},
		"empty channel": {func(q *Queue) { q.AssertEnqueued(shunt.Raw("letters", []byte("x"))) },
			[]string{"have  nothing"}},
		"not empty": {func(q *Queue) { q.AssertEmpty() }, []string{`"mail" is not empty: 4 messages`,
			"have  now"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := record(t, func(tb testing.TB) {
				q := New(tb)
				fill(q)
				c.assert(q)
				if tb.(*recorder).failed {
					q.AssertEnqueued(&mail{To: "ann"}) // it goes on
					tb.(*recorder).text.WriteString("(goes on)")
				}
			})
			if c.says == nil && r.failed {
				t.Errorf("it failed:\n%s", &r.text)
			}
			if c.says != nil {
				r.wants(t, append(c.says, "(goes on)")...)
			}
		})
	}
}

func TestAssertEmptySeesWhatIsInHand(t *testing.T) {
	t.Parallel()
	begun, end := make(chan struct{}), make(chan struct{})
	r := record(t, func(tb testing.TB) {
		q := New(tb)
		p := &mail{outbox: &outbox{send: func(context.Context, *mail) error { close(begun); <-end; return nil }}}
		if _, err := q.Receive(context.Background(), p, 1); err != nil {
			tb.Fatalf("%v", err)
		}
		enqueue(tb, q, &mail{To: "ann"})
		<-begun
		q.AssertEmpty("mail")
		close(end)
	})
	r.wants(t, `"mail" is not empty: 1 messages`, `have  doing  {"To":"ann"}`)
}

func TestManyAndLargeAndBinaryPayloadsAreShort(t *testing.T) {
	t.Parallel()
	r := record(t, func(tb testing.TB) {
		q := New(tb)
		enqueue(tb, q, shunt.Raw("c", []byte(strings.Repeat("ä", 300))))
		enqueue(tb, q, shunt.Raw("c", []byte{0xff, 0}))
		for range 30 {
			enqueue(tb, q, shunt.Raw("c", []byte("x\ny")))
		}
		q.AssertEmpty("c")
	})
	r.wants(t, "ä… (600 bytes)", `"\xff\x00"`, `"x\ny"`, "and 12 more")
	if n := strings.Count(r.text.String(), "\n"); n > 25 {
		t.Errorf("%d lines", n)
	}
}

// Payloads are asserted, handled and shown as Marshal made them, however they lie in Redis.
func TestEncodedPayloads(t *testing.T) {
	t.Parallel()
	n := 0
	q := New(t, func(q *shunt.Queue) {
		q.Payloads = shunt.Payloads{
			Encode: func(_ context.Context, p shunt.Payload) (string, []byte, error) {
				n++
				return p.Serial, append([]byte(strings.Repeat("x", n)), p.Bytes...), nil
			},
			Decode: func(_ context.Context, p shunt.Payload) ([]byte, error) {
				if p.Encoding != p.Serial {
					return nil, errDown
				}
				return []byte(strings.TrimLeft(string(p.Bytes), "x")), nil
			},
		}
	})
	enqueue(t, q, &mail{To: "ann"})
	q.AssertEnqueued(&mail{To: "ann"})
	q.AssertNotEnqueued(&mail{To: "bob"})
	if ds := q.Enqueued("mail"); len(ds) != 1 || string(ds[0].Payload) != `{"To":"ann"}` || n != 1 {
		t.Errorf("enqueued %v, and encoded %d times", ds, n)
	}
	out := q.Handle(&mail{outbox: &outbox{send: func(context.Context, *mail) error { return nil }}}, &mail{To: "cid"})
	if out.Verdict != shunt.EventAcked {
		t.Errorf("handled: %v, %v", out.Verdict, out.Err)
	}
}
