package dashboard

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/shuntmq/shunt"
)

const (
	// channelsLooked bounds the channels that one page looks through one after another, for looks that are a command
	// each.
	channelsLooked = 200
	// workersShown bounds the messages in hand that are looked at, one command each.
	workersShown = 50
)

type receiversPage struct {
	Channel  string
	Groups   []receiverGroup
	Channels []string
	More     bool // there are more channels
}

type receiverGroup struct {
	Channel   string
	Receivers []receiverRow
	Hands     []hand
	More      bool
	Error     string
}

type receiverRow struct {
	shunt.Receiver
	Since time.Time
}

// hand is what a worker handles.
type hand struct {
	shunt.Entry
	Since time.Time
}

// receivers shows who takes from one channel, or from all that have receivers.
func (q *request) receivers() error {
	ctx := q.r.Context()
	p := receiversPage{Channel: q.form.Get("c")}
	if p.Channel != "" {
		p.Groups = []receiverGroup{q.receiversOf(ctx, p.Channel)}
		return q.show("receivers", q.T("receivers"), p)
	}
	all, err := q.q.Overview(ctx)
	if err != nil {
		return err
	}
	slices.SortStableFunc(all, func(a, b shunt.Overview) int { return cmp.Compare(b.Workers, a.Workers) })
	for i := range all {
		if all[i].Receivers+all[i].DeadReceivers == 0 {
			continue
		}
		if p.More = len(p.Groups) == channelsLooked; p.More {
			break
		}
		p.Groups = append(p.Groups, q.receiversOf(ctx, all[i].Channel))
	}
	return q.show("receivers", q.T("receivers"), p)
}

func (q *request) receiversOf(ctx context.Context, channel string) receiverGroup {
	g := receiverGroup{Channel: channel}
	rs, err := q.q.Receivers(ctx, channel)
	if err != nil {
		g.Error = err.Error()
		return g
	}
	type worker struct {
		receiver, serial string
		n                int
	}
	busy := make(map[worker]time.Time)
	for _, r := range rs {
		row := receiverRow{Receiver: r, Since: r.StartedAt}
		serial, _, _ := strings.Cut(r.Name, "-") // a name begins with the ULID of its start
		if id, err := ulid.ParseStrict(serial); err == nil && row.Since.IsZero() {
			row.Since = id.Timestamp()
		}
		g.Receivers = append(g.Receivers, row)
		for _, b := range r.Busy {
			busy[worker{r.Name, b.Serial, b.Worker}] = b.Since
		}
	}
	page, err := q.q.Browse(ctx, shunt.BrowseOptions{Channel: channel, State: shunt.StateDoing, Limit: workersShown})
	if err != nil {
		g.Error = err.Error()
		return g
	}
	g.More = page.Next != ""
	for _, e := range page.Entries {
		h := hand{Entry: q.masked(e), Since: busy[worker{e.Receiver, e.Serial, e.Worker}]}
		if h.Since.IsZero() {
			if s, err := q.q.Status(ctx, e.Ref()); err == nil && s.State == shunt.StateDoing {
				h.Since = s.StartedAt
			}
		}
		g.Hands = append(g.Hands, h)
	}
	return g
}
