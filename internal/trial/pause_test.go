package trial

import (
	"slices"
	"testing"
	"time"
)

// What lies with one who was cut off is not passed over until that one has handed over, by as many as went back then.
func TestWithheld(t *testing.T) {
	at := func(ms int) time.Time { return time.UnixMilli(int64(1000_000 + ms)) }
	enqueued := func(id string) []Entry {
		return []Entry{{At: at(0), Op: Enqueue, Phase: Invoke, ID: id, Note: PlanOK},
			{At: at(1), Op: Enqueue, Phase: OK, ID: id}}
	}
	handled := func(from int, id string) []Entry {
		return []Entry{{At: at(from), By: "p1", Op: Handle, Phase: Invoke, ID: id, Serial: id, Attempt: 1},
			{At: at(from), By: "p1", Op: Handle, Phase: OK, ID: id, Serial: id, Attempt: 1},
			{At: at(from), By: "p1", Op: "acked", Serial: id, Attempt: 1}}
	}
	takes := func(by, channel string) Entry {
		return Entry{At: at(0), By: by, Op: Takes, Phase: OK, ID: channel, N: 1}
	}
	tells := func(ms int, op string, n int, note string) Entry {
		return Entry{At: at(ms), By: "p2", Op: op, N: n, Note: note}
	}
	cut := func(ms int) Entry {
		return Entry{At: at(ms), By: "p2", Op: Fault, ID: CutIdle, N: 1, Note: Brief}
	}
	killed := func(ms int) Entry { return Entry{At: at(ms), By: "p2", Op: Fault, ID: "kill", Due: ForEver} }
	crew := []Entry{takes("p1", "a"), takes("p2", "a"), tells(0, "started", 0, "one")}
	gives, over := tells(9449, "released", 1, "two"), tells(9450, "handed-over", 0, "two EOF")
	one, two := enqueued("a/1"), slices.Concat(enqueued("a/1"), enqueued("a/2"))
	soon, next := handled(9452, "a/1"), handled(9453, "a/2")
	bad := []string{"I2 not drained"}
	for name, c := range map[string]struct {
		es   [][]Entry
		want []string
	}{
		"it goes back":      {[][]Entry{one, crew, {cut(8500), gives, over}, soon}, nil},
		"it is recovered":   {[][]Entry{one, crew, {cut(8500), over, tells(9451, "recovered", 1, "one")}, soon}, nil},
		"both go back":      {[][]Entry{two, crew, {cut(8500), gives, gives, over}, soon, next}, nil},
		"nothing goes back": {[][]Entry{one, crew, {cut(8500), over}, soon}, bad},
		"another's is recovered": {[][]Entry{one, crew, {cut(8500), over, tells(9451, "recovered", 1, "other")},
			soon}, bad},
		"another gives back": {[][]Entry{one, crew, {cut(8500), tells(9449, "released", 1, "other"), over},
			soon}, bad},
		"one of two goes back": {[][]Entry{two, crew, {cut(8500), gives, over}, soon, next}, bad},
		"killed before that": {[][]Entry{one, crew, {cut(8500), killed(9400), tells(9451, "recovered", 1, "one")},
			soon}, nil},
		"killed later": {[][]Entry{one, crew, {cut(8200), killed(9400), tells(9451, "recovered", 1, "one")},
			soon}, bad},
		"killed, and nothing is recovered": {[][]Entry{one, crew, {cut(8500), killed(9400)}, soon}, bad},
		"nobody is cut off":                {[][]Entry{one, crew, {gives, over}, soon}, bad},
		"nobody hands over":                {[][]Entry{one, crew, {cut(8500), gives}, soon}, bad},
		"it takes too long":                {[][]Entry{one, crew, {cut(8300), gives, over}, soon}, bad},
		"it waits after that":              {[][]Entry{one, crew, {cut(8500), gives, over}, handled(9600, "a/1")}, bad},
		"of another channel": {[][]Entry{one, {takes("p1", "a"), takes("p2", "b"), tells(0, "started", 0, "one"),
			cut(8500), gives, over}, soon}, bad},
	} {
		t.Run(name, func(t *testing.T) {
			quiet := Entry{At: at(9000), Op: Quiet, Due: at(4000)}
			h := &History{Margins: VirtualTime(), Entries: append(slices.Concat(c.es...), quiet), Ends: time.Minute}
			sortEntries(h.Entries)
			if v := Check(h); !slices.Equal(v.Broke(), c.want) {
				t.Errorf("reported %v, want %v\n%v", v.Broke(), c.want, v.Err())
			}
		})
	}
}
