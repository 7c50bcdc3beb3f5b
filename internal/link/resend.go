package link

import (
	"context"
	"time"
)

// Resend is the policy of a command that is sent until its outcome is known. It knows whether an earlier sending may
// have been executed: from then on no failure of a later one means that the command was not. The zero value is ready.
type Resend struct {
	First time.Duration   // before the second sending: default 20 ms; each next pause is twice as long, up to 1 s
	Until <-chan struct{} // ends pauses when it is closed, as a Link's Closed is; nil: nothing does

	next    time.Duration
	unknown bool
}

// Failed takes in the error of a sending, and gives the error of the command as a whole. Without an error the command
// is done, whether earlier sendings were executed or not.
func (r *Resend) Failed(err error) error {
	switch {
	case Classify(err) == Unknown:
		r.unknown = true
	case r.unknown && err != nil:
		err = &Error{Class: Unknown, Err: err}
	}
	return err
}

// InDoubt says that an earlier sending may have been executed.
func (r *Resend) InDoubt() bool { return r.unknown }

// Pause waits before the next sending, at most for limit unless that is 0, and no longer than ctx and Until.
func (r *Resend) Pause(ctx context.Context, limit time.Duration) {
	if r.next == 0 {
		if r.next = r.First; r.next == 0 {
			r.next = 20 * time.Millisecond
		}
	}
	wait := Jitter(r.next)
	if limit > 0 {
		wait = min(wait, limit)
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
	case <-r.Until:
	case <-ctx.Done():
	}
	r.next = min(2*r.next, time.Second)
}
