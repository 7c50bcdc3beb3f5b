package dashboard

import (
	"cmp"
	"slices"

	"github.com/shuntmq/shunt"
)

type deadPage struct {
	Channel  string
	Criteria criteria
	Channels []shunt.Overview // without a channel: those that have dead letters
	Groups   []failureGroup
	Count    int // that fit, of those that were looked at
	Looked   int
	Rest     int // in no group
	More     bool
	Job      *job
}

// dead shows the dead letters of a channel by their failures.
func (q *request) dead() error {
	ctx := q.r.Context()
	p := deadPage{Channel: q.form.Get("c"), Criteria: q.criteria()}
	if p.Channel == "" {
		all, err := q.q.Overview(ctx)
		if err != nil {
			return err
		}
		for _, o := range all {
			if o.Dead > 0 {
				p.Channels = append(p.Channels, o)
			}
		}
		slices.SortStableFunc(p.Channels, func(a, b shunt.Overview) int { return cmp.Compare(b.Dead, a.Dead) })
		if p.More = len(p.Channels) > rowsAPage; p.More {
			p.Channels = p.Channels[:rowsAPage]
		}
		return q.show("dead", q.T("dead"), p)
	}
	p.Job = q.bulks.of(p.Channel)
	var err error
	if p.Groups, p.Looked, p.Rest, p.More, err = q.failures(ctx, p.Channel, p.Criteria); err != nil {
		return err
	}
	p.Count = p.Rest
	for _, g := range p.Groups {
		p.Count += g.Count
	}
	return q.show("dead", p.Channel+" · "+q.T("dead"), p)
}
