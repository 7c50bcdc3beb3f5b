package worker

import (
	"context"

	"github.com/shuntmq/shunt/internal/event"
	"github.com/shuntmq/shunt/internal/lane"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/meter"
	"github.com/shuntmq/shunt/internal/store"
)

// move takes from the old lists, to the next ones, what a handler holds or a verdict waits for. All else goes to the
// taking end; or, where the connection broke again and again, only what is known not to have broken it. What is not
// found is lost.
func (h *handover) move(ctx context.Context) error {
	workers, lanes := h.pool.workers, h.site.Lanes
	items := make(map[*worker][2][]*Item)
	h.each(func(s *worker, it *Item) bool {
		if it.state != lost && it.state != handedBack {
			of := items[s]
			of[0] = append(of[0], it)
			items[s] = of
			h.held++
		}
		return false
	})
	for _, o := range h.back {
		of := items[o.s]
		of[1] = append(of[1], o.it)
		items[o.s] = of
	}
	back := 0
	for from, step := 0, max(1, scriptsAtOne/len(lanes)); from < len(workers); from += step {
		n, err := h.moveSome(ctx, workers[from:min(from+step, len(workers))], items)
		if err != nil {
			return err
		}
		back += n
	}
	if back > 0 {
		h.pool.emit(event.Event{Kind: event.Released, Channel: lanes[0].Name, N: back,
			Receiver: h.next.Incarnation.Name})
	}
	return nil
}

// moveSome does so for some workers, in one pipeline; it says how many elements went to the taking end.
func (h *handover) moveSome(ctx context.Context, workers []*worker, items map[*worker][2][]*Item) (int, error) {
	type part struct {
		s     *worker
		lane  *lane.Lane
		items []*Item
	}
	var parts []part
	c := link.NewCall()
	for _, s := range workers {
		of := items[s]
		for _, l := range h.site.Lanes {
			p := part{s: s, lane: l}
			g := store.Handing{From: h.old, To: h.next.Incarnation, Worker: s.n, LeaveRest: h.counted}
			g.Holder = store.Holder(h.next.Incarnation, s.n)
			for _, it := range of[0] {
				if it.Lane == l {
					p.items, g.Held = append(p.items, it), append(g.Held, it.Identity(it.Raw))
				}
			}
			for _, it := range of[1] {
				if h.counted && it.Lane == l {
					g.Back = append(g.Back, it.Identity(it.Raw))
				}
			}
			store.AddHandover(c, l.Keys, g)
			parts = append(parts, p)
		}
	}
	if err := h.site.Do(ctx, c); !c.Answered {
		return 0, err
	}
	back := 0
	for i, p := range parts {
		m, err := store.HandoverReply(c.Replies[i])
		// A lane with a key that is not shunt's does not hold up the others: its lists stay with the old
		// incarnation, which sweeps treat as dead.
		if err != nil && !h.site.ReportFatal(p.lane, err) {
			return 0, err
		}
		back += m.Back
		h.loseUnfound(p.s, p.items, m.Found)
		p.s.mu.Lock()
		p.s.countOf(p.lane, meter.Released, m.Back)
		p.s.mu.Unlock()
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
