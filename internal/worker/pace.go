package worker

import (
	"math/rand/v2"
	"time"
)

const (
	// prefetchTime is how long a worker's handler may take for all that it holds. A worker that takes more often than
	// once a millisecond takes in batches.
	prefetchTime = time.Millisecond
	// A worker may hold a few all the same, as long as they take no more than a fraction of Stall. So one round trip
	// serves several. A handler of some ms would feel a round trip for each.
	spares    = 4
	spareTime = 25 * time.Millisecond
)

// pace is how many messages a worker takes at once, as its handler's time shows. It belongs to the worker's goroutine.
type pace struct {
	mean  time.Duration // running mean of the handler's time; 0: not known yet
	size  int           // running mean of an element's size
	limit int           // slow start: what the last takes showed to be there
}

// learn adapts the prefetch to what the handler takes.
func (p *pace) learn(took time.Duration, size int) {
	if p.mean == 0 {
		p.mean, p.size = max(took, 1), size
		return
	}
	p.mean = max(1, p.mean+(took-p.mean)/4)
	p.size += (size - p.size) / 4
}

// came takes in how many of those asked for were there.
func (p *pace) came(got, asked, most int) {
	if got == asked {
		p.limit = min(4*p.limit, most)
	} else {
		p.limit = max(1, got)
	}
}

// want is how many messages to take.
func (p *pace) want(r *Pool) int {
	conf := r.conf
	if r.order != nil || p.mean == 0 || r.Sites[0].Large.On() {
		return 1
	}
	n := int(prefetchTime / p.mean)
	if few := min(spares, int(spareTime/p.mean)); n < few {
		n = few - rand.IntN(2) // workers that began together would else ask together for ever, and wait for each other
	}
	return max(1, min(n, conf.Prefetch, conf.PrefetchBytes/max(1, p.size), p.limit))
}
