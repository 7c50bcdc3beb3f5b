// Orders is a shop's afternoon in a quarter of a minute:
//
//	go run ./example/orders
//	go run ./example/orders -redis redis://localhost:6379
//
// It shows, an act each: orders that close themselves when nobody has paid in time (In); important ones before others
// (ReceiveOrdered). Then a notifier fails and is tried again, by backoff and when the other side says so (RetryAfter).
// Last, dead letters are looked at and put back by hand (List, RetryDead). Unpaid is a message type written out; the
// others are functions made into one by Define. The lines with a dot are events, by which logs and metrics hear of all
// this.
//
// Ctrl-C ends it in good order. Without -redis or REDIS_URL it brings a small Redis along.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/example/internal/server"
)

const (
	payWithin = 3 * time.Second
	patience  = 3 * time.Second // of Ctrl-C with handlers
)

// Unpaid closes an order that was not paid in time. It is the written out form of a message type. Its fields are the
// payload. Its handler needs shop, which is handed on from the prototype.
type Unpaid struct {
	Order int    `json:"order"`
	Who   string `json:"who"`

	shop *shop
}

func (u *Unpaid) Channel() string                            { return "example.orders.unpaid" }
func (u *Unpaid) Marshal() ([]byte, error)                   { return shunt.ToJSON(u) }
func (u *Unpaid) Unmarshal(b []byte) (shunt.IMessage, error) { return shunt.FromJSON(u, b) }

func (u *Unpaid) Resolve(context.Context) error {
	defer u.shop.did()
	if u.shop.isPaid(u.Order) {
		u.shop.tell("kept", "order %d of %s: it was paid", u.Order, u.Who)
		return nil
	}
	u.shop.count("closed")
	u.shop.tell("closed", "order %d of %s: not paid within %v", u.Order, u.Who, payWithin)
	return nil
}

// Parcel and Mail are payloads of what Define makes message types of.
type (
	Parcel struct{ Order, Class string }
	Mail   struct{ To, Text string }
)

// shop is what the handlers share.
type shop struct {
	q                 *shunt.Queue
	vip, normal, bulk *shunt.Kind[Parcel]
	mail              *shunt.Kind[Mail]
	began             time.Time
	done              chan struct{} // one for each message that is handled to its end

	mu       sync.Mutex // of output too
	act      string
	paid     map[int]bool
	counts   map[string]int
	rooms    map[string]bool // mailboxes that exist
	shutdown []shunt.Shutdown
}

func newShop(s *server.Server) *shop {
	o := &shop{began: time.Now(), done: make(chan struct{}, 64), paid: make(map[int]bool), counts: make(map[string]int),
		rooms: map[string]bool{"ann@example.org": true, "ben@example.org": true}}
	o.q = &shunt.Queue{
		Pool: s.Pool, Lease: 2 * time.Second, Events: o.event,
		Backoff: func(attempt int) time.Duration { return time.Duration(attempt) * 600 * time.Millisecond },
	}
	o.vip = shunt.Define("example.orders.vip", o.pack)
	o.normal = shunt.Define("example.orders.normal", o.pack)
	o.bulk = shunt.Define("example.orders.bulk", o.pack)
	o.mail = shunt.Define("example.orders.mail", o.send)
	return o
}

// pack is the handler of all three classes.
func (o *shop) pack(_ context.Context, p Parcel) error {
	time.Sleep(250 * time.Millisecond)
	o.count("packed")
	o.tell("packed", "%-6s  %s", p.Class, p.Order)
	o.did()
	return nil
}

// send is a mail server on a bad day: it does not answer, then it is busy and says for how long, then it works.
func (o *shop) send(ctx context.Context, m Mail) error {
	info, _ := shunt.FromContext(ctx)
	o.mu.Lock()
	exists := o.rooms[m.To]
	o.mu.Unlock()
	switch {
	case !exists:
		return fmt.Errorf("%s: no such mailbox", m.To)
	case m.To == "ann@example.org" && info.Attempt == 1:
		return fmt.Errorf("%s: the server does not answer", m.To)
	case m.To == "ann@example.org" && info.Attempt == 2:
		return shunt.RetryAfter(1500*time.Millisecond, fmt.Errorf("%s: too many mails, come back in 1.5 s", m.To))
	}
	o.count("mailed")
	o.tell("mailed", "%s: %s (attempt %d)", m.To, m.Text, info.Attempt)
	o.did()
	return nil
}

// event shows of all that happens what no handler can say by itself.
func (o *shop) event(e shunt.Event) {
	switch e.Kind {
	case shunt.EventRetried:
		o.count("retried")
		o.tell("· retried", "%v (attempt %d; again in %.1f s)", e.Err, e.Attempt, e.DueAt.Sub(e.Time).Seconds())
	case shunt.EventRejected:
		o.count("given up")
		o.tell("· dead", "%v (attempt %d, the last)", e.Err, e.Attempt)
		o.did()
	case shunt.EventRecovered, shunt.EventLateVerdict, shunt.EventReceiverError, shunt.EventLeaseLost:
		o.tell("· "+string(e.Kind), "%d %v", e.N, e.Err)
	}
}

// tell writes one line: the time since the start, what happened, to whom.
func (o *shop) tell(what, format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	fmt.Printf("  %5.1f s  %-9s  %s\n", time.Since(o.began).Seconds(), what, fmt.Sprintf(format, args...))
}

// heading begins an act, after a pause to read the last one.
func (o *shop) heading(ctx context.Context, act string) {
	if o.act != "" {
		_ = wait(ctx, 1200*time.Millisecond) // what comes next sees that ctx has ended
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.act = act
	fmt.Printf("\n%s\n", act)
}

func (o *shop) count(what string) {
	o.mu.Lock()
	o.counts[what]++
	o.mu.Unlock()
}

func (o *shop) isPaid(order int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.paid[order]
}

func (o *shop) did() { o.done <- struct{}{} }

// await waits until n messages are handled to their end.
func (o *shop) await(ctx context.Context, n int) error {
	for range n {
		select {
		case <-o.done:
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Second):
			return errors.New("nothing has happened for 10 s")
		}
	}
	return nil
}

// wait is a sleep that Ctrl-C ends.
func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// received keeps a receiver until the end.
func (o *shop) received(shutdown shunt.Shutdown, err error) error {
	if err == nil {
		o.shutdown = append(o.shutdown, shutdown)
	}
	return err
}

func (o *shop) closing(ctx context.Context) error {
	o.heading(ctx, fmt.Sprintf("1. Orders close themselves unless they are paid within %v", payWithin))
	if err := o.received(o.q.Receive(ctx, &Unpaid{shop: o}, 4)); err != nil {
		return err
	}
	who := []string{"Ann", "Ben", "Cleo", "Dan"}
	for i, name := range who {
		o.tell("ordered", "order %d of %s", i+1, name)
		if err := o.q.Enqueue(ctx, &Unpaid{Order: i + 1, Who: name}, shunt.In(payWithin)); err != nil {
			return err
		}
	}
	for _, order := range []int{1, 3} {
		if err := wait(ctx, 600*time.Millisecond); err != nil {
			return err
		}
		o.mu.Lock()
		o.paid[order] = true
		o.mu.Unlock()
		o.tell("paid", "order %d of %s", order, who[order-1])
	}
	return o.await(ctx, len(who))
}

func (o *shop) packing(ctx context.Context) error {
	o.heading(ctx, "2. VIP before normal before bulk, however they come in")
	enqueue := func(kind *shunt.Kind[Parcel], class string, orders ...string) error {
		var ms []shunt.IMessage
		for _, order := range orders {
			ms = append(ms, kind.Message(Parcel{order, class}))
		}
		o.tell("came in", "%-6s  %s", class, strings.Join(orders, ", "))
		return o.q.EnqueueAll(ctx, ms)
	}
	err := errors.Join(enqueue(o.bulk, "bulk", "bricks", "gravel", "sand"),
		enqueue(o.normal, "normal", "a book", "a lamp", "a pan"), enqueue(o.vip, "VIP", "pearls", "a violin"))
	if err != nil {
		return err
	}
	// One worker, so that the order of starting is the order of the lines.
	if err := o.received(o.q.ReceiveOrdered(ctx, 1, o.vip, o.normal, o.bulk)); err != nil {
		return err
	}
	if err := o.await(ctx, 4); err != nil {
		return err
	}
	if err := enqueue(o.vip, "VIP", "a late ring"); err != nil {
		return err
	}
	return o.await(ctx, 5)
}

func (o *shop) mailing(ctx context.Context) error {
	o.heading(ctx, "3. A mail server that fails, and then says when to come back")
	if err := o.received(o.q.Receive(ctx, o.mail, 2)); err != nil {
		return err
	}
	for _, m := range []Mail{{"ann@example.org", "your parcel is on its way"}, {"ben@example.org",
		"your order was closed"}, {"dan@example.org", "your order was closed"}} {
		if err := o.q.Enqueue(ctx, o.mail.Message(m), shunt.MaxAttempts(3)); err != nil {
			return err
		}
	}
	return o.await(ctx, 3)
}

func (o *shop) reviving(ctx context.Context) error {
	o.heading(ctx, "4. What was given up on is not lost: look, mend, put back")
	dead, err := o.q.List(ctx, o.mail.Channel(), shunt.StateDead, 0, 0)
	if err != nil {
		return err
	}
	for _, e := range dead {
		m, err := o.mail.Unmarshal(e.Payload)
		if err != nil {
			return err
		}
		o.tell("in dead", "%q after %d attempts: %s", m.(*shunt.Kind[Mail]).Value().Text, e.Attempts, e.Failure)
	}
	if err := wait(ctx, time.Second); err != nil {
		return err
	}
	o.tell("mended", "the mailbox dan@example.org")
	o.mu.Lock()
	o.rooms["dan@example.org"] = true
	o.mu.Unlock()
	n, err := o.q.RetryDead(ctx, o.mail.Channel(), dead...)
	if err != nil {
		return err
	}
	o.tell("put back", "%d", n)
	return o.await(ctx, n)
}

// purge removes what this or an earlier, interrupted run has left: its orders are nobody's any more. It returns how
// many.
func (o *shop) purge(ctx context.Context) (int, error) {
	sum := 0
	for _, m := range []shunt.IMessage{&Unpaid{}, o.vip, o.normal, o.bulk, o.mail} {
		n, err := o.q.Purge(ctx, m.Channel(), shunt.StatePrepare, shunt.StateDelay, shunt.StateSuspect, shunt.StateDead)
		if err != nil {
			return sum, err
		}
		sum += n
	}
	return sum, nil
}

// play runs the acts, and in any case shuts down what they have begun.
func (o *shop) play(ctx context.Context) error {
	_, err := o.purge(ctx)
	for _, act := range []func(context.Context) error{o.closing, o.packing, o.mailing, o.reviving} {
		if err == nil {
			err = act(ctx)
		}
	}
	interrupted := ctx.Err() != nil
	if interrupted {
		o.tell("Ctrl-C", "shutting down; what has begun may end")
		err = nil
	}
	limit, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var g errgroup.Group
	for _, shutdown := range o.shutdown {
		g.Go(func() error { return shutdown(limit) })
	}
	if e := g.Wait(); e != nil {
		o.tell("shutdown", "%v", e)
	}
	left := 0
	if err == nil {
		left, err = o.purge(limit)
	}
	if e := o.q.Close(); err == nil {
		err = e
	}
	how := "All done"
	if interrupted {
		how = fmt.Sprintf("Interrupted in act %.1s and shut down", o.act)
	}
	if err != nil {
		return err
	}
	fmt.Printf("\n%s after %.1f s: closed %d, packed %d, mailed %d, retried %d, given up %d, left over %d\n", how,
		time.Since(o.began).Seconds(), o.counts["closed"], o.counts["packed"], o.counts["mailed"], o.counts["retried"],
		o.counts["given up"], left)
	return nil
}

func main() {
	url := flag.String(
		"redis",
		"",
		"`URL` of a Redis, by default $REDIS_URL; without either, a server inside this process",
	)
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "orders: there are no arguments but -redis URL")
		os.Exit(2)
	}
	if *url == "" {
		*url = os.Getenv("REDIS_URL")
	}
	s, err := server.Open(*url)
	if err != nil {
		fmt.Fprintln(os.Stderr, "orders:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the process at once
	fmt.Println("orders: using", s.Name)
	err = newShop(s).play(ctx)
	s.Close()
	if err != nil {
		fmt.Fprintln(os.Stderr, "orders:", err)
		os.Exit(1)
	}
}
