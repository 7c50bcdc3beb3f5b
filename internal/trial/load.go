package trial

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/shuntmq/shunt"
)

// Load enqueues until ctx ends.
func (o *Orders) Load(ctx context.Context, q *shunt.Queue, log *Ledger) {
	if o.Names > 0 {
		o.name(ctx, q, log)
		return
	}
	tick := time.NewTicker(time.Second / time.Duration(o.Enqueue))
	defer tick.Stop()
	for i := 0; ctx.Err() == nil; i++ {
		plan := PlanOK
		if len(o.Plans) > 0 {
			plan = o.Plans[i%len(o.Plans)]
		}
		c := o.Channels[i%len(o.Channels)]
		m := &Message{On: c, ID: fmt.Sprintf("%s/%s.%d", c, o.Name, i), Plan: plan}
		if o.Bytes > 0 {
			m.Filler = slices.Repeat([]byte{byte(i)}, o.Bytes)
		}
		Post(ctx, q, log, m)
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// Post enqueues one message, now or as its plan's "+ms" says, and says what came of it. It does not end with ctx.
func Post(ctx context.Context, q *shunt.Queue, log *Ledger, m *Message) error {
	return PostWithin(context.WithoutCancel(ctx), q, log, m, Terms{})
}

// Terms bound a message's time from its enqueue on, and Timeout that of each attempt. What is 0 is no bound. One that
// is Named has its own name for an ID, and one that is Recalled is cancelled by it soon.
type Terms struct {
	Expire, Deadline, Timeout time.Duration
	Named, Recalled           bool
}

// options says when each is over, and gives the options for it.
func (t Terms) options(log *Ledger, m *Message) (opts []shunt.Option) {
	if t.Expire > 0 {
		opts = append(opts, shunt.Expire(t.Expire))
		log.Say(Entry{Op: expires, Phase: Info, ID: m.ID, Due: time.Now().Add(t.Expire)})
	}
	if t.Deadline > 0 {
		ends := time.Now().Add(t.Deadline)
		opts = append(opts, shunt.Deadline(ends))
		log.Say(Entry{Op: mortal, Phase: Info, ID: m.ID, Due: ends})
	}
	if t.Timeout > 0 {
		opts = append(opts, shunt.Timeout(t.Timeout))
	}
	if t.Named {
		opts = append(opts, shunt.ID(m.ID))
	}
	if t.Recalled {
		log.Say(Entry{Op: recall, Phase: Info, ID: m.ID})
	}
	return opts
}

// PostWithin is a Post that ends with ctx, of a message whose time is bounded.
func PostWithin(ctx context.Context, q *shunt.Queue, log *Ledger, m *Message, t Terms) error {
	opts := t.options(log, m)
	e := Entry{Op: Enqueue, Phase: Invoke, ID: m.ID, Note: m.Plan, At: time.Now()}
	if plan, ms, later := strings.Cut(m.Plan, "+"); later {
		var wait time.Duration
		fmt.Sscan(ms, &wait)
		wait *= time.Millisecond
		m.Plan, e.Note = plan, plan
		e.Due = e.At.Add(wait)
		opts = append(opts, shunt.In(wait))
	}
	if m.Plan == PlanTimeout || m.Plan == PlanHang {
		opts = append(opts, shunt.Timeout(100*time.Millisecond))
	}
	log.Say(e)
	err := q.Enqueue(ctx, m, opts...)
	e.At, e.Phase = time.Time{}, Outcome(err)
	if err != nil {
		e.Note = err.Error()
	}
	log.Say(e)
	return err
}

// Outcome is what an error of Enqueue says of it.
func Outcome(err error) string {
	switch {
	case err == nil:
		return OK
	case errors.Is(err, shunt.ErrUnknown):
		return Info
	}
	return Fail
}
