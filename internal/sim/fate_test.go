package sim

import (
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/trial"
)

// A message is there once, unless it was enqueued for later, and promoted before its enqueue had an answer.
func TestFateOfThePromoted(t *testing.T) {
	at := func(ms int) time.Time { return epoch.Add(time.Duration(ms) * time.Millisecond) }
	for _, c := range []struct {
		name     string
		due      time.Time
		promoted int
		problems int
	}{
		{"promoted while it was enqueued", at(9000), 2000, 0},
		{"promoted afterwards", at(9000), 4000, 2},
		{"enqueued for now", time.Time{}, 2000, 2},
	} {
		w := &world{plot: &Plot{}, operator: operator{promoted: []time.Time{at(c.promoted)}}}
		h := &trial.History{Entries: []trial.Entry{
			{At: at(0), Op: trial.Enqueue, Phase: trial.Invoke, ID: "desk/1", Note: trial.PlanOK, Due: c.due},
			{At: at(3000), Op: trial.Enqueue, Phase: trial.OK, ID: "desk/1", Note: trial.PlanOK, Due: c.due},
		}}
		for _, ms := range []int{5000, 9000} {
			e := trial.Entry{By: "p", Op: trial.Handle, ID: "desk/1", Serial: "s", Attempt: 1}
			for i, phase := range []string{trial.Invoke, trial.OK} {
				e.At, e.Phase = at(ms+i), phase
				h.Entries = append(h.Entries, e)
			}
			h.Entries = append(h.Entries, trial.Entry{At: at(ms + 2), By: "p", Op: "acked", Serial: "s", Attempt: 1})
		}
		w.apart(h)
		if got := len(w.result.Problems); got != c.problems {
			t.Errorf("%s: %d problems, want %d: %q", c.name, got, c.problems, w.result.Problems)
		}
	}
}
