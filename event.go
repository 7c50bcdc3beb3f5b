package shunt

import (
	stdjson "encoding/json"
	"log/slog"
	"time"

	"github.com/shuntmq/shunt/internal/event"
	"github.com/shuntmq/shunt/internal/link"
)

// EventKind names what happened. The comment of each kind lists the fields of the Event that are set besides Kind, Time
// and Channel. An event that concerns a whole receiver has the Channel that was named first to Receive.
// EventConnected, EventDisconnected and EventEventsDropped have no Channel.
type EventKind string

// The kinds of a message's life.
const (
	// A message was enqueued: Serial, and ID if it has one; DueAt if it is due later. N is 1. EnqueueAll says how many
	// in N, in place of Serial and ID.
	EventEnqueued EventKind = "enqueued"
	// A message was handled, and left Redis: Serial, ID, Attempt, Receiver, Worker, Took.
	EventAcked EventKind = "acked"
	// A message failed, and is tried again at DueAt: those of EventAcked, Err and DueAt.
	EventRetried EventKind = "retried"
	// A handler snoozed its message, which is looked at again at DueAt: those of EventAcked, and DueAt.
	EventSnoozed EventKind = "snoozed"
	// A message went to dead: its attempts were used up, or Reject, Deadline or ExpireToDead sent it. Those of
	// EventAcked, and Err, which says why.
	EventRejected EventKind = "rejected"
	// N messages that were not started, or not ended, went back to the front of their channel: Receiver, Worker.
	EventReleased EventKind = "released"
	// A verdict came too late, for the lease was lost and another receiver has the message: Serial, ID, Receiver,
	// Worker, Err. That is ErrLeaseLost, or why the handler has failed.
	EventLateVerdict EventKind = "late-verdict"
	// A verdict was sent, and no reply says whether Redis executed it: Serial, ID, Receiver, Worker, Err.
	EventUnconfirmedVerdict EventKind = "unconfirmed-verdict"
	// N messages of a dead receiver went back to the front of their channel: Receiver is the dead one.
	EventRecovered EventKind = "recovered"
	// N messages of a dead receiver went to suspect, for they were recovered before: Receiver is the dead one.
	EventSuspected EventKind = "suspected"
	// N messages of a dead receiver went to dead, for they were recovered too often: Receiver is the dead one.
	EventPoisoned EventKind = "poisoned"
	// The leases of N messages ended before they were settled. They wait to be pulled again; or, with Err, they went to
	// dead, because their attempts are used up.
	EventLapsed EventKind = "lapsed"
	// N messages that were due went from delay to prepare.
	EventPromoted EventKind = "promoted"
	// N messages were dropped from dead, for MaxDead or DeadFor.
	EventTrimmed EventKind = "trimmed"
	// A message went to dead because its Unmarshal failed, or its type is another than the receiver's (*TypeError):
	// Serial, ID, Attempt, Receiver, Worker, Err.
	EventUndecodable EventKind = "undecodable"
	// A message was dropped, as Cancel asked: Serial, ID, Attempt, Receiver, Worker; Took and Err if its handler had
	// begun. Or N messages were, with their lease, or with a dead receiver that is then Receiver.
	EventCancelled EventKind = "cancelled"
	// A message was dropped, as Expire asked: Serial, ID, Receiver, Worker.
	EventExpired EventKind = "expired"
	// A follow-up was not enqueued because its ID is taken: ID, Serial, and Err, which names the message that it was to
	// follow. Or N recurring messages were not, because those of earlier ticks live: ID.
	EventDuplicate EventKind = "duplicate"
)

// The kinds of a handler's faults.
const (
	// The context of a handler was ended for its timeout or its message's Deadline: Serial, ID, Attempt, Receiver,
	// Worker, Took.
	EventTimedOut EventKind = "timed-out"
	// A handler ignored its ended context for Grace. Its goroutine runs on, and its worker goes on without it: those of
	// EventTimedOut, and N such goroutines now.
	EventOrphaned EventKind = "orphaned"
	// There are as many orphaned goroutines as workers, so N workers stay without a goroutine until an orphan ends:
	// Receiver.
	EventWorkersMissing EventKind = "workers-missing"
)

// The kinds of a receiver's life.
const (
	// A receiver has started, with N workers: Receiver.
	EventStarted EventKind = "started"
	// A receiver has stopped: Receiver, and Err unless all its handlers had ended.
	EventStopped EventKind = "stopped"
	// A receiver goes on as another incarnation: Receiver is the new one, N handlers kept their message, and Err says
	// why the old one ended.
	EventHandedOver EventKind = "handed-over"
	// A receiver has lost its lease: Receiver, Err.
	EventLeaseLost EventKind = "lease-lost"
	// The leases of N other receivers ran out: Receiver is the one that found it.
	EventReceiversDied EventKind = "receivers-died"
	// Redis refuses or does not answer a receiver, or a method of the user's failed beside its handler: Receiver or
	// Serial, and Err. Fatal says that waiting will not help.
	EventReceiverError EventKind = "receiver-error"
	// The Queue is connected to Redis, for the first time or again.
	EventConnected EventKind = "connected"
	// The Queue has lost its connection to Redis: Err. Fatal says that Redis refuses this client, by its password or
	// its rights, or is no Redis that the URL describes. It dials again, after a wait that grows to at most 5 s and at
	// most 0.15 of a lease.
	EventDisconnected EventKind = "disconnected"
	// N events before this one were dropped, because Events is slower than what happens.
	EventEventsDropped EventKind = "events-dropped"
)

// Event is one thing that happened. The comment of its Kind lists the fields that are set; the others are zero.
type Event struct {
	Kind     EventKind     `json:"kind"`
	Time     time.Time     `json:"time"`
	Channel  string        `json:"channel,omitempty"`
	Serial   string        `json:"serial,omitempty"` // the message's; empty for a bare payload
	ID       string        `json:"id,omitempty"`     // of a message that has one
	Attempt  int           `json:"attempt,omitempty"`
	Receiver string        `json:"receiver,omitempty"` // the name of the incarnation
	Worker   int           `json:"worker,omitempty"`   // counted from 0
	N        int           `json:"n,omitempty"`
	Took     time.Duration `json:"took_ns,omitempty"` // by the handler
	DueAt    time.Time     `json:"due_at,omitzero"`
	Fatal    bool          `json:"fatal,omitempty"`
	Err      error         `json:"-"`
}

// MarshalJSON writes the fields that are set, and the text of Err as "error".
func (e Event) MarshalJSON() ([]byte, error) {
	type fields Event // without this method
	v := struct {
		fields
		Error string `json:"error,omitempty"`
	}{fields: fields(e)}
	if e.Err != nil {
		v.Error = e.Err.Error()
	}
	return stdjson.Marshal(v)
}

// publicEvent is what the user's func gets of an event. serial is the text of its Serial.
func publicEvent(e *event.Event, serial string) Event {
	return Event{
		Kind: EventKind(e.Kind), Time: e.Time.Time(), Channel: e.Channel, Serial: serial, ID: e.ID,
		Attempt: e.Attempt, Receiver: e.Receiver, Worker: e.Worker, N: e.N, Took: e.Took,
		DueAt: e.Due.Time(), Fatal: e.Fatal, Err: e.Err,
	}
}

// newEvents is the stream of events to the user's func; without one, of warnings and errors to the log; with Quiet nil.
func (q *Queue) newEvents() *event.Stream {
	switch {
	case q.Events != nil:
		to, reported := q.Events, false
		return event.NewStream(false, func(e *event.Event, serial string) {
			defer func() {
				p := recover()
				if p == nil {
					return
				}
				if !reported && !q.Quiet {
					slog.Error("shunt: Queue.Events panicked; it loses such events, and this is said once",
						"event", string(e.Kind), "error", panicked("Events", p))
				}
				reported = true
			}()
			to(q.named(publicEvent(e, serial)))
		})
	case q.Quiet:
		return nil
	}
	q.log = newTroubleLog()
	return event.NewStream(true, func(e *event.Event, serial string) { q.log.take(q.named(publicEvent(e, serial))) })
}

// named is the event with the key in its error, where that is about a key of the wrong type.
func (q *Queue) named(e Event) Event {
	if e.Kind == EventReceiverError && link.Code(e.Err) == "WRONGTYPE" {
		e.Err = q.wrongType(e.Channel, e.Err)
	}
	return e
}
