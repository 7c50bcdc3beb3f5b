package shunt

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/worker"
)

// Info is what a handler can learn of the message in its hands.
type Info struct {
	Channel    string
	Serial     string            // the enqueue's own ULID; empty for a bare payload not yet rewritten
	ID         string            // as given by ID; mostly empty
	Type       string            // name of the message's type; empty where it has none
	Attempt    int               // this handling, counted from 1
	Recoveries int               // how often a dead receiver held it, since it was last handled to an end
	EnqueuedAt time.Time         // by the producer's clock; zero for a bare payload
	Headers    map[string]string // as given by Header; not to be written to
	Failure    string            // what the last attempt failed with
	Receiver   string            // the incarnation that took it
	Worker     int               // from 0
}

// FromContext returns what is known of a handler's message; ctx is the context that the handler got.
func FromContext(ctx context.Context) (Info, bool) {
	it := heldBy(ctx)
	if it == nil {
		return Info{}, false
	}
	i := Info{
		Channel:    it.Lane.Name,
		Serial:     it.SerialString(),
		ID:         it.ID(),
		Type:       it.Type(),
		Attempt:    it.Attempt(),
		Recoveries: int(it.Recoveries),
		Headers:    it.Headers(),
		Failure:    it.Failure(),
		Receiver:   it.Receiver(),
		Worker:     it.Worker(),
	}
	if !it.Bare {
		i.EnqueuedAt = element.EnqueuedAt(it.Serial)
	}
	return i, true
}

// maxResult bounds what SetResult takes.
const maxResult = 1 << 20

// errNoHandling says that a context is not a handler's.
var errNoHandling = errors.New("shunt: the context is not that of a handler")

// errReturned says that a handler has its verdict already.
var errReturned = errors.New("shunt: the handler has returned: what it sets must be set before")

// errNoResult says that nobody could get a result.
var errNoResult = errors.New("shunt: nothing keeps the result of a message without an ID: " +
	"enqueue it with ID and Retain, or by EnqueueAndWait")

// SetResult sets, from within a handler, the result of a message that has an ID: up to 1 MB. It is kept with the
// outcome if the message is acked, for as long as Retain asks, and Wait returns it. Without Retain only who waits
// already gets it. Of a message without an ID nothing is kept, and SetResult returns an error. The last call counts.
// The slice is shunt's from then on.
func SetResult(ctx context.Context, result []byte) error {
	it, err := itemOf(ctx)
	switch {
	case err != nil:
		return err
	case it.ID() == "":
		return errNoResult
	case len(result) > maxResult:
		return resultTooLarge(len(result))
	}
	it.SetResult(result)
	return nil
}

func resultTooLarge(n int) error {
	return fmt.Errorf("%w: a result has %d bytes, %d are allowed: keep a reference to what is large", ErrTooLarge, n,
		maxResult)
}

// heldBy is the message of the handler that got ctx; nil where that is no handler's context.
func heldBy(ctx context.Context) *worker.Item {
	if ctx == nil {
		return nil
	}
	it, _ := ctx.Value(worker.Key{}).(*worker.Item)
	return it
}

// itemOf is the message of the handler that got ctx, while that handler may still set something.
func itemOf(ctx context.Context) (*worker.Item, error) {
	it := heldBy(ctx)
	switch {
	case it == nil:
		return nil, errNoHandling
	case it.Cause() == context.Canceled:
		return nil, errReturned
	}
	return it, nil
}
