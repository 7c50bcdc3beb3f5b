package shuntprom

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/singleflight"

	"github.com/shuntmq/shunt"
)

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("shunt_"+name, help, labels, nil)
}

// What Redis tells at a scrape.
var (
	up            = describe("up", "1: Redis has answered this scrape. 0: it has not, and what it tells is missing.")
	scrapeSeconds = describe("scrape_duration_seconds", "How long this scrape has waited for Redis.")
	channels      = describe("channels", "Channels that are known.")
	ungauged      = describe("channels_ungauged", "Channels without series of their own.")

	channelUp = describe("channel_up", "1: the channel could be read. 0: it could not, as with a key of a wrong type.",
		"channel")
	messages = describe("messages", "Messages by state. Those in the hands of workers are not counted.",
		"channel", "state")
	leases = describe("leases", "Leases of pulled messages. Each holds one message or more.", "channel")
	oldest = describe("oldest_message_age_seconds", "Time since the enqueue of the message that is taken next; "+
		"0: none waits. Missing where nobody knows, as of a bare payload.", "channel")
	nextDue = describe("next_due_in_seconds", "Time until the first delayed message is due; negative: it is overdue. "+
		"Missing where none is delayed.", "channel")
	leaseEnds = describe("lease_ends_in_seconds", "Time until the first lease ends; negative: that is overdue. "+
		"Missing where there is none.", "channel")
	receivers     = describe("receivers", "Receivers that are alive.", "channel")
	deadReceivers = describe("receivers_dead", "Receivers that are dead, and not forgotten yet.", "channel")
	workers       = describe("workers", "Workers of the receivers that are alive.", "channel")

	gauges = []*prometheus.Desc{up, scrapeSeconds, channels, ungauged, channelUp, messages, leases, oldest, nextDue,
		leaseEnds, receivers, deadReceivers, workers}
)

// Collector is a prometheus.Collector of one Queue. Its methods may be called by many goroutines at once.
//
// For several Queues in one registry, which are of several Redis, register each with a label of its own, by
// prometheus.WrapRegistererWith. A second collector without one is an error of Register.
type Collector struct {
	q      *shunt.Queue
	o      Options
	events *events
	flight singleflight.Group

	// Owned by the scrape under way, of which there is one.
	fleet  *fleet
	failed bool
}

// New makes a Collector, and asks q nothing: its fields may be set after that, as Events. An error names each Option
// that is out of its bounds. With Options.Local q may be nil.
func New(q *shunt.Queue, o Options) (*Collector, error) {
	err := o.setDefaults()
	if q == nil && !o.Local {
		err = errors.Join(err, errors.New("shuntprom: the Queue is nil: give one, or set Options.Local"))
	}
	if err != nil {
		return nil, err
	}
	if o.Channels == nil && q != nil {
		o.Channels = q.Channels
	}
	c := &Collector{q: q, o: o, events: newEvents(o.MaxChannels)}
	if o.Fleet {
		c.fleet = newFleet()
	}
	return c, nil
}

// Event counts an Event. Give it to Queue.Events, or call it from the func there. It never blocks for long: no scrape
// holds it up.
func (c *Collector) Event(e shunt.Event) { c.events.take(&e) }

// Describe implements prometheus.Collector.
func (c *Collector) Describe(to chan<- *prometheus.Desc) {
	c.events.describe(to)
	if c.o.Local {
		return
	}
	for _, d := range gauges {
		to <- d
	}
	if c.fleet != nil {
		c.fleet.describe(to)
	}
}

// Collect implements prometheus.Collector. It takes Options.Timeout and a little more at most. Those that call it
// meanwhile get what Redis has told the first of them.
func (c *Collector) Collect(to chan<- prometheus.Metric) {
	c.events.collect(to)
	if c.o.Local {
		return
	}
	all, _, _ := c.flight.Do("", func() (any, error) { return c.scrape(), nil })
	for _, m := range all.(metrics) {
		to <- m
	}
}

// metrics are what a scrape has found.
type metrics []prometheus.Metric

func (ms *metrics) gauge(d *prometheus.Desc, n float64, labels ...string) {
	*ms = append(*ms, prometheus.MustNewConstMetric(d, prometheus.GaugeValue, n, labels...))
}

func one(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

func (c *Collector) scrape() (ms metrics) {
	ctx, cancel := context.WithTimeout(context.Background(), c.o.Timeout)
	defer cancel()
	began := time.Now()
	err := c.ask(ctx, &ms)
	if c.fleet != nil {
		c.fleet.collect(&ms)
	}
	ms.gauge(up, one(err == nil))
	ms.gauge(scrapeSeconds, time.Since(began).Seconds())
	if err != nil && !c.failed && !c.o.Quiet {
		slog.Warn("shuntprom: a scrape has failed; shunt_up is 0, and this is said once until one succeeds",
			"error", err)
	}
	c.failed = err != nil
	return ms
}

// ask asks Redis for all that it tells.
func (c *Collector) ask(ctx context.Context, ms *metrics) error {
	known, err := c.o.names(ctx)
	if err != nil {
		return err
	}
	names, rest := c.o.bounded(known)
	ms.gauge(channels, float64(len(names)+rest))
	ms.gauge(ungauged, float64(rest))
	if len(names) == 0 { // of no names Overview would give all
		_, err = c.q.Channels(ctx)
		return err
	}
	all, err := c.q.Overview(ctx, names...)
	if err != nil {
		return err
	}
	for i := range all {
		ms.overview(&all[i])
	}
	if c.fleet == nil {
		return nil
	}
	return c.fleet.advance(ctx, c.q, all, minuteOf(all))
}

func (ms *metrics) overview(o *shunt.Overview) {
	name := o.Channel
	ms.gauge(channelUp, one(o.Error == ""), name)
	if o.Error != "" {
		return
	}
	for state, n := range map[shunt.State]int{shunt.StatePrepare: o.Prepare, shunt.StateSuspect: o.Suspect,
		shunt.StateDelay: o.Delay, shunt.StateDead: o.Dead, shunt.StateDone: o.Done} {
		ms.gauge(messages, float64(n), name, string(state))
	}
	ms.gauge(leases, float64(o.Leases), name)
	ms.gauge(receivers, float64(o.Receivers), name)
	ms.gauge(deadReceivers, float64(o.DeadReceivers), name)
	ms.gauge(workers, float64(o.Workers), name)
	if o.OldestAge > 0 || o.Prepare+o.Suspect == 0 {
		ms.gauge(oldest, o.OldestAge.Seconds(), name)
	}
	if o.Delay > 0 {
		ms.gauge(nextDue, o.NextDueIn.Seconds(), name)
	}
	if o.Leases > 0 {
		ms.gauge(leaseEnds, o.LeaseEndsIn.Seconds(), name)
	}
}
