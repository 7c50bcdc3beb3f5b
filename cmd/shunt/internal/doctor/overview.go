package doctor

import (
	"fmt"
	"strings"

	"github.com/shuntmq/shunt"
)

// overviews takes in what Queue.Overview and Queue.Health say, and judges how much there is.
func (e *examination) overviews(names []string) {
	asked := e.o.Channels // none: all, of which some may have a name that is none
	if all, err := e.q.Health(e.ctx, asked...); err != nil {
		e.limit("Queue.Health: %v", err)
	} else {
		for _, f := range all {
			e.health(f)
		}
	}
	if len(names) == 0 {
		return
	}
	all, err := e.q.Overview(e.ctx, asked...)
	if err != nil {
		e.limit("Queue.Overview: %v", err)
		return
	}
	for _, o := range all {
		if o.Error != "" {
			continue
		}
		e.channel(o.Channel).o = o
		for _, n := range []struct {
			state string
			n     int
		}{{"prepare", o.Prepare}, {"delay", o.Delay}, {"dead", o.Dead}} {
			if n.n >= e.o.Huge {
				e.found(shunt.Notice, HugeChannel, Finding{Channel: o.Channel, Number: float64(n.n),
					Do: "run more workers, spread it over several channels, or purge what nobody needs"},
					"%d messages are in %s", n.n, n.state)
			}
		}
		seconds := o.Lately.To.Sub(o.Lately.From).Seconds()
		if rate := float64(o.Lately.Enqueued) / seconds; seconds > 0 && rate > e.o.Hot {
			e.found(shunt.Notice, HotChannel, Finding{Channel: o.Channel, Number: rate,
				Do: "enqueue several small messages as one, or give the channel a Redis of its own"},
				"%.0f messages a second were enqueued in the last 10 minutes", rate)
		}
		if o.Dead > e.o.MaxDead+100 && o.Lately.Dead > 0 && o.Lately.Trimmed == 0 {
			e.found(shunt.Warning, DeadUnbounded, Finding{Channel: o.Channel, Number: float64(o.Dead),
				Do: "set MaxDead in the programs that receive; see shunt dead, then retry or delete"},
				"%d dead letters are kept, %d more in the last 10 minutes, and none is dropped", o.Dead, o.Lately.Dead)
		}
	}
}

// fixes of what Queue.Health finds.
var fixes = map[shunt.FindingKind]Fix{
	shunt.FindingEviction: Setting, shunt.FindingNoAOF: Setting,
	shunt.FindingOverdue: Safe, shunt.FindingLeaseOverdue: Safe,
}

func (e *examination) health(f shunt.Finding) {
	g := Finding{Channel: f.Channel, Number: f.Number, Do: f.Do, Fix: fixes[f.Kind]}
	if f.Kind == shunt.FindingUnreadable && strings.ContainsAny(f.Channel, "{} ") {
		g.Do = fmt.Sprintf("SREM %s %q", channelsKey, f.Channel)
	}
	e.found(f.Severity, of(f.Kind), g, "%s", f.Text)
}
