package topics

import (
	"sync"

	"github.com/shuntmq/shunt"
)

// keptHints is how many ids are remembered at least; at most it is twice as many, some 25 MB.
const keptHints = 50_000

// hint is where an id was met last.
type hint struct {
	channel string
	receipt shunt.Receipt // of its delivery here; empty: none
	several bool          // it was delivered here from another channel, too, so it says nothing of a lease
}

// hints are those of the ids that this process has met last.
type hints struct {
	mu       sync.Mutex
	now, old map[string]hint
}

func (h *hints) keep(id string, at hint) {
	h.mu.Lock()
	defer h.mu.Unlock()
	was := h.met(id)
	at.several = was.several || was.receipt != "" && at.receipt != "" && was.channel != at.channel
	if h.now == nil || len(h.now) >= keptHints {
		h.now, h.old = make(map[string]hint), h.now
	}
	h.now[id] = at
}

func (h *hints) of(id string) hint {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.met(id)
}

func (h *hints) met(id string) hint {
	if at, ok := h.now[id]; ok {
		return at
	}
	return h.old[id]
}

// drop forgets an id, if at is what is known of it.
func (h *hints) drop(id string, at hint) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, m := range []map[string]hint{h.now, h.old} {
		if m[id] == at {
			delete(m, id)
		}
	}
}

// Pushed remembers where a job was pushed.
func (t *Topics) Pushed(id, channel string) { t.hints.keep(id, hint{channel: channel}) }

// Popped remembers a delivery. It is called before the answer, upon which the ack may come.
func (t *Topics) Popped(l *shunt.Leased) {
	t.hints.keep(ID(l.ID, l.Serial), hint{channel: l.Channel, receipt: l.Receipt})
}
