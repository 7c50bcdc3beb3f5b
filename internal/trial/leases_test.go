package trial

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// Each invariant of leases is broken once, and that one and no other is reported.
func TestLeases(t *testing.T) {
	at := func(ms int) time.Time { return time.Unix(1000, 0).Add(time.Duration(ms) * time.Millisecond) }
	pull := func(by string, from, ends, attempt int) Entry {
		return Entry{
			At:      at(from),
			By:      by,
			Op:      Pulled,
			Phase:   Info,
			ID:      "p",
			Serial:  "sp",
			Attempt: attempt,
			Due:     at(ends),
		}
	}
	handled := func(by string, from, attempt int) []Entry {
		e := Entry{At: at(from), By: by, Op: Handle, Phase: Invoke, ID: "p", Serial: "sp", Attempt: attempt}
		end := e
		end.At, end.Phase = at(from+10), OK
		return []Entry{e, end}
	}
	acked := func(by string, when, attempt int) []Entry {
		return []Entry{{At: at(when), By: by, Op: "acked", Phase: Info, Serial: "sp", Attempt: attempt}}
	}
	late := func(by string, when int) []Entry {
		return []Entry{{At: at(when), By: by, Op: Answered, Phase: Fail, Serial: "sp", Attempt: 1,
			Note: "ack " + tooLate}}
	}
	enqueued := said("h enqueue invoke p plan=ok at=2000", "h enqueue ok p at=2010").Entries
	resent := said("h enqueue invoke p plan=ok due=3030 at=2000", "h enqueue ok p due=3030 at=2018").Entries
	struck := []Entry{{At: at(2045), By: "p1", Op: Fault, Phase: Info, ID: "stop", N: 8, Due: at(9000)}}
	stopped := []Entry{{At: at(2045), By: "p1", Op: Fault, Phase: Info, ID: "stop", N: 8}}
	froze := []Entry{{At: at(2045), By: "p2", Op: Fault, Phase: Info, ID: "freeze", N: 8, Due: at(5100)}}
	named := func(op string) []Entry { return []Entry{{At: at(8000), By: "n", Op: op, Phase: Info, Serial: "sp"}} }
	second := slices.Concat([]Entry{pull("p2", 8020, 12000, 2)}, handled("p2", 8030, 2), acked("p2", 8050, 2))
	first := slices.Concat(enqueued, []Entry{pull("p1", 2020, 3020, 1)}, handled("p1", 2030, 1))
	for name, c := range map[string]struct {
		es   []Entry
		want []string
	}{
		"acked": {slices.Concat(first, acked("p1", 2050, 1)), nil},
		"lapsed, late": {slices.Concat(first, struck, late("p1", 8000), []Entry{pull("p2", 3030, 9000, 2)},
			handled("p2", 3040, 2), acked("p2", 3060, 2)), nil},
		"lapsed and no fault": {slices.Concat(first, []Entry{pull("p2", 3030, 9000, 2)}, handled("p2", 3040, 2),
			acked("p2", 3060, 2)), []string{"I5 unexplained"}},
		"no attempt counted": {slices.Concat(first, struck, []Entry{pull("p2", 3030, 9000, 1)}, acked("p2", 3060, 1)),
			[]string{"I18 attempts"}},
		"too early": {slices.Concat(first, struck, []Entry{pull("p2", 2100, 9000, 2)}, handled("p2", 2110, 2),
			acked("p2", 2130, 2)), []string{"I9 early"}},
		"again after its ack": {slices.Concat(first, acked("p1", 2050, 1), []Entry{pull("p2", 3030, 9000, 2)}),
			[]string{"I19 handed out again"}},
		"sent twice": {slices.Concat(resent, first[2:], acked("p1", 2050, 1), []Entry{pull("p1", 3030, 4030, 1)},
			handled("p1", 3030, 1), acked("p1", 3050, 1)), []string{"I19 handed out again",
			"I4 double ack", "I5 unexplained", "I6 conservation", "I9 early"}},
		"sent twice, and the clock was set meanwhile": {slices.Concat(resent, first[2:], acked("p1", 2050, 1),
			[]Entry{pull("p1", 3030, 4030, 1)}, handled("p1", 3030, 1), acked("p1", 3050, 1)), nil},
		"said after its lease, and acked by another since": {slices.Concat(first[:2], struck,
			[]Entry{pull("p2", 3030, 9000, 2)}, handled("p2", 3040, 2), acked("p2", 3060, 2),
			[]Entry{pull("p1", 8000, 3000, 1)}), nil},
		"said after its lease, and handled by both": {slices.Concat(first[:2], stopped,
			[]Entry{pull("p2", 3030, 9000, 2)}, handled("p2", 3040, 2), acked("p2", 3060, 2),
			[]Entry{pull("p1", 8000, 3000, 1)}, handled("p1", 8010, 1), late("p1", 8030)), nil},
		"said after its lease, and acked before": {slices.Concat(first[:2], struck,
			[]Entry{pull("p2", 2500, 9000, 1)}, handled("p2", 2600, 1), acked("p2", 2700, 1),
			[]Entry{pull("p1", 8000, 3000, 1)}), []string{"I19 handed out again"}},
		"said after its lease": {slices.Concat(first[:2], []Entry{pull("p1", 8000, 3000, 1)}, handled("p1", 8010, 1),
			acked("p1", 8030, 1)), []string{"I19 handed out late"}},
		"its ID refused after the fault":         {slices.Concat(enqueued, froze, named(refused), second), nil},
		"released after the fault, before begun": {slices.Concat(enqueued, froze, named("released"), second), nil},
		"lost too soon": {slices.Concat(enqueued, []Entry{pull("p1", 2020, 9000, 1)}, handled("p1", 2030, 1),
			late("p1", 2060), acked("p1", 2070, 1)), []string{"I20 lost too soon"}},
	} {
		t.Run(name, func(t *testing.T) {
			h := clean()
			h.Ends = 7 * time.Second
			h.Entries = append(h.Entries, c.es...)
			h.Stepped = strings.HasSuffix(name, "the clock was set meanwhile")
			sortEntries(h.Entries)
			v := Check(h)
			if got := v.Broke(); !slices.Equal(got, c.want) {
				t.Errorf("reported %v, want %v\n%v", got, c.want, v.Err())
			}
		})
	}
}

// A message that a receiver handled before it had a serial has an attempt behind it when it is first pulled, and has
// not waited for that since it was enqueued.
func TestPulledAfterBare(t *testing.T) {
	h := said("h enqueue invoke p plan=retry", "h enqueue ok p", "w1 handle invoke p", "w1 handle fail p",
		"w2 pulled info p attempt=2", "w2 handle invoke p attempt=2", "w2 handle ok p attempt=2",
		"w2 acked info p attempt=2")
	for i := range h.Entries {
		e := &h.Entries[i]
		if e.By == "w1" {
			e.Serial = ""
		} else if e.Op == Pulled {
			e.ID = "p"
		}
	}
	if v := Check(h); v.Skipped != 0 || len(v.Broke()) > 0 || len(v.Waits) > 0 {
		t.Errorf("%d attempts are skipped, waits are %v, %v", v.Skipped, v.Waits, v.Err())
	}
}

// From the end of a lease to the next take is until a receiver begins, also where that is killed, and a puller is next.
// What held its message up is not counted, as far as it is healed.
func TestEndedToTaken(t *testing.T) {
	for name, c := range map[string]struct {
		receiver int    // when it begins, in ms after the end of the lease; 0: none does
		healed   int    // when a fault is over, in ms after the end of the lease; 0: there is none
		of       string // the channel of that
		want     time.Duration
	}{
		"a puller alone":            {0, 0, "", 9 * time.Second},
		"a receiver between":        {200, 0, "", 200 * time.Millisecond},
		"while it lasts":            {-200, 0, "", 9 * time.Second},
		"a fault":                   {0, 8000, "", time.Second},
		"a fault of its channel":    {0, 8000, "p", time.Second},
		"a fault of another":        {0, 8000, "q", 9 * time.Second},
		"a fault that was before":   {0, -100, "", 9 * time.Second},
		"a fault while it was held": {200, 8000, "", 200 * time.Millisecond},
	} {
		h := said("h enqueue invoke p plan=ok at=1000", "h enqueue ok p at=1010", "w2 pulled info p attempt=1 at=2000",
			"w1 handle invoke p attempt=2 at=5000", "w3 pulled info p attempt=3 at=13000")
		ends := h.Entries[2].At.Add(2 * time.Second)
		h.Entries[2].Due, h.Entries[4].Due = ends, ends.Add(time.Minute)
		h.Entries[2].ID, h.Entries[4].ID = "p", "p"
		h.Entries[3].At = ends.Add(time.Duration(c.receiver) * time.Millisecond)
		if c.receiver == 0 {
			h.Entries = slices.Delete(h.Entries, 3, 4)
		}
		if c.healed != 0 {
			h.Entries = append(h.Entries, Entry{At: ends.Add(time.Duration(c.healed) * time.Millisecond), Op: Healing,
				ID: c.of})
			sortEntries(h.Entries)
		}
		if v := Check(h); !slices.Equal(v.Ends, []time.Duration{c.want}) {
			t.Errorf("%s: %v, want %v", name, v.Ends, c.want)
		}
	}
}
