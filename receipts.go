package shunt

import (
	"context"
	"errors"
	"slices"

	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/store"
)

// group is the receipts of one lease.
type group struct {
	keys  *store.Keys
	lease store.Lease
	of    []int // their places among all
}

// groups reads receipts, and says which are of one lease. errs has the error of each.
func (q *Queue) groups(rs []Receipt) (all []*group, identities []string, errs []error) {
	errs, identities = make([]error, len(rs)), make([]string, len(rs))
	type lease struct{ channel, name string }
	of := make(map[lease]*group)
	for i, r := range rs {
		n, err := r.parse()
		if err != nil {
			errs[i] = err
			continue
		}
		at := lease{n.channel, n.lease.Name}
		if of[at] == nil {
			of[at] = &group{keys: q.keysOf(n.channel), lease: n.lease, of: make([]int, 0, len(rs))}
			all = append(all, of[at])
		}
		of[at].of, identities[i] = append(of[at].of, i), n.identity
	}
	return all, identities, errs
}

// askLeases asks something of each of some leases in one pipeline, until there is an answer or ctx ends; without a
// deadline of ctx that takes EnqueueTimeout at most. errs gets the error of each receipt. What is asked may be sent
// again. reads: it changes nothing, so an answer that was lost leaves nobody in doubt.
func (q *Queue) askLeases(
	ctx context.Context, gs []*group, errs []error, reads bool, add func(*link.Call, *group),
	reply func(*group, link.Reply) error,
) {
	if len(gs) == 0 {
		return
	}
	replies, err := q.answers(ctx, gs, add)
	for i, g := range gs {
		bad := err
		if err == nil {
			bad = replies[i].Err
		}
		if reads && link.Classify(bad) == link.Unknown {
			bad = &link.Error{Class: link.NotExecuted, Err: bad}
		}
		if bad = q.explain(bad, "look at", g.keys.Name); bad == nil {
			bad = reply(g, replies[i])
		}
		for _, at := range g.of {
			if bad != nil {
				errs[at] = bad
			}
		}
	}
}

// answers sends what is asked of leases until each reply is an answer, or ctx ends.
func (q *Queue) answers(ctx context.Context, gs []*group, add func(*link.Call, *group)) ([]link.Reply, error) {
	if err := q.open(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := q.bounded(ctx)
	defer cancel()
	server := q.router.For(gs[0].keys.Name)
	for again := (link.Resend{Until: server.Data.Closed()}); ; again.Pause(ctx, 0) {
		c := link.NewCall()
		for _, g := range gs {
			add(c, g)
		}
		err := server.Data.Run(ctx, c)
		if c.Answered && !slices.ContainsFunc(c.Replies, func(rep link.Reply) bool { return waits(rep.Err) }) {
			return c.Replies, nil
		}
		if err = again.Failed(err); ctx.Err() != nil || server.Hopeless() != nil || errors.Is(err, link.ErrClosed) {
			return nil, err // the link may still write to the call's replies
		}
	}
}

// waits says of an error that waiting may mend it.
func waits(err error) bool {
	class := link.Classify(err)
	return class == link.NotExecuted || class == link.Unknown
}

// bounded is ctx with a deadline: EnqueueTimeout where it has none.
func (q *Queue) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, q.conf.EnqueueTimeout)
}

// findLeased finds the messages of some receipts. Where one is not there any more its error is ErrLeaseLost.
func (q *Queue) findLeased(ctx context.Context, rs []Receipt) (found []*settlement, errs []error) {
	gs, identities, errs := q.groups(rs)
	found = make([]*settlement, len(rs))
	q.askLeases(ctx, gs, errs, true, func(c *link.Call, g *group) { store.AddLeased(c, g.keys, g.lease.Name) },
		func(g *group, rep link.Reply) error {
			raws, err := store.LeasedReply(rep)
			if err != nil {
				return err
			}
			there := make(map[string]*settlement, len(raws))
			for place, raw := range raws {
				s := newSettlement(g.keys, g.lease, raw, place)
				there[s.held.Identity(raw)] = s
			}
			for _, at := range g.of {
				if found[at] = there[identities[at]]; found[at] == nil {
					errs[at] = ErrLeaseLost
				}
			}
			return nil
		})
	return found, errs
}
