package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/recur"
)

// The payloads of the messages. They travel as JSON, and each element in Redis names its type.
type (
	Order   struct{ ID, Customer, Item string }
	Payment Order
	Parcel  Order
	Invoice Order
	Mail    struct{ To, Subject string }
	Report  struct{ Minutes int }
)

// MessageID makes an order's number the ID of its message. While an ID is taken, another message of it is refused: so
// a customer who clicks twice has ordered once.
func (o Order) MessageID() string   { return o.ID }
func (p Payment) MessageID() string { return p.ID }

// shop has what the handlers need: the types of messages, and the world outside. A database would be here, too.
type shop struct {
	*world
	q        *shunt.Queue
	vip, web *shunt.Kind[Order] // one type on two channels
	payments *shunt.Kind[Payment]
	stock    *shunt.Kind[Parcel]
	invoices *shunt.Kind[Invoice]
	mails    *shunt.Kind[Mail]
	reports  *shunt.Kind[Report]
}

// open starts the receivers. The end of ctx is the first step of their shutdown.
func (s *shop) open(ctx context.Context) error {
	s.vip, s.web = shunt.Define("shop.orders.vip", s.order), shunt.Define("shop.orders.web", s.order)
	s.payments, s.stock = shunt.Define("shop.payments", s.pay), shunt.Define("shop.stock", s.pack)
	s.invoices = shunt.Define[Invoice]("shop.invoices", nil) // handled in batches
	s.mails, s.reports = shunt.Define("shop.mails", s.mail), shunt.Define("shop.reports", s.report)
	// Strict order: no worker takes an order from the web while one of a VIP waits.
	_, err1 := s.q.ReceiveOrdered(ctx, workers, s.vip, s.web)
	_, err2 := s.q.Receive(ctx, s.payments, workers)
	_, err3 := s.q.Receive(ctx, s.stock, workers)
	_, err4 := s.q.Receive(ctx, s.mails, workers)
	// Invoices are written many at once, as by one INSERT. A nil slice acks them all.
	bill := func(context.Context, []shunt.IMessage) []error { return nil }
	_, err5 := s.q.ReceiveBatch(ctx, s.invoices, 1, shunt.Batch{MaxSize: 50, MaxWait: 2 * time.Second, Handle: bill})
	_, err6 := s.q.Receive(ctx, s.reports, 1)
	// Reports recur. Their times are kept in Redis, and each tick is one message however many shops run.
	t := &recur.Timetable{Queue: s.q}
	err7 := t.Add(ctx, "minute", recur.Cron("15 * * * * *", "UTC"), s.reports.Message(Report{1}))
	err8 := t.Add(ctx, "day", recur.Cron("0 6 * * *", "UTC"), s.reports.Message(Report{24 * 60}))
	_, err9 := t.Run(ctx, s.reports.Channel())
	return errors.Join(err1, err2, err3, err4, err5, err6, err7, err8, err9)
}

// order takes an order. What follows from it is enqueued by Then, in the step that acks it: never lost, never doubled.
func (s *shop) order(ctx context.Context, o Order) error {
	if err := s.work(ctx, 0.3); err != nil {
		return err
	}
	result := fmt.Sprintf("your %s comes on %v", o.Item, time.Now().AddDate(0, 0, 1).Weekday())
	return errors.Join(shunt.SetResult(ctx, []byte(result)),
		shunt.Then(ctx, s.payments.Message(Payment(o))))
}

// pay asks a provider that is flaky. Any error is tried again after the backoff; Reject says that this cannot help.
func (s *shop) pay(ctx context.Context, p Payment) error {
	if err := s.work(ctx, 0.3); err != nil {
		return err
	}
	if err := s.charge(); errors.Is(err, errDeclined) {
		return shunt.Reject(err)
	} else if err != nil {
		return err
	}
	// With gives one message options of its own: this mail is due in half a minute.
	thanks := shunt.With(s.mails.Message(Mail{p.Customer, "thank you for order " + p.ID}), shunt.In(30*time.Second))
	return shunt.Then(ctx, s.stock.Message(Parcel(p)), s.invoices.Message(Invoice(p)), thanks)
}

// pack fetches an item and puts it into a parcel. For a gift card, which is on no shelf, it panics: the process and the
// worker go on, and the message goes to dead when its attempts are used up.
func (s *shop) pack(ctx context.Context, p Parcel) error {
	if rand.IntN(50) == 0 {
		return shunt.Snooze(5 * time.Second) // somebody is at the shelf: no failure, and no attempt is counted
	}
	busy := 0.5
	if s.within(8*time.Minute, time.Minute, 3*time.Minute) {
		busy = 2 // a truck blocks the gate: more comes in than goes out
	}
	if err := s.work(ctx, busy); err != nil {
		return err
	}
	shelves := map[string]string{"teapot": "3/north", "violin": "9/north", "lamp": "1/south"}
	aisle := strings.Split(shelves[p.Item], "/")[1]
	return shunt.Then(ctx, s.mails.Message(Mail{p.Customer, p.Item + " has left our " + aisle + " gate"}))
}

// mail writes to a mail server that is busy at times, and says for how long.
func (s *shop) mail(ctx context.Context, _ Mail) error {
	if rand.IntN(60) == 0 {
		return shunt.RetryAfter(10*time.Second, errors.New("421 4.7.0 too many mails, come back in 10 s"))
	}
	return s.work(ctx, 0.25)
}

// report reads what shunt has counted before the minute in which it was enqueued.
func (s *shop) report(ctx context.Context, r Report) error {
	info, _ := shunt.FromContext(ctx)
	to := info.EnqueuedAt.Truncate(time.Minute)
	from := to.Add(-time.Duration(r.Minutes) * time.Minute)
	channels := []string{s.payments.Channel(), s.stock.Channel()}
	c, err := s.q.Counts(ctx, shunt.CountsOptions{Channels: channels, From: from, To: to})
	if err != nil {
		return err
	}
	paid, packed := c[0][0], c[1][0]
	say("report of %d min: %d orders paid, %d tried again, %d given up; %d packed, %d wait to be packed",
		r.Minutes, paid.Acked, paid.Retried, paid.Dead, packed.Acked, packed.Waiting)
	return nil
}
