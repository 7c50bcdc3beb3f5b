package daemon

import (
	"context"
	"fmt"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/shuntmq/shunt/daemon/budget"
	"github.com/shuntmq/shunt/daemon/config"
	"github.com/shuntmq/shunt/daemon/delayq"
	"github.com/shuntmq/shunt/daemon/gmq"
	"github.com/shuntmq/shunt/daemon/topics"
)

// maxTries is what shunt counts; a job of more tries has no bound.
const maxTries = 255

// adapters makes the servers of the protocols without tokens, as far as they are on.
func (d *Daemon) adapters(registry prometheus.Registerer, shared *budget.Budget) (all []server, err error) {
	c := &d.Config
	if c.GMQ.On() {
		s, err := d.gmqServer(registry, shared)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	if c.Delayq.On() {
		p := d.pools[c.Delayq.Pool]
		tries := c.Defaults.Tries
		if tries > maxTries {
			tries = -1
		}
		d.delayq = &delayq.API{
			Topics: &topics.Topics{Queue: p.queue, Prefix: c.Delayq.Prefix},
			Tries:  tries,
			// Others get the answer of this ping, too.
			Ping:    func(ctx context.Context) error { return p.ping(context.WithoutCancel(ctx)) },
			Budget:  shared,
			Metrics: delayq.NewMetrics(registry),
			Log:     d.Log,
		}
		if err := d.delayq.Validate(); err != nil {
			return nil, err
		}
		at := c.Delayq.Listener()
		s, err := d.server("delayq", &at, d.delayq.Handler())
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

func (d *Daemon) gmqServer(registry prometheus.Registerer, shared *budget.Budget) (*gmq.Server, error) {
	c := &d.Config
	at := c.GMQ.Listener()
	networks, err := at.Prefixes()
	if err != nil {
		return nil, fmt.Errorf("daemon: gmq.allow: %w", err)
	}
	l := &c.Limits
	d.gmq = &gmq.Server{Listen: c.GMQ.Listen,
		Topics: &topics.Topics{Queue: d.pools[c.GMQ.Pool].queue, Prefix: c.GMQ.Prefix},
		Limits: gmq.Limits{MaxConnections: l.MaxConnections, IdleTimeout: l.IdleTimeout},
		Budget: shared, Metrics: gmq.NewMetrics(registry), Log: d.Log}
	d.gmq.Allow(networks)
	d.fronts["gmq"] = d.gmq
	return d.gmq, d.gmq.Limits.Validate()
}

// warnOfAdapters says at the start what an operator must know.
func (d *Daemon) warnOfAdapters() {
	for name, a := range map[string]*config.Adapter{"gmq": &d.Config.GMQ, "delayq": &d.Config.Delayq} {
		if !a.On() {
			continue
		}
		allowed := strings.Join(a.Allow, ", ")
		if allowed == "" {
			allowed = "all that reach it"
		}
		d.Log.Warn("THIS PROTOCOL HAS NO TOKENS: whoever reaches it may use all channels of its prefix",
			"protocol", name, "listen", a.Listen, "allow", allowed, "pool", a.Pool, "prefix", a.Prefix)
	}
}
