package top

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
	"github.com/shuntmq/shunt"
)

// detailLines are one channel: states, what was counted, receivers, and what each worker holds.
func (m *model) detailLines() (lines []string, chosen int) {
	lines = []string{m.paint(bold, fit("STATE", 10)+right("COUNT", 8)+right("OLDEST", 9)+right("NEXT DUE", 10)+"   "+
		fit("10 MIN", 12)+right("p50", 7)+right("p95", 7)+right("p99", 7))}
	var beside []string
	if d := m.of; d != nil {
		o, c, p := &d.overview, &d.overview.Lately, m.paces[d.overview.Channel]
		for _, h := range []struct {
			name string
			h    *shunt.Histogram
		}{{"wait", &c.Wait}, {"handling", &c.Handling}, {"end to end", &c.EndToEnd}} {
			beside = append(beside, fit(h.name, 12)+right(span(h.h.Quantile(.5)), 7)+right(span(h.h.Quantile(.95)), 7)+
				right(span(h.h.Quantile(.99)), 7))
		}
		beside = append(beside,
			fmt.Sprintf("in %s/s  out %s/s  failed %s", rate(p.inS), rate(p.outS), percent(failing(o))),
			fmt.Sprintf("retried %s  dead %s  late %s", count(int(c.Retried)), count(int(c.Dead)), count(int(c.Late))),
			fmt.Sprintf("trend %+d in %s  empty in %s", o.Trend, span(o.TrendOver), drain(o)),
			fmt.Sprintf("recovered %s  expired %s", count(int(c.Recovered)), count(int(c.Expired))))
	}
	for i, s := range shunt.States {
		text := fit(string(s), 10)
		if m.of != nil {
			st := m.of.stats[s]
			text += right(count(st.Count), 8) + right(span(st.OldestAge), 9) + right(span(st.NextDueIn), 10)
		} else {
			text += strings.Repeat(" ", 27)
		}
		if i < len(beside) {
			text += "   " + beside[i]
		}
		lines = append(lines, text)
	}
	chosen = m.row + 1
	if m.of == nil {
		return append(lines, "", "looking ..."), chosen
	}
	lines = append(lines, "", m.paint(bold, fit("RECEIVER", 34)+right("WORKERS", 8)+right("HOLDS", 7)+right("LEASE",
		8)+"  STATE"))
	for _, r := range m.of.receivers {
		state := "alive"
		if !r.Alive {
			state = m.paint(yellow, "dead")
		}
		lines = append(lines, fit(clean(r.Name), 34)+right(count(r.Workers), 8)+right(count(r.Holding), 7)+
			right(span(r.Lease), 8)+"  "+state)
	}
	if len(m.of.receivers) == 0 {
		lines = append(lines, "none")
	}
	lines = append(lines, "", m.paint(bold, fit("HELD BY", 12)+right("FOR", 8)+"  "+fit("MESSAGE",
		28)+right("ATTEMPT", 8)+
		right("SIZE", 8)+"  ID"))
	if m.row >= len(shunt.States) {
		chosen = len(lines) + m.row - len(shunt.States)
	}
	for _, e := range m.of.held {
		long := ">" + span(max(time.Second, m.at.Sub(m.since[e.Receiver+e.Serial])))
		if at, is := m.of.started[e.Serial]; is {
			long = span(max(time.Millisecond, m.at.Sub(at)))
		}
		worker := fmt.Sprintf("%s.%d", tail(e.Receiver), e.Worker)
		lines = append(lines, fit(worker, 12)+right(long, 8)+"  "+fit(cmp.Or(e.Serial, "bare"), 28)+
			right(count(e.Attempts+1), 8)+right(size(e.PayloadSize), 8)+"  "+clean(e.ID))
	}
	if len(m.of.held) == 0 {
		lines = append(lines, "nothing")
	}
	return lines, chosen
}

// tail is what tells one incarnation from another in few cells: the end of its ULID.
func tail(receiver string) string {
	name, _, _ := strings.Cut(receiver, "-")
	return clean(name[max(0, len(name)-6):])
}

// pageLines are the messages of one state.
func (m *model) pageLines() []string {
	lines := []string{m.paint(bold, fit("MESSAGE", 27)+right("AGE", 6)+right("TRIED", 6)+right("SIZE", 8)+"  "+
		"ID, FAILURE OR PAYLOAD")}
	if m.page == nil {
		return append(lines, "looking ...")
	}
	for _, e := range m.page.Entries {
		what := string(e.Payload)
		if e.Failure != "" {
			what = e.Failure
		}
		if e.ID != "" {
			what = e.ID + "  " + what
		}
		age := time.Duration(0)
		if !e.EnqueuedAt.IsZero() {
			age = max(time.Second, m.at.Sub(e.EnqueuedAt))
		}
		lines = append(lines, fit(cmp.Or(e.Serial, "bare"), 27)+right(span(age), 6)+right(count(e.Attempts), 6)+
			right(size(e.PayloadSize), 8)+"  "+clean(what))
	}
	switch {
	case m.page.Next != "":
		lines = append(lines, m.paint(dim, "n: more"))
	case len(m.page.Entries) == 0:
		lines = append(lines, "none")
	}
	return lines
}

// messageLines are one message, whole, wrapped.
func (m *model) messageLines() (lines []string) {
	e := m.entry
	if e == nil {
		return []string{"looking ..."}
	}
	field := func(name, value string) {
		if value != "" {
			lines = append(lines, m.paint(bold, fit(name, 12))+clean(value))
		}
	}
	at := func(name string, t time.Time) {
		if !t.IsZero() {
			field(name, fmt.Sprintf("%s (%s)", t.Local().Format(time.DateTime+".000"), span(m.at.Sub(t))))
		}
	}
	field("state", string(e.State))
	field("serial", e.Serial)
	field("id", e.ID)
	field("type", e.Type)
	field("attempts", fmt.Sprint(e.Attempts))
	if e.Recoveries > 0 {
		field("recoveries", fmt.Sprint(e.Recoveries))
	}
	at("enqueued", e.EnqueuedAt)
	at("due", e.DueAt)
	at("died", e.DiedAt)
	at("lease ends", e.LeaseEndsAt)
	at("ended", e.EndedAt)
	field("outcome", string(e.Outcome.Kind))
	if e.Receiver != "" {
		field("held by", fmt.Sprintf("%s, worker %d", e.Receiver, e.Worker))
	}
	field("failure", cmp.Or(e.Failure, e.Outcome.Failure))
	for _, k := range slices.Sorted(maps.Keys(e.Headers)) {
		field("header", k+": "+e.Headers[k])
	}
	field("size", size(e.PayloadSize))
	lines = append(lines, "")
	payload := e.Payload[:min(len(e.Payload), mostShown)]
	var pretty any
	text := string(payload)
	if len(e.Payload) <= mostShown && json.Unmarshal(payload, &pretty) == nil {
		if b, err := json.MarshalIndent(json.RawMessage(payload), "", "  "); err == nil {
			text = string(b)
		}
	} else if !utf8.Valid(payload) {
		text = fmt.Sprintf("%x", payload)
	}
	for line := range strings.SplitSeq(text, "\n") {
		lines = append(lines, strings.Split(ansi.Hardwrap(clean(line), max(1, m.width), true), "\n")...)
	}
	if len(e.Payload) > mostShown {
		lines = append(lines, fmt.Sprintf("... and %s more", size(len(e.Payload)-mostShown)))
	}
	return lines
}
