package shunt

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/shuntmq/shunt/internal/worker"
)

// EventKind names what happened. The comment of each tells which fields of the Event are set besides Kind, Time and
// Channel. What concerns a whole receiver has the Channel that was named first; EventConnected, EventDisconnected and
// EventEventsDropped have none.
type EventKind string

const (
	// A message's way.
	EventEnqueued EventKind = "enqueued" // Serial (of a single one) or N; Due if later
	EventAcked    EventKind = "acked"    // Serial, Attempt, Receiver, Worker, Took
	EventRetried  EventKind = "retried"  // the same, and Err and Due
	EventRejected EventKind = "rejected" // went to dead: the same, and Err
	// N unstarted or handed back messages went to the taking end, for strict order too; Receiver, Worker
	EventReleased EventKind = "released"
	// a verdict came too late: the lease was lost and another has the message; Serial, Receiver, Worker, Err
	EventLateVerdict EventKind = "late-verdict"
	// a verdict of unknown outcome was sent again and found nothing, or the receiver ended before; the same
	EventUnconfirmedVerdict EventKind = "unconfirmed-verdict"
	// N messages of a dead receiver went to the taking end; Receiver is the dead one
	EventRecovered EventKind = "recovered"
	EventSuspected EventKind = "suspected" // N of them went to suspect
	EventPoisoned  EventKind = "poisoned"  // N of them went to dead
	EventPromoted  EventKind = "promoted"  // N due messages went from delay to prepare
	EventTrimmed   EventKind = "trimmed"   // N messages were dropped from dead, by count or age
	// went to dead: its Unmarshal failed; Serial, Receiver, Worker, Err
	EventUndecodable EventKind = "undecodable"
	// dropped by Cancel, met or stopped by a worker: Serial, ID, Attempt, Receiver, Worker; Took if it ran, and Err
	EventCancelled EventKind = "cancelled"
	EventExpired   EventKind = "expired" // dropped, as Expire asked: Serial, ID, Receiver, Worker
	// a follow-up, or a recurring message, was not enqueued, because its ID is taken: ID, N or Serial
	EventDuplicate EventKind = "duplicate"

	// A handler's faults.
	EventTimedOut EventKind = "timed-out" // its context was ended; Serial, Attempt, Receiver, Worker, Took
	// it ignored its ended context and was given up: its goroutine is left to itself; the same and N such orphans now
	EventOrphaned       EventKind = "orphaned"
	EventWorkersMissing EventKind = "workers-missing" // as many orphans as workers: N slots stay empty until one ends

	// A receiver's life.
	EventStarted EventKind = "started" // Receiver; N workers
	EventStopped EventKind = "stopped" // Receiver; Err if not clean
	// Receiver is the new incarnation, Err why the old one ended; N handlers kept their message
	EventHandedOver    EventKind = "handed-over"
	EventLeaseLost     EventKind = "lease-lost"     // the lease was lost; Receiver
	EventReceiversDied EventKind = "receivers-died" // N other receivers' leases ran out; Receiver is who saw it
	// Redis refuses or does not answer a receiver, or a method of the user's failed beside its handler: Err; Fatal if
	// waiting will not help
	EventReceiverError EventKind = "receiver-error"
	EventConnected     EventKind = "connected" // to Redis, first or again
	// from Redis: Err; it is dialled again with a growing wait, at most 5 s and at most 0.15 of a lease
	EventDisconnected EventKind = "disconnected"
	// N events were dropped before this one: Events is slower than what happens
	EventEventsDropped EventKind = "events-dropped"
)

// missedTicks is package recur's.
const missedTicks = "missed-ticks"

// Event is one thing that happened. Which fields are set stands beside its Kind; a zero field says nothing.
type Event struct {
	Kind     EventKind
	Time     time.Time
	Channel  string
	Serial   string // ULID of the draft
	ID       string // of a message that has one
	Attempt  int    // counted from 1
	Receiver string // incarnation
	Worker   int    // from 0
	N        int
	Took     time.Duration // of the handler
	Due      time.Time
	Fatal    bool
	Err      error
}

// LogEvents returns an Events func that writes to l: errors at Error or Warn, what happens to each message at Debug,
// the rest at Info.
func LogEvents(l *slog.Logger) func(Event) {
	return func(e Event) {
		level := slog.LevelInfo
		switch e.Kind {
		case EventEnqueued, EventAcked, EventPromoted, EventReleased, EventDuplicate:
			level = slog.LevelDebug
		case EventStopped:
			if e.Err != nil {
				level = slog.LevelWarn
			}
		case EventRejected,
			EventPoisoned,
			EventUndecodable,
			EventLateVerdict,
			EventOrphaned,
			EventWorkersMissing,
			EventLeaseLost,
			EventTrimmed,
			EventEventsDropped:
			level = slog.LevelError
		case missedTicks,
			EventRetried,
			EventUnconfirmedVerdict,
			EventRecovered,
			EventSuspected,
			EventTimedOut,
			EventHandedOver,
			EventReceiversDied,
			EventReceiverError,
			EventDisconnected:
			level = slog.LevelWarn
		}
		if e.Fatal {
			level = slog.LevelError
		}
		ctx := context.Background()
		if !l.Enabled(ctx, level) {
			return
		}
		attrs := make([]slog.Attr, 0, 10)
		add := func(set bool, a slog.Attr) {
			if set {
				attrs = append(attrs, a)
			}
		}
		add(e.Channel != "", slog.String("channel", e.Channel))
		add(e.Serial != "", slog.String("serial", e.Serial))
		add(e.ID != "", slog.String("id", e.ID))
		add(e.Attempt != 0, slog.Int("attempt", e.Attempt))
		add(e.Receiver != "", slog.String("receiver", e.Receiver))
		add(
			e.Attempt != 0 || e.Kind == EventReleased || e.Kind == EventLateVerdict ||
				e.Kind == EventUnconfirmedVerdict ||
				e.Kind == EventUndecodable,
			slog.Int("worker", e.Worker),
		)
		add(e.N != 0, slog.Int("n", e.N))
		add(e.Took != 0, slog.Duration("took", e.Took))
		add(!e.Due.IsZero(), slog.Time("due", e.Due))
		add(e.Fatal, slog.Bool("fatal", e.Fatal))
		add(e.Err != nil, slog.Any("error", e.Err))
		l.LogAttrs(ctx, level, "shunt: "+string(e.Kind), attrs...)
	}
}

// eventBuffer bounds the events that wait for a slow Events func: some 3 MB.
const eventBuffer = 16384

// someEvents are named and enqueued together.
const someEvents = 64

// events carries what happens to the user's func on a goroutine of its own, so that no slow func holds up a beat or the
// link.
type events struct {
	to func(Event)

	// run's own.
	batch   []worker.Event
	at      int          // what of batch comes next
	dropped int          // still to be told
	left    atomic.Int64 // events of the batch that have not begun

	mu      sync.Mutex
	waiting []worker.Event // not yet Events, so that each is copied as seldom as may be
	lost    int
	closed  bool
	wake    chan struct{} // of capacity 1
	done    chan struct{}
}

// newEvents starts the goroutine that close waits for; it returns nil, which takes events and forgets them, where to is
// nil.
func newEvents(to func(Event)) *events {
	if to == nil {
		return nil
	}
	e := &events{to: to, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go e.run()
	return e
}

func (e *events) on() bool { return e != nil }

func (e *events) emit(ev Event) {
	if e == nil {
		return
	}
	serial, _ := ulid.Parse(ev.Serial) // zero where there is none
	v := worker.Event{
		Kind:     worker.Kind(ev.Kind),
		Channel:  ev.Channel,
		Serial:   serial,
		ID:       ev.ID,
		Attempt:  ev.Attempt,
		Receiver: ev.Receiver,
		Worker:   ev.Worker,
		N:        ev.N,
		Took:     ev.Took,
		Fatal:    ev.Fatal,
		Err:      ev.Err,
	}
	if !ev.Due.IsZero() {
		v.Due = ev.Due.UnixNano()
	}
	e.tell(v)
}

// tell emits what happens in a pool, which may be every message.
func (e *events) tell(evs ...worker.Event) {
	now := time.Now().UnixNano()
	for i := range evs {
		evs[i].Time = now
	}
	e.mu.Lock()
	room := min(len(evs), max(0, e.room()))
	e.lost += len(evs) - room
	first := len(e.waiting) == 0
	e.waiting = append(e.waiting, evs[:room]...)
	e.mu.Unlock()
	if first { // else run has been poked, and looks again before it rests
		e.poke()
	}
}

// room is for how many more may wait. mu is held.
func (e *events) room() int { return eventBuffer - len(e.waiting) - int(e.left.Load()) }

// serials are the names of all, one behind the other: one piece of memory.
func serials(evs []worker.Event) string {
	var all [someEvents * ulid.EncodedSize]byte
	for i := range evs {
		evs[i].Serial.MarshalTextTo(all[i*ulid.EncodedSize : (i+1)*ulid.EncodedSize])
	}
	return string(all[:len(evs)*ulid.EncodedSize])
}

func (e *events) poke() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

func (e *events) run() {
	ended := false
	defer func() {
		if ended {
			close(e.done)
			return
		}
		e.mu.Lock() // the user's func called runtime.Goexit
		e.waiting = append(slices.Clone(e.batch[e.at:]), e.waiting...)
		e.left.Store(0)
		e.lost += e.dropped
		e.mu.Unlock()
		go e.run()
		e.poke()
	}()
	for range e.wake {
		for {
			e.mu.Lock()
			e.batch, e.waiting, e.at = e.waiting, e.batch[:0], 0
			closed := e.closed
			e.dropped, e.lost = e.lost, 0
			e.left.Store(int64(len(e.batch)))
			e.mu.Unlock()
			for e.at < len(e.batch) {
				e.guarded(e.some)
			}
			clear(e.batch)
			if n := e.dropped; n > 0 {
				e.dropped = 0
				e.guarded(func() { e.to(Event{Kind: EventEventsDropped, Time: time.Now(), N: n}) })
			}
			if len(e.batch) == 0 {
				if closed {
					ended = true
					return
				}
				break
			}
		}
	}
}

// guarded keeps the stream alive whatever the user's func does; its own failure has nowhere to be told.
func (e *events) guarded(f func()) {
	guard("Events", func() error { f(); return nil }, func(error) {})
}

// some enqueues the next of the batch.
func (e *events) some() {
	evs := e.batch[e.at:min(e.at+someEvents, len(e.batch))]
	names := serials(evs)
	for i := range evs {
		e.at++
		e.left.Add(-1)
		v, serial, due := &evs[i], "", time.Time{}
		if v.Due != 0 {
			due = time.Unix(0, v.Due)
		}
		if !v.Serial.IsZero() {
			serial = names[i*ulid.EncodedSize : (i+1)*ulid.EncodedSize]
		}
		e.to(
			Event{
				Time:     time.Unix(0, v.Time),
				Kind:     EventKind(v.Kind),
				Channel:  v.Channel,
				Serial:   serial,
				ID:       v.ID,
				Attempt:  v.Attempt,
				Receiver: v.Receiver,
				Worker:   v.Worker,
				N:        v.N,
				Took:     v.Took,
				Due:      due,
				Fatal:    v.Fatal,
				Err:      v.Err,
			},
		)
	}
}

// close enqueues what waits, at most until the context of the caller is over, and ends the goroutine.
func (e *events) close(ctx context.Context) {
	if e == nil {
		return
	}
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.poke()
	select {
	case <-e.done:
	case <-ctx.Done():
	}
}
