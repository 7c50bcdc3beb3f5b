package shuntprom

import (
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/shuntmq/shunt"
)

// other stands for all channels beyond Options.MaxChannels. No channel's name has braces.
const other = "{other}"

// fatal stands for EventReceiverError with Fatal.
const fatal = "fatal"

// figure is one counter of a channel.
type figure struct{ family, value string }

// The families, and the label that each has beside the channel.
const (
	enqueued  = "enqueued_total"
	outcomes  = "outcomes_total"
	moves     = "moves_total"
	incidents = "incidents_total"
)

const handlingHelp = "How long handlers took for one attempt each."

// families are the counters, with their help.
var families = map[string]struct {
	help   string
	labels []string
}{
	enqueued: {"Messages enqueued.", []string{"channel"}},
	outcomes: {"What became of messages after each handling, or in place of one.", []string{"channel", "outcome"}},
	moves: {"Messages that were moved or dropped without a verdict, by the kind of the Event.",
		[]string{"channel", "kind"}},
	incidents: {"What went wrong, by the kind of the Event; fatal: a receiver-error for which waiting will not help.",
		[]string{"channel", "kind"}},
}

// The outcomes.
const (
	acked     = "acked"
	retried   = "retried"
	snoozed   = "snoozed"
	dead      = "dead"
	cancelled = "cancelled"
	expired   = "expired"
)

// told says what an Event counts as. So many as its N count, or one.
var told = map[shunt.EventKind][]figure{
	shunt.EventEnqueued: {{enqueued, ""}},

	shunt.EventAcked:       {{outcomes, acked}},
	shunt.EventRetried:     {{outcomes, retried}},
	shunt.EventSnoozed:     {{outcomes, snoozed}},
	shunt.EventRejected:    {{outcomes, dead}},
	shunt.EventUndecodable: {{outcomes, dead}, {incidents, "undecodable"}},
	shunt.EventPoisoned:    {{outcomes, dead}, {moves, "poisoned"}},
	shunt.EventCancelled:   {{outcomes, cancelled}},
	shunt.EventExpired:     {{outcomes, expired}},

	shunt.EventReleased:  {{moves, "released"}},
	shunt.EventRecovered: {{moves, "recovered"}},
	shunt.EventSuspected: {{moves, "suspected"}},
	shunt.EventLapsed:    {{moves, "lapsed"}}, // with Err its outcome is dead, too
	shunt.EventPromoted:  {{moves, "promoted"}},
	shunt.EventTrimmed:   {{moves, "trimmed"}},

	shunt.EventLateVerdict:        {{incidents, "late-verdict"}},
	shunt.EventUnconfirmedVerdict: {{incidents, "unconfirmed-verdict"}},
	shunt.EventDuplicate:          {{incidents, "duplicate"}},
	shunt.EventTimedOut:           {{incidents, "timed-out"}},
	shunt.EventOrphaned:           {{incidents, "orphaned"}},
	shunt.EventWorkersMissing:     {{incidents, "workers-missing"}},
	shunt.EventHandedOver:         {{incidents, "handed-over"}},
	shunt.EventLeaseLost:          {{incidents, "lease-lost"}},
	shunt.EventReceiversDied:      {{incidents, "receivers-died"}},
	shunt.EventReceiverError:      {{incidents, "receiver-error"}}, // with Fatal it is fatal
	missedTicks:                   {{incidents, "missed-ticks"}},
}

// missedTicks is recur.MissedTicks, whose package many programs do without.
const missedTicks shunt.EventKind = "missed-ticks"

// inMessages are the kinds whose N is a number of messages, or of receivers. N of others is something else.
var inMessages = map[shunt.EventKind]bool{
	shunt.EventEnqueued: true, shunt.EventReleased: true, shunt.EventRecovered: true, shunt.EventSuspected: true,
	shunt.EventPoisoned: true, shunt.EventLapsed: true, shunt.EventPromoted: true, shunt.EventTrimmed: true,
	shunt.EventDuplicate: true, shunt.EventReceiversDied: true, shunt.EventCancelled: true,
}

// events counts the Events of this process.
type events struct {
	most        int
	counters    map[string]*prometheus.CounterVec // by family
	handling    *prometheus.HistogramVec
	disconnects *prometheus.CounterVec
	dropped     prometheus.Counter
	linkUp      prometheus.Gauge

	mu     sync.RWMutex
	of     map[string]*series // by channel
	linked bool               // an Event has said whether the link is up
}

// series are those of one channel.
type series struct {
	counters map[figure]prometheus.Counter
	handling prometheus.Observer
}

func newEvents(most int) *events {
	e := &events{
		most:     most,
		counters: make(map[string]*prometheus.CounterVec),
		handling: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "shunt_handling_seconds",
			Help: handlingHelp, Buckets: bounds}, []string{"channel"}),
		disconnects: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "shunt_link_disconnects_total",
			Help: "How often the connection to Redis was lost; fatal: for what only a person can mend."},
			[]string{"fatal"}),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{Name: "shunt_events_dropped_total",
			Help: "Events that were dropped, because Queue.Events is too slow: all figures of Events are too low."}),
		linkUp: prometheus.NewGauge(prometheus.GaugeOpts{Name: "shunt_link_up",
			Help: "Whether the Queue is connected to Redis. Missing until it was once."}),
		of: make(map[string]*series),
	}
	for family, f := range families {
		e.counters[family] = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "shunt_" + family, Help: f.help},
			f.labels)
	}
	e.disconnects.WithLabelValues("false")
	e.disconnects.WithLabelValues("true")
	return e
}

// channel gives the series of a channel. All of them are there from the first Event on, for a counter that appears with
// its first increment hides that from rate and increase.
func (e *events) channel(name string) *series {
	e.mu.RLock()
	s := e.of[name]
	e.mu.RUnlock()
	if s != nil {
		return s
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.of) >= e.most && e.of[name] == nil {
		name = other
	}
	if s := e.of[name]; s != nil {
		return s
	}
	s = &series{counters: make(map[figure]prometheus.Counter), handling: e.handling.WithLabelValues(name)}
	add := func(f figure) {
		labels := []string{name, f.value}
		s.counters[f] = e.counters[f.family].WithLabelValues(labels[:len(families[f.family].labels)]...)
	}
	for _, fs := range told {
		for _, f := range fs {
			add(f)
		}
	}
	add(figure{incidents, fatal})
	e.of[name] = s
	return s
}

func (e *events) take(ev *shunt.Event) {
	switch ev.Kind {
	case shunt.EventConnected:
		e.link(1)
	case shunt.EventDisconnected:
		e.link(0)
		e.disconnects.WithLabelValues(strconv.FormatBool(ev.Fatal)).Inc()
	case shunt.EventEventsDropped:
		e.dropped.Add(float64(max(0, ev.N)))
	}
	figures := told[ev.Kind]
	if len(figures) == 0 || ev.Channel == "" {
		return
	}
	s, n := e.channel(ev.Channel), 1.0
	if inMessages[ev.Kind] {
		n = float64(max(1, ev.N))
	}
	for _, f := range figures {
		if ev.Kind == shunt.EventReceiverError && ev.Fatal {
			f.value = fatal
		}
		s.counters[f].Add(n)
	}
	if ev.Kind == shunt.EventLapsed && ev.Err != nil {
		s.counters[figure{outcomes, dead}].Add(n)
	}
	if figures[0].family == outcomes && ev.Took > 0 {
		s.handling.Observe(ev.Took.Seconds())
	}
}

func (e *events) link(up float64) {
	e.linkUp.Set(up)
	e.mu.Lock()
	e.linked = true
	e.mu.Unlock()
}

func (e *events) describe(to chan<- *prometheus.Desc) {
	for _, v := range e.counters {
		v.Describe(to)
	}
	e.handling.Describe(to)
	e.disconnects.Describe(to)
	e.dropped.Describe(to)
	e.linkUp.Describe(to)
}

func (e *events) collect(to chan<- prometheus.Metric) {
	for _, v := range e.counters {
		v.Collect(to)
	}
	e.handling.Collect(to)
	e.disconnects.Collect(to)
	e.dropped.Collect(to)
	e.mu.RLock()
	linked := e.linked
	e.mu.RUnlock()
	if linked {
		e.linkUp.Collect(to)
	}
}
