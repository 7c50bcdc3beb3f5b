package shunt

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/shuntmq/shunt/internal/store"
)

// BrowseOptions says what a Page shows.
type BrowseOptions struct {
	Channel string
	State   State
	// Limit bounds how many messages a page has: up to 1,000, default 100. It may have less where they are large.
	Limit int
	// Latest begins at the other end: with what is taken last, is due last, or died first. Of StateDone the latest end
	// comes first in any case, and StateDoing and StateLeased have one order.
	Latest bool
	// Payload is how many bytes of each payload are shown: 0 is none, negative is all.
	Payload int
	// From goes on where another page ended: it is its Next.
	From string
}

// Page is a part of the messages of one state.
type Page struct {
	Entries []Entry `json:"entries"`
	Next    string  `json:"next,omitempty"` // goes on as BrowseOptions.From; empty: these were the last
}

// Browse shows messages of one state, a page at a time: in the order of List, and as cheap at the end of a million
// messages as at the beginning. What comes and goes meanwhile moves the others: a page goes on behind the message that
// was shown last where that is still near, else at the same distance from the end. A message that moves may be missed,
// or shown twice. What is cancelled and lies there still is left out.
func (q *Queue) Browse(ctx context.Context, o BrowseOptions) (Page, error) {
	k := store.KeysOf(o.Channel)
	failed := func(err error) (Page, error) { return Page{}, fmt.Errorf("shunt: browse %q: %w", o.Channel, err) }
	if err := store.CheckChannel(o.Channel); err != nil {
		return Page{}, err
	}
	if o.Limit == 0 {
		o.Limit = 100
	}
	if o.Limit < 0 || o.Limit > 1000 {
		return failed(fmt.Errorf("Limit is %d: want 1 to 1000, or 0 for 100", o.Limit))
	}
	key, set := holds(k, o.State)
	switch {
	case key == "" && o.State != StateDoing && o.State != StateLeased && o.State != StateDone:
		return failed(fmt.Errorf("there is no state %q", o.State))
	case key == "":
		return q.browseWhole(ctx, k, o)
	case set:
		return q.browseSet(ctx, k, key, o)
	}
	var p store.ListPlace
	if o.From != "" {
		at, identity, _ := strings.Cut(o.From, ".")
		n, err := strconv.Atoi(at)
		if err != nil || n < 0 {
			return failed(noPage(o.From))
		}
		r := Ref{Serial: identity}
		if p.Identity, err = r.identity(); err != nil {
			return failed(noPage(o.From))
		}
		p.From = n
	}
	first, shown, err := store.BrowseList(ctx, asker{q: q}, k, key, o.Latest, o.Limit, o.Payload, p)
	if err != nil {
		return Page{}, err
	}
	page := Page{Entries: shownEntries(o, shown)}
	if n := len(shown); n > 0 {
		page.Next = fmt.Sprintf("%d.%s", first+n, page.Entries[n-1].Ref().Serial)
	}
	page.Entries, err = q.uncancelled(ctx, k, page.Entries)
	return page, err
}

func noPage(from string) error { return fmt.Errorf("From %.60q is no Page.Next", from) }

func shownEntries(o BrowseOptions, shown []store.Shown) []Entry {
	es := make([]Entry, len(shown))
	for i, s := range shown {
		es[i] = entryOf(o.Channel, o.State, s.Raw).scored(s.At)
		es[i].PayloadSize += s.Size - len(s.Raw)
		if len(s.Raw) < s.Size {
			es[i].raw, es[i].sum = nil, s.Sum
		}
	}
	return es
}

func (q *Queue) browseSet(ctx context.Context, k *store.Keys, key string, o BrowseOptions) (Page, error) {
	p, err := parsePlace(o.From)
	if err != nil {
		return Page{}, fmt.Errorf("shunt: browse %q: %w", o.Channel, noPage(o.From))
	}
	latest := o.Latest != (o.State == StateDead) // the latest dead one comes first
	shown, err := store.BrowseSet(ctx, asker{q: q}, k, key, latest, o.Limit, o.Payload, p.at, p.stay)
	if err != nil || len(shown) == 0 {
		return Page{}, err
	}
	page := Page{Entries: shownEntries(o, shown)}
	p.pass(page.Entries, nil, 0)
	page.Next = p.String()
	page.Entries, err = q.uncancelled(ctx, k, page.Entries)
	return page, err
}

// browseWhole shows a page of what is small: what workers hold, what is leased, and outcomes.
func (q *Queue) browseWhole(ctx context.Context, k *store.Keys, o BrowseOptions) (Page, error) {
	from := 0
	if o.From != "" {
		n, err := strconv.Atoi(o.From)
		if err != nil || n < 0 {
			return Page{}, fmt.Errorf("shunt: browse %q: %w", o.Channel, noPage(o.From))
		}
		from = n
	}
	es, err := q.List(ctx, o.Channel, o.State, from, o.Limit)
	if err != nil {
		return Page{}, err
	}
	if o.State != StateDone {
		es = es[min(from, len(es)):]
		es = es[:min(o.Limit, len(es))]
	}
	for i := range es {
		if e := &es[i]; o.Payload >= 0 && len(e.Payload) > o.Payload {
			e.sum, e.raw = e.Ref().Serial, nil
			e.Payload = e.Payload[:o.Payload]
		}
	}
	page := Page{Entries: es}
	if len(es) == o.Limit {
		page.Next = strconv.Itoa(from + len(es))
	}
	return page, nil
}
