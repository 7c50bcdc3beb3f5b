package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/shuntmq/shunt/internal/trial"
)

// closings is the stream of a seed from which comes what a producer has under way when its Queue is closed.
const closings = 500

// patient has a producer enqueue for later shortly before its Queue is closed, half of that with contexts that outlive
// the closing by far. Half of the closings come in an outage, which may last longer than Close waits.
func (p *Plot) patient(r *rand.Rand) {
	for i := range p.Blows {
		b := &p.Blows[i]
		if b.Kind != "close" {
			continue
		}
		if r.IntN(2) == 0 {
			out := Blow{Kind: "outage", Who: -1, For: between(r, time.Second, p.Storm/2)}
			out.At = p.cycleAt(p.cycleOf(b.At)) + between(r, 0, p.Storm-out.For)
			b.At = out.At + between(r, 0, out.For/2)
			p.Blows = append(p.Blows, out)
			b = &p.Blows[i]
		}
		for range 8 {
			post := Post{At: max(0, b.At-between(r, 0, 300*time.Millisecond)), Channel: pick(r, p.posted()),
				How:  "enqueue",
				Plan: fmt.Sprint(trial.PlanOK, "+", between(r, 5*time.Second, 20*time.Second).Milliseconds())}
			if r.IntN(2) == 0 {
				post.Within = time.Minute
			}
			if post.At < p.length()-lull {
				p.Posts = append(p.Posts, post)
			}
		}
	}
	p.sort()
}

// soon is how long after its Queue's Close an enqueue may still be under way: as long as a reply may take, and a tenth
// of a second for those that give up with it.
const soon = 3*time.Second + 100*time.Millisecond

// closeProducer closes the producer's Queue amid its enqueues, and has another one go on.
func (w *world) closeProducer() {
	w.mu.Lock()
	p := w.producer
	w.producer = nil
	w.mu.Unlock()
	next := w.start(trial.Orders{Name: p.Name, Lease: lease})
	w.mu.Lock()
	w.producer = next
	w.mu.Unlock()
	began := time.Now()
	p.term()
	done := make(chan struct{})
	go func() {
		p.posts.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(soon - time.Since(began)):
		w.problem("I23 close: an enqueue was under way %v after Close", soon)
		<-done
	}
}
