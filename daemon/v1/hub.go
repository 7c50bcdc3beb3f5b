package v1

import (
	"sync"

	"github.com/shuntmq/shunt"
)

// hubBuffer is how many events wait for one reader.
const hubBuffer = 256

// Hub gives the events of a Queue to those who read the streams of its channels. Take is the Queue's Events. The zero
// value works; its methods may be called by many goroutines at once.
type Hub struct {
	// Next gets each event, too: LogEvents, say. nil: nobody does. It is not changed once Take was called.
	Next func(shunt.Event)

	mu      sync.RWMutex
	readers map[string]map[*reader]struct{} // by channel
}

// reader is who reads a channel's events.
type reader struct {
	events chan shunt.Event
	cut    chan struct{} // closed when an event found no room; nothing comes afterwards
	once   sync.Once
}

// Take gives an event to all who read its channel. It waits for nobody: a reader without room is cut off.
func (h *Hub) Take(e shunt.Event) {
	if h.Next != nil {
		h.Next(e)
	}
	h.mu.RLock()
	defer h.mu.RUnlock()
	for r := range h.readers[e.Channel] {
		select {
		case <-r.cut:
			continue
		default:
		}
		select {
		case r.events <- e:
		default:
			r.once.Do(func() { close(r.cut) })
		}
	}
}

// join begins to read a channel; leave follows.
func (h *Hub) join(channel string) *reader {
	r := &reader{events: make(chan shunt.Event, hubBuffer), cut: make(chan struct{})}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.readers == nil {
		h.readers = make(map[string]map[*reader]struct{})
	}
	if h.readers[channel] == nil {
		h.readers[channel] = make(map[*reader]struct{})
	}
	h.readers[channel][r] = struct{}{}
	return r
}

func (h *Hub) leave(channel string, r *reader) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if delete(h.readers[channel], r); len(h.readers[channel]) == 0 {
		delete(h.readers, channel)
	}
}
