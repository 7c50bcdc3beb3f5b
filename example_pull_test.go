package shunt_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/shuntmq/shunt"
)

// A program that cannot hold a receiver pulls what it can handle now, and acks what it has handled.
func ExampleQueue_Pull() {
	q, _, end := open()
	defer end()
	ctx := context.Background()

	mails := shunt.Define[string]("mails", nil)
	check(q.EnqueueAll(ctx, []shunt.IMessage{mails.Message("to anna"), mails.Message("to ben")}))

	ms, err := q.Pull(ctx, shunt.PullOptions{
		Channels: []string{"urgent", "mails"}, // the highest first
		Max:      10,
		Lease:    time.Minute,     // then others may pull what was not settled
		Wait:     5 * time.Second, // for the first message
	})
	check(err)
	var handled []shunt.Receipt
	for _, m := range ms {
		fmt.Printf("%s %s, attempt %d\n", m.Channel, m.Payload, m.Attempt)
		handled = append(handled, m.Receipt)
	}
	check(q.Ack(ctx, handled...))

	ms, err = q.Pull(ctx, shunt.PullOptions{Channels: []string{"mails"}})
	fmt.Println(len(ms), err)
	// Output:
	// mails "to anna", attempt 1
	// mails "to ben", attempt 1
	// 0 <nil>
}

// Whoever has the receipt settles the message, in whichever process, and who comes too late gets an error.
func ExampleReceipt() {
	q, _, end := open()
	defer end()
	ctx := context.Background()

	check(q.Enqueue(ctx, shunt.Raw("pictures", []byte("cat.png"))))
	ms, err := q.Pull(ctx, shunt.PullOptions{Channels: []string{"pictures"}, Lease: time.Minute})
	check(err)
	answer := string(ms[0].Receipt) // to a client, with the payload

	receipt := shunt.Receipt(answer) // of the client's next request
	fmt.Println("of", receipt.Channel())
	check(q.Extend(ctx, 5*time.Minute, receipt)) // it takes longer
	m, err := q.Leased(ctx, receipt)
	check(err)
	fmt.Printf("%s\n", m.Payload)
	_, err = q.LeasedBy(ctx, shunt.BySerial("pictures", m.Serial)) // for operators, who have no receipt
	check(err)
	check(q.Ack(ctx, receipt))

	err = q.Ack(ctx, receipt)
	var late *shunt.ReceiptError
	switch {
	case errors.Is(err, shunt.ErrLeaseLost) && errors.As(err, &late):
		fmt.Println("settled before, or too late:", late.Receipt == receipt)
	case errors.Is(err, shunt.ErrUnconfirmed):
		fmt.Println("a reply was lost: settled by this call, or too late")
	}
	// Output:
	// of pictures
	// cat.png
	// settled before, or too late: true
}

// A message that failed is tried again as a handler's is, and one that was not begun is given back.
func ExampleLeased() {
	q, _, end := open()
	defer end()
	ctx := context.Background()

	orders, bills := shunt.Define[int]("orders", nil), shunt.Define[int]("bills", nil)
	for i := range 4 {
		check(q.Enqueue(ctx, orders.Message(i), shunt.ID(fmt.Sprint("order", i)), shunt.Retain(time.Hour)))
	}
	ms, err := q.Pull(ctx, shunt.PullOptions{Channels: []string{"orders"}, Max: 4})
	check(err)

	check(ms[0].Then(ctx, bills.Message(0))) // enqueued in the step that acks
	ms[0].Result = []byte("shipped")
	check(ms[0].Ack(ctx))
	check(ms[1].Fail(ctx, shunt.RetryAfter(time.Hour, errors.New("the bank is closed"))))
	check(ms[2].Fail(ctx, shunt.Reject(errors.New("no such customer"))))
	check(ms[3].Extend(ctx, time.Minute))
	held, err := q.List(ctx, "orders", shunt.StateLeased, 0, 0)
	check(err)
	fmt.Println(held[0].ID, "comes back", time.Until(held[0].LeaseEndsAt).Round(time.Minute), "from now")
	check(ms[3].Release(ctx))

	for i := range ms {
		s, err := q.Status(ctx, shunt.ByID("orders", fmt.Sprint("order", i)))
		check(err)
		fmt.Printf("%s %s %q\n", s.ID, s.State, s.Failure)
	}
	ms, err = q.Pull(ctx, shunt.PullOptions{Channels: []string{"orders", "bills"}})
	check(err)
	check(q.Release(ctx, ms[0].Receipt))
	// Output:
	// order3 comes back 1m0s from now
	// order0 done ""
	// order1 delay "the bank is closed"
	// order2 done "no such customer"
	// order3 prepare ""
}

// A process that serves clients without receivers keeps all channels: due messages, ends of leases, and what killed
// receivers held.
func ExampleQueue_Upkeep() {
	q, wait, end := open()
	defer end()
	ctx := context.Background()

	check(q.Upkeep(ctx)) // until q.Close

	check(q.Enqueue(ctx, shunt.Raw("letters", []byte("to clara")), shunt.In(20*time.Millisecond)))
	wait(shunt.EventPromoted, 1)
	fmt.Println("due")
	// Output: due
}
