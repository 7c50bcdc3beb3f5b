package trial

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
)

// A checker that cannot fail is a defect: each invariant is broken once, and that one and no other is reported.
func TestChecker(t *testing.T) {
	more := func(lines ...string) func(*History) {
		return func(h *History) {
			for i, e := range said(lines...).Entries {
				e.At = e.At.Add(time.Minute + time.Duration(i))
				h.Entries = append(h.Entries, e)
			}
		}
	}
	left := func(ps ...Place) func(*History) { return func(h *History) { h.Left = append(h.Left, ps...) } }
	drop := func(what string) func(*History) {
		return func(h *History) {
			n := len(h.Entries)
			h.Entries = slices.DeleteFunc(h.Entries, func(e Entry) bool { return strings.Contains(e.String(), what) })
			if len(h.Entries) == n {
				t.Errorf("nothing to drop: %q", what)
			}
		}
	}
	both := func(fs ...func(*History)) func(*History) {
		return func(h *History) {
			for _, f := range fs {
				f(h)
			}
		}
	}
	// serials gives each entry that f adds a serial, "" for none.
	serials := func(f func(*History), of ...string) func(*History) {
		return func(h *History) {
			from := len(h.Entries)
			f(h)
			for i, serial := range of {
				h.Entries[from+i].Serial = serial
			}
		}
	}
	made := func(ms int) string { return ulid.MustNew(uint64(1000*1000+ms), nil).String() }
	two := both(more("h enqueue invoke z plan=retry", "h enqueue ok z"), more("h enqueue invoke z plan=retry",
		"h enqueue ok z"))
	twins := func(a, b string) func(*History) { // of the same bytes: one fails, and then both are begun again
		return both(two, serials(more("w1 handle invoke z", "w1 handle fail z due=60060", "w1 retried info z",
			"w1 handle invoke z attempt=2", "w1 handle ok z attempt=2", "w1 acked info z attempt=2",
			"w1 handle invoke z attempt=2", "w1 handle ok z attempt=2", "w1 acked info z attempt=2"),
			"sz#1", "sz#1", "sz#1", a, a, a, b, b, b))
	}
	bare := func(serial string) func(*History) { // one without a serial fails, and then the one of that is begun
		return both(two, serials(more("w1 handle invoke z", "w1 released info z", "w1 handle invoke z",
			"w1 handle fail z due=60060", "w1 retried info z", "w1 handle invoke z attempt=2",
			"w1 handle ok z attempt=2", "w1 acked info z attempt=2", "w1 handle invoke z attempt=2",
			"w1 handle ok z attempt=2", "w1 acked info z attempt=2"),
			"sz#1", "sz#1", "", "", "", serial, serial, serial, "sz#3", "sz#3", "sz#3"))
	}
	// after is a bare one that fails, an older state, and another failure before what waits is handled.
	after := func(enqueued func(*History), killed func(*History)) func(*History) {
		return both(enqueued, serials(more("w1 handle invoke z at=10", "w1 handle fail z at=10 due=60060",
			"w1 retried info at=11"), "", "", ""),
			killed, serials(more("w1 handle invoke z at=70", "w1 handle fail z at=70 due=60200",
				"w1 retried info at=71", "w1 handle invoke z at=80 attempt=2", "w1 handle ok z at=80 attempt=2",
				"w1 acked info z at=81 attempt=2"), "", "", "", "sz#7", "sz#7", "sz#7"),
			func(h *History) { h.Lossy = true })
	}
	killed := func(h *History) {
		h.Entries = append(h.Entries,
			Entry{At: time.Unix(0, 0), By: "w1", Op: Fault, Phase: Info, ID: KillServer, N: 1})
	}
	healed := func(channel string) func(*History) { // a foreign key of that channel goes before the recovery
		return both(more("h enqueue invoke c/z plan=ok", "h enqueue ok c/z", "w2 handle invoke c/z",
			"w2 fault info kill n=16"),
			func(h *History) {
				h.Entries = append(h.Entries, Entry{At: time.Unix(1064, 900e6), Op: Healing, ID: channel})
			},
			more("w1 handle invoke c/z at=5000", "w1 handle ok c/z at=5001", "w1 acked info c/z at=5002"))
	}
	recovered := func(slow int, took time.Duration) func(*History) { // that many of 120, of which none may take 2 s
		return func(h *History) {
			h.Slowest = 2 * time.Second
			say := func(at time.Duration, e Entry) {
				e.At = time.Unix(1070, 0).Add(at)
				h.Entries = append(h.Entries, e)
			}
			for i := range 120 {
				id := fmt.Sprint("r", i)
				say(0, Entry{By: "h", Op: Enqueue, Phase: Invoke, ID: id, Note: PlanOK})
				say(0, Entry{By: "h", Op: Enqueue, Phase: OK, ID: id})
				say(0, Entry{By: "w2", Op: Handle, Phase: Invoke, ID: id, Serial: id, Attempt: 1})
			}
			say(0, Entry{By: "w2", Op: Fault, Phase: Info, ID: "kill", N: 128})
			for i := range 120 {
				id, at := fmt.Sprint("r", i), 100*time.Millisecond
				if i < slow {
					at = took
				}
				say(at, Entry{By: "w1", Op: Handle, Phase: Invoke, ID: id, Serial: id, Attempt: 1})
				say(at, Entry{By: "w1", Op: Handle, Phase: OK, ID: id, Serial: id, Attempt: 1})
				say(at, Entry{By: "w1", Op: "acked", Phase: Info, ID: id, Serial: id, Attempt: 1})
			}
		}
	}
	hungUp := func(at time.Time) func(*History) {
		return func(h *History) {
			h.Entries = append(h.Entries, Entry{At: time.Unix(1000, 0), By: "w1", Op: Takes, ID: "z", N: 1},
				Entry{At: at, By: "w1", Op: Fault, Phase: Info, ID: HungUp, N: 1, Note: Brief},
				Entry{At: at.Add(time.Second), By: "w1", Op: "handed-over", Note: "inc"})
		}
	}
	resent := func(at int) func(*History) {
		return more("h enqueue invoke z plan=ok due=70000 at=1000", fmt.Sprintf("h enqueue ok z due=70000 at=%d", at))
	}
	twice := more("w1 handle invoke z at=10000", "w1 handle ok z at=10010", "w1 acked info z at=10020",
		"w1 handle invoke z at=10030", "w1 handle ok z at=10040", "w1 acked info z at=10050")
	stepped := func(h *History) { h.Stepped = true }
	waited := more("h enqueue invoke z plan=ok", "h enqueue ok z", "h quiet info due=60500 at=1000",
		"w1 handle invoke z at=1001", "w1 handle ok z at=1002", "w1 acked info z at=1003")
	shutDownAt := func(s int64) func(*History) { // Redis comes back with an older state at 1003
		return func(h *History) {
			h.Lossy = true
			h.Entries = append(h.Entries, Entry{At: time.Unix(1000, 0), By: "w1", Op: "started", Note: "inc"},
				Entry{At: time.Unix(s, 0), By: "w1", Op: Closed, Phase: OK},
				Entry{At: time.Unix(1001, 0), By: "w2", Op: Fault, ID: KillServer, N: 1, Due: time.Unix(1003, 0)},
				Entry{At: time.Unix(1010, 0), Op: judged, Note: "inc"})
		}
	}
	released := func(note string) func(*History) {
		return func(h *History) {
			for i := range h.Entries {
				if e := &h.Entries[i]; e.Op == "acked" && e.Serial == "sg" {
					e.Op, e.Note = "released", note
				}
			}
		}
	}
	for _, c := range []struct {
		name string
		do   func(*History)
		want []string
	}{
		{"clean", func(*History) {}, nil},
		{"never handled", more("h enqueue invoke z plan=ok", "h enqueue ok z"), []string{"I1 lost"}},
		{"acked before it was handled", more("h enqueue invoke z plan=ok", "h enqueue ok z", "w3 handle invoke z",
			"w3 acked info z"), []string{"I1 lost"}},
		{"rejected and not in dead", func(h *History) { h.Left = h.Left[1:] }, []string{"I1 lost"}},
		{"one of two twins", more("h enqueue invoke z plan=ok", "h enqueue ok z", "h enqueue invoke z plan=ok",
			"h enqueue ok z", "w1 handle invoke z", "w1 handle ok z", "w1 acked info z"), []string{"I1 lost"}},
		{"lossy", both(more("h enqueue invoke z plan=ok", "h enqueue ok z"), func(h *History) { h.Lossy = true }), nil},
		{"left in prepare", both(more("h enqueue invoke z plan=ok", "h enqueue ok z"), left(Place{ID: "z",
			State: "prepare"})), []string{"I2 not drained"}},
		{"left in delay", both(more("h enqueue invoke z plan=ok", "h enqueue ok z"), left(Place{ID: "z",
			State: "delay"})), []string{"I2 not drained"}},
		{"nobody enqueued it", more("w1 handle invoke z", "w1 handle ok z", "w1 acked info z"),
			[]string{"I3 unexpected"}},
		{"enqueued in vain and handled", more("w1 handle invoke f", "w1 handle ok f", "w1 acked info f"),
			[]string{"I3 unexpected"}},
		{"corrupt in Redis", left(Place{ID: "corrupt z", State: "dead"}), []string{"I3 unexpected"}},
		{"two acks", more("w2 acked info a"), []string{"I4 double ack", "I6 conservation"}},
		{"sent twice, and the clock was set meanwhile", both(resent(1020), twice, stepped), nil},
		{"sent twice", both(resent(1020), twice), []string{"I4 double ack", "I5 unexplained", "I6 conservation"}},
		{"sent once, and the clock was set meanwhile", both(resent(1010), twice, stepped),
			[]string{"I4 double ack", "I5 unexplained", "I6 conservation"}},
		{"silent ack", drop("\tacked\tinfo\t\"\"\tsg\t"), []string{"I4 silent ack"}},
		{"released, and says why", released("inc as planned"), nil},
		{"released", released("inc"), []string{"I4 silent ack"}},
		{"late ack that says so", more("w2 handle invoke x", "w2 lost info x"), nil},
		{"duplicate without a fault", both(drop("\tfault\t"), more("h fault info none")), []string{"I5 duplicated",
			"I5 unexplained"}},
		{"duplicate that no fault explains", more("w1 handle invoke a", "w1 handle ok a", "w1 lost info a"),
			[]string{"I5 unexplained"}},
		{"duplicate whose verdict was refused until its receiver ended", more("w1 handle invoke a", "w1 handle ok a",
			"w1 receiver-error info", "w1 unconfirmed-verdict info a"), nil},
		{"bare duplicate whose verdict was refused until its receiver ended", serials(more("w1 handle invoke a",
			"w1 handle ok a", "w1 receiver-error info", "w1 unconfirmed-verdict info"), "", "", "", ""), nil},
		{"duplicate beside a bare one that was refused", more("w1 handle invoke a", "w1 handle ok a",
			"w1 receiver-error info", "w1 unconfirmed-verdict info"), []string{"I5 unexplained"}},
		{"duplicate whose verdict nobody had refused", more("w1 handle invoke a", "w1 handle ok a",
			"w1 unconfirmed-verdict info a"), []string{"I5 unexplained"}},
		{"more duplicates than were in flight", func(h *History) {
			for i := range h.Entries {
				if h.Entries[i].Op == Fault {
					h.Entries[i].N = 1
				}
			}
			more("h enqueue invoke z plan=ok", "h enqueue ok z", "w2 handle invoke z", "w2 handle ok z",
				"w2 fault info kill", "w1 handle invoke z", "w1 handle ok z", "w1 acked info z")(h)
		}, []string{"I5 duplicated", "I5 unexplained"}},
		{"twice in Redis", both(more("h enqueue invoke z plan=reject", "h enqueue ok z", "w1 handle invoke z",
			"w1 handle fail z", "w1 rejected info z"), left(Place{ID: "z", State: "dead"}, Place{ID: "z",
			State: "dead"})), []string{"I6 conservation"}},
		{"neither acked nor in Redis", both(drop("\tw2\t"), drop("\"g\"\tsg"), drop("\t\"\"\tsg")),
			[]string{"I1 lost", "I6 conservation"}},
		{"acked and in Redis", left(Place{ID: "a", State: "delay"}), []string{"I2 not drained", "I6 conservation"}},
		{"nobody had begun it at a quiet point", waited, []string{"I2 not drained"}},
		{"one that could have begun it had nothing to do", both(hungUp(time.Unix(1059, 800e6)), waited),
			[]string{"I2 not drained"}},
		{"Redis has just hung up on who could have begun it", both(hungUp(time.Unix(1060, 700e6)), waited), nil},
		{"what is delayed, in a calm that says nothing of that", both(func(h *History) {
			h.Entries = append(h.Entries, Entry{At: time.Unix(1060, 0), By: "h", Op: delayed, Phase: Info, ID: "z"})
		}, waited, func(h *History) {
			for i := range h.Entries {
				switch e := &h.Entries[i]; {
				case e.Op == Quiet:
					e.ID, e.Note = "z", LaterOnly
				case e.ID == "z":
					e.ID = "z/1"
				}
			}
		}), nil},
		{"enqueued after the calm began", more("h enqueue invoke z plan=ok", "h enqueue ok z",
			"h quiet info due=60000 at=1000", "w1 handle invoke z at=1001", "w1 handle ok z at=1002",
			"w1 acked info z at=1003"), nil},
		{"orphaned", both(more("h enqueue invoke z plan=ok", "h enqueue ok z"), left(Place{ID: "z", State: "doing",
			Key: "{c}.doing.x.0"})), []string{"I7 orphaned"}},
		{"a living one judged", func(h *History) {
			h.Entries = append(h.Entries, Entry{At: time.Unix(1000, 0), By: "w1", Op: "started", Note: "inc"},
				Entry{At: time.Unix(1001, 0), Op: judged, Note: "inc"})
		}, []string{"I7 judged"}},
		{"a living one judged for a fault that is no excuse", func(h *History) {
			h.Entries = append(h.Entries, Entry{At: time.Unix(999, 0), By: "w1", Op: Fault,
				ID: "stop server at a sweep", N: 1, Note: Spared}, Entry{At: time.Unix(1000, 0), By: "w1",
				Op: "started", Note: "inc"},
				Entry{At: time.Unix(1001, 0), Op: judged, Note: "inc"})
		}, []string{"I7 judged"}},
		{"one judged that had ended without a word", func(h *History) {
			h.Entries = append(h.Entries, Entry{At: time.Unix(1000, 0), By: "w1", Op: "started", Note: "inc"},
				Entry{At: time.Unix(1009, 0), By: "w1", Op: Unclean, Phase: Fail},
				Entry{At: time.Unix(1010, 0), Op: judged, Note: "inc"})
		}, nil},
		{"one judged whose receiver had ended without a word", func(h *History) {
			h.Entries = append(h.Entries, Entry{At: time.Unix(1000, 0), By: "w1", Op: "started", Note: "inc"},
				Entry{At: time.Unix(1009, 0), By: "w1", Op: "stopped", Note: "inc shunt: Redis was not told"},
				Entry{At: time.Unix(1010, 0), Op: judged, Note: "inc"},
				Entry{At: time.Unix(1012, 0), By: "w1", Op: Unclean, Phase: Fail})
		}, nil},
		{"one judged whose receiver had ended in order", func(h *History) {
			h.Entries = append(h.Entries, Entry{At: time.Unix(1000, 0), By: "w1", Op: "started", Note: "inc"},
				Entry{At: time.Unix(1009, 0), By: "w1", Op: "stopped", Note: "inc"},
				Entry{At: time.Unix(1010, 0), Op: judged, Note: "inc"})
		}, []string{"I7 judged"}},
		{"one judged that ended so later", func(h *History) {
			h.Entries = append(h.Entries, Entry{At: time.Unix(1000, 0), By: "w1", Op: "started", Note: "inc"},
				Entry{At: time.Unix(1011, 0), By: "w1", Op: Unclean, Phase: Fail},
				Entry{At: time.Unix(1010, 0), Op: judged, Note: "inc"})
		}, []string{"I7 judged"}},
		{"one judged that had shut down in order", func(h *History) {
			h.Entries = append(h.Entries, Entry{At: time.Unix(1000, 0), By: "w1", Op: "started", Note: "inc"},
				Entry{At: time.Unix(1009, 0), By: "w1", Op: Closed, Phase: OK},
				Entry{At: time.Unix(1010, 0), Op: judged, Note: "inc"})
		}, []string{"I7 judged"}},
		{"one judged that had shut down in order, before an older state", shutDownAt(1002), nil},
		{"one judged that had shut down in order, behind an older state", shutDownAt(1004), []string{"I7 judged"}},
		{"one judged that had ended in order, before an older state", both(shutDownAt(1004), func(h *History) {
			h.Entries = append(h.Entries, Entry{At: time.Unix(1002, 0), By: "w1", Op: "stopped", Note: "inc"})
		}), nil},
		{"a dead one judged", func(h *History) {
			h.Entries = append(h.Entries, Entry{At: time.Unix(1000, 0), By: "w2", Op: "started", Note: "inc"},
				Entry{At: time.Unix(1001, 0), Op: judged, Note: "inc"})
		}, nil},
		{"slow recovery", more("h enqueue invoke z plan=ok", "h enqueue ok z", "w2 handle invoke z",
			"w2 fault info kill n=16", "w1 handle invoke z at=5000", "w1 handle ok z at=5001",
			"w1 acked info z at=5002"), []string{"I8 recovery"}},
		{"one slow recovery of many", recovered(1, 1500*time.Millisecond), nil},
		{"two slow recoveries of many", recovered(2, 1500*time.Millisecond), []string{"I8 recovery"}},
		{"a recovery slower than any may be", recovered(1, 2500*time.Millisecond), []string{"I8 recovery"}},
		{"slow recovery beside a foreign key", healed("c"), nil},
		{"slow recovery beside another's foreign key", healed("d"), []string{"I8 recovery"}},
		{"early", more("h enqueue invoke z plan=ok due=70000", "h enqueue ok z", "w1 handle invoke z",
			"w1 handle ok z", "w1 acked info z"), []string{"I9 early"}},
		{"early retry", more("h enqueue invoke z plan=retry", "h enqueue ok z", "w1 handle invoke z",
			"w1 handle fail z due=70000", "w1 retried info z", "w1 handle invoke z attempt=2",
			"w1 handle ok z attempt=2", "w1 acked info z attempt=2"), []string{"I9 early"}},
		{"retry that came too late", more("h enqueue invoke z plan=retry", "h enqueue ok z", "w1 handle invoke z",
			"w1 handle fail z due=70000", "w1 late-verdict info z", "w1 handle invoke z attempt=2",
			"w1 handle ok z attempt=2", "w1 acked info z attempt=2"), nil},
		{"a retry that Redis has refused to a puller", both(more("h enqueue invoke z plan=retry", "h enqueue ok z",
			"w1 handle invoke z", "w1 handle fail z due=70000"), func(h *History) {
			h.Entries = append(h.Entries, Entry{At: time.Unix(1060, 1), By: "w1", Op: Answered, Phase: Info,
				Serial: "sz", Attempt: 1, Note: "fail: shunt: settle a message"})
		}, more("w1 handle invoke z attempt=2", "w1 handle ok z attempt=2", "w1 acked info z attempt=2")), nil},
		{"a retry in the wake of a twin", twins("sz#2", "sz#1"), nil},
		{"early, and the server has not been killed", both(more("h enqueue invoke z plan=ok due=70000",
			"h enqueue ok z", "w1 handle invoke z", "w1 handle ok z", "w1 acked info z"),
			func(h *History) { h.Lossy = true }), []string{"I9 early"}},
		{"early, and put off before an older state", both(more("h enqueue invoke z plan=ok due=70000",
			"h enqueue ok z"), killed, more("w1 handle invoke z", "w1 handle ok z", "w1 acked info z"),
			func(h *History) { h.Lossy = true }), nil},
		{"a twin's retry that was put off before an older state", after(two, killed), nil},
		{"an early retry after an older state", after(more("h enqueue invoke z plan=retry", "h enqueue ok z"), killed),
			[]string{"I5 unexplained", "I9 early"}},
		{"a retry of a twin that had its serial before the other failed", bare("sz#1"), nil},
		{"an early retry that has its serial from it", bare("sz#2"), []string{"I9 early"}},
		{"a retry of a twin that was given a serial before the other failed", bare(made(60029)), nil},
		{"an early retry whose serial was made when it failed", bare(made(60030)), []string{"I9 early"}},
		{"a twin's early retry", twins("sz#1", "sz#2"), []string{"I9 early"}},
		{"late", more("h enqueue invoke z plan=ok due=0", "h enqueue ok z", "w1 handle invoke z", "w1 handle ok z",
			"w1 acked info z"), []string{"I9 late"}},
		{"lower first", both(more("h enqueue invoke hi/1 plan=ok", "h enqueue ok hi/1", "h enqueue invoke lo/1 "+
			"plan=ok", "h enqueue ok lo/1", "w1 handle invoke lo/1 at=300", "w1 handle ok lo/1 at=301",
			"w1 acked info lo/1 at=302",
			"w1 handle invoke hi/1 at=500", "w1 handle ok hi/1 at=501", "w1 acked info hi/1 at=502"),
			func(h *History) { h.Ranks = []string{"hi/", "lo/"} }), []string{"I10 order"}},
		{"lower first, before the higher is due", both(more("h enqueue invoke hi/1 plan=ok due=60490",
			"h enqueue ok hi/1", "h enqueue invoke lo/1 plan=ok", "h enqueue ok lo/1", "w1 handle invoke lo/1 at=300",
			"w1 handle ok lo/1 at=301", "w1 acked info lo/1 at=302", "w1 handle invoke hi/1 at=500",
			"w1 handle ok hi/1 at=501", "w1 acked info hi/1 at=502"),
			func(h *History) { h.Ranks = []string{"hi/", "lo/"} }), nil},
		{"a fair share", both(more("h enqueue invoke hi/1 plan=ok", "h enqueue ok hi/1", "h enqueue invoke lo/1 "+
			"plan=ok", "h enqueue ok lo/1", "w1 handle invoke hi/1", "w1 handle ok hi/1", "w1 acked info hi/1",
			"w1 handle invoke lo/1", "w1 handle ok lo/1", "w1 acked info lo/1"),
			func(h *History) { h.Shares = map[string]int{"hi/": 99, "lo/": 1} }), nil},
		{"less than its share", both(more("h enqueue invoke hi/1 plan=ok", "h enqueue ok hi/1",
			"h enqueue invoke lo/1 plan=ok", "h enqueue ok lo/1", "w1 handle invoke hi/1", "w1 handle ok hi/1",
			"w1 acked info hi/1",
			"w1 handle invoke lo/1", "w1 handle ok lo/1", "w1 acked info lo/1"),
			func(h *History) { h.Shares = map[string]int{"hi/": 1, "lo/": 1} }), []string{"I10 share"}},
		{"still entered after its end", func(h *History) {
			h.Entries = append(h.Entries, Entry{At: time.Unix(1000, 0), By: "w1", Op: "started", Note: "inc"},
				Entry{At: time.Unix(1e6, 0), Op: remains, Note: "inc"})
		}, []string{"I11 liveness"}},
		{"more keys than before", more("h count ok keys n=03"), []string{"I11 liveness"}},
		{"slower than before", more("h pace ok rate n=44"), []string{"I11 liveness"}},
		{"an innocent dead", both(more("h enqueue invoke z plan=ok", "h enqueue ok z"), left(Place{ID: "z",
			State: "dead"})), []string{"I12 poison"}},
		{"a killer not dead", both(drop("\"k\""), more("h enqueue invoke k plan=kill", "h enqueue ok k"),
			func(h *History) { h.Left[1].State = "suspect" }), []string{"I12 poison", "I2 not drained"}},
		{"a killer dead too soon", func(h *History) { h.Left[1].Recoveries = 3 }, []string{"I12 poison"}},
		{"a killer dead without a reason", func(h *History) { h.Left[1].Failure = "" }, []string{"I12 poison"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := clean()
			c.do(h)
			v := Check(h)
			if got := v.Broke(); !slices.Equal(got, c.want) {
				t.Errorf("reported %v, want %v\n%v", got, c.want, v.Err())
			}
			if len(c.want) > 0 && v.Err() == nil {
				t.Error("no error")
			}
		})
	}
	v := Check(clean())
	if v.Enqueued != 7 || v.Unknown != 2 || v.Recovered != 1 || v.Handled != 7 || v.Duplicated != 1 ||
		v.Allowed != 16 ||
		v.Dead != 2 ||
		len(v.Recovery) != 1 ||
		len(v.Lateness) != 2 {
		t.Errorf("%v, %d recovered, %d due", v, len(v.Recovery), len(v.Lateness))
	}
}

// The checker keeps the lateness of pullers apart from that of receivers: a puller may be later.
func TestPulledLate(t *testing.T) {
	at := func(ms int) time.Time { return time.UnixMilli(int64(1000_000 + ms)) }
	var es []Entry
	for _, id := range []string{"a", "b"} {
		es = append(es, Entry{At: at(0), By: "h", Op: Enqueue, Phase: Invoke, ID: id, Note: PlanOK, Due: at(500)},
			Entry{At: at(1), By: "h", Op: Enqueue, Phase: OK, ID: id})
	}
	begun := func(by, id string, ms int) Entry {
		return Entry{At: at(ms), By: by, Op: Handle, Phase: Invoke, ID: id, Serial: "s" + id, Attempt: 1}
	}
	es = append(es, Entry{At: at(520), By: "p", Op: Pulled, ID: "a", Serial: "sa", Attempt: 1, Due: at(9000)},
		begun("p", "a", 530), begun("w", "b", 510))
	v := Check(&History{Margins: VirtualTime(), Entries: es})
	if want := []time.Duration{30 * time.Millisecond}; !slices.Equal(v.PulledLate, want) {
		t.Errorf("pullers were late by %v, want %v", v.PulledLate, want)
	}
	if want := []time.Duration{10 * time.Millisecond}; !slices.Equal(v.Lateness, want) {
		t.Errorf("receivers were late by %v, want %v", v.Lateness, want)
	}
}
