package shunttest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/shuntmq/shunt"
)

func TestDrainBringsTimeForward(t *testing.T) {
	t.Parallel()
	q := New(t, func(q *shunt.Queue) { q.MaxAttempts = 3 })
	var seen []string
	letters := shunt.Define("letters", func(ctx context.Context, n int) error {
		seen = append(seen, fmt.Sprintf("letter %d", n))
		return nil
	})
	p := &mail{outbox: &outbox{send: func(ctx context.Context, m *mail) error {
		info, _ := shunt.FromContext(ctx)
		seen = append(seen, fmt.Sprintf("%s %d", m.To, info.Attempt))
		switch {
		case m.To == "first":
			q.Enqueue(ctx, &mail{To: "after 5m"}, shunt.In(5*time.Minute))
			q.Enqueue(ctx, &mail{To: "after 15m"}, shunt.In(15*time.Minute))
			q.Enqueue(ctx, letters.Message(1))
		case m.To == "after 15m" && info.Attempt == 1:
			return shunt.RetryAfter(3*time.Minute, errDown) // that is at 28m
		case m.To == "bad":
			return shunt.RetryAfter(24*time.Hour, errDown)
		}
		return nil
	}}}
	enqueue(t, q, &mail{To: "bad"}, shunt.In(time.Hour))
	enqueue(t, q, letters.Message(2), shunt.In(29*time.Minute))
	enqueue(t, q, &mail{To: "at 20m"}, shunt.In(20*time.Minute))
	enqueue(t, q, &mail{To: "first"}, shunt.In(10*time.Minute))
	enqueue(t, q, &mail{To: "now"})
	began := time.Now()
	outs := q.Drain(p, letters)
	want := "now 1, first 1, letter 1, after 5m 1, at 20m 1, after 15m 1, after 15m 2, letter 2, bad 1, bad 2, bad 3"
	if got := strings.Join(seen, ", "); got != want {
		t.Errorf("have %s\nwant %s", got, want)
	}
	if took := time.Since(began); took > 4*time.Second {
		t.Errorf("it took %v: hints are not heard", took)
	}
	if len(outs) != 11 || outs.Count(shunt.EventAcked) != 7 || outs.Count(shunt.EventRetried) != 3 ||
		outs.Count(shunt.EventRejected) != 1 {
		t.Errorf("handlings: %v", outs)
	}
	last := outs[10]
	if m, _ := last.Message.(*mail); m == nil || m.To != "bad" || !errors.Is(last.Err, errDown) ||
		last.Attempt != 3 || last.Channel != "mail" {
		t.Errorf("the last outcome: %+v", last)
	}
	q.AssertEmpty()
	if dead, err := q.List(context.Background(), "mail", shunt.StateDead, 0, 0); len(dead) != 1 {
		t.Errorf("dead: %d, %v", len(dead), err)
	}
}

func TestDrainOfNothing(t *testing.T) {
	t.Parallel()
	q := New(t)
	enqueue(t, q, shunt.Raw("letters", nil), shunt.In(time.Hour))
	if outs := q.Drain(&mail{outbox: &outbox{}}); len(outs) != 0 {
		t.Errorf("handlings: %v", outs)
	}
	q.AssertEnqueued(shunt.Raw("letters", nil), In(time.Hour)) // not of its channels
}

func TestDrainOfMany(t *testing.T) {
	t.Parallel()
	const n = 2000
	told := 0
	q := New(t, func(q *shunt.Queue) {
		q.Events = func(e shunt.Event) {
			if e.Kind == shunt.EventAcked {
				told++
			}
		}
	})
	var ms []shunt.IMessage
	for i := range n {
		ms = append(ms, &mail{To: fmt.Sprint(i)})
	}
	if err := errors.Join(q.EnqueueAll(context.Background(), ms[:n/2]), q.EnqueueAll(context.Background(), ms[n/2:],
		shunt.In(time.Hour))); err != nil {
		t.Fatal(err)
	}
	o := &outbox{}
	outs := q.Drain(&mail{outbox: o})
	if outs.Count(shunt.EventAcked) != n || len(outs) != n || len(o.sent) != n || told != n {
		t.Errorf("%d handlings, %d sent, %d told", len(outs), len(o.sent), told)
	}
	distinct := make(map[string]bool)
	for _, to := range o.sent {
		distinct[to] = true
	}
	if len(distinct) != n {
		t.Errorf("%d different ones", len(distinct))
	}
}

func TestDrainThatDoesNotEnd(t *testing.T) {
	t.Parallel()
	r := record(t, func(tb testing.TB) {
		q := New(tb, func(q *shunt.Queue) { q.MaxAttempts = -1 })
		q.MaxHandlings = 20
		enqueue(tb, q, &mail{To: "ann"})
		q.Drain(&mail{outbox: &outbox{send: fails(errDown)}})
	})
	r.wants(t, "stopped by its MaxHandlings after 2", "handlings: 1 messages are left",
		`the last one handled, of "mail", was retried at attempt 2`,
		`{"To":"ann"}  handled 2`, `times: mail server down`)
	if !r.ended {
		t.Error("the test goes on")
	}
}

func TestDrainPatience(t *testing.T) {
	t.Parallel()
	r := record(t, func(tb testing.TB) {
		q := New(tb)
		q.Patience = 20 * time.Millisecond
		enqueue(tb, q, &mail{})
		q.Drain(&mail{outbox: &outbox{send: func(ctx context.Context,
			_ *mail) error {
			<-ctx.Done()
			return context.Cause(ctx)
		}}})
	})
	r.wants(t, "stopped by its Patience of 20ms after 0 handlings: 1 messages are left")
}

func TestDrainMisuse(t *testing.T) {
	t.Parallel()
	p := &mail{outbox: &outbox{}}
	r := record(t, func(tb testing.TB) { New(tb).Drain(nil) })
	r.wants(t, "a prototype is nil")
	r = record(t, func(tb testing.TB) { New(tb).Drain(p, p) })
	r.wants(t, `two prototypes of channel "mail"`)
	r = record(t, func(tb testing.TB) {
		q := New(tb)
		if _, err := q.Receive(context.Background(), p, 1); err != nil {
			tb.Fatalf("%v", err)
		}
		q.Drain(p)
	})
	r.wants(t, `channel "mail" has a receiver: shut it down first`)
}
