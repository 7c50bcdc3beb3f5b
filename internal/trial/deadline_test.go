package trial

import (
	"slices"
	"testing"
	"time"

	"github.com/shuntmq/shunt"
)

// What a Deadline ends, it ends in its time.
func TestDeadlines(t *testing.T) {
	at := func(ms int) time.Time { return time.UnixMilli(int64(1000_000 + ms)) }
	const ends = 2000
	enqueued := []Entry{{At: at(0), Op: mortal, ID: "a/1", Due: at(ends)},
		{At: at(0), Op: Enqueue, Phase: Invoke, ID: "a/1", Note: PlanOK},
		{At: at(1), Op: Enqueue, Phase: OK, ID: "a/1"}}
	died := func(ms int) Entry {
		return Entry{At: at(ms), By: "p1", Op: "rejected", Serial: "sa", Note: "one " + shunt.ErrDeadline.Error()}
	}
	begun := func(ms int) Entry {
		return Entry{At: at(ms), By: "p1", Op: Handle, Phase: Invoke, ID: "a/1", Serial: "sa", Attempt: 1}
	}
	member := func(ms, gathered int) Entry {
		e := begun(ms)
		e.Due = at(gathered)
		return e
	}
	failed := func(ms int, why string) Entry {
		return Entry{At: at(ms), By: "p1", Op: Handle, Phase: Fail, ID: "a/1", Serial: "sa", Attempt: 1, Note: why}
	}
	fault := func(from, to int) Entry {
		return Entry{At: at(from), By: "p1", Op: Fault, ID: "freeze", N: 1, Due: at(to)}
	}
	pulled := func(ms int) Entry {
		return Entry{At: at(ms), By: "p1", Op: Pulled, ID: "a/1", Serial: "sa", Attempt: 1, Due: at(9000)}
	}
	stop := Entry{At: at(5), By: "harness", Op: Fault, ID: "stop server", Due: at(ends + 40)}
	const over = "context deadline exceeded"
	for name, c := range map[string]struct {
		es    []Entry
		broke bool
	}{
		"in its time":             {[]Entry{died(ends)}, false},
		"by a clock that is late": {[]Entry{died(ends - 149)}, false},
		"too soon":                {[]Entry{died(ends - 151)}, true},
		"ended":                   {[]Entry{begun(5), failed(ends-149, over), died(ends)}, false},
		"ended too soon":          {[]Entry{begun(5), failed(ends-151, over), died(ends)}, true},
		"failed":                  {[]Entry{begun(5), failed(6, "as planned"), died(ends)}, false},
		"begun too late":          {[]Entry{begun(ends + 2), failed(ends+1, over), died(ends + 9)}, true},
		"woken late":              {[]Entry{fault(5, ends+2), begun(ends + 2), died(ends + 2)}, false},
		"woken soon":              {[]Entry{fault(5, ends-1), begun(ends + 2), died(ends + 2)}, true},
		"last of its batch":       {[]Entry{member(ends+1, ends-1), failed(ends+1, over), died(ends + 9)}, false},
		"in a batch too late":     {[]Entry{member(ends+3, ends+2), failed(ends+3, over), died(ends + 4)}, true},
		"pulled":                  {[]Entry{pulled(ends + 50), begun(ends + 60), died(ends + 70)}, false},
		"begun beside a pause":    {[]Entry{stop, begun(ends + 60), died(ends + 70)}, true},
	} {
		h := &History{Margins: VirtualTime(), Entries: slices.Concat(enqueued, c.es), Ends: time.Minute,
			Left: []Place{{ID: "a/1", Serial: "sa", State: "dead", Key: "{a}.dead"}}}
		if v := Check(h); slices.Contains(v.Broke(), "I28 deadline") != c.broke || len(v.Broke()) > 1 {
			t.Errorf("%s: reported %v\n%v", name, v.Broke(), v.Err())
		}
	}
	h := &History{Margins: VirtualTime(), Entries: enqueued[1:], Ends: time.Minute,
		Left: []Place{{ID: "a/1", Serial: "sa", State: "dead", Key: "{a}.dead"}}}
	if v := Check(h); !slices.Equal(v.Broke(), []string{"I12 poison"}) {
		t.Errorf("without a deadline: reported %v", v.Broke())
	}
}
