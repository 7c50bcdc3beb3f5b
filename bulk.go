package shunt

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/shuntmq/shunt/internal/meter"
	"github.com/shuntmq/shunt/internal/store"
)

// Filter says which messages a method is for: those that all its fields fit. The zero Filter fits every message.
type Filter struct {
	Failure     string            // is part of the text of the last failure
	FailureLike string            // is the last failure as FailureGroup has it
	Type        string            // is the type name
	IDPrefix    string            // begins the ID
	Headers     map[string]string // are among the headers
	MinAttempts int               // so many have failed at least; 1: each that is to be tried again
	Since       time.Time         // it died then or later; of StateDelay it is due, of others it was enqueued
	Until       time.Time         // the same, then or earlier; what has no such time, as a bare payload, does not fit
	Match       func(Entry) bool  // returns true; called for those that all else fits

	// Limit ends the call when it has moved or deleted so many; 0: no limit. After a lost reply it may end before, as
	// what the first time has done, uncounted, is taken to be all that was asked for.
	Limit int
	// From goes on where an earlier call ended: it is that call's BulkResult.Next.
	From string
}

// all says whether every message fits.
func (f *Filter) all() bool { return reflect.ValueOf(*f).IsZero() }

func (f *Filter) check() error {
	if f.Limit < 0 || f.MinAttempts < 0 {
		return fmt.Errorf("the Filter has Limit %d and MinAttempts %d: want 0 or more", f.Limit, f.MinAttempts)
	}
	return nil
}

func (f *Filter) fits(e *Entry) bool {
	if !strings.Contains(e.Failure, f.Failure) || f.Type != "" && e.Type != f.Type ||
		!strings.HasPrefix(e.ID, f.IDPrefix) || e.Attempts < f.MinAttempts ||
		f.FailureLike != "" && likeness(e.Failure) != f.FailureLike {
		return false
	}
	at := e.at()
	if e.State != StateDelay && e.State != StateDead {
		at = e.EnqueuedAt
	}
	timed := !f.Since.IsZero() || !f.Until.IsZero()
	if timed && at.IsZero() || at.Before(f.Since) || !f.Until.IsZero() && at.After(f.Until) {
		return false
	}
	for key, value := range f.Headers {
		if v, has := e.Headers[key]; !has || v != value {
			return false
		}
	}
	return f.Match == nil || f.Match(*e)
}

// BulkResult is what became of a call for all messages that fit a Filter.
type BulkResult struct {
	Looked  int `json:"looked"`  // messages that were looked at
	Changed int `json:"changed"` // of these, those that were moved or deleted
	// Refused counts those that fit and stayed: their ID is another's by now, or somebody was faster. After a lost
	// reply it has those, too, that the first time had changed.
	Refused int `json:"refused"`
	// Next goes on as Filter.From after an error, an ended context or a Limit; empty: all were looked at.
	Next string `json:"next,omitempty"`
}

// RetryAllDead puts all dead messages that fit back into their channel, the one that died first in front, as RetryDead
// does. It looks at as many as were dead when it began, in pages of up to 100 messages or 256 KB: so it holds up
// nobody, however many there are, and takes the memory of one page. An ID that is another's by now keeps its message
// dead, and it is not counted as Changed.
//
// Where it ends early, by an error, ctx or Limit, BulkResult says how far it came, and Next goes on from there. After a
// lost reply it asks once more, and what the first time had done is not counted.
func (q *Queue) RetryAllDead(ctx context.Context, channel string, f Filter) (BulkResult, error) {
	return q.bulk(ctx, "retry all dead of", channel, StateDead, f, func(k *store.Keys, es []Entry) (int, bool, error) {
		return q.revive(ctx, k, es)
	})
}

// DeleteAllDead deletes all dead messages that fit, for good, as RetryAllDead goes through them.
func (q *Queue) DeleteAllDead(ctx context.Context, channel string, f Filter) (BulkResult, error) {
	return q.bulk(ctx, "delete all dead of", channel, StateDead, f, func(k *store.Keys, es []Entry) (int, bool, error) {
		return q.deleteDead(ctx, k, es)
	})
}

// PromoteAll makes all delayed messages that fit due now, as RetryAllDead goes through them. With MinAttempts 1 it runs
// all retries now, and leaves what was only enqueued for later.
func (q *Queue) PromoteAll(ctx context.Context, channel string, f Filter) (BulkResult, error) {
	return q.bulk(ctx, "promote all of", channel, StateDelay, f, func(k *store.Keys, es []Entry) (int, bool, error) {
		all := make([]store.Hastened, len(es))
		for i, e := range es {
			all[i] = store.Hastened{Raw: e.raw, ID: e.ID}
		}
		return store.RunHasten(ctx, asker{q: q}, k, all)
	})
}

// CancelAll ends all messages that fit and wait in StatePrepare, StateSuspect or StateDelay, as Cancel does, a page of
// up to 100 at a time. Of a list it begins with what came last, so that what receivers take meanwhile moves nothing. It
// may look at some twice. Where others enqueue as fast as it looks it ends early, and BulkResult has a Next. One with
// an ID that a worker has taken meanwhile is cancelled there, too. BulkResult is as that of RetryAllDead.
//
// A message without an ID is removed from its list by LREM, for which Redis looks through what lies before it, or
// behind: in the middle of a million each takes Redis some 30 ms.
func (q *Queue) CancelAll(ctx context.Context, channel string, state State, f Filter) (b BulkResult, err error) {
	failed := func(err error) (BulkResult, error) {
		return b, fmt.Errorf("shunt: cancel all %s of %q: %w", state, channel, err)
	}
	if err := f.check(); err != nil {
		return failed(err)
	}
	if err := store.CheckChannel(channel); err != nil {
		return failed(err)
	}
	k := store.KeysOf(channel)
	key, set := holds(k, state)
	if key == "" || state == StateDead {
		return failed(fmt.Errorf("what is in that state does not wait: want %s, %s or %s", StatePrepare, StateSuspect,
			StateDelay))
	}
	w := q.walk(k, state, !set, -1, f.From)
	if w == nil {
		return failed(fmt.Errorf("the Filter has From %.60q, which is no BulkResult.Next", f.From))
	}
	b.Next = f.From
	count, err := store.Length(ctx, asker{q: q}, k, key, set)
	if err != nil {
		return failed(err)
	}
	perhaps := 0 // as in bulk
	for looks := 2*count + mostLooked; ; {
		shown, more, err := w.Page(ctx, 100)
		if err != nil {
			return failed(err)
		}
		var fit []Entry
		var of []int // the places of those that fit
		n := len(shown)
		for i := range shown {
			e := shownEntry(channel, state, &shown[i])
			if f.fits(&e) {
				fit, of = append(fit, e), append(of, i)
			}
			if f.Limit > 0 && b.Changed+perhaps+len(fit) == f.Limit {
				n, more = i+1, more || i+1 < n
				break
			}
		}
		ended, unsure, err := q.cancelSome(ctx, k, key, set, w, fit)
		perhaps += unsure
		gone := make(map[int]bool)
		for i, is := range ended {
			if gone[of[i]] = set || fit[i].ID == ""; is {
				b.Changed++
			} else {
				b.Refused++
			}
		}
		if err != nil {
			return failed(err)
		}
		w.Behind(shown, n, func(i int) bool { return !gone[i] })
		b.Looked, b.Next = b.Looked+n, w.Place()
		if !more {
			b.Next = ""
		}
		if !more || b.Looked >= looks || f.Limit > 0 && b.Changed+perhaps >= f.Limit {
			return b, nil
		}
	}
}

// lookedThrough is how many elements Redis may look through at once for those that are removed from a list.
const lookedThrough = 30_000

// cancelSome cancels some messages of the walk's last page, and says of each whether it was there. unsure counts those
// that were not there when they were cancelled again, for the first replies were lost.
func (q *Queue) cancelSome(
	ctx context.Context, k *store.Keys, key string, set bool, w *store.Walk, fit []Entry,
) (ended []bool, unsure int, err error) {
	before, behind := w.Depth()
	atOnce := 100
	if !set {
		atOnce = max(1, min(atOnce, lookedThrough/max(1, min(before, behind))))
	}
	for some := range slices.Chunk(fit, atOnce) {
		all := make([]store.Waiting, len(some))
		bare := false // it may have twins, which must not go with it: its command is sent but once
		for i, e := range some {
			r := e.Ref()
			all[i] = store.Waiting{Raw: e.raw, ID: e.ID, Serial: r.ulid()}
			bare = bare || e.Serial == ""
		}
		a := asker{q: q, once: bare}
		more, twice, err := store.CancelSome(ctx, a, k, key, set, behind < before, all, &q.conf.Bounds)
		ended = append(ended, more...)
		for i, is := range more {
			if twice && !is {
				unsure++
			}
			if is && (set || some[i].ID == "") { // else who meets it counts it
				q.counter.count(k.Name, func(to meter.Adder) { to.Add(meter.Cancelled, 1) })
				q.overs.removed(some[i])
			}
		}
		if err != nil {
			return ended, unsure, err
		}
	}
	return ended, unsure, nil
}

// place is how far a bulk call has come: it has looked at all of a lower score, and at so many of that score that stay.
type place struct {
	at   time.Time // zero: at none
	stay int
}

// String is BulkResult.Next.
func (p place) String() string {
	if p.at.IsZero() {
		return ""
	}
	return fmt.Sprintf("%d+%d", p.at.UnixMilli(), p.stay)
}

func parsePlace(text string) (p place, err error) {
	if text == "" {
		return p, nil
	}
	at, stay, _ := strings.Cut(text, "+")
	ms, err1 := strconv.ParseInt(at, 10, 64)
	n, err2 := strconv.Atoi(stay)
	if err1 != nil || err2 != nil || n < 0 {
		return p, fmt.Errorf("the Filter has From %.40q, which is no BulkResult.Next", text)
	}
	return place{time.UnixMilli(ms), n}, nil
}

// pass takes in that a page was looked at, and that some of those that fit have left.
func (p *place) pass(page, fit []Entry, left int) {
	last := page[len(page)-1].at()
	of := func(es []Entry) (n int) {
		for i := range es {
			if es[i].at().Equal(last) {
				n++
			}
		}
		return n
	}
	stay := of(page) - of(fit) // which of fit have stayed nobody knows: at worst, some of the last are looked at again
	if of(fit) == len(fit) {
		stay = of(page) - left
	}
	if p.at.Equal(last) {
		stay += p.stay
	}
	p.at, p.stay = last, stay
}

// bulk calls do for the messages of delay or dead that fit, a page at a time. do says how many have left; twice: at
// least, for it was sent again.
func (q *Queue) bulk(
	ctx context.Context, what, channel string, state State, f Filter,
	do func(*store.Keys, []Entry) (left int, twice bool, err error),
) (b BulkResult, err error) {
	failed := func(err error) (BulkResult, error) { return b, fmt.Errorf("shunt: %s %q: %w", what, channel, err) }
	if err := f.check(); err != nil {
		return failed(err)
	}
	p, err := parsePlace(f.From)
	if err != nil {
		return failed(err)
	}
	b.Next = f.From
	k := store.KeysOf(channel)
	key, _ := holds(k, state)
	count, err := store.Length(ctx, asker{q: q}, k, key, true)
	if err != nil {
		return failed(err)
	}
	perhaps := 0           // changed by commands whose replies were lost, most likely: a Limit bounds them, too
	for b.Looked < count { // what came later, a retry that has failed again perhaps, is another call's
		span := store.Span{From: p.at, To: f.Until, Skip: p.stay}
		if f.Since.After(p.at) {
			span.From, span.Skip = f.Since, 0
		}
		scored, err := store.RunPage(ctx, asker{q: q}, k, key, span)
		if err != nil {
			return failed(err)
		}
		page := scoredEntries(channel, state, scored)
		if len(page) == 0 {
			break
		}
		var fit []Entry
		for i := range page {
			if f.fits(&page[i]) {
				if fit = append(fit, page[i]); f.Limit > 0 && b.Changed+perhaps+len(fit) == f.Limit {
					page = page[:i+1]
					break
				}
			}
		}
		left, twice := 0, false
		if len(fit) > 0 {
			if left, twice, err = do(k, fit); err != nil {
				b.Changed += left
				return failed(err)
			}
		}
		if twice { // what has stayed is looked at again: else what comes behind it would be passed over
			p.pass(page, fit, len(fit))
			count, perhaps = count+len(fit)-left, perhaps+len(fit)-left
		} else {
			p.pass(page, fit, left)
		}
		b.Refused += len(fit) - left
		b.Looked, b.Changed, b.Next = b.Looked+len(page), b.Changed+left, p.String()
		if f.Limit > 0 && b.Changed+perhaps >= f.Limit {
			return b, nil
		}
	}
	b.Next = ""
	return b, nil
}
