package shunttest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/shunttest"
)

// OrderMail confirms an order. Its exported fields are the payload; what sends it is the prototype's.
type OrderMail struct {
	Order int
	To    string

	send func(to, text string) error
}

func (m *OrderMail) Channel() string                            { return "order-mail" }
func (m *OrderMail) Marshal() ([]byte, error)                   { return shunt.ToJSON(m) }
func (m *OrderMail) Unmarshal(b []byte) (shunt.IMessage, error) { return shunt.FromJSON(m, b) }

var errGreylisted = errors.New("450 greylisted")

// Resolve gives up on a mail that nobody would read any more.
func (m *OrderMail) Resolve(ctx context.Context) error {
	info, _ := shunt.FromContext(ctx)
	if time.Since(info.EnqueuedAt) > 24*time.Hour {
		return shunt.Reject(errors.New("a day old"))
	}
	err := m.send(m.To, fmt.Sprintf("order %d is on its way", m.Order))
	if errors.Is(err, errGreylisted) {
		return shunt.RetryAfter(10*time.Minute, err)
	}
	return err
}

// checkOut is the program under test.
func checkOut(ctx context.Context, q *shunt.Queue, order int, customer string) error {
	return errors.Join(
		q.Enqueue(ctx, &OrderMail{Order: order, To: customer}, shunt.In(time.Minute)), // time to think better of it
		q.Enqueue(ctx, &OrderMail{Order: order, To: "accounts@example.org"}),
	)
}

func Example() {
	t, end := exampleTest() // in a test: the *testing.T
	defer end()
	q := shunttest.New(t, func(q *shunt.Queue) { q.MaxAttempts = 3 })

	// What the program enqueues.
	if err := checkOut(context.Background(), q.Queue, 7, "ann@example.org"); err != nil {
		t.Fatal(err)
	}
	q.AssertEnqueued(&OrderMail{Order: 7, To: "ann@example.org"}, shunttest.In(time.Minute))
	q.AssertNotEnqueued(&OrderMail{Order: 8, To: "ann@example.org"})

	// What becomes of one mail, now and later.
	greylists := &OrderMail{send: func(to, text string) error { return errGreylisted }}
	mail := &OrderMail{Order: 8, To: "bob@example.org"}
	fmt.Println(q.Handle(greylists, mail))
	fmt.Println(q.Handle(greylists, mail, shunttest.Attempt(3)))
	fmt.Println(q.Handle(greylists, mail, shunttest.Attempt(2), shunttest.Age(25*time.Hour)))

	// What comes of what was enqueued, in no time.
	sends := &OrderMail{send: func(to, text string) error {
		_, err := fmt.Printf("to %s: %s\n", to, text)
		return err
	}}
	handlings := q.Drain(sends)
	fmt.Println(handlings.Count(shunt.EventAcked), "mails")
	q.AssertEmpty()

	// Output:
	// retried at attempt 1, to wait 10m0s: 450 greylisted
	// rejected at attempt 3: 450 greylisted
	// rejected at attempt 2: a day old
	// to accounts@example.org: order 7 is on its way
	// to ann@example.org: order 7 is on its way
	// 2 mails
}

// printer is a testing.TB for an Example, which has none: what fails is printed, and so is not the Output that is
// wanted.
type printer struct {
	testing.TB
	cleanups []func()
}

func exampleTest() (testing.TB, func()) {
	p := &printer{}
	return p, func() {
		for _, f := range p.cleanups {
			f()
		}
	}
}

func (p *printer) Helper()                           {}
func (p *printer) Failed() bool                      { return false }
func (p *printer) Cleanup(f func())                  { p.cleanups = append(p.cleanups, f) }
func (p *printer) Errorf(format string, args ...any) { fmt.Printf(format+"\n", args...) }
func (p *printer) Fatal(args ...any)                 { panic(fmt.Sprint(args...)) }
func (p *printer) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
