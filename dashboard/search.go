package dashboard

import (
	"context"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/shuntmq/shunt"
)

const (
	// messagesShown is how many messages a page has at least, if there are so many.
	messagesShown = 50
	// searchLooks bounds how many messages one page of a search looks at.
	searchLooks = 5000
	// countLooks bounds how many messages are looked at to count those that fit, or to group them.
	countLooks = 20_000
	// maxGroups bounds the groups of failures on a page; what is in no group is counted together.
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
	return criteria{get("failure"), get("like"), get("type"), get("idprefix"), get("header"), get("attempts")}
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

// fits judges a message as the user sees it, so that a search tells nothing that is masked.
func (c criteria) fits(e *shunt.Entry) bool {
	key, value, hasValue := strings.Cut(c.Header, "=")
	if c.Header != "" {
		if v, has := e.Headers[key]; !has || hasValue && v != value {
			return false
		}
	}
	return strings.Contains(e.Failure, c.Failure) && (c.Like == "" || failureLike(e.Failure) == c.Like) &&
		(c.Type == "" || e.Type == c.Type) && strings.HasPrefix(e.ID, c.IDPrefix) && e.Attempts >= atoi(c.Attempts)
}

// filter is for the methods that act on all that fit.
func (q *request) filter(c criteria) shunt.Filter {
	if !c.Any() {
		return shunt.Filter{}
	}
	d := q.Dashboard // a bulk action outlives the request
	return shunt.Filter{Match: func(e shunt.Entry) bool { e = d.masked(e); return c.fits(&e) }}
}

var variable = regexp.MustCompile(`\b[0-9A-HJKMNP-TV-Z]{26}\b|\b[0-9a-fA-F]{8,}(-[0-9a-fA-F]{4,})*\b|[0-9]+`)

// failureLike is a failure with # for what differs from message to message.
func failureLike(text string) string { return cut(300, variable.ReplaceAllString(text, "#")) }

// masked is what may be shown of a message.
func (d *Dashboard) masked(e shunt.Entry) shunt.Entry {
	if d.o.Mask == nil {
		return e
	}
	return d.o.Mask(e)
}

// Masks says whether something is hidden.
func (d *Dashboard) Masks() bool { return d.o.Mask != nil }

// each shows the messages of a state that fit to give, a page at a time, until it returns false or so many were looked
// at. next goes on behind the last page.
func (q *request) each(
	ctx context.Context, o shunt.BrowseOptions, c criteria, looks int, give func(es []shunt.Entry) bool,
) (looked int, next string, err error) {
	for {
		page, err := q.q.Browse(ctx, o)
		if err != nil {
			return looked, o.From, err
		}
		looked += len(page.Entries)
		var fit []shunt.Entry
		for _, e := range page.Entries {
			if e = q.masked(e); c.fits(&e) {
				fit = append(fit, e)
			}
		}
		// a page may be empty, because all in it were cancelled: it counts, too, or it would never end
		if looks -= max(1, len(page.Entries)); !give(fit) || page.Next == "" || looks <= 0 {
			return looked, page.Next, nil
		}
		o.From = page.Next
	}
}

// count is how many messages of a state fit; exact says that all were looked at.
func (q *request) count(ctx context.Context, channel string, s shunt.State, c criteria) (n int, exact bool, err error) {
	if !c.Any() {
		stats, err := q.q.Stats(ctx, channel)
		return stats[s].Count, true, err
	}
	_, next, err := q.each(ctx, shunt.BrowseOptions{Channel: channel, State: s, Limit: 1000}, c, countLooks,
		func(es []shunt.Entry) bool { n += len(es); return true })
	return n, next == "", err
}

// failureGroup is the dead letters that failed alike.
type failureGroup struct {
	Failure     string
	Count       int
	First, Last time.Time
	Example     shunt.Ref
}

// failures groups what fits, the largest group first. rest counts what is in no group because there are too many.
func (q *request) failures(ctx context.Context, channel string, c criteria) (
	gs []failureGroup, looked, rest int, more bool, err error,
) {
	groups := make(map[string]*failureGroup)
	o := shunt.BrowseOptions{Channel: channel, State: shunt.StateDead, Limit: 1000}
	looked, next, err := q.each(ctx, o, c, countLooks, func(es []shunt.Entry) bool {
		for i := range es {
			e := &es[i]
			like := failureLike(e.Failure)
			g := groups[like]
			if g == nil && len(groups) == maxGroups {
				rest++
				continue
			}
			if g == nil {
				g = &failureGroup{Failure: like, First: e.DiedAt, Last: e.DiedAt, Example: e.Ref()}
				groups[like] = g
			}
			g.Count++
			if e.DiedAt.Before(g.First) {
				g.First = e.DiedAt
			}
			if e.DiedAt.After(g.Last) {
				g.Last = e.DiedAt
			}
		}
		return true
	})
	for _, g := range groups {
		gs = append(gs, *g)
	}
	slices.SortFunc(gs, func(a, b failureGroup) int {
		if a.Count != b.Count {
			return b.Count - a.Count
		}
		return strings.Compare(a.Failure, b.Failure)
	})
	return gs, looked, rest, next != "", err
}
