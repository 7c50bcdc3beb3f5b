package shunt

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/redistest"
)

// welcome and invoice decode from each other's JSON without an error.
type welcome struct{ To string }

type invoice struct{ Number int }

// stray is a type that no receiver handles.
type stray struct{}

// billing is invoice after its Go type got another name.
type billing struct{ Number int }

func (billing) MessageType() string { return "shunt.invoice" }

// seen gathers what handlers got.
type seen struct {
	mu  sync.Mutex
	all []any
}

func (s *seen) add(v any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, v)
}

func (s *seen) len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.all)
}

// kindOf is a Kind of a channel whose values are gathered.
func kindOf[T any](channel string, to *seen) *Kind[T] {
	return Define(channel, func(_ context.Context, v T) error { to.add(v); return nil })
}

// plain is a message type without a type name.
type plain struct {
	channel string
	to      *seen
	payload string
}

func (p *plain) Channel() string          { return p.channel }
func (p *plain) Marshal() ([]byte, error) { return []byte(p.payload), nil }
func (p *plain) Unmarshal(b []byte) (IMessage, error) {
	return &plain{p.channel, p.to, string(b)}, nil
}
func (p *plain) Resolve(context.Context) error { p.to.add(p.payload); return nil }

// Two types on one channel were acked as each other, with nothing in them. On one Queue the second receiver is an
// error.
func TestTwoTypesOnOneQueue(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	to := new(seen)
	q := newBench(t, s.URL())
	first := kindOf[welcome](q.name, to)
	if _, err := q.Receive(t.Context(), first, 1); err != nil {
		t.Fatal(err)
	}
	for what, p := range map[string]IMessage{
		"another T": kindOf[invoice](q.name, to), "another type": &plain{channel: q.name, to: to},
		"a Mux": Mux(first, kindOf[invoice](q.name, to)),
	} {
		_, err := q.Receive(t.Context(), p, 1)
		if err == nil || !strings.Contains(err.Error(), "shunt.welcome") || !strings.Contains(err.Error(), "Mux") {
			t.Errorf("%s: %v", what, err)
		}
	}
	elsewhere := kindOf[invoice](q.name+"b", to)
	if _, err := q.ReceiveOrdered(t.Context(), 1, elsewhere, kindOf[invoice](q.name, to)); err == nil {
		t.Error("the second of two channels has another type")
	}
	again, err := q.Receive(t.Context(), With(kindOf[welcome](q.name, to), In(time.Second)), 1)
	if err != nil {
		t.Errorf("the same type: %v", err)
	} else if err := again(t.Context()); err != nil {
		t.Error(err)
	}
	if err := q.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := q.Receive(t.Context(), kindOf[invoice](q.name, to), 1); err != nil {
		t.Errorf("the first has ended: %v", err)
	}
}

// In another process only the element can tell: the message goes to dead with both names, and back to whoever knows it.
func TestTwoTypesInTwoProcesses(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	to := new(seen)
	q, other := newBench(t, s.URL()), newBench(t, s.URL())
	if _, err := q.Receive(t.Context(), kindOf[welcome](q.name, to), 1); err != nil {
		t.Fatal(err)
	}
	if err := other.Enqueue(t.Context(), kindOf[invoice](q.name, to).Message(invoice{7}), ID("seven")); err != nil {
		t.Fatal(err)
	}
	q.wait(EventUndecodable, 1, 5*time.Second)
	dead, err := q.List(t.Context(), q.name, StateDead, 0, 0)
	if err != nil || len(dead) != 1 || !strings.Contains(dead[0].Failure, `of type "shunt.invoice"`) ||
		!strings.Contains(dead[0].Failure, `handles "shunt.welcome"`) {
		t.Fatalf("%+v, %v", dead, err)
	}
	var reason *TypeError
	if !strings.Contains(q.story(), "Mux") || to.len() != 0 || errors.As(err, &reason) {
		t.Errorf("%v\n%s", to.all, q.story())
	}
	if err := q.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := q.Receive(t.Context(), kindOf[billing](q.name, to), 1); err != nil {
		t.Fatal(err)
	}
	if n, err := q.RetryDead(t.Context(), q.name, dead...); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	q.until(5*time.Second, "it is handled", func() bool { return to.len() == 1 })
	if to.all[0] != (billing{7}) {
		t.Errorf("%v", to.all)
	}
}

// A Mux hands each message to the prototype of its type, and to dead what none knows.
func TestMux(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	to := new(seen)
	q := newBench(t, s.URL())
	w, i, p := kindOf[welcome](q.name, to), kindOf[invoice](q.name, to), &plain{channel: q.name, to: to}
	typed := Define(q.name, func(ctx context.Context, r struct{ A int }) error { return nil })
	if typed.MessageType() != "" {
		t.Errorf("a type without a name is called %q", typed.MessageType())
	}
	if _, err := q.Receive(t.Context(), Mux(w, i, p), 4); err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	for _, m := range []IMessage{w.Message(welcome{"Ann"}), i.Message(invoice{3}), Raw(q.name, []byte("bare")),
		Define[stray](q.name, nil).Message(stray{})} {
		if err := q.Enqueue(ctx, m); err != nil {
			t.Fatal(err)
		}
	}
	q.wait(EventUndecodable, 1, 5*time.Second)
	q.wait(EventAcked, 3, 5*time.Second)
	got := map[any]bool{}
	for _, v := range to.all {
		got[v] = true
	}
	if !got[welcome{"Ann"}] || !got[invoice{3}] || !got["bare"] || len(got) != 3 {
		t.Errorf("%v", to.all)
	}
	dead, _ := q.List(ctx, q.name, StateDead, 0, 0)
	if len(dead) != 1 || !strings.Contains(dead[0].Failure, `of type "shunt.stray"`) ||
		!strings.Contains(dead[0].Failure, `messages without a type name, "shunt.invoice", "shunt.welcome"`) {
		t.Errorf("%+v", dead)
	}
}

// A prototype within With has its type in a Mux, too, as it has one by itself. Its messages went to dead.
func TestMuxOfWith(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	to := new(seen)
	q := newBench(t, s.URL())
	w, i := kindOf[welcome](q.name, to), kindOf[invoice](q.name, to)
	if _, err := q.Receive(t.Context(), Mux(With(w, MaxAttempts(3)), With(With(i))), 1); err != nil {
		t.Fatal(err)
	}
	if err := q.EnqueueAll(t.Context(), []IMessage{w.Message(welcome{"Ann"}), i.Message(invoice{3})}); err != nil {
		t.Fatal(err)
	}
	q.until(5*time.Second, "both are over", func() bool { return q.count(EventAcked)+q.count(EventUndecodable) == 2 })
	if to.len() != 2 {
		t.Errorf("%d were handled", to.len())
	}
	_, err := q.Receive(t.Context(), Mux(w, With(nil)), 1)
	if err == nil || !strings.Contains(err.Error(), "it is nil") {
		t.Errorf("a nil prototype within With: %v", err)
	}
}

// A Mux is one prototype among others, and in batches.
func TestMuxInBatches(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	q := newBench(t, s.URL())
	w, i := Define[welcome](q.name, nil), Define[invoice](q.name, nil)
	got := make(chan []IMessage, 1)
	_, err := q.ReceiveBatch(t.Context(), Mux(w, i), 1, Batch{MaxSize: 2, MaxWait: time.Minute,
		Handle: func(ctx context.Context, ms []IMessage) []error {
			for i, m := range ms {
				if info, _ := FromContext(MemberContext(ctx, i)); info.Type != m.(Typer).MessageType() {
					t.Errorf("%+v", info)
				}
			}
			got <- ms
			return nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	if err := q.EnqueueAll(t.Context(), []IMessage{w.Message(welcome{"Ben"}), i.Message(invoice{4})}); err != nil {
		t.Fatal(err)
	}
	ms := <-got
	if ms[0].(Typer).MessageType() == "shunt.invoice" {
		ms[0], ms[1] = ms[1], ms[0]
	}
	if a, ok := ms[0].(*Kind[welcome]); !ok || a.Value().To != "Ben" {
		t.Errorf("%v", ms)
	}
	if b, ok := ms[1].(*Kind[invoice]); !ok || b.Value().Number != 4 {
		t.Errorf("%v", ms)
	}
}

// longName is a type name that no element takes.
type longName struct{ plain }

func (*longName) MessageType() string { return strings.Repeat("x", 256) }

// What is wrong with a Mux is said by Receive.
func TestBadMux(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	to := new(seen)
	q := newBench(t, s.URL())
	w := kindOf[welcome](q.name, to)
	for why, m := range map[string]IMessage{
		"without a prototype": Mux(), "channel's name is empty": Mux(nil), "it is nil": Mux(w, nil),
		"a Mux itself":    Mux(w, Mux(w)),
		"its channel is":  Mux(w, kindOf[invoice]("elsewhere", to)),
		"another's too":   Mux(w, w),
		"has no func":     Mux(w, Define[invoice](q.name, nil)),
		"no prototype":    Mux(w, Raw(q.name, nil)),
		"has 256 bytes":   &longName{plain{channel: q.name}},
		"is a prototype ": With(Mux(w)),
	} {
		_, err := q.Receive(t.Context(), m, 1)
		if _, ok := m.(*with); ok {
			err = q.Enqueue(t.Context(), m)
		}
		if err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v", why, err)
		}
	}
}

// A payload from elsewhere goes to dead with what mends it, and by its Type to its prototype in a Mux.
func TestTypeOfRaw(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	q := newBench(t, s.URL())
	if _, err := q.Receive(t.Context(), Mux(Define(q.name, func(context.Context, invoice) error { return nil })),
		1); err != nil {
		t.Fatal(err)
	}
	q.must(q.Enqueue(t.Context(), Raw(q.name, []byte(`{"number":1}`)), Type("shunt.invoice")))
	q.wait(EventAcked, 1, 5*time.Second)
	q.must(q.Enqueue(t.Context(), Raw(q.name, []byte(`{"number":1}`))))
	q.wait(EventUndecodable, 1, 5*time.Second)
	dead, err := q.List(t.Context(), q.name, StateDead, 0, 0)
	if err != nil || len(dead) != 1 || !strings.Contains(dead[0].Failure, "with the option Type") {
		t.Errorf("%+v, %v", dead, err)
	}
	if err := q.Enqueue(t.Context(), Raw(q.name, nil), Type("")); err == nil {
		t.Error("an empty Type has no error")
	}
}
