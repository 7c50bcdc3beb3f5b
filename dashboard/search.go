package dashboard

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/shuntmq/shunt"
)

const (
	// messagesShown is how many messages a page has.
	messagesShown = 50
	// countLooks bounds how many messages are looked at to count those that fit.
	countLooks = 100_000
	// maxGroups bounds the groups of failures on a page.
	maxGroups = 200
)

// criteria say which messages are meant, as a form has them.
type criteria struct {
	Failure  string // is part of the failure
	Like     string // is the failure with # for numbers and ids
	Type     string
	IDPrefix string
	Header   string // key=value
	Attempts string // failed so often at least
}

func (q *request) criteria() criteria {
	get := func(key string) string { return strings.TrimSpace(q.form.Get(key)) }
	// A group's text is as it is, but for the ends of its lines, which a browser sends in its own way.
	like := strings.ReplaceAll(q.form.Get("like"), "\r\n", "\n")
	return criteria{get("failure"), like, get("type"), get("idprefix"), get("header"), get("attempts")}
}

// Query is the criteria as a link has them.
func (c criteria) Query() url.Values {
	v := url.Values{}
	for _, pair := range c.Pairs() {
		v.Set(pair[0], pair[1])
	}
	return v
}

// Pairs are those criteria that are set, by the names of the form's fields.
func (c criteria) Pairs() (set [][2]string) {
	for _, pair := range [][2]string{{"failure", c.Failure}, {"like", c.Like}, {"type", c.Type},
		{"idprefix", c.IDPrefix}, {"header", c.Header}, {"attempts", c.Attempts}} {
		if pair[1] != "" {
			set = append(set, pair)
		}
	}
	return set
}

// Any says whether they leave out anything.
func (c criteria) Any() bool { return c != criteria{} }

// String is for the audit.
func (c criteria) String() string {
	var parts []string
	for _, pair := range c.Pairs() {
		parts = append(parts, fmt.Sprintf("%s=%q", pair[0], pair[1]))
	}
	if parts == nil {
		return "all"
	}
	return cut(4000, strings.Join(parts, " "))
}

// filter is what the criteria mean. Failures and headers are judged as the user sees them, so that a search tells
// nothing that is masked.
func (d *Dashboard) filter(c criteria) shunt.Filter {
	f := shunt.Filter{FailureLike: c.Like, Type: c.Type, IDPrefix: c.IDPrefix, MinAttempts: max(0, atoi(c.Attempts))}
	if c.Failure == "" && c.Header == "" && (c.Like == "" || !d.Masks()) {
		return f
	}
	key, value, hasValue := strings.Cut(c.Header, "=")
	f.Match = func(e shunt.Entry) bool {
		shown := d.masked(e)
		if c.Like != "" && shown.Failure != e.Failure || !strings.Contains(shown.Failure, c.Failure) {
			return false
		}
		v, has := shown.Headers[key]
		return c.Header == "" || has && (!hasValue || v == value)
	}
	return f
}

// masked is what may be shown of a message.
func (d *Dashboard) masked(e shunt.Entry) shunt.Entry {
	if d.o.Mask == nil {
		return e
	}
	return d.o.Mask(e)
}

// Masks says whether something is hidden.
func (d *Dashboard) Masks() bool { return d.o.Mask != nil }

// count is how many messages of a state fit; exact says that all were looked at.
func (q *request) count(ctx context.Context, channel string, s shunt.State, c criteria) (n int, exact bool, err error) {
	if !c.Any() {
		stats, err := q.q.Stats(ctx, channel)
		return stats[s].Count, true, err
	}
	o := shunt.BrowseOptions{Channel: channel, State: s, Limit: 1000, Filter: q.filter(c)}
	for looked := 0; looked < countLooks; {
		page, err := q.q.Browse(ctx, o)
		if n += len(page.Entries); err != nil || page.Next == "" {
			return n, true, err
		}
		// A page of nothing counts, too, or there might be no end.
		looked, o.From = looked+max(1, page.Looked), page.Next
	}
	return n, false, nil
}
