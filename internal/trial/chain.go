package trial

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
	"time"

	"github.com/shuntmq/shunt"
)

// Plans of chains: as many steps follow, one after another.
const (
	PlanThen   = "then:"
	PlanFalter = "falter:" // fails once, after it has said what is to follow
	PlanFlood  = "flood"   // has more follow than may, and fails once where that is refused
)

// following is how many follow a message of that plan.
func following(plan string) int {
	text, is := strings.CutPrefix(plan, PlanThen)
	if !is {
		text, is = strings.CutPrefix(plan, PlanFalter)
	}
	n, err := strconv.Atoi(text)
	if !is || err != nil {
		return 0
	}
	return n
}

// nextStep names what follows a message: so the ledgers need not.
func nextStep(id string) string { return id + ">" }

// follow has the next step follow: plain, with an ID, or with one and later, as the message's name falls.
func (m *Message) follow(ctx context.Context, attempt, steps int) error {
	return m.followBy(steps, attempt, func(next shunt.IMessage) error { return shunt.Then(ctx, next) })
}

// followBy is follow for whoever has a way of their own to say it.
func (m *Message) followBy(steps, attempt int, then func(shunt.IMessage) error) error {
	next := &Message{On: m.On, ID: nextStep(m.ID), Plan: PlanOK}
	if steps > 1 {
		next.Plan = fmt.Sprint(PlanThen, steps-1)
	}
	var opts []shunt.Option
	kind := crc32.ChecksumIEEE([]byte(m.ID)) % 3
	if kind > 0 {
		opts = append(opts, shunt.ID(next.ID))
	}
	if kind > 1 {
		opts = append(opts, shunt.In(30*time.Millisecond))
	}
	if err := then(shunt.With(next, opts...)); err != nil {
		return err
	}
	if attempt == 1 && strings.HasPrefix(m.Plan, PlanFalter) {
		return errors.New("as planned")
	}
	return nil
}

// flood has more follow than a message may have. No history has an enqueue of theirs, so none is to come.
func (m *Message) flood(ctx context.Context) error {
	const part = 501
	for call := range 2 {
		var all []shunt.IMessage
		for i := range part {
			all = append(all, &Message{On: m.On, ID: fmt.Sprint(nextStep(m.ID), call*part+i), Plan: PlanOK})
		}
		if err := shunt.Then(ctx, all...); err != nil {
			return err
		}
	}
	return nil
}

// follow adds the enqueues that an ack makes, and no producer reports. What was handled to its end, and is not in Redis
// any more, was acked once. So its next step was enqueued once: at the last of these ends before the step was begun.
func (h *History) follow(spare map[string]bool) {
	plans, begun, held := make(map[string]string), make(map[string]bool), make(map[string]bool)
	handled := make(map[string][2]time.Time) // to its end: for the first time, and for the last
	for _, e := range h.Entries {
		switch {
		case e.Op == Enqueue && e.Phase == Invoke && following(e.Note) > 0:
			plans[e.ID] = e.Note
		case e.Op == Handle && e.Phase == Invoke:
			begun[e.ID] = true
		case e.Op == Handle && e.Phase == OK:
			if at := handled[e.ID]; at[0].IsZero() {
				handled[e.ID] = [2]time.Time{e.At, e.At}
			} else if !begun[nextStep(e.ID)] {
				handled[e.ID] = [2]time.Time{at[0], e.At}
			}
		}
	}
	if len(plans) == 0 {
		return
	}
	for _, p := range h.Left {
		held[p.ID] = true
	}
	for id, plan := range plans {
		for range following(plan) {
			at, there := handled[id]
			if !there {
				break
			}
			phase := OK
			if spare[id] || held[id] {
				phase = Info
			}
			if id = nextStep(id); phase == Info {
				spare[id] = true
			}
			h.Entries = append(h.Entries, Entry{At: at[0], By: "ack", Op: Enqueue, Phase: Invoke, ID: id, Note: PlanOK},
				Entry{At: at[1], By: "ack", Op: Enqueue, Phase: phase, ID: id})
		}
	}
	sortEntries(h.Entries)
}
