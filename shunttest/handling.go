package shunttest

import (
	"errors"
	"fmt"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/custody"
	"github.com/shuntmq/shunt/internal/event"
)

// Handling is the outcome of handling one message once.
type Handling struct {
	Channel string
	Serial  string // empty for a bare payload
	Attempt int    // counted from 1
	// Message is what Unmarshal made, with the fields that Resolve left; nil if Unmarshal failed.
	Message shunt.IMessage
	// Verdict is shunt.EventAcked; shunt.EventRetried or shunt.EventSnoozed; shunt.EventRejected or
	// shunt.EventUndecodable, after which the message is in dead; shunt.EventCancelled or shunt.EventExpired. It is
	// shunt.EventLateVerdict if the lease was lost, and shunt.EventUnconfirmedVerdict if no reply says whether Redis
	// executed the verdict.
	Verdict shunt.EventKind
	// Err is what Resolve or the middleware returned; a *shunt.PanicError after a panic.
	Err error
	// Wait is how long a retried or snoozed message has to wait, as its handler or Backoff asked, rounded up to a
	// millisecond.
	// Only Handle sets it.
	Wait time.Duration
	// Result is what shunt.SetResult set, if the message was acked and had an ID and Retain. Only Handle sets it.
	Result []byte
	// Enqueued are the messages that came into any channel meanwhile, also by shunt.Then. They are sorted by the
	// channels' names, and within each as Queue.Enqueued sorts them. Only Handle sets it.
	Enqueued []Enqueue
}

// String describes the Handling in a few words, for the text of a failure.
func (h Handling) String() string {
	s := fmt.Sprintf("%s at attempt %d", h.Verdict, h.Attempt)
	if h.Wait > 0 {
		s += fmt.Sprintf(", to wait %v", h.Wait)
	}
	if h.Err != nil {
		s += fmt.Sprintf(": %v", h.Err)
	}
	return s
}

// Handlings are several, in the order in which they ended. A message that was retried is there once for each time.
type Handlings []Handling

// Count is the number of those with a verdict.
func (hs Handlings) Count(verdict shunt.EventKind) (n int) {
	for i := range hs {
		if hs[i].Verdict == verdict {
			n++
		}
	}
	return n
}

// isVerdict says whether an Event reports the end of a handling.
func isVerdict(k shunt.EventKind) bool { return custody.Ends(event.Kind(k)) }

// exited says whether the handler's goroutine was ended by runtime.Goexit, as t.FailNow does.
func exited(err error) bool {
	var p *shunt.PanicError
	return errors.As(err, &p) && p.Goexit
}
