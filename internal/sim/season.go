package sim

import (
	"slices"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/shuntmq/shunt/internal/trial"
	"github.com/shuntmq/shunt/recur"
)

// season is a time in which a message recurs: it began and ended at some time during a call.
type season struct {
	begun, sure, ends, over time.Time
	fresh                   bool // nobody has counted its ticks before
}

// came is a tick that was handled.
type came struct {
	serial  string
	enqueue time.Time // by the serial; zero: it does not say
	handled time.Time
}

// ticked judges what is promised of ticks, and adds their enqueues, which no producer tells of.
func (w *world) ticked(es []trial.Entry) []trial.Entry {
	came := make(map[string]came)
	for _, e := range es {
		if e.Op != trial.Handle || e.Phase != trial.Invoke || !strings.HasPrefix(e.ID, ticks+"/") {
			continue
		}
		if c, twice := came[e.ID]; twice && c.serial != e.Serial {
			w.problem("I22 ticks: %s came as %s and as %s", e.ID, c.serial, e.Serial)
		} else if !twice {
			c.serial, c.handled = e.Serial, e.At
			u, err := ulid.ParseStrict(e.Serial)
			if err != nil {
				w.problem("I22 ticks: %s has the serial %q", e.ID, e.Serial)
			}
			if !w.plot.watched(ticks) { // else it may be by a wrong clock
				c.enqueue = ulid.Time(u.Time())
			}
			came[e.ID] = c
		}
	}
	more := make([]trial.Entry, 0, len(es)+2*len(came))
	for i := range w.plot.Recurs {
		n := 0 // of those that came since it was added
		for _, e := range w.timetable.seasons[i] {
			if e.fresh {
				n = 0
			}
			n += w.season(&w.plot.Recurs[i], e, came, func(id string, at time.Time) {
				e := trial.Entry{At: at, By: "recur", Op: trial.Enqueue, Phase: trial.Invoke, ID: id,
					Note: trial.PlanOK, Due: at}
				more = append(more, e)
				e.Phase, e.Due = trial.OK, time.Time{}
				more = append(more, e)
			})
		}
		if w.table != nil {
			w.counted(&w.plot.Recurs[i], n)
		}
	}
	more = append(more, es...)
	slices.SortStableFunc(more, func(a, b trial.Entry) int { return a.At.Compare(b.At) })
	return more
}

const (
	swiftly = 100 * time.Millisecond // how late a tick may be handled in a calm
	unheard = 6 * time.Second        // until a runner whose subscription has gone mute knows of a change
)

// season judges the ticks of one time in which a message recurred, and tells of each that came.
func (w *world) season(r *Recurring, e season, all map[string]came, tell func(id string, at time.Time)) (n int) {
	const d = 20 * time.Millisecond // the clock's and the ledger's
	grace := recur.Grace + d
	var last, gap time.Time // the latest that came, and that did not
	every := r.Every.Milliseconds()
	first := time.UnixMilli((e.begun.UnixMilli()/every + 1) * every)
	for at := first; !at.After(e.over); at = at.Add(r.Every) {
		id := tickID(r.Name, at)
		c, is := all[id]
		calm := w.calm(at) && at.Before(e.ends.Add(-swiftly)) && at.After(e.sure.Add(unheard))
		switch {
		case !is && calm:
			w.problem("I22 ticks: %s did not come, in a calm", id)
		case !is && at.After(e.sure):
			gap = at
		case is && calm:
			w.took("tick in a calm", c.handled.Sub(at))
		}
		switch {
		case is && c.handled.After(at.Add(swiftly)) && calm:
			w.problem("I22 ticks: %s came %v late, in a calm", id, c.handled.Sub(at))
		case is && recur.Policy(r.Missed) == recur.Skip && c.enqueue.After(at.Add(grace)):
			w.problem("I22 ticks: %s was missed, and enqueued %v late", id, c.enqueue.Sub(at))
		case is && recur.Policy(r.Missed) == recur.One && c.enqueue.After(at.Add(grace)) &&
			c.enqueue.After(at.Add(r.Every+d)):
			w.problem("I22 ticks: %s was missed, and enqueued %v late beside later ones", id, c.enqueue.Sub(at))
		case is && recur.Policy(r.Missed) > recur.One && gap.After(last):
			w.problem("I22 ticks: %s came, and %s did not", id, tickID(r.Name, gap))
		}
		if is {
			n, last = n+1, at
			tell(id, at)
		}
	}
	return n
}

// calm says whether a time is in a calm that has lasted for a while.
func (w *world) calm(at time.Time) bool {
	since := at.Sub(w.began)
	return since%w.plot.cycle() > w.plot.Storm+shots+half || since > w.plot.length()
}

// counted judges the count of what recurs.
func (w *world) counted(r *Recurring, n int) {
	i := slices.IndexFunc(w.table, func(e recur.Entry) bool { return e.Name == r.Name })
	if i >= 0 && w.table[i].Count != n {
		w.problem("I22 ticks: %d of %s were counted, and %d came", w.table[i].Count, r.Name, n)
	}
	if i < 0 && len(r.Changes) > 0 && r.Changes[len(r.Changes)-1].What != "remove" {
		w.problem("I22 ticks: %s is not in the timetable", r.Name)
	}
}
