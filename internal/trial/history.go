package trial

import (
	"time"

	"github.com/shuntmq/shunt"
)

// History is all that is known of a run at a quiet point: what every process said, and what is in Redis.
type History struct {
	Entries []Entry
	Left    []Place
	Ranks   []string       // prefixes of ids, the highest channel first, where strict order is promised
	Shares  map[string]int // weights by prefixes of ids, where shares are promised
	Lossy   bool           // the server's durability promises nothing
	Stepped bool           // its clock was set, so that nothing is late or early by it
	Wrong   bool           // clocks of processes are wrong, and what serials say of when they were made
	MaxDead int            // dead letters that a channel keeps; 0: all of this run
	Recover time.Duration  // p99 from a fault to the next handling of what its process held; 0: not judged
	Slowest time.Duration  // the longest of these; 0: not judged
	Late    time.Duration  // p99 of the lateness of what was due; 0: not judged
	Ends    time.Duration  // p99 from a lease's end to the next take; 0: not judged
	Waits   time.Duration  // p99 of what waits to be handed out; 0: not judged
	Counts  []shunt.Counts // of each channel, after all workers have ended; nil: not judged
	Margins *Margins       // nil: those of real time
}

const (
	shareError  = 5 // percent of all starts
	poisonTimes = 4 // in dying hands, as dead's reason says
)
