package event

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/oklog/ulid/v2"
)

// Capacity is how many events may wait for a slow func: some 3 MB.
const Capacity = 16384

// namedTogether is how many serials are written into one string, to allocate it once.
const namedTogether = 64

// Stream carries events to a func on a goroutine of its own, so that a slow func holds up neither a beat nor the link.
// What finds Capacity events waiting is dropped and counted. A nil Stream drops every event.
type Stream struct {
	deliver func(e *Event, serial string)
	trouble bool // only events of level Warn and more are wanted

	// Owned by the goroutine.
	batch   []Event
	next    int          // index in batch of the event that is delivered next
	dropped int          // still to be reported
	left    atomic.Int64 // events of the batch that are not yet delivered

	mu      sync.Mutex
	waiting []Event
	lost    int // events dropped since the goroutine last looked
	closed  bool
	wake    chan struct{} // of capacity 1
	done    chan struct{} // closed when the goroutine has ended
}

// NewStream starts the goroutine that calls deliver for one event at a time, in the order of Emit; with trouble, only
// for those of level Warn and more. serial is the text of e.Serial, empty for the zero one. e is valid during the call
// only. If deliver panics or calls runtime.Goexit, only the event of that call is lost. The goroutine ends after Close.
// Without deliver NewStream returns nil.
func NewStream(trouble bool, deliver func(e *Event, serial string)) *Stream {
	if deliver == nil {
		return nil
	}
	s := &Stream{deliver: deliver, trouble: trouble, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go s.run()
	return s
}

// On says that events are delivered to somebody.
func (s *Stream) On() bool { return s != nil }

// All says that events of every level are wanted.
func (s *Stream) All() bool { return s != nil && !s.trouble }

// Emit sets the events' Time and adds them behind those that wait. It does not block, and copies the events. Many
// goroutines may call it at once. What comes after Close may be dropped.
func (s *Stream) Emit(events ...Event) {
	if s != nil && s.trouble {
		events = slices.DeleteFunc(events, func(e Event) bool { return e.Kind.Level(e.Fatal, e.Err) < slog.LevelWarn })
	}
	if s == nil || len(events) == 0 {
		return
	}
	now := Time(time.Now().UnixNano())
	for i := range events {
		events[i].Time = now
	}
	s.mu.Lock()
	free := max(0, Capacity-len(s.waiting)-int(s.left.Load()))
	room := min(len(events), free)
	s.lost += len(events) - room
	first := len(s.waiting) == 0
	s.waiting = append(s.waiting, events[:room]...)
	s.mu.Unlock()
	if first { // otherwise the goroutine has been woken, and looks again before it rests
		s.poke()
	}
}

func (s *Stream) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// run is the goroutine. deliver may end it by runtime.Goexit; then another one goes on behind the event at fault.
func (s *Stream) run() {
	ended := false
	defer func() {
		if ended {
			close(s.done)
			return
		}
		s.mu.Lock()
		s.waiting = append(slices.Clone(s.batch[s.next:]), s.waiting...)
		s.left.Store(0)
		s.lost += s.dropped
		s.mu.Unlock()
		go s.run()
		s.poke()
	}()
	for range s.wake {
		for {
			closed := s.take()
			for s.next < len(s.batch) {
				s.deliverSome()
			}
			clear(s.batch)
			s.reportDropped()
			if len(s.batch) > 0 {
				continue
			}
			if closed {
				ended = true
				return
			}
			break
		}
	}
}

// take makes a batch of all events that wait.
func (s *Stream) take() (closed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.batch, s.waiting, s.next = s.waiting, s.batch[:0], 0
	s.dropped, s.lost = s.lost, 0
	s.left.Store(int64(len(s.batch)))
	return s.closed
}

// deliverSome delivers the next events of the batch, up to and including one at which deliver panics.
func (s *Stream) deliverSome() {
	defer func() { _ = recover() }() // there is nobody to report it to: deliver is the place for reports
	events := s.batch[s.next:min(s.next+namedTogether, len(s.batch))]
	names := namesOf(events)
	for i := range events {
		s.next++
		s.left.Add(-1)
		serial := ""
		if !events[i].Serial.IsZero() {
			serial = names[i*ulid.EncodedSize : (i+1)*ulid.EncodedSize]
		}
		s.deliver(&events[i], serial)
	}
}

// namesOf is the text of all serials, one behind the other.
func namesOf(events []Event) string {
	var all [namedTogether * ulid.EncodedSize]byte
	for i := range events {
		events[i].Serial.MarshalTextTo(all[i*ulid.EncodedSize : (i+1)*ulid.EncodedSize])
	}
	return string(all[:len(events)*ulid.EncodedSize])
}

// reportDropped delivers how many events were dropped behind those of the batch.
func (s *Stream) reportDropped() {
	n := s.dropped
	if n == 0 {
		return
	}
	s.dropped = 0
	defer func() { _ = recover() }()
	s.deliver(&Event{Kind: EventsDropped, Time: Time(time.Now().UnixNano()), N: n}, "")
}

// Close has the events delivered that wait, and ends the goroutine. It waits for that until ctx ends; the goroutine
// then ends as soon as deliver has returned from every event. Close may be called again.
func (s *Stream) Close(ctx context.Context) {
	if s == nil {
		return
	}
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.poke()
	select {
	case <-s.done:
	case <-ctx.Done():
	}
}
