package trial

import (
	"slices"
	"testing"
	"time"
)

// What a margin forgives is a breach where that margin is nothing, and all the others are as they were.
func TestMargins(t *testing.T) {
	at := func(ms int) time.Time { return time.Unix(1000, 0).Add(time.Duration(ms) * time.Millisecond) }
	enqueued := []string{"h enqueue invoke p plan=ok at=2000", "h enqueue ok p at=2010"}
	twice := said(append(enqueued, "p1 handle invoke p at=5000", "p1 handle ok p at=5010", "p1 acked info p at=5020",
		"p2 handle invoke p at=5100", "p2 handle ok p at=5110")...).Entries
	struck := func(ms int) []Entry { return []Entry{{At: at(ms), By: "p1", Op: Fault, Phase: Info, ID: "stop", N: 8}} }
	pulled := func(by string, ms, attempt int) Entry {
		return Entry{At: at(ms), By: by, Op: Pulled, Phase: Info, ID: "p", Serial: "sp", Attempt: attempt,
			Due: at(ms + 1000)}
	}
	for name, c := range map[string]struct {
		es   []Entry
		none func(*Margins)
		want string
	}{
		"order": {said("h enqueue invoke hi/1 plan=ok at=2000", "h enqueue ok hi/1 at=2010",
			"h enqueue invoke lo/1 plan=ok at=2000", "h enqueue ok lo/1 at=2010", "w1 handle invoke lo/1 at=2100",
			"w1 handle ok lo/1 at=2110", "w1 acked info lo/1 at=2120", "w1 handle invoke hi/1 at=2500",
			"w1 handle ok hi/1 at=2510", "w1 acked info hi/1 at=2520").Entries,
			func(m *Margins) { m.Order = 0 }, "I10 order"},
		"lease": {append(struck(2000), Entry{At: at(1000), By: "p1", Op: "started", Note: "inc"},
			Entry{At: at(6900), Op: judged, Note: "inc"}), func(m *Margins) { m.Lease = 0 }, "I7 judged"},
		"told":      {slices.Concat(twice, struck(5210)), func(m *Margins) { m.Told = 0 }, "I5 unexplained"},
		"aftermath": {slices.Concat(twice, struck(3010)), func(m *Margins) { m.Aftermath = 0 }, "I5 unexplained"},
		"read": {slices.Concat(said(enqueued...).Entries, struck(2030), []Entry{pulled("p1", 2020, 1),
			pulled("p2", 2780, 2)}, said("p2 handle invoke p at=2790 attempt=2", "p2 handle ok p at=2800 attempt=2",
			"p2 acked info p at=2810 attempt=2").Entries), func(m *Margins) { m.Read = 0 }, "I9 early"},
		"held": {slices.Concat(said(enqueued...).Entries, []Entry{pulled("p1", 2020, 1),
			{At: at(2030), By: "p1", Op: Answered, Phase: Fail, Serial: "sp", Attempt: 1, Note: "ack " + tooLate}},
			said("p1 handle invoke p at=2040", "p1 handle ok p at=2050", "p1 acked info p at=2060").Entries),
			func(m *Margins) { m.Held = 0 }, "I20 lost too soon"},
	} {
		t.Run(name, func(t *testing.T) {
			exact := RealTime()
			c.none(&exact)
			for _, m := range []*Margins{nil, &exact} {
				h := clean()
				h.Margins, h.Ranks, h.Ends = m, []string{"hi/", "lo/"}, 7*time.Second
				h.Recover = 0
				h.Entries = append(h.Entries, c.es...)
				sortEntries(h.Entries)
				var want []string
				if m != nil {
					want = []string{c.want}
				}
				if v := Check(h); !slices.Equal(v.Broke(), want) {
					t.Errorf("with %+v: reported %v, want %v\n%v", m, v.Broke(), want, v.Err())
				}
			}
		})
	}
}
