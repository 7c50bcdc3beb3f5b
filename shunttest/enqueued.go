package shunttest

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/shuntmq/shunt"
)

// Enqueue is a message that waits in its channel.
type Enqueue struct{ shunt.Entry }

// In is how long after its enqueue it is due; 0 if it was for now.
func (d *Enqueue) In() time.Duration {
	if d.State != shunt.StateDelay {
		return 0
	}
	return d.DueAt.Sub(d.EnqueuedAt)
}

// Enqueued returns the messages of a channel that were enqueued and not taken since. First come the ready ones, in the
// order in which they will be taken, then the delayed ones, the earliest due first. Messages that wait for a retry are
// among them, with their Attempts. Payloads are as Marshal made them, where Queue.Payloads can tell.
func (q *Queue) Enqueued(channel string) []Enqueue {
	q.t.Helper()
	ds, err := q.enqueued(channel)
	if err != nil {
		q.t.Fatalf("shunttest: %v", err)
	}
	return ds
}

// enqueued lists several channels, one after another.
func (q *Queue) enqueued(channels ...string) (ds []Enqueue, err error) {
	for _, channel := range channels {
		for _, state := range []shunt.State{shunt.StatePrepare, shunt.StateDelay} {
			es, err := q.own.List(context.Background(), channel, state, 0, 0)
			if err != nil {
				return nil, err
			}
			for _, e := range es {
				if plain, err := q.own.PayloadOf(context.Background(), e); err == nil {
					e.Payload, e.PayloadSize = plain, len(plain)
				}
				ds = append(ds, Enqueue{e})
			}
		}
	}
	return ds, nil
}

// Condition is what AssertEnqueued asks of a message besides its payload.
type Condition func(*expectation)

type expectation struct {
	times   int
	in      *time.Duration
	headers map[string]string
}

// inTolerance is for the time that passes between the program's asking the clock, or the test's, and the enqueue.
const inTolerance = time.Second

// In asks that the message is due d after its enqueue, give or take a second. In(0) asks that it was enqueued for now.
func In(d time.Duration) Condition { return func(x *expectation) { x.in = &d } }

// Header asks for one pair that travels with the message. There may be others.
func Header(key, value string) Condition {
	return func(x *expectation) {
		if x.headers == nil {
			x.headers = make(map[string]string)
		}
		x.headers[key] = value
	}
}

// Times asks that there are n such messages instead of one.
func Times(n int) Condition { return func(x *expectation) { x.times = n } }

func (x *expectation) holds(d *Enqueue) bool {
	if x.in != nil {
		later := d.State == shunt.StateDelay
		if later != (*x.in > 0) || later && (d.In()-*x.in).Abs() > inTolerance {
			return false
		}
	}
	for k, v := range x.headers {
		if got, ok := d.Headers[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// AssertEnqueued fails the test, which goes on, unless exactly one message with m's payload waits in m's channel and
// meets the conditions. The payload is the bytes that an enqueue would make. Without In the message may be due at any
// time.
func (q *Queue) AssertEnqueued(m shunt.IMessage, conditions ...Condition) {
	q.t.Helper()
	q.assert(m, 1, conditions)
}

// AssertNotEnqueued fails the test, which goes on, if a message with m's payload waits in m's channel and meets the
// conditions.
func (q *Queue) AssertNotEnqueued(m shunt.IMessage, conditions ...Condition) {
	q.t.Helper()
	q.assert(m, 0, conditions)
}

func (q *Queue) assert(m shunt.IMessage, times int, conditions []Condition) {
	q.t.Helper()
	x := expectation{times: times}
	for _, c := range conditions {
		c(&x)
	}
	e, err := q.element(m, nil, true)
	if err != nil {
		q.t.Fatalf("shunttest: the message that is asked for: %v", err)
	}
	payload := e.Payload
	channel := m.Channel()
	there := q.Enqueued(channel)
	n := 0
	for i := range there {
		if bytes.Equal(there[i].Payload, payload) && there[i].Type == e.Type() && x.holds(&there[i]) {
			n++
		}
	}
	if n != x.times {
		q.t.Errorf("shunttest: enqueued to %q: %d of this message, want %d\n%s", channel, n, x.times, x.table(payload,
			there))
	}
}

// AssertEmpty fails the test, which goes on, if one of the channels has a message that is ready, delayed, suspect or
// being handled. Without an argument it looks at all channels. Dead messages do not count.
func (q *Queue) AssertEmpty(channels ...string) {
	q.t.Helper()
	if len(channels) == 0 {
		channels = channelsOf(q.redis)
	}
	for _, channel := range channels {
		there := q.Enqueued(channel)
		for _, state := range []shunt.State{shunt.StateSuspect, shunt.StateDoing} {
			es, err := q.own.List(context.Background(), channel, state, 0, 0)
			if err != nil {
				q.t.Fatalf("shunttest: %v", err)
			}
			for _, e := range es {
				there = append(there, Enqueue{e})
			}
		}
		if len(there) > 0 {
			q.t.Errorf("shunttest: %q is not empty: %d messages\n%s", channel, len(there), table(rows(there)))
		}
	}
}

// row is one message in a failure's text.
type row struct{ lead, when, payload, rest string }

// table lists what was asked for above what there is, payload under payload, so that a difference meets the eye.
func (x *expectation) table(payload []byte, there []Enqueue) string {
	want := row{lead: "want", when: "any time", payload: show(payload), rest: showHeaders(x.headers)}
	if x.in != nil {
		want.when = when(*x.in)
	}
	all := append([]row{want}, rows(there)...)
	if len(there) == 0 {
		all = append(all, row{lead: "have", when: "nothing"})
	}
	return table(all)
}

// shown bounds how many messages a failure lists, and shownBytes how much of a payload.
const (
	shown      = 20
	shownBytes = 500
)

func rows(there []Enqueue) []row {
	var all []row
	for i := range there {
		d := &there[i]
		if i == shown {
			all = append(all, row{when: "…", payload: fmt.Sprintf("and %d more", len(there)-shown)})
			break
		}
		r := row{when: when(d.In()), payload: show(d.Payload), rest: showHeaders(d.Headers)}
		if d.State != shunt.StatePrepare && d.State != shunt.StateDelay {
			r.when = string(d.State)
		}
		if d.Attempts > 0 {
			r.rest += fmt.Sprintf("  handled %d times: %s", d.Attempts, d.Failure)
		}
		all = append(all, r)
	}
	if len(all) > 0 {
		all[0].lead = "have"
	}
	return all
}

func table(all []row) string {
	width := 0
	for _, r := range all {
		width = max(width, utf8.RuneCountInString(r.when))
	}
	var b strings.Builder
	for _, r := range all {
		line := fmt.Sprintf("\t%-4s  %-*s  %s%s", r.lead, width, r.when, r.payload, r.rest)
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func when(in time.Duration) string {
	if in == 0 {
		return "now"
	}
	if in > time.Minute {
		return "in " + in.Round(time.Second).String()
	}
	return "in " + in.Round(100*time.Millisecond).String()
}

// show is a payload as one line of text.
func show(payload []byte) string {
	text, more := payload, ""
	if len(payload) > shownBytes {
		text, more = payload[:shownBytes], fmt.Sprintf("… (%d bytes)", len(payload))
	}
	if !utf8.Valid(payload) || bytes.ContainsFunc(text, func(r rune) bool { return r < ' ' }) {
		return fmt.Sprintf("%q%s", text, more)
	}
	return strings.ToValidUTF8(string(text), "") + more // it may have been cut within a character
}

func showHeaders(headers map[string]string) string {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(headers)) {
		fmt.Fprintf(&b, "  %s=%q", k, headers[k])
	}
	return b.String()
}
