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
	Rest     int // in no group that is shown
	More     bool
	Job      *job
}

type failureGroup struct {
	shunt.FailureGroup
	Text string // as it may be shown
	Like string // finds its messages; empty: nothing does
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
	all, err := q.q.Failures(ctx, p.Channel, shunt.StateDead, q.filter(p.Criteria))
	if err != nil {
		return err
	}
	p.Looked, p.More = all.Looked, all.More
	for i, g := range all.Groups {
		if p.Count += g.Count; i >= maxGroups {
			p.Rest += g.Count
			continue
		}
		shown := failureGroup{g, g.Failure, g.Failure}
		if q.Masks() {
			e := q.masked(shunt.Entry{Channel: p.Channel, State: shunt.StateDead, Failure: g.Failure})
			if shown.Text = e.Failure; shown.Text != g.Failure {
				shown.Like = ""
			}
		}
		p.Groups = append(p.Groups, shown)
	}
	return q.show("dead", p.Channel+" · "+q.T("dead"), p)
}
