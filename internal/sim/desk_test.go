package sim

import (
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/trial"
)

// What an operator has removed may be there again where its enqueue was not answered yet, for it may be sent again.
func TestBack(t *testing.T) {
	at := func(ms int) time.Time { return time.UnixMilli(int64(1000_000 + ms)) }
	says := func(ms int, phase, id string) trial.Entry {
		return trial.Entry{At: at(ms), Op: trial.Enqueue, Phase: phase, ID: id}
	}
	begins := func(ms int) trial.Entry {
		return trial.Entry{At: at(ms), Op: trial.Handle, Phase: trial.Invoke, ID: "a"}
	}
	asked, answered := says(1, trial.Invoke, "a"), says(5, trial.OK, "a")
	for name, c := range map[string]struct {
		said []trial.Entry
		want bool
	}{
		"enqueued before":             {[]trial.Entry{asked, answered}, false},
		"answered since":              {[]trial.Entry{asked, says(15, trial.OK, "a")}, true},
		"not answered yet":            {[]trial.Entry{asked}, true},
		"another is not answered":     {[]trial.Entry{asked, answered, says(6, trial.Invoke, "b")}, false},
		"one of two is not answered":  {[]trial.Entry{asked, says(2, trial.Invoke, "a"), answered}, true},
		"asked for since":             {[]trial.Entry{asked, answered, says(11, trial.Invoke, "a")}, false},
		"nobody knows how that ended": {[]trial.Entry{asked, says(5, trial.Info, "a")}, false},
		"handled before":              {[]trial.Entry{asked, answered, begins(9)}, false},
		"handled since":               {[]trial.Entry{asked, answered, begins(10)}, true},
	} {
		if got := back(c.said, "a", at(10)); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}
