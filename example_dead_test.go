package shunt_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/shuntmq/shunt"
)

// giveUp sends three mails to dead: those to ann and ben, who are customers, and that to cleo, who is none.
func giveUp(q *shunt.Queue, wait func(shunt.EventKind, int)) {
	ctx := context.Background()
	mail := shunt.Define("mail", func(_ context.Context, to string) error {
		if to == "cleo" {
			return shunt.Reject(fmt.Errorf("no mailbox %s", to))
		}
		return shunt.Reject(fmt.Errorf("smtp: mailbox of %s is full", to))
	})
	customer := shunt.Header("group", "customers")
	check(q.EnqueueAll(ctx, []shunt.IMessage{
		shunt.With(mail.Message("ann"), shunt.ID("ann"), customer),
		shunt.With(mail.Message("ben"), shunt.ID("ben"), customer),
		shunt.With(mail.Message("cleo"), shunt.ID("cleo")),
	}))
	shutdown, err := q.Receive(ctx, mail, 1)
	check(err)
	wait(shunt.EventRejected, 3)
	check(shutdown(ctx))
}

// RetryDead puts listed dead letters back, and those that are gone by then are not counted.
func ExampleQueue_RetryDead() {
	q, wait, end := open()
	defer end()
	giveUp(q, wait) // mails to ann, ben and cleo
	ctx := context.Background()

	entries, err := q.List(ctx, "mail", shunt.StateDead, 0, 0)
	check(err)
	n, err := q.RetryDead(ctx, "mail", entries...)
	fmt.Println("put back:", n, err)
	n, err = q.RetryDead(ctx, "mail", entries...)
	fmt.Println("again:", n, err)
	// Output:
	// put back: 3 <nil>
	// again: 0 <nil>
}

// RetryAllDead tries again all that failed for one reason, once that is mended.
func ExampleQueue_RetryAllDead() {
	q, wait, end := open()
	defer end()
	giveUp(q, wait) // mails to ann, ben and cleo
	ctx := context.Background()

	mails, err := q.RetryAllDead(ctx, "mail", shunt.Filter{
		Failure: "is full",
		Since:   time.Now().Add(-24 * time.Hour),
		Headers: map[string]string{"group": "customers"},
	})
	fmt.Println("looked at", mails.Looked, "put back", mails.Changed, "refused", mails.Refused, err)
	// Output: looked at 3 put back 2 refused 0 <nil>
}

// DeleteDead deletes listed dead letters for good.
func ExampleQueue_DeleteDead() {
	q, wait, end := open()
	defer end()
	giveUp(q, wait) // mails to ann, ben and cleo
	ctx := context.Background()

	entries, err := q.List(ctx, "mail", shunt.StateDead, 0, 0)
	check(err)
	n, err := q.DeleteDead(ctx, "mail", entries[:2]...) // the latest two
	fmt.Println("deleted:", n, err)
	// Output: deleted: 2 <nil>
}

// DeleteAllDead may go on where an earlier call ended, here to delete a few at a time beside other work.
func ExampleQueue_DeleteAllDead() {
	q, wait, end := open()
	defer end()
	giveUp(q, wait) // mails to ann, ben and cleo
	ctx := context.Background()

	full := shunt.Filter{
		Until: time.Now(),
		Match: func(e shunt.Entry) bool { return !strings.HasPrefix(e.Failure, "no mailbox") },
		Limit: 1,
	}
	deleted := 0
	for {
		mails, err := q.DeleteAllDead(ctx, "mail", full)
		check(err)
		deleted += mails.Changed
		if full.From = mails.Next; full.From == "" {
			break
		}
	}
	fmt.Println("deleted", deleted)
	// Output:
	// deleted 2
}

// PromoteAll runs all retries now, and leaves what was enqueued for later.
func ExampleQueue_PromoteAll() {
	q, wait, end := open()
	defer end()
	ctx := context.Background()

	mail := shunt.Define("mail", func(ctx context.Context, to string) error {
		if info, _ := shunt.FromContext(ctx); info.Attempt == 1 {
			return shunt.RetryAfter(time.Hour, fmt.Errorf("no route to host"))
		}
		fmt.Println("sends a mail to", to)
		return nil
	})
	_, err := q.Receive(ctx, mail, 1)
	check(err)
	check(q.Enqueue(ctx, mail.Message("ann"), shunt.ID("welcome-ann")))
	check(q.Enqueue(ctx, mail.Message("ben"), shunt.ID("welcome-ben"), shunt.In(time.Hour)))
	wait(shunt.EventRetried, 1)

	mails, err := q.PromoteAll(ctx, "mail", shunt.Filter{IDPrefix: "welcome-", MinAttempts: 1})
	fmt.Println("promoted", mails.Changed, err)
	wait(shunt.EventAcked, 1)
	// Unordered output:
	// promoted 1 <nil>
	// sends a mail to ann
}

// Purge deletes all messages of the states that are named.
func ExampleQueue_Purge() {
	q, wait, end := open()
	defer end()
	giveUp(q, wait) // mails to ann, ben and cleo
	ctx := context.Background()

	n, err := q.Purge(ctx, "mail", shunt.StateDead, shunt.StatePrepare)
	fmt.Println("purged:", n, err)
	_, err = q.Purge(ctx, "mail", shunt.StateDoing)
	fmt.Println(err)
	// Output:
	// purged: 3 <nil>
	// shunt: purge "mail": state "doing" cannot be purged: want prepare, delay, suspect, dead or done
}

// List shows dead letters with all that is known of them, the latest first.
func ExampleQueue_List() {
	q, wait, end := open()
	defer end()
	giveUp(q, wait) // mails to ann, ben and cleo
	ctx := context.Background()

	dead, err := q.List(ctx, "mail", shunt.StateDead, 0, 0)
	check(err)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	for _, e := range dead {
		took := e.DiedAt.Sub(e.EnqueuedAt).Truncate(time.Minute)
		fmt.Fprintf(w, "%s\t%s\tattempts %d\trecoveries %d\tafter %v\t%s\n", e.ID, e.Payload, e.Attempts, e.Recoveries,
			took, e.Failure)
	}
	w.Flush()
	// Unordered output:
	// cleo  "cleo"  attempts 1  recoveries 0  after 0s  no mailbox cleo
	// ben   "ben"   attempts 1  recoveries 0  after 0s  smtp: mailbox of ben is full
	// ann   "ann"   attempts 1  recoveries 0  after 0s  smtp: mailbox of ann is full
}
