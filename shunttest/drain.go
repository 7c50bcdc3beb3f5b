package shunttest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/lists"
)

// Handlings are several, in the order in which they ended. A message that was retried is there once for each time.
type Handlings []Handling

// Count counts those of a verdict.
func (hs Handlings) Count(verdict shunt.EventKind) (n int) {
	for i := range hs {
		if hs[i].Verdict == verdict {
			n++
		}
	}
	return n
}

// Drain handles what waits in the prototypes' channels until nothing is left there but dead messages: also what is due later or is to be
// tried again, and what handlers deliver meanwhile. It is a ReceiveOrdered of the Queue with one worker: what the first channel has comes
// first.
//
// Nobody waits for what is due later: as often as nothing else is left, all due times of the channels are brought forward by as much as
// makes the first one due. So their order and distances stay as they are, also with what is delivered on the way. The clock does not
// change: a message's age, Expire and Deadline go by real time, and Status tells the due times of messages with an ID as they were.
//
// The test ends, with what is left, after MaxHandlings or Patience, so that a message that is retried for ever is told; if another
// receiver has one of the channels; or if a handler called t.FailNow.
func (q *Queue) Drain(prototypes ...shunt.IMessage) Handlings {
	q.t.Helper()
	out, err := q.drain(prototypes)
	if err != nil {
		q.t.Fatalf("shunttest: Drain: %v", err)
	}
	if q.t.Failed() && len(out) > 0 && exited(out[len(out)-1].Err) {
		q.t.FailNow()
	}
	return out
}

// journal is what a Drain sees of its receiver.
type journal struct {
	mu        sync.Mutex
	messages  map[string]shunt.IMessage // by serial, while they are handled
	handlings Handlings

	more chan struct{} // of capacity 1: something has happened
}

// watch is the kit's middleware.
func (j *journal) watch(next shunt.Handler) shunt.Handler {
	return func(ctx context.Context, m shunt.IMessage) error {
		info, _ := shunt.FromContext(ctx)
		j.mu.Lock()
		j.messages[info.Serial] = m
		j.mu.Unlock()
		return next(ctx, m)
	}
}

// note takes in every Event, for whatever changes the lists is followed by one.
func (j *journal) note(e shunt.Event) {
	if isVerdict(e.Kind) {
		j.mu.Lock()
		j.handlings = append(j.handlings, Handling{Channel: e.Channel, Serial: e.Serial, Attempt: e.Attempt, Message: j.messages[e.Serial],
			Verdict: e.Kind, Err: e.Err})
		delete(j.messages, e.Serial)
		j.mu.Unlock()
	}
	select {
	case j.more <- struct{}{}:
	default:
	}
}

// seen is how many handlings have ended, and how the last one did.
func (j *journal) seen() (n int, last Handling) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if n = len(j.handlings); n > 0 {
		last = j.handlings[n-1]
	}
	return n, last
}

func (q *Queue) drain(prototypes []shunt.IMessage) (Handlings, error) {
	var channels []string
	for _, p := range prototypes {
		if p == nil {
			return nil, errors.New("a prototype is nil")
		}
		channels = append(channels, p.Channel())
		rs, err := q.desk.Receivers(context.Background(), p.Channel())
		if err != nil {
			return nil, err
		}
		if len(rs) > 0 && rs[0].Alive {
			return nil, fmt.Errorf("channel %q has a receiver: shut it down first", p.Channel())
		}
	}
	j := &journal{messages: make(map[string]shunt.IMessage), more: make(chan struct{}, 1)}
	stage := replica(q.Queue)
	stage.Pool, stage.Wrap = q.pool, wrap(q.Wrap, j.watch)
	stage.Events = func(e shunt.Event) {
		j.note(e)
		if q.Events != nil {
			q.Events(e)
		}
	}
	shutdown, err := stage.ReceiveOrdered(context.Background(), 1, prototypes...)
	if err != nil {
		stage.Close()
		return nil, err
	}
	end, cancel := context.WithCancel(context.Background())
	defer cancel()
	why, err := q.untilEmpty(channels, j)
	if why != nil || err != nil {
		cancel()
	}
	stopped := shutdown(end)
	stage.Close() // whereupon all Events have come
	switch {
	case err != nil:
		return nil, err
	case why != nil:
		return j.handlings, q.endless(why, channels, j.handlings)
	}
	return j.handlings, stopped
}

// errExited says that a handler has ended the test.
var errExited = errors.New("a handler called t.FailNow")

// untilEmpty waits until the channels are empty, or says why it waits no longer.
func (q *Queue) untilEmpty(channels []string, j *journal) (why, err error) {
	limit := time.NewTimer(q.patience())
	defer limit.Stop()
	for {
		ready, later := q.left(channels)
		if !ready && !later {
			return nil, nil
		}
		n, last := j.seen()
		if exited(last.Err) && q.t.Failed() {
			return errExited, nil
		}
		if n >= cmp.Or(q.MaxHandlings, defaultMaxHandlings) {
			return errors.New("its MaxHandlings"), nil
		}
		if !ready {
			if err := q.forward(channels); err != nil {
				return nil, err
			}
		}
		select {
		case <-j.more:
		case <-limit.C:
			return fmt.Errorf("its Patience of %v", q.patience()), nil
		}
	}
}

// left says whether any message is ready, suspect or in hand, and whether one is due later. All keys are read at one moment: whoever asked
// for one list after another might miss what moves meanwhile.
func (q *Queue) left(channels []string) (ready, later bool) {
	for _, key := range q.redis.DB(0).Keys() {
		for _, channel := range channels {
			if state, ok := strings.CutPrefix(key, "{"+channel+"}."); ok {
				ready = ready || state == string(shunt.Prepare) || state == string(shunt.Suspect) || strings.HasPrefix(state, "doing.")
				later = later || state == string(shunt.Delay)
			}
		}
	}
	return ready, later
}

// forward brings all due times forward until the first one has come, and tells the receiver so. Done again it changes nothing.
func (q *Queue) forward(channels []string) error {
	waiting := make(map[string]map[string]float64)
	first := int64(-1)
	for _, channel := range channels {
		var err error
		if waiting[channel], err = dues(q.pool, channel); err != nil {
			return err
		}
		for _, due := range waiting[channel] {
			if first < 0 || int64(due) < first {
				first = int64(due)
			}
		}
	}
	sooner := first - time.Now().UnixMilli()
	conn := q.pool.Get()
	defer conn.Close()
	for channel, of := range waiting {
		key := lists.KeysOf(channel).Delay
		for element, due := range of {
			if sooner <= 0 {
				break
			}
			// XX: only if it is still there, for the receiver may move what is due.
			if _, err := conn.Do("ZADD", key, "XX", strconv.FormatInt(int64(due)-sooner, 10), element); err != nil {
				return err
			}
		}
		if _, err := conn.Do("PUBLISH", key, 0); err != nil { // ms until the earliest is due, as every script tells that adds one
			return err
		}
	}
	return nil
}

// endless is the error of a Drain that was stopped before its channels were empty, with what is left there.
func (q *Queue) endless(why error, channels []string, done Handlings) error {
	if why == errExited {
		return nil
	}
	there, err := q.delivered(channels...)
	if err != nil {
		return err
	}
	text := fmt.Sprintf("stopped by %v after %d handlings: %d messages are left", why, len(done), len(there))
	if n := len(done); n > 0 {
		text += fmt.Sprintf("; the last one handled, of %q, was %v", done[n-1].Channel, done[n-1])
	}
	return errors.New(text + "\n" + table(rows(there)))
}
