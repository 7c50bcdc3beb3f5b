package shunt

import (
	"context"
	"fmt"
	"reflect"
	"slices"
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
	// reply it has those, too, that the first time had changed. What was cancelled before, and lies there still, is
	// not among them.
	Refused int `json:"refused"`
	// Next goes on as Filter.From after an error, an ended context or a Limit; empty: all were looked at.
	Next string `json:"next,omitempty"`
}

// RetryAllDead puts all dead messages that fit back into their channel, the one that died first in front, as RetryDead
// does. It looks at those that were dead when it began, in pages of up to 100 messages or 512 KB: so it holds up
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
// all retries now, and leaves what was only enqueued for later. Of what comes into delay meanwhile it looks at what is
// due sooner than the last one that was there at first.
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
func (q *Queue) CancelAll(ctx context.Context, channel string, state State, f Filter) (BulkResult, error) {
	p := &pass{q: q, channel: channel, state: state, f: f}
	p.do = func(fit []Entry) (int, int, error) { return p.cancel(ctx, fit) }
	var err error
	if state == StatePrepare || state == StateSuspect || state == StateDelay {
		err = p.run(ctx)
	} else {
		err = fmt.Errorf("what is in that state does not wait: want %s, %s or %s", StatePrepare, StateSuspect,
			StateDelay)
	}
	if err != nil {
		err = fmt.Errorf("shunt: cancel all %s of %q: %w", state, channel, err)
	}
	return p.BulkResult, err
}

// bulk has do change the messages of delay or dead that fit. It says how many it has changed; twice: at least.
func (q *Queue) bulk(
	ctx context.Context, what, channel string, state State, f Filter,
	do func(*store.Keys, []Entry) (changed int, twice bool, err error),
) (BulkResult, error) {
	p := &pass{q: q, channel: channel, state: state, f: f}
	p.do = func(fit []Entry) (changed, unsure int, err error) {
		changed, twice, err := do(p.k, fit)
		if twice && err == nil {
			unsure = len(fit) - changed
		}
		return changed, unsure, err
	}
	if err := p.run(ctx); err != nil {
		return p.BulkResult, fmt.Errorf("shunt: %s %q: %w", what, channel, err)
	}
	return p.BulkResult, nil
}

// pass is one call's way through the messages of a state. Of a list it begins with what came last, so that what is
// taken meanwhile moves nothing. Of a set it ends behind what was the last one when it began: what lies there came
// later, a retry that has failed again perhaps, and is another call's.
type pass struct {
	q       *Queue
	channel string
	state   State
	f       Filter
	do      func(fit []Entry) (changed, unsure int, err error)

	k      *store.Keys
	key    string
	set    bool
	walk   *store.Walk
	until  time.Time // of a set: behind it nothing is looked at; zero: no bound
	count  int       // messages that there were when it began
	unsure int       // changed by commands whose replies were lost, most likely: a Limit bounds them, too
	over   int       // of the last page, those that fit and were cancelled before
	BulkResult
}

// begin stands where the Filter says.
func (p *pass) begin(ctx context.Context) (err error) {
	if err := p.f.check(); err != nil {
		return err
	}
	if err := store.CheckChannel(p.channel); err != nil {
		return err
	}
	p.k = store.KeysOf(p.channel)
	p.key, p.set = holds(p.k, p.state)
	from := p.f.From
	if p.set && from == "" && !p.f.Since.IsZero() {
		from = store.PlaceAt(p.f.Since)
	}
	if p.walk = p.q.walk(p.k, p.state, !p.set, -1, from); p.walk == nil {
		return fmt.Errorf("the Filter has From %.60q, which is no BulkResult.Next", p.f.From)
	}
	p.Next = p.f.From
	if p.count, err = store.Length(ctx, asker{q: p.q}, p.k, p.key, p.set); err != nil || !p.set {
		return err
	}
	last, _, err := p.q.walk(p.k, p.state, true, 0, "").Page(ctx, 1)
	if len(last) > 0 {
		p.until = last[0].At()
	}
	if u := p.f.Until; p.until.IsZero() || !u.IsZero() && u.Before(p.until) {
		p.until = u
	}
	return err
}

// run looks at a page of up to 100 messages at a time, and has do change those that fit.
func (p *pass) run(ctx context.Context) error {
	if err := p.begin(ctx); err != nil {
		return err
	}
	for {
		page, more, err := p.walk.Page(ctx, 100)
		if err != nil {
			return err
		}
		n, past := len(page), false
		var fit []Entry
		gone := make([]bool, n)
		for i := range page {
			e := shownEntry(p.channel, p.state, &page[i])
			if past = !p.until.IsZero() && e.at().After(p.until); past {
				n = i
				break
			}
			if !p.f.fits(&e) {
				continue
			}
			// Where it was tells its place, whether it goes or not, unless there may be others like it.
			gone[i] = e.Serial == "" || !p.set && e.ID == ""
			if fit = append(fit, e); p.f.Limit > 0 && p.Changed+p.unsure+len(fit) == p.f.Limit {
				n, more = i+1, more || i+1 < n
				break
			}
		}
		if len(fit) > 0 {
			changed, unsure, err := p.do(fit)
			p.Changed, p.unsure = p.Changed+changed, p.unsure+unsure
			if err != nil {
				return err
			}
			p.Refused += len(fit) - p.over - changed
		}
		p.walk.Behind(page, n, func(i int) bool { return !gone[i] })
		p.Looked += n
		if p.Next = p.walk.Place(); !more || past {
			p.Next = ""
			return nil
		}
		if p.Looked >= 2*p.count+mostLooked || p.f.Limit > 0 && p.Changed+p.unsure >= p.f.Limit {
			return nil
		}
	}
}

// lookedThrough is how many elements Redis may look through at once for those that are removed from a list.
const lookedThrough = 30_000

// cancel cancels some messages of the last page. What was cancelled before may lie there still, and is left out.
func (p *pass) cancel(ctx context.Context, fit []Entry) (changed, unsure int, err error) {
	most := len(fit)
	if fit, err = p.q.uncancelled(ctx, p.k, fit); err != nil {
		return 0, 0, err
	}
	p.over = most - len(fit)
	before, behind := p.walk.Depth()
	atOnce := 100
	if !p.set {
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
		a := asker{q: p.q, once: bare}
		ended, gone, twice, err := store.CancelSome(ctx, a, p.k, p.key, p.set, behind < before, all, &p.q.conf.Bounds)
		for i, is := range ended {
			switch {
			case is:
				changed++
			case twice:
				unsure++
			}
			if gone[i] { // else who meets it counts it
				p.q.counter.count(p.k.Name, func(to meter.Adder) { to.Add(meter.Cancelled, 1) })
				p.q.overs.removed(some[i])
			}
		}
		if err != nil {
			return changed, unsure, err
		}
	}
	return changed, unsure, nil
}
