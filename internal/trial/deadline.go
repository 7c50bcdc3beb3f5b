package trial

import (
	"context"
	"strings"
	"time"

	"github.com/shuntmq/shunt"
)

// clockError is by how much a worker may be wrong about the server's clock. It may have heard it so late.
const clockError = 100 * time.Millisecond

// deadlines judges what a Deadline ends (I28), and gives the messages that have one. None dies of it before
// its time, nor does a handler's context end before it. No handler begins after it, but within the
// millisecond in which it ends.
func (h *History) deadlines(broke func(string, string, string, ...any)) (ends map[string]time.Time) {
	ends = make(map[string]time.Time)
	ids, struck, pulled := make(map[string]string), make(map[string]time.Time), make(map[hold]bool)
	for _, p := range h.Left {
		ids[p.Serial] = p.ID
	}
	soon := func(id string, at time.Time, what string) {
		if early := ends[id].Sub(at); early > clockError+h.margins().Read {
			broke("I28 deadline", id, "%s %v before its deadline, at %s", what, early, clockOf(at))
		}
	}
	for _, e := range h.Entries {
		switch {
		case e.Op == mortal:
			ends[e.ID] = e.Due
		case e.Op == Fault && e.Due.After(struck[e.By]):
			struck[e.By] = e.Due
		case e.Op == Pulled: // in time, by the server's clock: who knows how long the reply and its payload took
			ids[e.Serial], pulled[hold{e.By, e.Serial, 0}] = e.ID, true
		case e.Op == Handle && e.Phase == Invoke && !pulled[hold{e.By, e.Serial, 0}]:
			ids[e.Serial] = e.ID
			end, is := ends[e.ID]
			if at := e.begun(); is && at.After(end.Add(time.Millisecond)) && struck[e.By].Before(end) {
				broke("I28 deadline", e.ID, "%s had it %v after its deadline", e.By, at.Sub(end))
			}
		case e.Op == Handle && e.Phase == Fail && e.Note == context.DeadlineExceeded.Error():
			soon(e.ID, e.At, "its context ended")
		case e.Op == "rejected" && strings.Contains(e.Note, shunt.ErrDeadline.Error()):
			soon(ids[e.Serial], e.At, "it died")
		}
	}
	return ends
}
