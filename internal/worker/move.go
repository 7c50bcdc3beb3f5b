package worker

import (
	"context"
	"time"

	"github.com/shuntmq/shunt/internal/custody"
	"github.com/shuntmq/shunt/internal/event"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/store"
)

// move takes from the old lists, to the next ones, what a handler holds or a verdict waits for. All else goes to the
// taking end; or, where the connection broke again and again, only what is known not to have broken it. What is not
// found is lost.
func (h *handover) move(ctx context.Context) error {
	r := h.r
	items := make(map[*worker][2][]*Item)
	for _, s := range r.workers {
		s.mu.Lock()
		var of [2][]*Item
		for _, it := range s.items {
			if it.state != lost && it.state != handedBack {
				of[0] = append(of[0], it)
			}
		}
		s.mu.Unlock()
		h.held += len(of[0])
		if len(of[0]) > 0 {
			items[s] = of
		}
	}
	for _, o := range h.back {
		of := items[o.s]
		of[1] = append(of[1], o.it)
		items[o.s] = of
	}
	back := 0
	for from, step := 0, max(1, scriptsAtOne/len(r.channels)); from < len(r.workers); from += step {
		n, err := h.moveSome(ctx, r.workers[from:min(from+step, len(r.workers))], items)
		if err != nil {
			return err
		}
		back += n
	}
	if back > 0 {
		r.emit(event.Event{Kind: event.Released, Channel: r.channels[0].Name, N: back, Receiver: h.next.inc.Name})
	}
	return nil
}

// moveSome does so for some workers, in one pipeline; it says how many elements went to the taking end.
func (h *handover) moveSome(ctx context.Context, workers []*worker, items map[*worker][2][]*Item) (int, error) {
	type part struct {
		s     *worker
		in    *Channel
		items []*Item
	}
	var parts []part
	c := link.NewCall()
	for _, s := range workers {
		of := items[s]
		for _, in := range h.r.channels {
			p := part{s: s, in: in}
			g := store.Handing{From: h.old, To: h.next.inc, Worker: s.n, LeaveRest: h.counted}
			g.Holder = holder(h.next.inc, s.n)
			for _, it := range of[0] {
				if it.Channel == in {
					p.items, g.Held = append(p.items, it), append(g.Held, it.Identity(it.Raw))
				}
			}
			for _, it := range of[1] {
				if h.counted && it.Channel == in {
					g.Back = append(g.Back, it.Identity(it.Raw))
				}
			}
			store.AddHandover(c, in.Keys, g)
			parts = append(parts, p)
		}
	}
	if err := h.r.all(ctx, c); !c.Answered {
		return 0, err
	}
	back := 0
	for i, p := range parts {
		m, err := store.HandoverReply(c.Replies[i])
		// A channel with a key that is not shunt's does not hold up the others: its lists stay with the old
		// incarnation, which sweeps treat as dead.
		if err != nil && !h.r.ReportFatal(p.in, err) {
			return 0, err
		}
		back += m.Back
		h.loseUnfound(p.s, p.items, m.Found)
	}
	return back, nil
}

// loseUnfound loses those of some items of a worker whose elements were not there.
func (h *handover) loseUnfound(s *worker, items []*Item, numbers []int) {
	found := make(map[int]bool, len(numbers))
	for _, n := range numbers {
		found[n] = true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for n, it := range items {
		if !found[n] && it.state < lost {
			h.held--
			s.lose(it)
		}
	}
}

// loseAll ends every handler's context as a lost lease does, and takes all else out of hand. The gate is closed.
func (r *Pool) loseAll(why error) {
	r.lease.lost.Store(true)
	r.emit(event.Event{Kind: event.LeaseLost, Channel: r.channels[0].Name, Receiver: r.live.Load().Name, Err: why})
	for _, s := range r.workers {
		s.mu.Lock()
		for i := 0; i < len(s.items); {
			it := s.items[i]
			if it.state < lost {
				s.lose(it)
			}
			if i < len(s.items) && s.items[i] == it {
				i++
			}
		}
		s.mu.Unlock()
	}
}

// lose marks an item that somebody else has by now, and ends its handler. s.mu is held.
func (s *worker) lose(it *Item) {
	doubt := it.inDoubt()
	it.move(lose)
	if it.state == lost {
		it.cancel(custody.ErrLeaseLost)
		s.r.watcher.note(time.Now())
		return
	}
	s.remove(it)
	kind := event.LateVerdict
	if doubt {
		kind = event.UnconfirmedVerdict
	}
	s.r.emit(event.Event{Kind: kind, Channel: it.Channel.Name, Serial: it.Serial, ID: it.ID(),
		Receiver: s.r.live.Load().Name, Worker: s.n, Err: custody.ErrLeaseLost})
}
