package dashboard

import (
	"cmp"
	"fmt"
	"html/template"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/shuntmq/shunt"
)

// rowsAPage bounds a table of channels.
const rowsAPage = 200

// row is a channel in a table.
type row struct {
	O      *shunt.Overview
	Fields map[string]string // as shown, by name
	Cells  []cell            // the same in order: thousands of look-ups are slow in a template
	Level  string            // "bad", "warn" or empty
}

type cell struct {
	Key, Text string
	Dead      bool // it leads to dead letters
}

// overviewPage is what the overview shows of all channels.
type overviewPage struct {
	Rows     []row
	Sum      map[string]string
	Columns  []column
	Find     string
	Next     template.URL // query of the next page
	Findings []shunt.Finding
}

type column struct {
	Key    string
	Query  template.URL // sorts by it
	Sort   string       // aria-sort
	Number bool
}

// orders compare by each column, the greatest first; names the other way.
var orders = []struct {
	key string
	cmp func(a, b *shunt.Overview) int
}{
	{"channel", func(a, b *shunt.Overview) int { return -strings.Compare(a.Channel, b.Channel) }},
	{"waiting", by(func(o *shunt.Overview) int64 { return int64(o.Prepare + o.Suspect) })},
	{"oldest", by(func(o *shunt.Overview) int64 { return int64(o.OldestAge) })},
	{"in", by(func(o *shunt.Overview) int64 { return o.Lately.Enqueued })},
	{"out", by(func(o *shunt.Overview) int64 { return o.Lately.Acked })},
	{"failed", by(func(o *shunt.Overview) int64 { return o.Lately.Retried + o.Lately.Dead })},
	{"p95", by(func(o *shunt.Overview) int64 { return int64(o.Lately.Handling.Quantile(0.95)) })},
	{"drain", by(func(o *shunt.Overview) int64 { return int64(o.DrainTime()) })},
	{"delay", by(func(o *shunt.Overview) int64 { return int64(o.Delay) })},
	{"leases", by(func(o *shunt.Overview) int64 { return int64(o.Leases) })},
	{"dead", by(func(o *shunt.Overview) int64 { return int64(o.Dead) })},
	{"workers", by(func(o *shunt.Overview) int64 { return int64(o.Workers) })},
}

func by(of func(*shunt.Overview) int64) func(a, b *shunt.Overview) int {
	return func(a, b *shunt.Overview) int { return -cmp.Compare(of(a), of(b)) }
}

// fields are the texts of a channel that live pages replace.
func (q *request) fields(o *shunt.Overview) map[string]string {
	c := &o.Lately
	d := time.Since(c.From)
	if d <= 0 || d > c.To.Sub(c.From) { // this clock is not the server's
		d = c.To.Sub(c.From)
	}
	drain := "–"
	switch t := o.DrainTime(); {
	case t < 0 && o.Trend > 0:
		drain = q.T("grows", thousands(int64(o.Trend)))
	case t > 0:
		drain = duration(t, q.Lang)
	}
	oldest, failures := "–", c.Retried+c.Dead
	if o.OldestAge > 0 {
		oldest = duration(o.OldestAge, q.Lang)
	}
	return map[string]string{
		"waiting": q.Num(o.Prepare + o.Suspect), "suspect": q.Num(o.Suspect), "oldest": oldest,
		"in": rate(c.Enqueued, d), "out": rate(c.Acked, d), "failed": percent(failures, failures+c.Acked),
		"p95": q.Dur(c.Handling.Quantile(0.95)), "wait95": q.Dur(c.Wait.Quantile(0.95)), "drain": drain,
		"delay": q.Num(o.Delay), "leases": q.Num(o.Leases), "dead": q.Num(o.Dead), "done": q.Num(o.Done),
		"workers": q.Num(o.Workers), "receivers": q.Num(o.Receivers),
	}
}

func level(o *shunt.Overview) string {
	failures := o.Lately.Retried + o.Lately.Dead
	switch {
	case o.Error != "", o.Prepare+o.Suspect > 0 && o.Receivers+o.Leases == 0 && o.OldestAge > time.Minute:
		return "bad"
	case o.Suspect > 0, o.Lately.Dead > 0, failures > 9 && failures >= o.Lately.Acked:
		return "warn"
	}
	return ""
}

// arrange filters, sorts and cuts channels as the query says.
func (q *request) arrange(all []shunt.Overview) (p overviewPage) {
	p.Find = q.form.Get("q")
	sort, up := q.form.Get("sort"), q.form.Get("up") != ""
	order := orders[1]
	for _, o := range orders {
		if o.key == sort {
			order = o
		}
	}
	var total shunt.Overview
	for i := range all {
		o := &all[i]
		c := &o.Lately
		total.Prepare, total.Suspect = total.Prepare+o.Prepare, total.Suspect+o.Suspect
		total.Delay, total.Dead, total.Workers = total.Delay+o.Delay, total.Dead+o.Dead, total.Workers+o.Workers
		total.Leases, total.Receivers = total.Leases+o.Leases, total.Receivers+o.Receivers
		total.OldestAge = max(total.OldestAge, o.OldestAge)
		total.Lately.From, total.Lately.To = c.From, c.To
		total.Lately.Enqueued += c.Enqueued
		total.Lately.Acked += c.Acked
		total.Lately.Retried += c.Retried
		total.Lately.Dead += c.Dead
		if strings.Contains(strings.ToLower(o.Channel), strings.ToLower(p.Find)) {
			p.Rows = append(p.Rows, row{O: o})
		}
	}
	p.Sum = q.fields(&total)
	p.Sum["channels"], p.Sum["channels.raw"] = q.Num(len(all)), fmt.Sprint(len(all))
	slices.SortFunc(p.Rows, func(a, b row) int {
		c := order.cmp(a.O, b.O)
		if order.key == "channel" != up { // names begin with the least
			c = -c
		}
		return cmp.Or(c, strings.Compare(a.O.Channel, b.O.Channel))
	})
	from := min(max(0, atoi(q.form.Get("from"))), len(p.Rows))
	query := func(set ...string) template.URL {
		v := url.Values{}
		for _, key := range []string{"q", "sort", "up"} {
			if q.form.Get(key) != "" {
				v.Set(key, q.form.Get(key))
			}
		}
		for i := 0; i < len(set); i += 2 {
			v.Set(set[i], set[i+1])
		}
		return template.URL(v.Encode())
	}
	if from+rowsAPage < len(p.Rows) {
		p.Next = query("from", fmt.Sprint(from+rowsAPage))
	}
	p.Rows = p.Rows[from:min(from+rowsAPage, len(p.Rows))]
	for i := range p.Rows {
		r := &p.Rows[i]
		r.Fields, r.Level = q.fields(r.O), level(r.O)
		for _, o := range orders[1:] { // the first is the name
			r.Cells = append(r.Cells, cell{o.key, r.Fields[o.key], o.key == "dead" && r.O.Dead > 0})
		}
	}
	for _, o := range orders {
		c := column{Key: o.key, Query: query("sort", o.key, "up", ""), Number: o.key != "channel"}
		if o.key == order.key {
			if c.Sort = "descending"; up != (o.key == "channel") {
				c.Sort = "ascending"
			}
			if !up {
				c.Query = query("sort", o.key, "up", "1")
			}
		}
		p.Columns = append(p.Columns, c)
	}
	return p
}

func (q *request) overview() error {
	began := time.Now()
	all, err := q.q.Overview(q.r.Context())
	if err != nil {
		return err
	}
	q.hub.learn(all, began, true)
	p := q.arrange(all)
	if p.Findings, err = q.q.HealthOf(q.r.Context(), all); err != nil {
		return err
	}
	return q.show("overview", q.T("overview"), p)
}

// finding is one in a list.
type finding struct {
	*request
	F     shunt.Finding
	Title string
}

// found are findings as a page lists them: the worst first, the rest behind a fold.
type found struct{ First, Rest []finding }

// findingsOpen is how many findings are outside the fold.
const findingsOpen = 4

// Found makes a list of findings.
func (q *request) Found(fs []shunt.Finding) (all found) {
	for i, f := range fs {
		title := string(f.Kind)
		if _, is := texts["finding."+title]; is {
			title = q.T("finding." + title)
		}
		if one := (finding{q, f, title}); i < findingsOpen || len(fs) == findingsOpen+1 {
			all.First = append(all.First, one)
		} else {
			all.Rest = append(all.Rest, one)
		}
	}
	return all
}

// Tiles are the sums on top of the overview.
func (v view) Tiles() []string {
	return []string{"waiting", "oldest", "in", "out", "failed", "delay", "leases", "dead", "workers"}
}
