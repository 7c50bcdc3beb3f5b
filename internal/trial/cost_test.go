package trial

import (
	"slices"
	"testing"
	"time"
)

// A take that nobody saw counts an attempt where a puller heard nothing of it until its lease was over. In each case a
// message is enqueued at 0, and pulled with its second attempt at 3010.
func TestUnseen(t *testing.T) {
	at := func(ms int) time.Time { return time.UnixMilli(int64(1000_000 + ms)) }
	fault := func(from, to int, by, kind, note string) Entry {
		return Entry{At: at(from), By: by, Op: Fault, ID: kind, N: 1, Due: at(to), Note: note}
	}
	hole := func(from, to int, by string) Entry { return fault(from, to, by, "hole", "") }
	mute := func(from, to int, by string) Entry { return fault(from, to, by, "mute", "") }
	forEver := Entry{At: at(5), By: "p1", Op: Fault, ID: "kill", N: 1, Due: ForEver}
	pulled := func(from, to int, by, id string, attempt int) Entry {
		return Entry{At: at(from), By: by, Op: Pulled, ID: id, Serial: id, Attempt: attempt, Due: at(to)}
	}
	decoding := Entry{At: at(1), By: "p1", Op: decodes, Phase: Invoke}
	const may, skipped = "", "I18 attempts"
	for name, c := range map[string]struct {
		es   []Entry
		want string
	}{
		"no fault":                         {nil, skipped},
		"a hole, as long as a lease":       {[]Entry{hole(5, 2005, "p1")}, may},
		"of another":                       {[]Entry{hole(5, 2005, "p2")}, may},
		"of who succeeded it":              {[]Entry{hole(5, 2005, "p2.3")}, may},
		"of a receiver":                    {[]Entry{hole(5, 2005, "w1")}, skipped},
		"of nobody":                        {[]Entry{hole(5, 2005, "")}, skipped},
		"most of a lease":                  {[]Entry{hole(5, 1505, "p1")}, may},
		"too short":                        {[]Entry{hole(5, 1404, "p1")}, skipped},
		"too short, and another clock":     {[]Entry{hole(5, 1404, "p1"), {At: at(7), Op: Fault, ID: "step"}}, may},
		"too short, while it decodes":      {[]Entry{hole(5, 1404, "p1"), decoding}, may},
		"too short, and all was told late": {[]Entry{hole(5, 1404, "p1"), pulled(2000, 1990, "p2", "a/2", 1)}, may},
		"too short, and one told late": {[]Entry{hole(5, 1404, "p1"), pulled(2000, 1990, "p2", "a/2", 1),
			pulled(2100, 4100, "p2", "a/3", 1)}, skipped},
		"a stop that is brief, and long": {[]Entry{fault(5, 2005, "p1", "stop server", Brief)}, may},
		"a slow line":                    {[]Entry{fault(5, 2005, "p1", "slow", "")}, skipped},
		"a line that is cut at last":     {[]Entry{fault(5, 2005, "p1", "cut after", "")}, skipped},
		"a line in pieces":               {[]Entry{fault(5, 2005, "p1", "slice", "")}, may},
		"what a dead one has left":       {[]Entry{fault(5, 2005, "p1", "corpse", "")}, skipped},
		"one hole after another":         {[]Entry{hole(5, 1005, "p1"), hole(1010, 2005, "p1")}, may},
		"one hole within another":        {[]Entry{hole(5, 2005, "p1"), hole(100, 1005, "p1")}, may},
		"one hole, and another":          {[]Entry{hole(5, 1005, "p1"), hole(1400, 2405, "p1")}, skipped},
		"holes of two":                   {[]Entry{hole(5, 1005, "p1"), hole(990, 2005, "p2")}, skipped},
		"a hole, and then mute":          {[]Entry{hole(5, 1005, "p1"), mute(900, 2005, "p1")}, skipped},
		"mute, and then a hole":          {[]Entry{mute(5, 1005, "p1"), hole(900, 2005, "p1")}, may},
		"before it was enqueued":         {[]Entry{hole(-4000, -500, "p1")}, skipped},
		"as it was enqueued":             {[]Entry{hole(-3000, -100, "p1")}, may},
		"as that lease began":            {[]Entry{hole(1560, 4500, "p1")}, may},
		"after that lease began":         {[]Entry{hole(1800, 4500, "p1")}, skipped},
		"a kill":                         {[]Entry{fault(2900, 2901, "p1", "kill", "")}, may},
		"a kill for ever":                {[]Entry{forEver}, may},
		"a kill before":                  {[]Entry{fault(-4000, -3999, "p1", "kill", "")}, skipped},
		"a kill before, amid a hole": {[]Entry{hole(-3000, -1900, "p1"), fault(-2500, -2500, "p1", "kill", "")},
			may},
		"a kill of a receiver":        {[]Entry{fault(5, 6, "w1", "kill", "")}, skipped},
		"a term":                      {[]Entry{fault(5, 6, "", "term", "")}, may},
		"a stop of a moment":          {[]Entry{fault(5, 1005, "p1", "stop", "")}, skipped},
		"a stop without end":          {[]Entry{{At: at(5), By: "p1", Op: Fault, ID: "stop", N: 1}}, may},
		"a cut as an ack is answered": {[]Entry{fault(5, 5, "p1", "shot", "")}, skipped},
		"one whose victim can go on":  {[]Entry{fault(5, 5, "p1", HungUp, Brief)}, skipped},
	} {
		t.Run(name, func(t *testing.T) {
			last := pulled(3010, 5010, "p1", "a/1", 2)
			began, done, acked := last, last, last
			began.Op, began.Phase, done.Op, done.Phase, acked.Op = Handle, Invoke, Handle, OK, "acked"
			h := &History{Entries: slices.Concat([]Entry{
				{At: at(-5000), By: "p1", Op: Pulling, Phase: OK},
				{At: at(-5000), By: "p2", Op: Pulling, Phase: OK},
				fault(-4900, -4900, "w1", "cut", "")}, c.es, []Entry{ // which allows one
				{At: at(0), Op: Enqueue, Phase: Invoke, ID: "a/1", Note: PlanOK},
				{At: at(1), Op: Enqueue, Phase: OK, ID: "a/1"},
				last, began, done, acked})}
			h.Stepped = slices.ContainsFunc(h.Entries, func(e Entry) bool { return e.ID == "step" })
			slices.SortStableFunc(h.Entries, func(a, b Entry) int { return a.At.Compare(b.At) })
			broke := slices.DeleteFunc(Check(h).Broke(), func(what string) bool { return what != skipped })
			if got := len(broke) > 0; got != (c.want == skipped) {
				t.Errorf("reported %v, want %q\n%v", broke, c.want, Check(h).Err())
			}
		})
	}
}
