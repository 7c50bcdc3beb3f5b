package trial

import (
	"slices"
	"testing"
)

// A living receiver that is taken for dead is reported; one that has put another incarnation in its place is not.
func TestJudged(t *testing.T) {
	for name, c := range map[string]struct {
		es   []Entry
		want []string
	}{
		"living": {[]Entry{{At: at(1000), By: "p1", Op: "started", Note: "one"}, {At: at(6900), Op: judged, Note: "one"}},
			[]string{"I7 judged"}},
		"handed over before": {[]Entry{{At: at(1000), By: "p1", Op: "started", Note: "one"},
			{At: at(2000), By: "p1", Op: "handed-over", Note: "two"}, {At: at(6900), Op: judged, Note: "one"}}, nil},
		"handed over since": {[]Entry{{At: at(1000), By: "p1", Op: "started", Note: "one"},
			{At: at(6900), Op: judged, Note: "one"}, {At: at(7000), By: "p1", Op: "handed-over", Note: "two"}},
			[]string{"I7 judged"}},
		"cut": {[]Entry{{At: at(1000), By: "p1", Op: "started", Note: "one"},
			{At: at(6000), By: "p1", Op: Fault, ID: "cut", N: 1, Note: Brief}, {At: at(6900), Op: judged, Note: "one"}},
			[]string{"I7 judged"}},
	} {
		t.Run(name, func(t *testing.T) {
			h := clean()
			h.Entries = append(h.Entries, c.es...)
			sortEntries(h.Entries)
			if got := Check(h).Broke(); !slices.Equal(got, c.want) {
				t.Errorf("reported %v, want %v", got, c.want)
			}
		})
	}
}
