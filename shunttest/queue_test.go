package shunttest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/redistest"
)

// mail is a message as users write them: what To says travels, outbox is the prototype's.
type mail struct {
	To string

	outbox *outbox
	secret string // does not travel
}

type outbox struct {
	mu   sync.Mutex
	sent []string
	send func(ctx context.Context, m *mail) error // in place of success
}

func (m *mail) Channel() string                            { return "mail" }
func (m *mail) Marshal() ([]byte, error)                   { return shunt.ToJSON(m) }
func (m *mail) Unmarshal(b []byte) (shunt.IMessage, error) { return shunt.FromJSON(m, b) }

func (m *mail) Resolve(ctx context.Context) error {
	o := m.outbox
	if o.send != nil {
		if err := o.send(ctx, m); err != nil {
			return err
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sent = append(o.sent, m.To)
	return nil
}

func enqueue(t testing.TB, q *Queue, m shunt.IMessage, opts ...shunt.Option) {
	t.Helper()
	if err := q.Enqueue(context.Background(), m, opts...); err != nil {
		t.Fatal(err)
	}
}

func TestQueueLeavesNothingBehind(t *testing.T) {
	redistest.Leaks(t)
	q := New(t)
	enqueue(t, q, &mail{To: "ann"})
	q.Handle(&mail{outbox: &outbox{}}, &mail{To: "bob"})
	q.Drain(&mail{outbox: &outbox{}})
	if _, err := q.Receive(context.Background(), &mail{outbox: &outbox{}}, 4); err != nil {
		t.Fatal(err)
	}
}

func TestIdleReceiverEndsAtOnce(t *testing.T) {
	t.Parallel()
	idle := make(chan struct{}, 8)
	q := New(t, func(q *shunt.Queue) {
		q.Events = func(e shunt.Event) {
			if e.Kind == shunt.EventAcked {
				idle <- struct{}{}
			}
		}
	})
	// in a row, so that it is not by chance; tries, for the machine may be away
	for quick, tries := 0, 0; quick < 4; tries++ {
		shutdown, err := q.Receive(context.Background(), &mail{outbox: &outbox{}}, 4)
		if err != nil {
			t.Fatal(err)
		}
		enqueue(t, q, &mail{})
		<-idle
		waitBlocked(t, q)
		began := time.Now()
		if err := shutdown(context.Background()); err != nil {
			t.Fatal(err)
		}
		took := time.Since(began)
		if quick++; took > 250*time.Millisecond {
			quick = 0
		}
		if tries == 20 {
			t.Fatalf("an idle receiver took %v to end; a block of a second would do that", took)
		}
	}
}

// waitBlocked waits until the server has been asked more than once since: an idle receiver does nothing but ask.
func waitBlocked(t *testing.T, q *Queue) {
	t.Helper()
	from := q.redis.Server().TotalCommands()
	for deadline := time.Now().Add(10 * time.Second); q.redis.Server().TotalCommands() < from+3; {
		if time.Now().After(deadline) {
			t.Fatal("no receiver asks for anything")
		}
		time.Sleep(time.Millisecond)
	}
}

func TestConfigurationIsChecked(t *testing.T) {
	t.Parallel()
	r := record(t, func(tb testing.TB) { New(tb, func(q *shunt.Queue) { q.MaxAttempts = 1000 }) })
	r.wants(t, "Queue.MaxAttempts is 1000")
	if !r.ended {
		t.Error("the test goes on")
	}
}

func TestQueuesAreApart(t *testing.T) {
	t.Parallel()
	a, b := New(t), New(t)
	enqueue(t, a, &mail{To: "ann"})
	b.AssertEmpty()
	b.AssertNotEnqueued(&mail{To: "ann"})
	a.AssertEnqueued(&mail{To: "ann"})
}

func TestCloseThatHangsIsTold(t *testing.T) {
	t.Parallel()
	begun, end := make(chan struct{}), make(chan struct{})
	r := record(t, func(tb testing.TB) {
		q := New(tb)
		q.Patience = 10 * time.Millisecond
		p := &mail{outbox: &outbox{send: func(context.Context, *mail) error { close(begun); <-end; return nil }}}
		if _, err := q.Receive(context.Background(), p, 1); err != nil {
			tb.Errorf("%v", err)
		}
		enqueue(tb, q, &mail{})
		<-begun
	})
	r.wants(t, "the Queue is not closed after 10ms")
	close(end)
}

func TestProgramMayClose(t *testing.T) {
	t.Parallel()
	q := New(t)
	enqueue(t, q, &mail{To: "ann"})
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	q.AssertEnqueued(&mail{To: "ann"})
	if n := q.Drain(&mail{outbox: &outbox{}}).Count(shunt.EventAcked); n != 1 {
		t.Errorf("%d were handled", n)
	}
	if err := q.Enqueue(context.Background(), &mail{}); !errors.Is(err, shunt.ErrClosed) {
		t.Errorf("an enqueue after Close: %v", err)
	}
}
