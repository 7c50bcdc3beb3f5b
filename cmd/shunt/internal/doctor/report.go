// Package doctor looks at a live Redis that shunt uses, and says what is wrong, why it matters and what mends it.
package doctor

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/shuntmq/shunt"
)

// Options say how closely Examine looks. Its zero fields are the defaults.
type Options struct {
	// Channels are those that are looked at; none: all.
	Channels []string
	// Within bounds Examine: default 30 s. What was not reached by then is in Report.Limits.
	Within time.Duration
	// Timeout bounds the wait for one reply of Redis: default 3 s.
	Timeout time.Duration
	// Apart is the time between two looks at what may only be moving: default 2 s.
	Apart time.Duration
	// Pause is the rest that Redis has between two steps of a scan: default 1 ms; negative: none.
	Pause time.Duration
	// User is the Redis user whose rights are looked at, by ACL DRYRUN; empty: the one of the pool.
	User string
	// Config lets Mend change settings of Redis by CONFIG SET.
	Config bool
	// MaxSize is the bound of elements that the programs have: default 16 MB, as Queue.MaxSize.
	MaxSize int
	// MaxDead is the bound of dead letters that the programs have: default 10,000, as Queue.MaxDead.
	MaxDead int
	// Huge is how many messages in one state are very many: default 1,000,000.
	Huge int
	// Hot is how many messages a second enqueued to a channel are very many: default 20,000.
	Hot float64
	// Now is this host's clock: default time.Now.
	Now func() time.Time
}

func (o Options) withDefaults() Options {
	o.Within = cmp.Or(o.Within, 30*time.Second)
	o.Timeout = cmp.Or(o.Timeout, 3*time.Second)
	o.Apart = cmp.Or(o.Apart, 2*time.Second)
	o.Pause = max(0, cmp.Or(o.Pause, time.Millisecond))
	o.MaxSize = cmp.Or(o.MaxSize, 16<<20)
	o.MaxDead = cmp.Or(o.MaxDead, 10_000)
	o.Huge = cmp.Or(o.Huge, 1_000_000)
	o.Hot = cmp.Or(o.Hot, 20_000)
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

// Fix says whether Mend mends a finding.
type Fix string

const (
	ByHand  Fix = ""       // a person has to do it
	Safe    Fix = "safe"   // Mend does it, and nothing is lost
	Setting Fix = "config" // Mend does it where Options.Config allows to change Redis
)

// Finding is one thing that is wrong.
type Finding struct {
	Severity shunt.Severity `json:"severity"`
	Kind     Kind           `json:"kind"`
	Channel  string         `json:"channel,omitempty"`
	Key      string         `json:"key,omitempty"` // of Redis, where one key is at fault
	Number   float64        `json:"number"`        // how much, as Text says
	Text     string         `json:"text"`          // what is wrong
	Why      string         `json:"why"`           // why it matters
	Do       string         `json:"do"`            // what mends it: a command, if there is one
	Fix      Fix            `json:"fix,omitempty"`
}

// Report is what Examine found.
type Report struct {
	At       time.Time         `json:"at"`
	Took     time.Duration     `json:"took_ns"`
	Versions map[string]string `json:"versions"` // of Redis, and what it runs on
	Channels int               `json:"channels"`
	Keys     int               `json:"keys"` // of shunt, that were seen
	// Limits says what was only sampled, or not looked at at all, and why.
	Limits   []string  `json:"limits,omitempty"`
	Findings []Finding `json:"findings"` // the worst first
}

// Healthy says that nothing is wrong.
func (r *Report) Healthy() bool { return len(r.Findings) == 0 }

// examination is one call of Examine, or the look of Mend. One goroutine uses it.
type examination struct {
	ctx  context.Context
	q    *shunt.Queue
	pool *redis.Pool
	o    Options

	info   map[string]string // by INFO
	config map[string]string // by CONFIG GET
	skew   time.Duration     // Redis' clock before this host's
	seen   map[string]*channel
	// scanned says that the names of all keys were looked at, so that a channel without any has none.
	scanned bool
	report  Report
}

// Examine looks at Redis, and at the channels. It changes nothing. It reads by short commands, with pauses in scans.
// The Queue needs no more than its Pool; pool is for commands that the Queue has no method for, and may be the same.
// The error is nil if Redis answers: what it refuses is in Report.Limits.
func Examine(ctx context.Context, q *shunt.Queue, pool *redis.Pool, o Options) (Report, error) {
	o = o.withDefaults()
	ctx, cancel := context.WithTimeout(ctx, o.Within)
	defer cancel()
	e := &examination{ctx: ctx, q: q, pool: pool, o: o, seen: make(map[string]*channel)}
	began := time.Now()
	e.report.At = o.Now()
	if err := e.server(); err != nil {
		return e.report, err
	}
	channels, err := e.channels()
	if err != nil {
		return e.report, err
	}
	e.overviews(channels)
	e.scan("{*}.*")
	e.keys()
	e.rights()
	e.look2()
	e.report.Took = time.Since(began)
	rank := []shunt.Severity{shunt.Critical, shunt.Warning, shunt.Notice}
	slices.SortStableFunc(e.report.Findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(slices.Index(rank, a.Severity), slices.Index(rank, b.Severity)),
			strings.Compare(a.Channel, b.Channel))
	})
	return e.report, nil
}

// found adds a finding. Why comes of its kind.
func (e *examination) found(s shunt.Severity, kind Kind, f Finding, text string, args ...any) {
	f.Severity, f.Kind, f.Text = s, kind, fmt.Sprintf(text, args...)
	f.Why = cmp.Or(f.Why, why[kind])
	e.report.Findings = append(e.report.Findings, f)
}

// limit notes what was not looked at.
func (e *examination) limit(text string, args ...any) {
	text = fmt.Sprintf(text, args...)
	if !slices.Contains(e.report.Limits, text) {
		e.report.Limits = append(e.report.Limits, text)
	}
}

// over says that the time is over, and notes what was left out.
func (e *examination) over(what string, args ...any) bool {
	if e.ctx.Err() == nil {
		return false
	}
	e.limit("time was over: "+what, args...)
	return true
}

// rest waits; it returns early at the end of the time.
func (e *examination) rest(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-e.ctx.Done():
	}
}
