package custody

import (
	"fmt"
	"slices"
	"time"

	"github.com/shuntmq/shunt/internal/event"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/meter"
	"github.com/shuntmq/shunt/internal/store"
)

// Left reads the reply to a verdict: what it came to, and the verdict that is true now. A message that was cancelled
// meanwhile ends so, in place of a retry or a reject.
func (h *Held) Left(v *Verdict, rep link.Reply) (store.LeaveAnswer, *Verdict) {
	l, _ := store.LeaveReply(&v.Verdict, rep)
	if l.Cancelled {
		v = &Verdict{Verdict: store.Verdict{Fate: store.Cancelled}, Err: v.Err}
	}
	return l, v
}

// Beside are the Events of what left or came with a message: dead letters that were dropped for it, and what follows
// it. v is the verdict as it was sent.
func (h *Held) Beside(v *Verdict, l store.LeaveAnswer) (evs []event.Event) {
	if l.Trimmed > 0 {
		evs = append(evs, event.Event{Kind: event.Trimmed, Channel: h.Keys.Name, N: l.Trimmed})
	}
	for i, enqueued := range l.Followed {
		f := &v.Then[i]
		e := event.Event{Kind: event.Enqueued, Channel: f.Name, Serial: f.Serial, ID: f.ID(), N: 1, Bytes: f.Size(),
			Due: event.TimeOf(l.Dues[i])}
		if !enqueued {
			e.Kind, e.Err = event.Duplicate,
				fmt.Errorf("shunt: the id is taken, so this message does not follow %s of channel "+
					"%q", h.Serial, h.Keys.Name)
		}
		evs = append(evs, e)
	}
	return evs
}

// Report fills in the Event of a message whose verdict has an answer. found: its element was there. unknown: the
// verdict was sent before, and no reply came. False: there is nothing to report. The receiver, the worker and the time
// that the handler took are the caller's.
func (h *Held) Report(e *event.Event, v *Verdict, found, unknown bool) bool {
	if !found && v.IsUnhandled() && !unknown {
		return false // reaped or released by somebody else
	}
	e.Kind, e.Channel, e.Serial, e.Attempt = v.Kind(), h.Keys.Name, h.Serial, h.Attempt()
	if id := h.ID(); id != "" {
		e.ID = id
	}
	if v.Err != nil {
		e.Err = v.Err
	}
	switch {
	case !found && unknown:
		e.Kind = event.UnconfirmedVerdict
	case !found:
		e.Kind = event.LateVerdict
		if e.Err == nil {
			e.Err = ErrLeaseLost
		}
	case v.Fate == store.Retried:
		e.Due = event.TimeOf(time.Now().Add(v.Wait))
	case v.Fate == store.Released:
		e.N, e.Attempt = 1, 0
	}
	return true
}

// Ends says whether an Event of the kind is the one with which Report ends a message's handling: of a verdict that is
// true, came too late, or may never have come. A message that was released is not handled.
func Ends(k event.Kind) bool {
	switch k {
	case event.Released:
		return false
	case event.Undecodable, event.Snoozed, event.LateVerdict, event.UnconfirmedVerdict: // which kinds does not have
		return true
	}
	return slices.Contains(kinds[:], k)
}

// counted is what the end of a handling counts as, by the kind of its Event.
var counted = map[event.Kind]meter.Kind{
	event.Retried: meter.Retried, event.Snoozed: meter.Snoozed, event.Rejected: meter.Died,
	event.Undecodable: meter.Died, event.Cancelled: meter.Cancelled, event.Expired: meter.Expired,
	event.Released: meter.Released,
}

// Count counts what a verdict that was executed came to, as Report tells of it. started is zero where no handler has
// begun, or nobody knows when.
func (h *Held) Count(to meter.Adder, v *Verdict, found bool, started time.Time, took time.Duration) {
	switch {
	case found && v.Fate == store.Acked:
		to.Add(meter.Acked, 1)
	case found:
		to.Add(counted[v.Kind()], 1)
	case !v.IsUnhandled():
		to.Add(meter.Late, 1)
	}
	if !started.IsZero() {
		to.Took(meter.Handling, took)
		h.CountWait(to, started)
	}
	if found && v.Fate == store.Acked && !h.Bare {
		if started.IsZero() {
			started, took = time.Now(), 0
		}
		to.Took(meter.EndToEnd, h.Waited(started)+took)
	}
}

// CountWait counts how long a message has waited for its first handling, if that begins at the given time.
func (h *Held) CountWait(to meter.Adder, at time.Time) {
	if h.IsFirst() && !h.Bare {
		to.Took(meter.Wait, h.Waited(at))
	}
}
