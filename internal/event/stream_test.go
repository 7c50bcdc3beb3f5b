package event

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/shuntmq/shunt/internal/redistest"
)

// got is an event as it was delivered.
type got struct {
	Event
	serial string
}

// sink keeps what is delivered to it.
type sink struct {
	mu   sync.Mutex
	got  []got
	gate chan struct{} // each delivery waits for it; nil: none does
	do   func(*Event)  // runs once the event is kept
}

func (s *sink) deliver(e *Event, serial string) {
	if s.gate != nil {
		<-s.gate
	}
	s.mu.Lock()
	s.got = append(s.got, got{*e, serial})
	s.mu.Unlock()
	if s.do != nil {
		s.do(e)
	}
}

// numbers are the N of the events of a kind, in order.
func (s *sink) numbers(kind Kind) (ns []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.got {
		if e.Kind == kind {
			ns = append(ns, e.N)
		}
	}
	return ns
}

// wantUpTo fails unless the acked events are numbers 0 to n-1, in order.
func (s *sink) wantUpTo(t *testing.T, n int) {
	t.Helper()
	ns := s.numbers(Acked)
	for i, number := range ns {
		if number != i {
			t.Fatalf("event %d is number %d", i, number)
		}
	}
	if len(ns) != n {
		t.Errorf("%d events, want %d", len(ns), n)
	}
}

func minute(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// acked are n events, numbered from 0.
func acked(n int) []Event {
	events := make([]Event, n)
	for i := range events {
		events[i] = Event{Kind: Acked, N: i}
	}
	return events
}

func TestOrder(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	k := &sink{}
	s := NewStream(false, k.deliver)
	began := time.Now()
	all := acked(1000)
	for i := 0; i < 1000; i += 2 {
		s.Emit(all[i : i+2]...)
	}
	s.Emit()
	s.Close(minute(t)) // delivers what waits
	k.wantUpTo(t, 1000)
	for _, e := range k.got {
		if at := e.Time.Time(); at.Before(began) || at.After(time.Now()) {
			t.Fatalf("event %d has the time %v", e.N, at)
		}
	}
	s.Close(minute(t)) // again
	s.Emit(Event{})    // a late one harms nobody
}

// Many goroutines emit at once: no event is lost, and those of each goroutine keep their order.
func TestConcurrentEmit(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	k := &sink{}
	s := NewStream(false, k.deliver)
	var all sync.WaitGroup
	for w := range 8 {
		all.Go(func() {
			for i := range 1000 {
				s.Emit(Event{Kind: Acked, Worker: w, N: i})
			}
		})
	}
	all.Wait()
	s.Close(minute(t))
	next := make([]int, 8)
	for _, e := range k.got {
		if e.N != next[e.Worker] {
			t.Fatalf("worker %d: event %d, want %d", e.Worker, e.N, next[e.Worker])
		}
		next[e.Worker]++
	}
	if len(k.got) != 8000 {
		t.Errorf("%d events", len(k.got))
	}
}

// Events whose serials are written together have each its own, and those without one have none.
func TestSerials(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	k := &sink{}
	s := NewStream(false, k.deliver)
	events := acked(3*namedTogether + 8)
	for i := range events {
		if i%3 > 0 {
			events[i].Serial = ulid.Make()
		}
	}
	s.Emit(events...)
	s.Close(minute(t))
	for i, e := range k.got {
		want := ""
		if i%3 > 0 {
			want = events[i].Serial.String()
		}
		if e.serial != want {
			t.Fatalf("event %d has the serial %q, want %q", i, e.serial, want)
		}
	}
	if len(k.got) != len(events) {
		t.Errorf("%d events", len(k.got))
	}
}

func TestNilStream(t *testing.T) {
	t.Parallel()
	s := NewStream(false, nil)
	if s.On() {
		t.Error("a Stream without a func is on")
	}
	s.Emit(Event{Kind: Acked})
	s.Close(context.Background())

	redistest.Leaks(t)
	s = NewStream(false, (&sink{}).deliver)
	if !s.On() {
		t.Error("a Stream with a func is not on")
	}
	s.Close(minute(t))
}

// A slow func loses the newest events, hears how many, and then gets what follows.
func TestSlowFuncLosesTheNewest(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	first, reported := make(chan struct{}), make(chan struct{})
	k := &sink{gate: make(chan struct{})}
	s := NewStream(false, func(e *Event, serial string) {
		if e.Kind == Acked && e.N == 0 {
			close(first)
		}
		k.deliver(e, serial)
		if e.Kind == EventsDropped {
			close(reported)
		}
	})
	all := acked(Capacity + 6)
	s.Emit(all[0])
	<-first // the func has the first one; what follows waits
	for _, e := range all[1:] {
		s.Emit(e)
	}
	s.Emit(Event{Kind: Acked, N: -1}, Event{Kind: Acked, N: -2})
	close(k.gate)
	<-reported
	s.Emit(Event{Kind: Acked, N: Capacity + 1})
	s.Close(minute(t))
	k.wantUpTo(t, Capacity+2)
	if lost := k.numbers(EventsDropped); len(lost) != 1 || lost[0] != 7 {
		t.Errorf("lost %v, want 7", lost)
	}
	if e := k.got[Capacity+1]; e.Kind != EventsDropped || e.Time == 0 {
		t.Errorf("after the kept ones comes %+v", e)
	}
}

func TestOneBurstLargerThanCapacity(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	k := &sink{}
	s := NewStream(false, k.deliver)
	s.Emit(acked(Capacity + 100)...)
	s.Close(minute(t))
	k.wantUpTo(t, Capacity)
	if lost := k.numbers(EventsDropped); len(lost) != 1 || lost[0] != 100 {
		t.Errorf("lost %v, want 100", lost)
	}
}

// What is being delivered counts as waiting, or twice Capacity could wait.
func TestBatchCountsAsWaiting(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	delivered, lost := 0, 0
	gate := make(chan struct{})
	s := NewStream(false, func(e *Event, _ string) {
		if delivered++; delivered <= 2 {
			gate <- struct{}{}
			gate <- struct{}{}
		}
		lost += e.N
	})
	s.Emit(Event{})
	<-gate // the first is being delivered
	for range Capacity {
		s.Emit(Event{})
	}
	<-gate
	<-gate // the first of a full batch is
	for range Capacity {
		s.Emit(Event{})
	}
	<-gate
	s.Close(minute(t))
	if delivered < Capacity+1 || delivered > Capacity+3 || lost != Capacity-1 {
		t.Errorf("%d were delivered and %d lost", delivered, lost)
	}
}

// A func that panics, or ends its goroutine, gets the next event all the same: whether that is emitted later, or waits
// behind.
func TestFuncFails(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(){"panic": func() { panic("oh") }, "Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redistest.Leaks(t)
			delivered := make(chan int)
			k := &sink{do: func(e *Event) {
				defer func() { delivered <- e.N }()
				if e.N%3 != 2 {
					fail()
				}
			}}
			s := NewStream(false, k.deliver)
			for i, e := range acked(300) {
				s.Emit(e)
				if n := <-delivered; n != i { // one at a time: each is a batch of its own
					t.Fatalf("event %d, want %d", n, i)
				}
			}
			s.Close(minute(t))
			k.wantUpTo(t, 300)
		})
		t.Run(name+" in a batch", func(t *testing.T) {
			t.Parallel()
			redistest.Leaks(t)
			k := &sink{do: func(e *Event) {
				if e.N%3 != 2 {
					fail()
				}
			}}
			s := NewStream(false, k.deliver)
			s.Emit(acked(300)...)
			s.Close(minute(t))
			k.wantUpTo(t, 300)
		})
	}
}

// The report of dropped events survives a func that fails at it.
func TestFuncFailsAtTheReport(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(){"panic": func() { panic("oh") }, "Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redistest.Leaks(t)
			k := &sink{do: func(e *Event) {
				if e.Kind == EventsDropped {
					fail()
				}
			}}
			s := NewStream(false, k.deliver)
			s.Emit(acked(Capacity + 1)...)
			s.Close(minute(t))
			k.wantUpTo(t, Capacity)
			if n := len(k.numbers(EventsDropped)); n != 1 {
				t.Errorf("%d reports, want one", n)
			}
		})
	}
}

// Close waits for a func that hangs until its ctx ends; the func then still gets what waits.
func TestCloseIsBounded(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	k := &sink{gate: make(chan struct{})}
	s := NewStream(false, k.deliver)
	s.Emit(acked(10)...)
	ended, end := context.WithCancel(context.Background())
	end()
	s.Close(ended) // would hang: the func waits for the gate
	if n := len(k.numbers(Acked)); n != 0 {
		t.Errorf("%d events", n)
	}
	close(k.gate)
	s.Close(minute(t))
	k.wantUpTo(t, 10)
}

func TestEmitAllocatesNothing(t *testing.T) {
	k := &sink{gate: make(chan struct{})}
	s := NewStream(false, k.deliver)
	defer s.Close(minute(t))
	defer close(k.gate)
	s.Emit(acked(Capacity)...) // so that the memory is there, and every further event is dropped
	batch := acked(64)
	if n := testing.AllocsPerRun(100, func() { s.Emit(batch...) }); n != 0 {
		t.Errorf("%v allocations for 64 events", n)
	}
}

func TestTime(t *testing.T) {
	t.Parallel()
	now := time.Now()
	if at := TimeOf(now).Time(); !at.Equal(now) {
		t.Errorf("%v became %v", now, at)
	}
	if TimeOf(time.Time{}) != 0 || !Time(0).Time().IsZero() {
		t.Error("no time does not stay none")
	}
}
