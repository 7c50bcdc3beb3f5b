package recur

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/shuntmq/shunt"
)

// Grace is how late a tick may be enqueued before it is missed.
const Grace = time.Second

// Policy says how many of the missed ticks, the latest ones, are enqueued when a process runs again.
type Policy int

const (
	Skip Policy = 0 // none: the next tick is the first one ahead
	One  Policy = 1 // one message for all of them: the latest; the default
)

// MissedTicks is the Kind of the Event that reports missed ticks. DueAt is the first of them. N is how many messages
// were enqueued for them all the same; it is 0 where nobody knows, as the reply was lost and the messages have an ID.
// Err names the recurring message and its Policy.
const MissedTicks shunt.EventKind = "missed-ticks"

// MaxAll bounds All.
const MaxAll = 1000

// All enqueues a message for each missed tick, the latest n at most: 1 to MaxAll. They are enqueued in order, all at
// once.
func All(n int) Policy { return Policy(n) }

// MarshalText is String.
func (p Policy) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads what MarshalText writes.
func (p *Policy) UnmarshalText(text []byte) error {
	switch all, is := strings.CutPrefix(string(text), "all "); {
	case is:
		n, err := strconv.Atoi(all)
		if err != nil || n < 1 || All(n).check() != nil {
			return fmt.Errorf("recur: missed ticks %q: want all 1 to all %d", text, MaxAll)
		}
		*p = All(n)
	case string(text) == "skip":
		*p = Skip
	case string(text) == "one":
		*p = One
	default:
		return fmt.Errorf("recur: missed ticks %q: want skip, one, or all and a number", text)
	}
	return nil
}

func (p Policy) String() string {
	switch p {
	case Skip:
		return "skip"
	case One:
		return "one"
	}
	return "all " + strconv.Itoa(int(p))
}

func (p Policy) check() error {
	if p < 0 || p > MaxAll {
		return fmt.Errorf("recur: All(%d): want 1 to %d", int(p), MaxAll)
	}
	return nil
}

// onTime says whether a tick that is due is not missed. All times here are ms since 1970 by the clock of Redis.
func onTime(tick, now int64) bool { return now-tick <= Grace.Milliseconds() }

// due returns the ticks to be enqueued at now, in order, and the tick that comes after now, 0 if there is none. next is
// the first tick that was not enqueued. It counts as a tick whatever the Spec says, because the process that wrote it
// may know another version of the zones.
func (s Spec) due(next, now int64, p Policy) (ticks []int64, after int64) {
	n := int(p)
	if onTime(next, now) {
		n = int(Grace/MinInterval) + 1
	}
	ticks = s.latest(next, now, n)
	if len(ticks) < n {
		ticks = slices.Insert(ticks, 0, next)
	}
	return ticks, s.next(now)
}

// latest is the n latest ticks after a time and not after now. It looks back over times that double, because there is
// no way to ask for the tick before.
func (s Spec) latest(after, now int64, n int) []int64 {
	if n == 0 {
		return nil
	}
	for back := int64(1000); ; back *= 2 {
		from := max(after, now-back)
		var ticks []int64
		for t := s.next(from); t != 0 && t <= now; t = s.next(t) {
			ticks = append(ticks, t)
		}
		if len(ticks) >= n || from == after {
			return ticks[max(0, len(ticks)-n):]
		}
	}
}
