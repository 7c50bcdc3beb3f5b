package trial

import (
	"strings"
	"time"
)

// said makes a history of lines "by op phase id[#attempt] [plan or note]", 10 ms apart, with a serial for each id.
// Words at the end give more: n=, due=, at= in ms since the beginning.
func said(lines ...string) *History {
	began := time.Unix(1000, 0)
	h := &History{}
	for i, line := range lines {
		e := Entry{At: began.Add(time.Duration(i) * 10 * time.Millisecond), Attempt: 1}
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
		if e.Op != Enqueue && e.Op != Fault && e.Op != Count && e.Op != Pace && e.ID != "" {
			e.Serial = "s" + e.ID
		}
		if e.Op != Enqueue && e.Op != Handle && e.Op != Fault && e.Op != Count && e.Op != Pace {
			e.ID = ""
		}
		h.Entries = append(h.Entries, e)
	}
	sortEntries(h.Entries)
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
func clean() *History {
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
	h.Left = []Place{
		{ID: "c", State: "dead"},
		{ID: "k", State: "dead", Recoveries: 4, Failure: "shunt: in the hands of a dying process 4 times"},
	}
	h.Recover, h.Late = time.Second, 50*time.Millisecond
	return h
}
