package trial

import (
	"slices"
	"testing"
	"time"
)

// A take that nobody saw counts an attempt where a process heard nothing of it until its lease was over.
func TestUnseen(t *testing.T) {
	at := func(ms int) time.Time { return time.UnixMilli(int64(1000_000 + ms)) }
	fault := func(from, to int, by, kind, note string) Entry {
		return Entry{At: at(from), By: by, Op: Fault, ID: kind, N: 1, Due: at(to), Note: note}
	}
	const lease = 2000
	pulled := func(from, attempt int) []Entry { // after it was enqueued at 0, and handled well
		e := Entry{At: at(from), By: "p1", Op: Pulled, ID: "a/1", Serial: "sa", Attempt: attempt, Due: at(from + lease)}
		began, done, acked := e, e, e
		began.Op, began.Phase, done.Op, done.Phase, acked.Op = Handle, Invoke, Handle, OK, "acked"
		return []Entry{e, began, done, acked}
	}
	idle := func(e Entry) Entry { e.N = 0; return e }
	skipped := []string{"I18 attempts"}
	for name, c := range map[string]struct {
		faults  []Entry
		stepped bool
		from    int
		want    []string
	}{
		"none":                     {nil, false, 3010, skipped},
		"as long as a lease":       {[]Entry{fault(5, 2005, "p1", "hole", "")}, false, 3010, nil},
		"of another":               {[]Entry{fault(5, 2005, "p2", "mute", "")}, false, 3010, nil},
		"most of a lease":          {[]Entry{fault(5, 1505, "p1", "hole", "")}, false, 3010, nil},
		"its victim can go on":     {[]Entry{fault(5, 2005, "p1", "stop server", Brief)}, false, 3010, nil},
		"too short":                {[]Entry{fault(5, 1405, "p1", "hole", "")}, false, 3010, skipped},
		"too short, other clock":   {[]Entry{fault(5, 1405, "p1", "hole", "")}, true, 3010, nil},
		"the line was slow":        {[]Entry{fault(5, 2005, "p1", "slow", "")}, false, 3010, skipped},
		"the line was cut at last": {[]Entry{fault(5, 2005, "p1", "cut after", "")}, false, 3010, skipped},
		"one after another": {[]Entry{fault(5, 1005, "p1", "hole", ""), fault(1010, 2005, "p1", "mute", "")}, false,
			3010, nil},
		"one within another": {[]Entry{fault(5, 2005, "p1", "hole", ""), fault(100, 1005, "p1", "mute", "")}, false,
			3010, nil},
		"one and another": {[]Entry{fault(5, 1005, "p1", "hole", ""), fault(1400, 2405, "p1", "mute", "")}, false, 3010,
			skipped},
		"of two processes": {[]Entry{fault(5, 1005, "p1", "hole", ""), fault(990, 2005, "p2", "mute", "")}, false, 3010,
			skipped},
		"before it was enqueued": {[]Entry{fault(-4000, -500, "p1", "hole", "")}, false, 3010, skipped},
		"as it was enqueued":     {[]Entry{fault(-3000, -100, "p1", "hole", "")}, false, 3010, nil},
		"as that lease began":    {[]Entry{fault(1560, 4500, "p1", "hole", "")}, false, 3010, nil},
		"after that lease began": {[]Entry{fault(1800, 4500, "p1", "hole", "")}, false, 3010, skipped},
		"a kill":                 {[]Entry{fault(2900, 2901, "p1", "kill", "")}, false, 3010, nil},
		"a kill before":          {[]Entry{fault(-4000, -3999, "p1", "kill", "")}, false, 3010, skipped},
		"a stop of a moment":     {[]Entry{fault(5, 1005, "p1", "stop", "")}, false, 3010, skipped},
		"a stop without end":     {[]Entry{{At: at(2900), By: "p1", Op: Fault, ID: "stop", N: 1}}, false, 3010, nil},
		"its victim goes on":     {[]Entry{fault(5, 5, "p1", "shot", Brief)}, false, 3010, skipped},
		"a kill of who had nothing": {[]Entry{fault(5, 5, "p1", "cut", ""), idle(fault(6, 6, "p1", "kill", ""))},
			false, 3010, nil},
		"a term": {[]Entry{fault(5, 5, "p1", "cut", ""), idle(fault(6, 6, "", "term", ""))}, false, 3010, nil},
		"a fault of a moment": {[]Entry{fault(5, 5, "p1", "cut", ""), idle(fault(6, 6, "p1", "error", ""))},
			false, 3010, skipped},
		"a fault of nobody": {[]Entry{fault(5, 5, "p1", "cut", ""), fault(6, 2500, "", "error", "")}, false, 3010,
			skipped},
	} {
		t.Run(name, func(t *testing.T) {
			h := &History{Stepped: c.stepped, Entries: slices.Concat(c.faults, []Entry{
				{At: at(0), Op: Enqueue, Phase: Invoke, ID: "a/1", Note: PlanOK},
				{At: at(1), Op: Enqueue, Phase: OK, ID: "a/1"}}, pulled(c.from, 2))}
			slices.SortStableFunc(h.Entries, func(a, b Entry) int { return a.At.Compare(b.At) })
			if v := Check(h); !slices.Equal(v.Broke(), c.want) {
				t.Errorf("reported %v, want %v\n%v", v.Broke(), c.want, v.Err())
			}
		})
	}
}
