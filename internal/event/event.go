// Package event has the events of a Queue: their kinds, the compact form in which they wait, and the bounded stream
// that carries them to the user's func. The root converts them to shunt.Event.
package event

import (
	"log/slog"
	"time"

	"github.com/oklog/ulid/v2"
)

// Kind names what happened. shunt documents each kind beside its own constant, which has the same text: a test in the
// root compares both lists.
type Kind string

// The kinds of a message's life.
const (
	Enqueued           Kind = "enqueued"
	Acked              Kind = "acked"
	Retried            Kind = "retried"
	Snoozed            Kind = "snoozed"
	Rejected           Kind = "rejected"
	Released           Kind = "released"
	LateVerdict        Kind = "late-verdict"
	UnconfirmedVerdict Kind = "unconfirmed-verdict"
	Recovered          Kind = "recovered"
	Suspected          Kind = "suspected"
	Poisoned           Kind = "poisoned"
	Lapsed             Kind = "lapsed"
	Promoted           Kind = "promoted"
	Trimmed            Kind = "trimmed"
	Undecodable        Kind = "undecodable"
	Cancelled          Kind = "cancelled"
	Expired            Kind = "expired"
	Duplicate          Kind = "duplicate"
	MissedTicks        Kind = "missed-ticks" // package recur documents it
)

// The kinds of a handler's faults.
const (
	TimedOut       Kind = "timed-out"
	Orphaned       Kind = "orphaned"
	WorkersMissing Kind = "workers-missing"
)

// The kinds of a receiver's life.
const (
	Started       Kind = "started"
	Stopped       Kind = "stopped"
	HandedOver    Kind = "handed-over"
	LeaseLost     Kind = "lease-lost"
	ReceiversDied Kind = "receivers-died"
	ReceiverError Kind = "receiver-error"
	Connected     Kind = "connected"
	Disconnected  Kind = "disconnected"
	EventsDropped Kind = "events-dropped"
)

// Level is how much an event of the kind matters, with its Fatal and Err.
func (k Kind) Level(fatal bool, err error) slog.Level {
	if fatal {
		return slog.LevelError
	}
	switch k {
	case Enqueued, Acked, Snoozed, Promoted, Released:
		return slog.LevelDebug
	case Lapsed:
		if err != nil {
			return slog.LevelError
		}
		return slog.LevelWarn
	case Duplicate:
		if err != nil {
			return slog.LevelWarn
		}
		return slog.LevelDebug // a tick of recur's, whose message still lives
	case Stopped:
		if err != nil {
			return slog.LevelWarn
		}
	case Rejected, Poisoned, Undecodable, LateVerdict, Orphaned, WorkersMissing, LeaseLost, Trimmed, EventsDropped:
		return slog.LevelError
	case MissedTicks, Retried, UnconfirmedVerdict, Recovered, Suspected, TimedOut, HandedOver, ReceiversDied,
		ReceiverError, Disconnected:
		return slog.LevelWarn
	}
	return slog.LevelInfo
}

// Event is one thing that happened. Its fields are those of shunt.Event, in a form that takes little memory while it
// waits.
type Event struct {
	Kind     Kind
	Time     Time // set by Stream.Emit
	Channel  string
	Serial   ulid.ULID // zero for a bare payload, and where the event concerns no single message
	ID       string
	Attempt  int
	Receiver string
	Worker   int
	N        int
	Bytes    int // of what was enqueued
	Took     time.Duration
	Due      Time
	Fatal    bool
	Err      error
}

// Time is ns since 1970, 0 for none. A time.Time takes three times the memory.
type Time int64

// TimeOf is the Time of t, 0 for the zero t. t lies between 1678 and 2262.
func TimeOf(t time.Time) Time {
	if t.IsZero() {
		return 0
	}
	return Time(t.UnixNano())
}

// Time is the time.Time, the zero one for 0.
func (t Time) Time() time.Time {
	if t == 0 {
		return time.Time{}
	}
	return time.Unix(0, int64(t))
}
