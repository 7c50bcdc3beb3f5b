package sim

import (
	"cmp"
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/trial"
)

// A shutdown is timed from the end of its process's last handler, or from what a handler may take that still runs.
func TestTimedShutdown(t *testing.T) {
	const (
		grace = 200 * time.Millisecond
		whole = 3 * time.Second
	)
	handled := func(by, phase string) trial.Entry { return trial.Entry{By: by, Op: trial.Handle, Phase: phase} }
	for name, c := range map[string]struct {
		orders trial.Orders
		said   trial.Entry // a second after the beginning
		err    error
		ended  bool   // the context, at the beginning
		what   string // it is judged as; empty: as a shutdown
		want   time.Duration
	}{
		"no handler":           {want: whole},
		"its handler ended":    {said: handled("a", trial.OK), want: whole - time.Second},
		"its handler failed":   {said: handled("a", trial.Fail), want: whole - time.Second},
		"its handler began":    {said: handled("a", trial.Invoke), want: whole},
		"another's ended":      {said: handled("b", trial.OK), want: whole},
		"it said another word": {said: trial.Entry{By: "a", Op: trial.Enqueue, Phase: trial.OK}, want: whole},
		"handed back": {said: handled("a", trial.OK), err: &shunt.ShutdownError{Returned: 1},
			want: whole - time.Second},
		"one runs on": {said: handled("a", trial.OK), err: &shunt.ShutdownError{Running: 1},
			want: whole - grace - takes, what: "shutdown beside a handler"},
		"its context had ended": {ended: true},
		"a puller":              {orders: trial.Orders{Pull: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &world{plot: &Plot{Late: 1}}
				log := w.said.Ledger("z")
				log.Say(handled("a", trial.OK)) // long before
				time.Sleep(time.Minute)
				p := &process{Orders: c.orders, w: w}
				p.Name, p.Grace = "a", grace
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if c.ended {
					cancel()
				}
				err := p.timed(func(context.Context) error {
					time.Sleep(time.Second)
					if c.said.Op != "" {
						log.Say(c.said)
						log.Say(trial.Entry{By: "b", Op: trial.Handle, Phase: trial.Invoke})
					}
					time.Sleep(whole - time.Second)
					return c.err
				})(ctx)
				what := cmp.Or(c.what, "shutdown")
				if most := w.result.Most; err != c.err || most[what] != c.want || len(most) != min(1, int(c.want)) {
					t.Errorf("it took %v, want %v (%v)", most, c.want, err)
				}
			})
		})
	}
}
