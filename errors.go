package shunt

import (
	"errors"
	"fmt"
	"sort"
	"time"

	"github.com/shuntmq/shunt/internal/custody"
)

var (
	// ErrClosed is returned by a Queue that Close was called on.
	ErrClosed = errors.New("shunt: the queue is closed")
	// ErrUnknown says that a command was sent and its reply was lost: it may have been executed or not. An enqueue that
	// must not be doubled is looked for before it is enqueued again.
	ErrUnknown = errors.New("shunt: sent, but the reply was lost: it may have been executed")
	// ErrFull says that Redis is at maxmemory and takes no new messages. Receivers drain it; enqueue again later.
	ErrFull = errors.New(
		"shunt: redis is at maxmemory and takes no new messages: receivers still drain it, enqueue again later",
	)
	// ErrUnconfirmed says that a verdict on a leased message was sent twice, since the first reply was lost, and that
	// the second found the message gone. The first one has settled it, or its lease had ended before.
	ErrUnconfirmed = errors.New("shunt: a reply was lost, and the message is not there any more: this verdict may " +
		"have settled it")
	// ErrTooLarge says that an element is larger than Queue.MaxSize.
	ErrTooLarge = errors.New("shunt: larger than Queue.MaxSize")
	// ErrTimeout is the cause of a handler's ended context when its timeout had passed. The failure of its retry names
	// it before the handler's own error.
	ErrTimeout = custody.ErrTimeout
	// ErrLeaseLost is the cause of a handler's ended context when another receiver may have the message by now.
	ErrLeaseLost = custody.ErrLeaseLost
	// ErrShutdown is the cause of a handler's ended context when the context given to shutdown has ended.
	ErrShutdown = custody.ErrShutdown
	// ErrCancelled is the cause of a handler's ended context when Cancel was called for its message.
	ErrCancelled = custody.ErrCancelled
	// ErrDeadline is the cause of a handler's ended context, and the reason of a dead message, when its Deadline had
	// passed.
	ErrDeadline = custody.ErrDeadline
	// ErrExpired is the reason of a message that ExpireToDead sent to dead.
	ErrExpired = custody.ErrExpired
	// ErrDuplicate is the error that each *DuplicateError wraps: the ID of a message is taken.
	ErrDuplicate = errors.New("shunt: the id is taken")
	// ErrNotFound: no message of this id or serial waits, is delayed, is being handled or, where that counts, is dead;
	// and no outcome of one is kept.
	ErrNotFound = errors.New("shunt: there is no such message, and nothing is kept of one")
	// ErrNotKept: nothing is known of the message any more. Most likely it is over, and its outcome was kept for less
	// time than Redis was out of reach.
	ErrNotKept = errors.New("shunt: the message is over or lost, and its outcome was not kept: enqueue it with a " +
		"longer Retain")
	// ErrLost: the message was there a short while ago, and Redis knows nothing of it or of its end.
	ErrLost = errors.New("shunt: Redis has lost the message: its data is gone, or somebody purged the channel: " +
		"enqueue the message again")
	// ErrWaiting is the error of Postpone for a message that waits to be taken: it has no due time any more.
	ErrWaiting = errors.New(
		"shunt: the message waits to be taken already: cancel it, and enqueue it anew with In or At",
	)
	// ErrRunning says that a message is in a worker's hands.
	ErrRunning = errors.New("shunt: the message is being handled")
	// ErrInHandler is returned by shutdown and Close when they would wait for the handler that called them. Nothing was
	// begun.
	ErrInHandler = errors.New(
		"shunt: called from inside a handler, for which it would wait: call it from a goroutine of its own",
	)
)

// errNoContext says that a caller gave no context.
var errNoContext = errors.New("shunt: the context is nil: want one, such as context.Background()")

// EnqueueError is EnqueueAll's error. It has the error of each message by its index in the given slice. A message in
// neither map was enqueued. errors.Is and errors.As see every error in it.
type EnqueueError struct {
	Failed  map[int]error // surely not enqueued
	Unknown map[int]error // perhaps enqueued: each Is ErrUnknown
}

func (e *EnqueueError) Error() string {
	first := func(m map[int]error) error {
		if len(m) == 0 {
			return nil
		}
		return m[indexes(m)[0]]
	}
	switch {
	case len(e.Unknown) == 0:
		return fmt.Sprintf("shunt: %d messages not enqueued, the first because: %v", len(e.Failed), first(e.Failed))
	case len(e.Failed) == 0:
		return fmt.Sprintf("shunt: %d messages of unknown outcome, the first because: %v", len(e.Unknown),
			first(e.Unknown))
	}
	return fmt.Sprintf(
		"shunt: %d messages not enqueued, the first because: %v; %d of unknown outcome, the first because: %v",
		len(e.Failed),
		first(e.Failed),
		len(e.Unknown),
		first(e.Unknown),
	)
}

// Unwrap gives every error once a message, in the order of the indexes.
func (e *EnqueueError) Unwrap() []error {
	var all []error
	for _, m := range []map[int]error{e.Failed, e.Unknown} {
		for _, i := range indexes(m) {
			all = append(all, m[i])
		}
	}
	return all
}

func indexes(m map[int]error) []int {
	is := make([]int, 0, len(m))
	for i := range m {
		is = append(is, i)
	}
	sort.Ints(is)
	return is
}

// ShutdownError is shutdown's error when not all had ended by its deadline.
type ShutdownError struct {
	Returned int   // messages handed back to the taking end, to be handled again
	Running  int   // handlers that ignored their ended context and still run
	Err      error // what kept Redis from being told, if anything did: the lease then frees what is left
}

func (e *ShutdownError) Error() string {
	if e.Returned+e.Running == 0 {
		return fmt.Sprintf("shunt: all handlers had ended at the shutdown, but Redis was not told: "+
			"what is left there is freed by its lease: %v", e.Err)
	}
	s := fmt.Sprintf("shunt: shut down with %d messages handed back and %d handlers still running", e.Returned,
		e.Running)
	if e.Err != nil {
		s += "; what is left is freed by its lease: " + e.Err.Error()
	}
	return s
}

func (e *ShutdownError) Unwrap() error { return e.Err }

// DuplicateError says that a message was not enqueued because its ID is another's, and what is known of that one.
// errors.Is finds ErrDuplicate in it.
type DuplicateError struct {
	Channel string
	Status  Status // of the one that has the ID; its State is Done within UniqueFor of its end
}

func (e *DuplicateError) Error() string {
	return fmt.Sprintf("shunt: enqueue to %q: id %q is taken by a message in state %s, enqueued %s", e.Channel,
		e.Status.ID, e.Status.State, e.Status.EnqueuedAt.Format(time.RFC3339))
}

func (e *DuplicateError) Unwrap() error { return ErrDuplicate }
