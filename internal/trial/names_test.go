package trial

import (
	"slices"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/shuntmq/shunt"
)

// Each invariant of IDs and of what follows is broken once, and that one and no other is reported.
func TestNames(t *testing.T) {
	at := func(ms int) time.Time { return time.Unix(1000, 0).Add(time.Duration(ms) * time.Millisecond) }
	call := func(op, phase string, from, to int, e Entry) []Entry {
		e.By, e.Op, e.Phase, e.At = "h", op, Invoke, at(from)
		answer := e
		answer.Phase, answer.At = phase, at(to)
		return []Entry{e, answer}
	}
	more := func(lines ...string) []Entry { return said(lines...).Entries }
	all := func(parts ...[]Entry) []Entry { return slices.Concat(parts...) }
	// One message under the ID a, enqueued at 2000 to 2010 and handled at 2020 to 2030.
	first := more(
		"h enqueue invoke a#1 plan=ok at=2000",
		"h enqueue ok a#1 at=2010",
		"w1 handle invoke a#1 at=2020",
		"w1 handle ok a#1 at=2030",
		"w1 acked info a#1 at=2040",
	)
	both := all(first, more("h enqueue invoke a#2 plan=ok at=2021", "h enqueue ok a#2 at=2022",
		"w1 handle invoke a#2 at=2025", "w1 handle ok a#2 at=2060", "w1 acked info a#2 at=2070"))
	second := more("h enqueue invoke a#2 plan=ok at=2100", "h enqueue ok a#2 at=2110",
		"w1 handle invoke a#2 at=2120", "w1 handle ok a#2 at=2130", "w1 acked info a#2 at=2140")
	untold := more("h enqueue invoke a#2 plan=ok at=2100", "h enqueue ok a#2 at=2110",
		"w9 handle invoke a#2 at=2120", "w9 handle ok a#2 at=2130")
	retried := all(first[:3], more("w1 handle fail a#1 at=2030", "w1 retried info a#1 at=2040"),
		call(callOff, OK, 2050, 2060, Entry{ID: "a", Serial: "sa#1", Note: "delay"}))
	unkeptAt := func(ms int) []Entry { return []Entry{{At: at(ms), By: "h", Op: unkept, Phase: Fail, ID: "a"}} }
	stood := Entry{At: at(2023), By: "w1", Op: Fault, ID: "freeze", N: 1, Due: at(2024)}
	answers := func(ms int, serial string, attempt int) []Entry {
		return []Entry{{At: at(ms), By: "w1", Op: Answered, Phase: Fail, Serial: serial, Attempt: attempt,
			Note: "ack " + tooLate}}
	}
	pulls := func(ends int) []Entry {
		return []Entry{{At: at(2005), By: "w1", Op: Pulled, ID: "a#1", Serial: "sa#1", Attempt: 1, Due: at(ends)}}
	}
	inBatch := func(es []Entry, gathered int) []Entry {
		es = slices.Clone(es)
		es[2].Due = at(gathered)
		return es
	}
	struck := func(ms int) []Entry {
		return []Entry{{At: at(ms), By: "w1", Op: Fault, ID: "cut", N: 1, Due: at(ms + 1), Note: Brief}}
	}
	cancels := call(callOff, OK, 2011, 2015, Entry{ID: "a", Serial: "sa#1", Note: "prepare"})
	extends := []Entry{{At: at(2011), By: "w1", Op: Extended, Phase: OK, Serial: "sa#1", Attempt: 1, Due: at(2100)}}
	twin := more("h enqueue invoke a#2 plan=ok at=2011", "h enqueue ok a#2 at=2015", "w1 handle invoke a#2 at=2050",
		"w1 handle ok a#2 at=2060", "w1 acked info a#2 at=2070")
	loses := func(serial string) []Entry { return all([]Entry{stood}, answers(2080, serial, 1)) }
	// One that nobody handles.
	waits := more("h enqueue invoke b#1 plan=ok at=2000", "h enqueue ok b#1 at=2010")
	serial := ulid.MustNew(ulid.Timestamp(at(2005)), nil).String() // of b#1, and nobody else has said so
	expired := all(waits, []Entry{{At: at(2010), Op: expires, ID: "b#1", Due: at(2020)}})
	again := all(
		more("h enqueue invoke b#2 plan=ok at=2050"),
		[]Entry{
			{At: at(2060), Op: refused, Phase: Info, ID: "b#2", Serial: serial},
			{By: "h", At: at(2060), Op: Enqueue, Phase: Fail, ID: "b#2", Note: duplicate},
		},
	)
	chain := more(
		"h enqueue invoke z plan=then:1 at=2000",
		"h enqueue ok z at=2010",
		"w1 handle invoke z at=2020",
		"w1 handle ok z at=2030",
		"w1 acked info z at=2040",
	)
	next := more("w1 handle invoke z> at=2050", "w1 handle ok z> at=2060", "w1 acked info z> at=2070")
	for _, c := range []struct {
		name string
		es   []Entry
		want []string
	}{
		{"one after another", all(first, second), nil},
		{"lost", waits, []string{"I1 lost"}},
		{"cancelled", all(waits, call(callOff, OK, 2100, 2110, Entry{ID: "b", Serial: "sb#1", Note: "prepare"})), nil},
		{"cancelled, perhaps", all(waits, call(callOff, Info, 2100, 2110, Entry{ID: "b"})), nil},
		{"cancelled before it was there", all(waits, call(callOff, Info, 1000, 1010, Entry{ID: "b"})),
			[]string{"I1 lost"}},
		{"cancelled and handled", all(first, call(callOff, OK, 2011, 2015, Entry{ID: "a", Serial: "sa#1",
			Note: "prepare"})), []string{"I16 cancelled"}},
		{"cancelled in hand and handled", all(first, call(callOff, OK, 2011, 2015, Entry{ID: "a", Serial: "sa#1",
			Note: "doing"})), nil},
		{"cancelled when a puller's lease was over, and handled by it", all(first, cancels, pulls(2012)), nil},
		{"cancelled while a puller had a lease, and handled by it", all(first, cancels, pulls(2016)),
			[]string{"I16 cancelled"}},
		{"cancelled when a batch had it that was struck", all(inBatch(first, 2005), struck(2008), cancels), nil},
		{"cancelled when a batch had it that was struck later", all(inBatch(first, 2005), struck(2017), cancels),
			[]string{"I16 cancelled"}},
		{"cancelled when a batch had it", all(inBatch(first, 2012), cancels), []string{"I16 cancelled"}},
		{"cancelled when its puller had put the end of its lease off", all(first, cancels, pulls(2012), extends),
			[]string{"I16 cancelled"}},
		{"expired", expired, nil},
		{"refused for what has expired", all(expired, again), []string{"I17 refused"}},
		{"refused for what expired in a dead worker's hands, cancelled", all(expired, call(callOff, OK, 2015, 2016,
			Entry{ID: "b", Serial: serial, Note: "doing"}), again), nil},
		{"refused for what was cancelled, not yet expired", all(expired, call(callOff, OK, 2015, 2016, Entry{ID: "b",
			Serial: serial, Note: "prepare"}), again), []string{"I17 refused"}},
		{"told that nothing is kept, of one", all(first, unkeptAt(2050)), []string{"I24 not kept"}},
		{"told that nothing is kept, before its end was told", all(first, second[:4], unkeptAt(2135), second[4:]), nil},
		{"told that nothing is kept, where nobody told of the second end", all(first, untold, unkeptAt(2150)), nil},
		{"told that nothing is kept, before the second began", all(first, second[:2], unkeptAt(2115), second[2:]),
			[]string{"I24 not kept"}},
		{"told that nothing is kept, after another one", all(first, second, unkeptAt(2150)), nil},
		{"told that nothing is kept, after a retry was cancelled", all(retried, second, unkeptAt(2150)), nil},
		{"told that nothing is kept, as a retry was cancelled", all(retried, unkeptAt(2090)),
			[]string{"I24 not kept"}},
		{"an id left", []Entry{{At: at(2000), Op: taken, ID: "{c}.ids", Note: "a"}}, []string{"I13 ids left"}},
		{"refused for what is there", all(first, more("h enqueue invoke a#2 plan=ok at=2011"), []Entry{{By: "h",
			At: at(2015), Op: Enqueue, Phase: Fail, ID: "a#2", Note: duplicate}}), nil},
		{"refused for what was over", all(first, more("h enqueue invoke a#2 plan=ok at=2050"), []Entry{{By: "h",
			At: at(2060), Op: Enqueue, Phase: Fail, ID: "a#2", Note: duplicate}}), []string{"I17 refused"}},
		{"refused and handled", all(first, more("h enqueue invoke a#2 plan=ok at=2011",
			"w1 handle invoke a#2 at=2050", "w1 handle ok a#2 at=2060", "w1 acked info a#2 at=2070"),
			[]Entry{{By: "h", At: at(2015), Op: Enqueue, Phase: Fail, ID: "a#2", Note: duplicate}}),
			[]string{"I3 unexpected"}},
		{"two that live", all(first, more("h enqueue invoke a#2 plan=ok at=2011", "h enqueue ok a#2 at=2015",
			"w1 handle invoke a#2 at=2050", "w1 handle ok a#2 at=2060", "w1 acked info a#2 at=2070")),
			[]string{"I15 two of one id"}},
		{"one that lives, and one whose lease is over", all(first, more("h enqueue invoke a#2 plan=ok at=2011",
			"h enqueue ok a#2 at=2015", "w1 handle invoke a#2 at=2050", "w1 handle ok a#2 at=2060",
			"w1 acked info a#2 at=2070"), pulls(2015)), nil},
		{"one that lives, and one whose lease is over, pulled again since", all(more(
			"h enqueue invoke a#1 plan=ok at=2000", "h enqueue ok a#1 at=2001"), []Entry{
			{At: at(2002), By: "w1", Op: Pulled, ID: "a#1", Serial: "sa#1", Attempt: 1, Due: at(2004)},
			{At: at(2005), By: "w1", Op: Pulled, ID: "a#1", Serial: "sa#1", Attempt: 2, Due: at(9000)},
			{At: at(2006), By: "w1", Op: Handle, Phase: Invoke, ID: "a#1", Serial: "sa#1", Attempt: 2},
			{At: at(2007), By: "w1", Op: Handle, Phase: OK, ID: "a#1", Serial: "sa#1", Attempt: 2},
			{At: at(2008), By: "w1", Op: "acked", Phase: Info, Serial: "sa#1", Attempt: 2}},
			more("h enqueue invoke a#2 plan=ok at=2011", "h enqueue ok a#2 at=2015", "w1 handle invoke a#2 at=2020",
				"w1 handle ok a#2 at=2021", "w1 acked info a#2 at=2022"), []Entry{
				{At: at(2050), By: "w1", Op: Handle, Phase: Invoke, ID: "a#1", Serial: "sa#1", Attempt: 1, N: 2},
				{At: at(2051), By: "w1", Op: Handle, Phase: OK, ID: "a#1", Serial: "sa#1", Attempt: 1, N: 2}},
			answers(2052, "sa#1", 1), []Entry{stood}), nil},
		{"two that are handled", both, []string{"I15 two of one id"}},
		{"two that are handled, of which one was pulled, and its lease is over", all(both, pulls(2024)), nil},
		{"two that are handled, of which the second was pulled, and its lease is over", all(both, []Entry{{At: at(2023),
			By: "w1", Op: Pulled, ID: "a#2", Serial: "sa#2", Attempt: 1, Due: at(2024)}}), nil},
		{"two that are handled, of which one has a lease", all(both, pulls(2026)), []string{"I15 two of one id"}},
		{"two that are handled, of which one has lost its lease", all(both, loses("sa#1")), nil},
		{"two handlers, and the puller of one knew before that its lease was lost", all(both,
			answers(2018, "sa#1", 1)), nil},
		{"two handlers, and an Event tells the puller of one again that its lease was lost", all(both,
			answers(2018, "sa#1", 1), []Entry{{At: at(2019), By: "w1", Op: "late-verdict", Phase: Info,
				Serial: "sa#1", Attempt: 1}}), nil},
		{"two handlers, and the puller of one hears after its end that its lease was lost", all(both,
			answers(2081, "sa#1", 1)), []string{"I15 two of one id"}},
		{"two handlers, and the puller of one knew that the lease of another attempt was lost", all(both,
			answers(2018, "sa#1", 2)), []string{"I15 two of one id"}},
		{"two that are handled, and another one has lost its lease", all(both, loses("sz")),
			[]string{"I15 two of one id"}},
		{"put off and early", all(first, call(putOff, OK, 2011, 2015, Entry{ID: "a", Due: at(2200)})),
			[]string{"I9 early"}},
		{"put off when a puller's lease was over, and handled by it", all(first, call(putOff, OK, 2011, 2015,
			Entry{ID: "a", Due: at(2200)}), pulls(2012)), nil},
		{"put off while a puller had a lease, and early", all(first, call(putOff, OK, 2011, 2015,
			Entry{ID: "a", Due: at(2200)}), pulls(2016)), []string{"I9 early"}},
		{"put off when a batch had it that was struck", all(inBatch(first, 2005), struck(2008), call(putOff, OK, 2011,
			2015, Entry{ID: "a", Due: at(2200)})), nil},
		{"put off when a batch had it", all(inBatch(first, 2012), call(putOff, OK, 2011, 2015, Entry{ID: "a",
			Due: at(2200)})), []string{"I9 early"}},
		{"one that lives, and one in a batch", all(inBatch(first, 2012), twin), []string{"I15 two of one id"}},
		{"one that lives, and one in a batch that was struck", all(inBatch(first, 2005), struck(2008), twin), nil},
		{"put off twice", all(first, call(putOff, OK, 2011, 2013, Entry{ID: "a", Due: at(2200)}), call(putOff, OK,
			2014, 2016, Entry{ID: "a", Due: at(2019)})), nil},
		{"a chain", all(chain, next), nil},
		{"a chain that ends too soon", chain, []string{"I1 lost"}},
		{"a step that nobody has made", next, []string{"I3 unexpected"}},
		{"a step twice", all(chain, next, []Entry{{At: at(2080), By: "w1", Op: Handle, Phase: Invoke, ID: "z>",
			Serial: "other", Attempt: 1}, {At: at(2081), By: "w1", Op: "late-verdict", Phase: Info,
			Serial: "other"}}), []string{"I14 doubled"}},
		{"a step that was acked twice", all(chain, next, more("w1 acked info z> at=2090")), []string{"I14 doubled",
			"I4 double ack", "I6 conservation"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := clean()
			h.Entries = append(h.Entries, c.es...)
			sortEntries(h.Entries)
			v := Check(h)
			if got := v.Broke(); !slices.Equal(got, c.want) {
				t.Errorf("reported %v, want %v\n%v", got, c.want, v.Err())
			}
		})
	}
}

// A puller that has a message again after its lease ends both handlings of it.
func TestTogetherByOnePuller(t *testing.T) {
	e := func(ms int, id, phase string, worker, attempt int) Entry {
		return Entry{At: time.UnixMilli(int64(ms)), By: "p", Op: Handle, Phase: phase, ID: id, Serial: "s" + id,
			N: worker, Attempt: attempt}
	}
	for over, want := range map[int]int{20: 0, 40: 1} {
		h := &History{Entries: []Entry{e(10, "a#1", Invoke, 0, 1), e(11, "a#1", Invoke, 1, 2), e(15, "a#1", OK, 1, 2),
			e(over, "a#1", OK, 0, 1), e(30, "a#2", Invoke, 0, 1), e(50, "a#2", OK, 0, 1)}}
		sortEntries(h.Entries)
		got := 0
		h.names().together(h, func(string, string, string, ...any) { got++ })
		if got != want {
			t.Errorf("until %d ms: %d pairs were handled together, want %d", over, got, want)
		}
	}
}

// A process that stood still for longer than its lease may have a handler go on beside one of the next message.
func TestTogetherAfterAFreeze(t *testing.T) {
	at := func(ms int) time.Time { return time.UnixMilli(int64(100_000 + ms)) }
	e := func(ms int, by, op, id, phase string) Entry {
		return Entry{At: at(ms), By: by, Op: op, Phase: phase, ID: id, Serial: "s" + id, Attempt: 1}
	}
	frozen := Entry{At: at(5), By: "p", Op: Fault, ID: "freeze", N: 1, Due: at(4000)}
	late := e(4001, "p", "late-verdict", "a#1", Info)
	orphaned, slow := e(2900, "p", "orphaned", "a#1", Info), e(2900, "p", "orphaned", "a#1", Info)
	orphaned.Note, slow.Note = "inc "+shunt.ErrLeaseLost.Error(), "inc "+shunt.ErrTimeout.Error()
	for _, c := range []struct {
		name string
		more []Entry
		want int
	}{
		{"frozen, and too late", []Entry{frozen, late}, 0},
		{"frozen, and left to itself for that", []Entry{frozen, orphaned}, 0},
		{"frozen, and left to itself for its time", []Entry{frozen, slow}, 1},
		{"frozen, and in time", []Entry{frozen}, 1},
		{"too late for nothing", []Entry{late}, 1},
	} {
		h := &History{Margins: VirtualTime(), Entries: append(c.more,
			e(0, "p", Handle, "a#1", Invoke), e(4000, "p", Handle, "a#1", OK),
			e(3000, "q", Handle, "a#2", Invoke), e(3001, "q", Handle, "a#2", OK))}
		sortEntries(h.Entries)
		got := 0
		h.names().together(h, func(string, string, string, ...any) { got++ })
		if got != c.want {
			t.Errorf("%s: %d pairs were handled together, want %d", c.name, got, c.want)
		}
	}
}
