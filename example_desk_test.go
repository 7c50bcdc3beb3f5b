package shunt_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/shuntmq/shunt"
)

// Browse shows what waits a page at a time, with a part of each payload.
func ExampleQueue_Browse() {
	q, _, end := open()
	defer end()
	ctx := context.Background()

	mail := shunt.Define("mail", func(context.Context, string) error { return nil })
	check(q.EnqueueAll(ctx, []shunt.IMessage{mail.Message("ann"), mail.Message("bob"), mail.Message("eve")}))

	o := shunt.BrowseOptions{Channel: "mail", State: shunt.StatePrepare, Limit: 2, Payload: 3}
	for {
		page, err := q.Browse(ctx, o)
		check(err)
		for _, e := range page.Entries {
			fmt.Printf("%s... of %d bytes\n", e.Payload, e.PayloadSize)
		}
		if o.From = page.Next; page.Next == "" {
			break
		}
	}
	// Output:
	// "an... of 5 bytes
	// "bo... of 5 bytes
	// "ev... of 5 bytes
}

// Overview gives channels at a glance, and Health what is wrong with them.
func ExampleQueue_Health() {
	q, wait, end := open()
	defer end()
	ctx := context.Background()

	refuse := func(context.Context, string) error { return shunt.Reject(errors.New("no such user")) }
	mail := shunt.Define("mail", refuse)
	_, err := q.Receive(ctx, mail, 2)
	check(err)
	check(q.Enqueue(ctx, mail.Message("ann")))
	wait(shunt.EventRejected, 1)
	check(q.Close())

	desk := &shunt.Queue{Pool: q.Pool}
	last := int64(-1)
	if n, err := desk.Moves(ctx); err == nil && n == last { // not every Redis tells
		return // nothing is new since the last look
	}
	all, err := desk.Overview(ctx, "mail")
	check(err)
	o := all[0]
	fmt.Println(o.Prepare, "wait,", o.Dead, "dead,", o.Receivers, "receivers, empty in", o.DrainTime())

	findings, err := desk.Health(ctx, "mail")
	check(err)
	for _, f := range findings {
		switch {
		case f.Severity == shunt.Critical:
			fmt.Println("wake somebody:", f.Text)
		case f.Severity == shunt.Warning && f.Channel == "mail":
			fmt.Printf("%s: %s: %s\n", f.Kind, f.Text, f.Do)
		case f.Severity == shunt.Notice: // of Redis, as that it has no append-only file
		}
	}
	same, err := desk.HealthOf(ctx, all) // the same of what was looked at already
	check(err)
	fmt.Println(len(same) == len(findings))
	check(desk.Close())
	// Output:
	// 0 wait, 1 dead, 0 receivers, empty in 0s
	// dying: 1 message died in the last 10 minutes: look at the failures of the dead letters; then retry or delete them
	// true
}

// Failures groups what went wrong, and a Filter finds the messages of a group; CancelAll ends what waits in vain.
func ExampleQueue_Failures() {
	q, wait, end := open()
	defer end()
	ctx := context.Background()

	mail := shunt.Define("mail", func(_ context.Context, to string) error {
		return shunt.Reject(fmt.Errorf("no user %s", to))
	})
	check(q.EnqueueAll(ctx, []shunt.IMessage{mail.Message("u1001"), mail.Message("u1002"), mail.Message("bob")}))
	check(q.Enqueue(ctx, mail.Message("u1003"), shunt.In(time.Hour)))
	_, err := q.Receive(ctx, mail, 2)
	check(err)
	wait(shunt.EventRejected, 3)

	all, err := q.Failures(ctx, "mail", shunt.StateDead, shunt.Filter{})
	check(err)
	for _, g := range all.Groups {
		fmt.Println(g.Count, g.Failure)
	}
	deleted, err := q.DeleteAllDead(ctx, "mail", shunt.Filter{FailureLike: all.Groups[0].Failure})
	check(err)
	ended, err := q.CancelAll(ctx, "mail", shunt.StateDelay, shunt.Filter{})
	check(err)
	fmt.Println(deleted.Changed, "deleted,", ended.Changed, "cancelled")
	// Output:
	// 2 no user #
	// 1 no user bob
	// 2 deleted, 1 cancelled
}

// An Element outlives its Redis: RestoreDead and Copy put it into another one.
func ExampleQueue_RestoreDead() {
	q, wait, end := open()
	defer end()
	ctx := context.Background()

	refuse := func(context.Context, string) error { return shunt.Reject(errors.New("no such user")) }
	mail := shunt.Define("mail", refuse)
	_, err := q.Receive(ctx, mail, 1)
	check(err)
	check(q.Enqueue(ctx, mail.Message("ann")))
	wait(shunt.EventRejected, 1)

	dead, err := q.List(ctx, "mail", shunt.StateDead, 0, 0)
	check(err)
	file, died := dead[0].Element(), dead[0].DiedAt // kept somewhere
	_, err = q.DeleteDead(ctx, "mail", dead...)
	check(err)

	e, err := shunt.ParseElement("mail", shunt.StateDead, file, died)
	check(err)
	n, err := q.RestoreDead(ctx, "mail", e)
	check(err)
	fmt.Println(n, e.Failure)

	e.Channel = "post" // or handle a copy of it
	check(q.Enqueue(ctx, e.Renewed().Copy()))
	post, err := q.List(ctx, "post", shunt.StatePrepare, 0, 0)
	check(err)
	fmt.Printf("%s, attempts %d\n", post[0].Payload, post[0].Attempts)
	// Output:
	// 1 no such user
	// "ann", attempts 0
}

// Audit notes who did what by hand, for all desks that use one Redis.
func ExampleQueue_Audit() {
	q, _, end := open()
	defer end()
	ctx := context.Background()

	all, err := q.RetryAllDead(ctx, "mail", shunt.Filter{})
	check(err)
	e := shunt.AuditEntry{By: "ann", Verb: "retry", Channel: "mail", Detail: "all dead", Count: all.Changed}
	check(q.Audit(ctx, e))

	log, err := q.AuditLog(ctx, "", 10)
	check(err)
	for _, e := range log {
		fmt.Println(e.By, e.Verb, e.Channel, e.Detail, e.Count, time.Since(e.At) < time.Hour)
	}
	// Output: ann retry mail all dead 0 true
}
