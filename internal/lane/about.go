package lane

import (
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"time"

	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/store"
)

const (
	tellEvery  = 30 * time.Minute // where nothing has changed, so that a text never reaches its end
	tellAgain  = time.Minute      // after Redis has refused one
	modulePath = "github.com/shuntmq/shunt"
)

// Busy is a message of a lane whose handler has been at work for long.
type Busy struct {
	Lane *Lane
	store.Busy
}

// teller tells people, in a key of its own, which process a receiver is and what its workers are busy with. It goes
// with the beats, and only when there is something to tell. That it is refused or lost does no harm.
type teller struct {
	text string // without what is busy
	told []telling
}

// telling is what one lane's key says.
type telling struct {
	of, text string    // the incarnation, and its text
	until    time.Time // then it is told again
	refused  bool      // by Redis: nothing is told until then
}

// process is what all receivers of this process have in common.
var process = sync.OnceValue(func() store.About {
	a := store.About{PID: os.Getpid()}
	a.Host, _ = os.Hostname()
	if path, err := os.Executable(); err == nil {
		a.Program = filepath.Base(path)
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		a.Version = info.Main.Version
		for _, m := range append(info.Deps, &info.Main) {
			if m.Path == modulePath {
				for m.Replace != nil {
					m = m.Replace
				}
				a.Shunt = m.Version
			}
		}
	}
	return a
})

func (t *teller) init() {
	a := process()
	a.Started = time.Now()
	t.text = a.Text()
}

// add adds to a beat what is to be told with it, and gives the lanes that tell something.
func (t *teller) add(c *link.Call, s *Site, inc store.Incarnation, now time.Time) (lanes []int) {
	var busy []Busy
	if s.conf.Busy != nil {
		busy = s.conf.Busy(s, now.Add(-s.conf.Lease/3))
	}
	if t.told == nil {
		t.told = make([]telling, len(s.Lanes))
	}
	for i, l := range s.Lanes {
		var own []store.Busy
		for _, b := range busy {
			if b.Lane == l {
				own = append(own, b.Busy)
			}
		}
		last, text := t.told[i], store.WithBusy(t.text, own)
		if last.of == inc.Name && now.Before(last.until) && (last.refused || last.text == text) {
			continue
		}
		t.told[i] = telling{of: inc.Name, text: text}
		store.AddAbout(c, l.Keys, inc, text, now)
		lanes = append(lanes, i)
	}
	return lanes
}

// learn takes in the replies to what was told at some time. What got none is told again with the next beat.
func (t *teller) learn(lanes []int, replies []link.Reply, now time.Time) {
	for i, rep := range replies {
		told := &t.told[lanes[i]]
		switch link.Classify(rep.Err) {
		case link.Done:
			told.until = now.Add(link.Jitter(tellEvery))
		case link.Fatal, link.Failed:
			told.until, told.refused = now.Add(link.Jitter(tellAgain)), true
		}
	}
}
