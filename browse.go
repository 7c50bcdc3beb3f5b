package shunt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

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
	// Filter leaves out what does not fit. Its Match gets no more of a payload than is shown.
	Filter Filter
}

// Page is a part of the messages of one state.
type Page struct {
	Entries []Entry `json:"entries"`        // may be empty although there is a Next: none fits, or all were cancelled
	Looked  int     `json:"looked"`         // messages that were looked at
	Next    string  `json:"next,omitempty"` // goes on as BrowseOptions.From; empty: these were the last
}

// Browse shows messages of one state, a page at a time, in the order of List. What comes and goes between two pages
// moves none in StateDelay and StateDead: each that stays is shown once. In StatePrepare and StateSuspect a page goes
// on behind the message that was shown last, if that is near its place. Else it goes back, most often to the beginning:
// so some are shown again; of bare payloads that are alike one may be taken for another. The pages of StateDoing,
// StateLeased and StateDone go on by number alone, so From is how many to pass over. They read whole payloads, and end
// after 16 MB of what is in hand. What is cancelled is left out where it waits, and shown while somebody has it.
//
// It asks Redis in steps of up to 64 messages, and a page ends after 512 KB of whole messages. A place in the middle of
// a list of a million takes Redis some 0.1 ms to 1 ms a step, and up to twice that before Redis 7. A bare payload of
// more than 256 KB of which a part is shown has no Ref. With a Filter a page ends after 10,000 messages, too.
func (q *Queue) Browse(ctx context.Context, o BrowseOptions) (Page, error) {
	if err := store.CheckChannel(o.Channel); err != nil {
		return Page{}, err
	}
	k := store.KeysOf(o.Channel)
	page, err := q.browse(ctx, k, o)
	if err != nil {
		return Page{}, fmt.Errorf("shunt: browse %q: %w", o.Channel, err)
	}
	if !byNumber(o.State) {
		page.Entries, err = q.uncancelled(ctx, k, page.Entries)
	}
	if page.Entries == nil {
		page.Entries = []Entry{}
	}
	return page, err
}

// The bounds of a page that is looked for.
const (
	mostLooked = 10_000
	mostShown  = 512 << 10 // bytes of what fits
	mostRead   = 16 << 20  // bytes of what is in hand, of which all is read
)

func (q *Queue) browse(ctx context.Context, k *store.Keys, o BrowseOptions) (page Page, err error) {
	if o.Limit == 0 {
		o.Limit = 100
	}
	if o.Limit < 0 || o.Limit > 1000 {
		return page, fmt.Errorf("BrowseOptions.Limit is %d: want 1 to 1000, or 0 for 100", o.Limit)
	}
	if o.Filter.Limit != 0 || o.Filter.From != "" {
		return page, errors.New("the Filter has a Limit or From: BrowseOptions has its own")
	}
	switch key, _ := holds(k, o.State); {
	case byNumber(o.State):
		return q.browseByNumber(ctx, k, o)
	case key == "":
		return page, fmt.Errorf("there is no state %q", o.State)
	}
	latest := o.Latest != (o.State == StateDead) // the latest dead one comes first
	w := q.walk(k, o.State, latest, o.Payload, o.From)
	if w == nil {
		return page, fmt.Errorf("BrowseOptions.From %.60q is no Page.Next", o.From)
	}
	all, looks, size := o.Filter.all(), o.Limit, 0
	if !all {
		looks = mostLooked
	}
	for {
		shown, more, err := w.Page(ctx, min(looks-page.Looked, 1000))
		if err != nil {
			return page, err
		}
		for i := range shown {
			page.Looked++
			e := shownEntry(k.Name, o.State, &shown[i])
			if !all && !o.Filter.fits(&e) {
				continue
			}
			page.Entries, size = append(page.Entries, e), size+len(shown[i].Raw)
			if len(page.Entries) == o.Limit || size > mostShown {
				w.Behind(shown, i+1, nil)
				more, looks = more || i+1 < len(shown), 0
				break
			}
		}
		if page.Next = w.Place(); !more {
			page.Next = ""
		}
		if all || !more || page.Looked >= looks {
			return page, nil
		}
	}
}

// walk goes through the messages of a state that holds names; nil: from is no place in it.
func (q *Queue) walk(k *store.Keys, s State, latest bool, cut int, from string) *store.Walk {
	key, set := holds(k, s)
	return store.NewWalk(asker{q: q}, k, key, set, latest, cut, from)
}

// shownEntry is the entry of an element of which a part is shown.
func shownEntry(channel string, state State, s *store.Shown) Entry {
	e := entryOf(channel, state, s.Raw).scored(s.At())
	e.PayloadSize += s.Size - len(s.Raw)
	if len(s.Raw) < s.Size {
		e.raw, e.sum = nil, s.Whole()
	}
	return e
}

// byNumber says whether the pages of a state go on by number.
func byNumber(s State) bool { return s == StateDoing || s == StateLeased || s == StateDone }

// browseByNumber shows a page of what workers hold, of what is leased, or of outcomes. It is one look, for the order of
// the first two changes all the time.
func (q *Queue) browseByNumber(ctx context.Context, k *store.Keys, o BrowseOptions) (page Page, err error) {
	from := 0
	if o.From != "" {
		if from, err = strconv.Atoi(o.From); err != nil || from < 0 {
			return page, fmt.Errorf("BrowseOptions.From %.60q is no Page.Next", o.From)
		}
	}
	var es []Entry
	s := &store.Span{Skip: from, Left: o.Limit + 1, Bytes: mostRead}
	switch o.State {
	case StateDoing:
		es, err = q.held(ctx, k, s)
	case StateLeased:
		es, err = q.allLeased(ctx, k, s)
	default:
		es, err = q.List(ctx, o.Channel, o.State, from, o.Limit+1)
	}
	if err != nil {
		return page, err
	}
	more, size := s.Cut, 0
	for i := range es {
		if i == o.Limit || size > mostShown {
			es, more = es[:i], true
			break
		}
		e := &es[i]
		if o.Payload >= 0 && len(e.Payload) > o.Payload {
			e.sum, e.raw = e.Ref().Serial, nil
			e.Payload = slices.Clone(e.Payload[:o.Payload])
		}
		size += len(e.Payload) + len(e.Outcome.Result)
	}
	if page.Looked = len(es); more {
		page.Next = strconv.Itoa(from + len(es))
	}
	page.Entries = slices.DeleteFunc(es, func(e Entry) bool { return !o.Filter.fits(&e) })
	return page, nil
}
