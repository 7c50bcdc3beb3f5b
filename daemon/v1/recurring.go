package v1

import (
	"context"
	"net/http"
	"strconv"
	"time"
	"unicode"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/recur"
)

// recurringJSON is a recurring message.
type recurringJSON struct {
	Name    string            `json:"name"`
	Queue   string            `json:"queue"`
	Spec    string            `json:"spec"` // as recur.Spec writes it
	Fault   string            `json:"fault,omitempty"`
	Missed  string            `json:"missed"`
	Paused  bool              `json:"paused"`
	NextAt  *time.Time        `json:"next_at,omitempty"`
	LastAt  *time.Time        `json:"last_at,omitempty"`
	Count   int               `json:"count"`
	Headers map[string]string `json:"headers,omitempty"`
	payload
}

func recurringOf(e recur.Entry) recurringJSON {
	j := recurringJSON{Name: e.Name, Queue: queueOf(e.Channel), Spec: e.Spec.String(), Missed: e.Missed.String(),
		Paused: e.Paused, NextAt: instant(e.Next), LastAt: instant(e.Last), Count: e.Count, Headers: e.Headers,
		payload: payloadOf(e.Payload)}
	if err := e.Spec.Err(); err != nil {
		j.Fault = err.Error()
	}
	return j
}

func (a *API) listRecurring(c *call) {
	c.noParameters()
	if !a.none(c) || c.bad() {
		return
	}
	es, err := (&recur.Timetable{Queue: c.pool}).List(c.r.Context(), c.channel())
	if err != nil && len(es) == 0 {
		c.failed("list recurring messages", err)
		return
	}
	all := make([]recurringJSON, len(es))
	for i, e := range es {
		all[i] = recurringOf(e)
	}
	_ = c.answer(http.StatusOK, map[string]any{"recurring": all})
}

// recurringName is that of the path.
func (c *call) recurringName() string {
	name := c.path["name"]
	bad := len(name) > 200
	for _, r := range name {
		bad = bad || !unicode.IsPrint(r) || r == unicode.ReplacementChar
	}
	if bad {
		c.fault("path", "name", "want 1 to 200 bytes that can be printed")
	}
	return name
}

// putRecurring adds a recurring message, or gives it another definition.
func (a *API) putRecurring(c *call) {
	name := c.recurringName()
	c.noParameters()
	most := a.Budget.Limits().MaxBody
	f, ok := a.objectUpTo(c, most*4/3+smallBody)
	if !ok {
		return
	}
	spec, opts := f.spec(), []recur.Option(nil)
	if f.has("missed") {
		opts = append(opts, recur.Missed(f.missed()))
	}
	var o order
	o.payload, _ = f.bytes("payload")
	if int64(len(o.payload)) > most {
		f.fault("payload", "it has %d bytes: want at most %d", len(o.payload), most)
	}
	o.options(f, false)
	f.end()
	if c.bad() {
		return
	}
	opts = append(opts, recur.With(o.opts...))
	c.change("add a recurring message", func(ctx context.Context) error {
		add := func() error {
			t := &recur.Timetable{Queue: c.pool}
			return t.Add(ctx, name, spec, shunt.Raw(c.channel(), o.payload), opts...)
		}
		if a.Recurring == nil {
			return add()
		}
		return a.Recurring.add(ctx, c.poolName, c.channel(), add)
	})
}

// spec reads when a message recurs.
func (f *fields) spec() recur.Spec {
	cron, isCron := f.string("cron")
	zone, _ := f.string("zone")
	every := f.integer("every_ms", 0, recur.MinInterval.Milliseconds(), maxMillis)
	s := recur.Cron(cron, zone)
	switch {
	case isCron == f.has("every_ms"):
		f.fault("cron", "want either cron or every_ms")
		return s
	case !isCron:
		if f.has("zone") {
			f.fault("zone", "it goes with cron: intervals have no zone")
		}
		return recur.Every(time.Duration(max(every, recur.MinInterval.Milliseconds())) * time.Millisecond)
	}
	if err := s.Err(); err != nil {
		f.fault("cron", "%v", err)
	}
	return s
}

// missed reads what happens to missed ticks: skip, one, or how many of the latest.
func (f *fields) missed() recur.Policy {
	f.read["missed"] = true
	text := string(f.raw["missed"])
	switch text {
	case `"skip"`:
		return recur.Skip
	case `"one"`:
		return recur.One
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > recur.MaxAll {
		f.fault("missed", "want skip, one, or a number from 1 to %d", recur.MaxAll)
		return recur.One
	}
	return recur.All(n)
}

func (a *API) deleteRecurring(c *call) { a.changeRecurring(c, "remove", (*recur.Timetable).Remove) }
func (a *API) pauseRecurring(c *call)  { a.changeRecurring(c, "pause", (*recur.Timetable).Pause) }
func (a *API) resumeRecurring(c *call) { a.changeRecurring(c, "resume", (*recur.Timetable).Resume) }

// enqueueRecurring enqueues a recurring message at once, beside its ticks.
func (a *API) enqueueRecurring(c *call) { a.changeRecurring(c, "enqueue", (*recur.Timetable).Enqueue) }

func (a *API) changeRecurring(
	c *call, what string, do func(*recur.Timetable, context.Context, string, string) error,
) {
	name := c.recurringName()
	c.noParameters()
	if !a.none(c) || c.bad() {
		return
	}
	c.change(what+" a recurring message", func(ctx context.Context) error {
		return do(&recur.Timetable{Queue: c.pool}, ctx, c.channel(), name)
	})
}
