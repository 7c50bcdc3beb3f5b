package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// said makes a history of lines "by op phase id[#attempt] [plan or note]", 10 ms apart, with a serial for each id.
// Words at the end give more: n=, due=, at= in ms since the beginning.
func said(lines ...string) *history {
	began := time.Unix(1000, 0)
	h := &history{}
	for i, line := range lines {
		e := entry{At: began.Add(time.Duration(i) * 10 * time.Millisecond), Attempt: 1}
		word := strings.Fields(line)
		e.By, e.Op, e.Phase = word[0], word[1], word[2]
		for _, w := range word[3:] {
			switch k, v, _ := strings.Cut(w, "="); k {
			case "n":
				e.N = int(v[0]-'0')*10 + int(v[1]-'0')
			case "at":
				e.At = began.Add(msOf(v))
			case "due":
				e.Due = began.Add(msOf(v))
			case "plan":
				e.Note = v
			case "attempt":
				e.Attempt = int(v[0] - '0')
			default:
				e.ID = w
			}
		}
		if e.Op != enqueue && e.Op != fault && e.Op != count && e.Op != pace && e.ID != "" {
			e.Serial = "s" + e.ID
		}
		if e.Op != enqueue && e.Op != handle && e.Op != fault && e.Op != count && e.Op != pace {
			e.ID = ""
		}
		h.entries = append(h.entries, e)
	}
	sortEntries(h.entries)
	return h
}

func msOf(s string) time.Duration {
	d, err := time.ParseDuration(s + "ms")
	if err != nil {
		panic(err)
	}
	return d
}

// clean is a history in which nothing is wrong, and much happens. It has a retry, a reject and a delay, and a duplicate
// that a fault allows. Of two unknown enqueues one was there and one was not.
func clean() *history {
	h := said(
		"h enqueue invoke a plan=ok",
		"h enqueue ok a",
		"h enqueue invoke b plan=retry",
		"h enqueue ok b",
		"h enqueue invoke c plan=reject",
		"h enqueue ok c",
		"h enqueue invoke d plan=ok",
		"h enqueue info d",
		"h enqueue invoke e plan=ok",
		"h enqueue info e",
		"h enqueue invoke f plan=ok",
		"h enqueue fail f",
		"h enqueue invoke g plan=ok due=250",
		"h enqueue ok g",
		"h enqueue invoke k plan=kill",
		"h enqueue ok k",
		"w1 handle invoke a",
		"w1 handle ok a",
		"w1 acked info a",
		"w1 handle invoke b",
		"w1 handle fail b due=220",
		"w1 retried info b",
		"w1 handle invoke b attempt=2",
		"w1 handle ok b attempt=2",
		"w1 acked info b attempt=2",
		"w1 handle invoke g",
		"w1 handle ok g",
		"w1 acked info g",
		"w1 handle invoke c",
		"w1 handle fail c",
		"w1 rejected info c",
		"w1 handle invoke d",
		"w1 handle ok d",
		"w1 acked info d",
		"h enqueue invoke x plan=ok",
		"h enqueue ok x",
		"h enqueue invoke y plan=ok",
		"h enqueue ok y",
		"w2 handle invoke y",
		"w2 handle invoke k",
		"w2 handle invoke x",
		"w2 handle ok x",
		"w2 fault info kill n=16",
		"w1 handle invoke x",
		"w1 handle ok x",
		"w1 acked info x",
		"w1 handle invoke y",
		"w1 handle ok y",
		"w1 acked info y",
		"h count invoke keys n=02",
		"h count ok keys n=02",
		"h pace invoke rate n=50",
		"h pace ok rate n=46",
		"w1 closed ok",
	)
	h.left = []place{
		{ID: "c", State: "dead"},
		{ID: "k", State: "dead", Recoveries: 4, Failure: "shunt: in the hands of a dying process 4 times"},
	}
	h.recover, h.late = time.Second, 50*time.Millisecond
	return h
}

// A checker that cannot fail is a defect: each invariant is broken once, and that one and no other is reported.
func TestChecker(t *testing.T) {
	more := func(lines ...string) func(*history) {
		return func(h *history) {
			for i, e := range said(lines...).entries {
				e.At = e.At.Add(time.Minute + time.Duration(i))
				h.entries = append(h.entries, e)
			}
		}
	}
	left := func(ps ...place) func(*history) { return func(h *history) { h.left = append(h.left, ps...) } }
	drop := func(what string) func(*history) {
		return func(h *history) {
			n := len(h.entries)
			h.entries = slices.DeleteFunc(h.entries, func(e entry) bool { return strings.Contains(e.String(), what) })
			if len(h.entries) == n {
				t.Errorf("nothing to drop: %q", what)
			}
		}
	}
	both := func(fs ...func(*history)) func(*history) {
		return func(h *history) {
			for _, f := range fs {
				f(h)
			}
		}
	}
	for _, c := range []struct {
		name string
		do   func(*history)
		want []string
	}{
		{"clean", func(*history) {}, nil},
		{"never handled", more("h enqueue invoke z plan=ok", "h enqueue ok z"), []string{"I1 lost"}},
		{"acked before it was handled", more("h enqueue invoke z plan=ok", "h enqueue ok z", "w3 handle invoke z",
			"w3 acked info z"), []string{"I1 lost"}},
		{"rejected and not in dead", func(h *history) { h.left = h.left[1:] }, []string{"I1 lost"}},
		{"one of two twins", more("h enqueue invoke z plan=ok", "h enqueue ok z", "h enqueue invoke z plan=ok",
			"h enqueue ok z", "w1 handle invoke z", "w1 handle ok z", "w1 acked info z"), []string{"I1 lost"}},
		{"lossy", both(more("h enqueue invoke z plan=ok", "h enqueue ok z"), func(h *history) { h.lossy = true }), nil},
		{"left in prepare", both(more("h enqueue invoke z plan=ok", "h enqueue ok z"), left(place{ID: "z",
			State: "prepare"})), []string{"I2 not drained"}},
		{"left in delay", both(more("h enqueue invoke z plan=ok", "h enqueue ok z"), left(place{ID: "z",
			State: "delay"})), []string{"I2 not drained"}},
		{"nobody enqueued it", more("w1 handle invoke z", "w1 handle ok z", "w1 acked info z"),
			[]string{"I3 unexpected"}},
		{"enqueued in vain and handled", more("w1 handle invoke f", "w1 handle ok f", "w1 acked info f"),
			[]string{"I3 unexpected"}},
		{"corrupt in Redis", left(place{ID: "corrupt z", State: "dead"}), []string{"I3 unexpected"}},
		{"two acks", more("w2 acked info a"), []string{"I4 double ack", "I6 conservation"}},
		{"silent ack", drop("\tacked\tinfo\t\"\"\tsg\t"), []string{"I4 silent ack"}},
		{"late ack that says so", more("w2 handle invoke x", "w2 lost info x"), nil},
		{"duplicate without a fault", both(drop("\tfault\t"), more("h fault info none")), []string{"I5 duplicated",
			"I5 unexplained"}},
		{"duplicate that no fault explains", more("w1 handle invoke a", "w1 handle ok a", "w1 lost info a"),
			[]string{"I5 unexplained"}},
		{"more duplicates than were in flight", func(h *history) {
			for i := range h.entries {
				if h.entries[i].Op == fault {
					h.entries[i].N = 1
				}
			}
			more("h enqueue invoke z plan=ok", "h enqueue ok z", "w2 handle invoke z", "w2 handle ok z",
				"w2 fault info kill", "w1 handle invoke z", "w1 handle ok z", "w1 acked info z")(h)
		}, []string{"I5 duplicated", "I5 unexplained"}},
		{"twice in Redis", both(more("h enqueue invoke z plan=reject", "h enqueue ok z", "w1 handle invoke z",
			"w1 handle fail z", "w1 rejected info z"), left(place{ID: "z", State: "dead"}, place{ID: "z",
			State: "dead"})), []string{"I6 conservation"}},
		{"neither acked nor in Redis", both(drop("\tw2\t"), drop("\"g\"\tsg"), drop("\t\"\"\tsg")),
			[]string{"I1 lost", "I6 conservation"}},
		{"acked and in Redis", left(place{ID: "a", State: "delay"}), []string{"I2 not drained", "I6 conservation"}},
		{"nobody had begun it at a quiet point", more("h enqueue invoke z plan=ok", "h enqueue ok z",
			"h quiet info due=60500 at=1000", "w1 handle invoke z at=1001", "w1 handle ok z at=1002",
			"w1 acked info z at=1003"), []string{"I2 not drained"}},
		{"enqueued after the calm began", more("h enqueue invoke z plan=ok", "h enqueue ok z",
			"h quiet info due=60000 at=1000", "w1 handle invoke z at=1001", "w1 handle ok z at=1002",
			"w1 acked info z at=1003"), nil},
		{"orphaned", both(more("h enqueue invoke z plan=ok", "h enqueue ok z"), left(place{ID: "z", State: "doing",
			Key: "{c}.doing.x.0"})), []string{"I7 orphaned"}},
		{"a living one judged", func(h *history) {
			h.entries = append(h.entries, entry{At: time.Unix(1000, 0), By: "w1", Op: "started", Note: "inc"},
				entry{At: time.Unix(1001, 0), Op: judged, Note: "inc"})
		}, []string{"I7 judged"}},
		{"a living one judged for a fault that is no excuse", func(h *history) {
			h.entries = append(h.entries, entry{At: time.Unix(999, 0), By: "w1", Op: fault,
				ID: "stop server at a sweep", N: 1, Note: spared}, entry{At: time.Unix(1000, 0), By: "w1",
				Op: "started", Note: "inc"},
				entry{At: time.Unix(1001, 0), Op: judged, Note: "inc"})
		}, []string{"I7 judged"}},
		{"one judged that had ended without a word", func(h *history) {
			h.entries = append(h.entries, entry{At: time.Unix(1000, 0), By: "w1", Op: "started", Note: "inc"},
				entry{At: time.Unix(1009, 0), By: "w1", Op: unclean, Phase: fail},
				entry{At: time.Unix(1010, 0), Op: judged, Note: "inc"})
		}, nil},
		{"one judged that ended so later", func(h *history) {
			h.entries = append(h.entries, entry{At: time.Unix(1000, 0), By: "w1", Op: "started", Note: "inc"},
				entry{At: time.Unix(1011, 0), By: "w1", Op: unclean, Phase: fail},
				entry{At: time.Unix(1010, 0), Op: judged, Note: "inc"})
		}, []string{"I7 judged"}},
		{"one judged that had shut down in order", func(h *history) {
			h.entries = append(h.entries, entry{At: time.Unix(1000, 0), By: "w1", Op: "started", Note: "inc"},
				entry{At: time.Unix(1009, 0), By: "w1", Op: closed, Phase: ok},
				entry{At: time.Unix(1010, 0), Op: judged, Note: "inc"})
		}, []string{"I7 judged"}},
		{"a dead one judged", func(h *history) {
			h.entries = append(h.entries, entry{At: time.Unix(1000, 0), By: "w2", Op: "started", Note: "inc"},
				entry{At: time.Unix(1001, 0), Op: judged, Note: "inc"})
		}, nil},
		{"slow recovery", more("h enqueue invoke z plan=ok", "h enqueue ok z", "w2 handle invoke z",
			"w2 fault info kill n=16", "w1 handle invoke z at=5000", "w1 handle ok z at=5001",
			"w1 acked info z at=5002"), []string{"I8 recovery"}},
		{"early", more("h enqueue invoke z plan=ok due=70000", "h enqueue ok z", "w1 handle invoke z",
			"w1 handle ok z", "w1 acked info z"), []string{"I9 early"}},
		{"early retry", more("h enqueue invoke z plan=retry", "h enqueue ok z", "w1 handle invoke z",
			"w1 handle fail z due=70000", "w1 retried info z", "w1 handle invoke z attempt=2",
			"w1 handle ok z attempt=2", "w1 acked info z attempt=2"), []string{"I9 early"}},
		{"retry that came too late", more("h enqueue invoke z plan=retry", "h enqueue ok z", "w1 handle invoke z",
			"w1 handle fail z due=70000", "w1 late-verdict info z", "w1 handle invoke z attempt=2",
			"w1 handle ok z attempt=2", "w1 acked info z attempt=2"), nil},
		{"late", more("h enqueue invoke z plan=ok due=0", "h enqueue ok z", "w1 handle invoke z", "w1 handle ok z",
			"w1 acked info z"), []string{"I9 late"}},
		{"lower first", both(more("h enqueue invoke hi/1 plan=ok", "h enqueue ok hi/1", "h enqueue invoke lo/1 "+
			"plan=ok", "h enqueue ok lo/1", "w1 handle invoke lo/1 at=300", "w1 handle ok lo/1 at=301",
			"w1 acked info lo/1 at=302",
			"w1 handle invoke hi/1 at=500", "w1 handle ok hi/1 at=501", "w1 acked info hi/1 at=502"),
			func(h *history) { h.ranks = []string{"hi/", "lo/"} }), []string{"I10 order"}},
		{"a fair share", both(more("h enqueue invoke hi/1 plan=ok", "h enqueue ok hi/1", "h enqueue invoke lo/1 "+
			"plan=ok", "h enqueue ok lo/1", "w1 handle invoke hi/1", "w1 handle ok hi/1", "w1 acked info hi/1",
			"w1 handle invoke lo/1", "w1 handle ok lo/1", "w1 acked info lo/1"),
			func(h *history) { h.shares = map[string]int{"hi/": 99, "lo/": 1} }), nil},
		{"less than its share", both(more("h enqueue invoke hi/1 plan=ok", "h enqueue ok hi/1",
			"h enqueue invoke lo/1 plan=ok", "h enqueue ok lo/1", "w1 handle invoke hi/1", "w1 handle ok hi/1",
			"w1 acked info hi/1",
			"w1 handle invoke lo/1", "w1 handle ok lo/1", "w1 acked info lo/1"),
			func(h *history) { h.shares = map[string]int{"hi/": 1, "lo/": 1} }), []string{"I10 share"}},
		{"still entered after its end", func(h *history) {
			h.entries = append(h.entries, entry{At: time.Unix(1000, 0), By: "w1", Op: "started", Note: "inc"},
				entry{At: time.Unix(1e6, 0), Op: remains, Note: "inc"})
		}, []string{"I11 liveness"}},
		{"more keys than before", more("h count ok keys n=03"), []string{"I11 liveness"}},
		{"slower than before", more("h pace ok rate n=44"), []string{"I11 liveness"}},
		{"an innocent dead", both(more("h enqueue invoke z plan=ok", "h enqueue ok z"), left(place{ID: "z",
			State: "dead"})), []string{"I12 poison"}},
		{"a killer not dead", both(drop("\"k\""), more("h enqueue invoke k plan=kill", "h enqueue ok k"),
			func(h *history) { h.left[1].State = "suspect" }), []string{"I12 poison", "I2 not drained"}},
		{"a killer dead too soon", func(h *history) { h.left[1].Recoveries = 3 }, []string{"I12 poison"}},
		{"a killer dead without a reason", func(h *history) { h.left[1].Failure = "" }, []string{"I12 poison"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := clean()
			c.do(h)
			v := check(h)
			if got := v.broke(); !slices.Equal(got, c.want) {
				t.Errorf("reported %v, want %v\n%v", got, c.want, v.Err())
			}
			if len(c.want) > 0 && v.Err() == nil {
				t.Error("no error")
			}
		})
	}
	v := check(clean())
	if v.Enqueued != 7 || v.Unknown != 2 || v.Recovered != 1 || v.Handled != 7 || v.Duplicated != 1 ||
		v.Allowed != 16 ||
		v.Dead != 2 ||
		len(v.Recovery) != 1 ||
		len(v.Lateness) != 2 {
		t.Errorf("%v, %d recovered, %d due", v, len(v.Recovery), len(v.Lateness))
	}
}

// What a process has said is there whatever becomes of it, and only what was said wholly.
func TestLedger(t *testing.T) {
	dir := t.TempDir()
	a, err := openLedger(dir, "a")
	if err != nil {
		t.Fatal(err)
	}
	b, err := openLedger(dir, "b")
	if err != nil {
		t.Fatal(err)
	}
	at := time.Unix(5, 7)
	want := []entry{
		{
			At:      at,
			By:      "a",
			Op:      handle,
			Phase:   invoke,
			ID:      "x \"y\"\tz\n",
			Serial:  "s",
			Attempt: 3,
			N:       4,
			Due:     at.Add(1),
			Note:    "\x00\xff",
		},
		{At: at.Add(1), By: "b", Op: enqueue, Phase: ok},
		{At: at.Add(2), By: "w", Op: fault, Phase: info, N: 1},
	}
	b.say(want[1])
	a.say(want[0], want[2])
	if err := os.WriteFile(filepath.Join(dir, "c.ledger"), []byte(want[1].String()[:20]), 0o644); err != nil {
		t.Fatal(err)
	}
	got, err := readLedgers(dir)
	if err != nil || len(got) != 3 {
		t.Fatal(got, err)
	}
	for i, e := range got {
		if e.String() != want[i].String() || !e.At.Equal(want[i].At) {
			t.Errorf("%v, want %v", e, want[i])
		}
	}
	if _, err := parseEntry("1\ta\tb"); err == nil {
		t.Error("a line with fields missing was taken")
	}
	a.file.Close()
	b.file.Close()
}

// Payloads that are no messages, or whose bytes are not those that were enqueued, are seen.
func TestChecksum(t *testing.T) {
	m := &message{id: "c/1", plan: planOK, filler: []byte("abc \n\x00")}
	if got := parseMessage(m.payload()); got.corrupt != "" || got.id != m.id || got.plan != m.plan ||
		string(got.filler) != string(m.filler) {
		t.Errorf("%+v", got)
	}
	for i := range m.payload() {
		p := m.payload()
		p[i] ^= 1
		if got := parseMessage(p); got.corrupt == "" {
			t.Errorf("byte %d changed: %+v", i, got)
		}
	}
	for _, p := range []string{"", "x", "a b c"} {
		if got := parseMessage([]byte(p)); got.corrupt == "" {
			t.Errorf("%q: %+v", p, got)
		}
	}
}
