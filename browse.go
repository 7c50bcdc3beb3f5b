package shunt

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
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
	Entries []Entry `json:"entries"`        // may be empty although there is a Next: all were cancelled
	Next    string  `json:"next,omitempty"` // goes on as BrowseOptions.From; empty: these were the last
}

// Browse shows messages of one state, a page at a time, in the order of List. What comes and goes between two pages
// moves none in StateDelay and StateDead: each that stays is shown once. In StatePrepare and StateSuspect a page goes
// on behind the message that was shown last, if that is near its place. Else it goes back, most often to the beginning:
// so some are shown again. The pages of StateDoing, StateLeased and StateDone go on by number alone, and each of the
// first two reads all that is in hand. What is cancelled and lies there still is left out.
//
// It asks Redis in steps of up to 32 messages, and a page ends after 512 KB of whole messages. A place in the middle of
// a list of a million takes Redis some 0.1 ms to 1 ms a step, and up to twice that before Redis 7. A bare payload of
// more than 256 KB of which a part is shown has no Ref.
func (q *Queue) Browse(ctx context.Context, o BrowseOptions) (Page, error) {
	if err := store.CheckChannel(o.Channel); err != nil {
		return Page{}, err
	}
	k := store.KeysOf(o.Channel)
	page, err := q.browse(ctx, k, o)
	if err != nil {
		return Page{}, fmt.Errorf("shunt: browse %q: %w", o.Channel, err)
	}
	if page.Entries, err = q.uncancelled(ctx, k, page.Entries); page.Entries == nil {
		page.Entries = []Entry{}
	}
	return page, err
}

func (q *Queue) browse(ctx context.Context, k *store.Keys, o BrowseOptions) (page Page, err error) {
	if o.Limit == 0 {
		o.Limit = 100
	}
	if o.Limit < 0 || o.Limit > 1000 {
		return page, fmt.Errorf("Limit is %d: want 1 to 1000, or 0 for 100", o.Limit)
	}
	var shown []store.Shown
	more := false
	switch key, set := holds(k, o.State); {
	case key == "" && o.State != StateDoing && o.State != StateLeased && o.State != StateDone:
		return page, fmt.Errorf("there is no state %q", o.State)
	case key == "":
		return q.browseWhole(ctx, o)
	case set:
		var p store.SetPlace
		if o.From != "" {
			p.Score, p.Shown, p.Head, err = parsePage(o.From)
			if _, bad := strconv.ParseFloat(p.Score, 64); err != nil || bad != nil {
				return page, noPage(o.From)
			}
		}
		latest := o.Latest != (o.State == StateDead) // the latest dead one comes first
		shown, p, more, err = store.BrowseSet(ctx, asker{q: q}, k, key, latest, o.Limit, o.Payload, p)
		page.Next = fmt.Sprintf("%s_%d_%x", p.Score, p.Shown, p.Head)
	default:
		var p store.ListPlace
		if o.From != "" {
			at, length, identity, err := parsePage(o.From)
			from, bad := strconv.Atoi(at)
			if err != nil || bad != nil || from < 0 {
				return page, noPage(o.From)
			}
			p = store.ListPlace{From: from, Length: length, Identity: string(identity)}
		}
		shown, p, more, err = store.BrowseList(ctx, asker{q: q}, k, key, o.Latest, o.Limit, o.Payload, p)
		page.Next = fmt.Sprintf("%d_%d_%x", p.From, p.Length, p.Identity)
	}
	if !more {
		page.Next = ""
	}
	page.Entries = shownEntries(o, shown)
	return page, err
}

// parsePage reads a Page.Next.
func parsePage(text string) (place string, n int, what []byte, err error) {
	part := strings.Split(text, "_")
	if len(part) != 3 {
		return place, n, what, noPage(text)
	}
	if n, err = strconv.Atoi(part[1]); err != nil || n < 0 {
		return place, n, what, noPage(text)
	}
	what, err = hex.DecodeString(part[2])
	return part[0], n, what, err
}

func noPage(from string) error { return fmt.Errorf("From %.60q is no Page.Next", from) }

func shownEntries(o BrowseOptions, shown []store.Shown) []Entry {
	es := make([]Entry, len(shown))
	for i := range shown {
		s := &shown[i]
		es[i] = entryOf(o.Channel, o.State, s.Raw).scored(s.At())
		es[i].PayloadSize += s.Size - len(s.Raw)
		if len(s.Raw) < s.Size {
			es[i].raw, es[i].sum = nil, s.Sum
		}
	}
	return es
}

// browseWhole shows a page of what is small: what workers hold, what is leased, and outcomes.
func (q *Queue) browseWhole(ctx context.Context, o BrowseOptions) (page Page, err error) {
	from := 0
	if o.From != "" {
		if from, err = strconv.Atoi(o.From); err != nil || from < 0 {
			return page, noPage(o.From)
		}
	}
	es, err := q.List(ctx, o.Channel, o.State, from, o.Limit+1)
	if err != nil {
		return page, err
	}
	if o.State != StateDone { // that is all up to there
		es = es[min(from, len(es)):]
	}
	if len(es) > o.Limit {
		es, page.Next = es[:o.Limit], strconv.Itoa(from+o.Limit)
	}
	for i := range es {
		if e := &es[i]; o.Payload >= 0 && len(e.Payload) > o.Payload {
			e.sum, e.raw = e.Ref().Serial, nil
			e.Payload = slices.Clone(e.Payload[:o.Payload])
		}
	}
	page.Entries = es
	return page, nil
}
