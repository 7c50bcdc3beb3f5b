package push

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shuntmq/shunt"
)

// againAfter is when a receiver is tried again that did not start.
const againAfter = time.Second

// plan is what a runner is to do.
type plan struct {
	group Group
	allow []netip.Prefix // of the configuration
}

// runner runs one group in this process. A receiver that it has left may still end its handlers while the next one
// runs.
type runner struct {
	p     *Pusher
	key   Key
	queue *shunt.Queue
	wants chan plan // holds the latest; closed: the group is gone

	live atomic.Pointer[sender] // nil before the first plan
	gone bool                   // the group was deleted; guarded by Metrics

	// What run owns.
	serving  *Group // what the receiver was started with; nil: there is none
	shutdown shunt.Shutdown
	told     string // what was logged last of a receiver that did not start
	ending   sync.WaitGroup
}

// want gives the runner a plan. Only one goroutine calls it.
func (r *runner) want(p plan) {
	select {
	case <-r.wants:
	default:
	}
	r.wants <- p
}

// run follows the plans until wants is closed, and returns when all handlers have ended. The end of ending cuts them
// short.
func (r *runner) run(ending context.Context) {
	defer r.ending.Wait()
	again := time.NewTimer(0)
	defer again.Stop()
	<-again.C
	var now plan
	for {
		select {
		case want, ok := <-r.wants:
			if !ok {
				r.stop(ending, true)
				return
			}
			now = want
			if s := r.live.Swap(newSender(now.group, now.allow, r.p.RootCAs)); s != nil {
				s.retire()
			}
		case <-again.C:
		}
		if !r.apply(ending, &now.group) {
			again.Reset(againAfter)
		} else {
			again.Stop()
		}
	}
}

// apply says whether the receiver is as the group wants it.
func (r *runner) apply(ending context.Context, g *Group) bool {
	s := r.serving
	if s != nil {
		s.TimeoutMS = max(s.TimeoutMS, g.TimeoutMS) // requests may have begun with either
	}
	switch {
	case g.State != Active:
		r.stop(ending, true)
		return true
	case s != nil && s.Workers == g.Workers && slices.Equal(s.Queues, g.Queues):
		return true
	}
	r.stop(ending, false)
	shares := make([]shunt.Share, len(g.Queues))
	for i, q := range g.Queues {
		shares[i] = shunt.Share{Prototype: &message{r: r, channel: r.key.Namespace + "/" + q}, Weight: 1}
	}
	shutdown, err := r.queue.ReceiveWeighted(ending, g.Workers, shares...)
	if err != nil {
		if text := err.Error(); text != r.told {
			r.told = text
			r.p.Log.Error("push: a group does not start, and is tried again", "group", r.key.String(), "error", err)
		}
		return false
	}
	started := *g // g is the next plan's, too
	r.serving, r.shutdown, r.told = &started, shutdown, ""
	r.p.Log.Info("push: a group runs", "group", r.key.String(), "queues", len(g.Queues), "workers", g.Workers)
	return true
}

// stop has the receiver end. Its handlers have the timeout of their requests. Where no other receiver follows, the
// sender retires after that.
func (r *runner) stop(ending context.Context, retire bool) {
	live := r.live.Load()
	if r.serving == nil {
		if retire && live != nil {
			live.retire()
		}
		return
	}
	shutdown := r.shutdown
	ctx, cancel := context.WithTimeout(ending, r.serving.timeout()+slack)
	r.ending.Go(func() {
		defer cancel()
		if err := shutdown(ctx); err != nil {
			r.p.Log.Warn("push: a group has ended before its requests", "group", r.key.String(), "error", err)
		}
		if retire {
			live.retire()
		}
	})
	r.serving, r.shutdown = nil, nil
	r.p.Log.Info("push: a group runs no more", "group", r.key.String())
}

// take is the sender of the group as it is now; nil: it is being stopped. release follows.
func (r *runner) take() *sender {
	for s := r.live.Load(); ; {
		if s.acquire() {
			return s
		}
		next := r.live.Load()
		if next == s {
			return nil
		}
		s = next
	}
}

// settings are those of the group as it is now.
func (r *runner) settings() *Settings { return &r.live.Load().group.Settings }
