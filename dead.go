package shunt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/store"
)

// RetryDead puts dead messages, as List gave them, back into their channel behind all others, with no attempts behind
// them, no Expire and no Deadline. It returns how many were still there; one whose ID is another's by now stays dead.
// After a lost reply it asks once more, and what the first time had done is not counted. An entry of another state, or
// of another channel, is an error: Retry takes messages of every state.
func (q *Queue) RetryDead(ctx context.Context, channel string, dead ...Entry) (int, error) {
	return q.each(ctx, "retry", channel, dead, func(k *store.Keys, es []Entry) (int, error) {
		n, _, err := q.revive(ctx, k, es)
		return n, err
	})
}

// revive puts dead messages back. twice: it was sent again, so that the first may have done it.
func (q *Queue) revive(ctx context.Context, k *store.Keys, es []Entry) (n int, twice bool, err error) {
	all := make([]store.Revival, len(es))
	for i, e := range es {
		all[i] = store.Revival{Raw: e.raw, Next: revived(e.raw), ID: e.ID}
	}
	return store.RunRevive(ctx, asker{q: q}, k, all)
}

// revived is an element without its counts. One that a newer shunt wrote loses only the header that was put before it.
func revived(raw []byte) []byte {
	e, err := element.Decode(raw)
	if err != nil {
		return raw
	}
	if wrapped(&e, raw) {
		return e.Payload
	}
	e.Renew(time.Now())
	if e.Extra != nil { // its time is over, and a retry by hand wants it handled
		e.Extra.Expires, e.Extra.ToDead, e.Extra.Deadline = 0, false, 0
	}
	if e.Bare {
		e.Bare, e.Serial = false, element.NewSerial()
	}
	return e.Encode()
}

// wrapped says whether raw, decoded as e, is a newer shunt's element behind the header that its verdict put before it.
// Such a header has a failure and nothing else. A payload that only looks like such an element is told apart by its
// header. If a handler's error or a reaper brought it to dead, the header has an attempt or a recovery. If it expired,
// the header has another failure.
func wrapped(e *element.Element, raw []byte) bool {
	if _, err := element.Decode(e.Payload); err == nil {
		return false
	}
	w := element.Element{Serial: e.Serial, Payload: e.Payload}
	w.SetFailure(element.ErrNewerVersion.Error())
	return bytes.Equal(w.Encode(), raw)
}

// DeleteDead deletes dead messages, as List gave them, for good. It returns how many were still there, counted as by
// RetryDead, and has the same errors: Delete takes messages of every state.
func (q *Queue) DeleteDead(ctx context.Context, channel string, dead ...Entry) (int, error) {
	return q.each(ctx, "delete", channel, dead, func(k *store.Keys, es []Entry) (int, error) {
		n, _, err := q.deleteDead(ctx, k, es)
		return n, err
	})
}

func (q *Queue) deleteDead(ctx context.Context, k *store.Keys, es []Entry) (n int, twice bool, err error) {
	raws := make([][]byte, len(es))
	for i, e := range es {
		raws[i] = e.raw
	}
	gone, twice, err := store.DeleteDead(ctx, asker{q: q}, k, raws)
	for i, is := range gone {
		if is {
			n++
			q.overs.removed(es[i])
		}
	}
	return n, twice, err
}

// each calls do for every hundred dead entries, and adds up. One that came as JSON has no element, and is looked for.
func (q *Queue) each(
	ctx context.Context, what, channel string, all []Entry, do func(*store.Keys, []Entry) (int, error),
) (int, error) {
	for _, e := range all {
		if e.Channel != channel {
			return 0, e.Ref().failed(what, fmt.Errorf("the entry is of channel %q, not of %q", e.Channel, channel))
		}
		if e.State != StateDead {
			return 0, e.Ref().failed(what, fmt.Errorf("the entry is in state %s, not dead: Queue.Retry and "+
				"Queue.Delete take messages of every state", e.State))
		}
	}
	k := store.KeysOf(channel)
	sum := 0
	for some := range slices.Chunk(all, 100) {
		es := make([]Entry, 0, len(some))
		for _, e := range some {
			if e.raw == nil {
				there, err := q.locate(ctx, k, e.Ref())
				if err != nil && !errors.Is(err, ErrNotFound) {
					return sum, err
				}
				if e = there; e.State != StateDead {
					continue
				}
			}
			es = append(es, e)
		}
		if len(es) == 0 {
			continue
		}
		n, err := do(k, es)
		sum += n
		if err != nil {
			return sum, err
		}
	}
	return sum, nil
}

// purgeSome is how many messages one script deletes, where some may have an id.
const purgeSome = 100

// Purge deletes every message of the given states, for good, and returns how many. What comes meanwhile stays. So
// nothing is sent again: after a lost reply Purge ends with ErrUnknown, and what that has deleted is not counted. What
// is Doing cannot be purged: shut its receivers down.
func (q *Queue) Purge(ctx context.Context, channel string, states ...State) (int, error) {
	if len(states) == 0 {
		return 0,
			fmt.Errorf("shunt: purge %q: no states are given: want some of prepare, delay, suspect, dead and done",
				channel)
	}
	k := store.KeysOf(channel)
	set := map[State]bool{StatePrepare: false, StateSuspect: false, StateDelay: true, StateDead: true}
	key := map[State]string{StatePrepare: k.Prepare, StateSuspect: k.Suspect, StateDelay: k.Delay, StateDead: k.Dead}
	for _, s := range states {
		if _, ok := key[s]; !ok && s != StateDone {
			return 0, fmt.Errorf("shunt: purge %q: state %q cannot be purged: "+
				"want prepare, delay, suspect, dead or done", channel, s)
		}
	}
	sum := 0
	for _, s := range states {
		// what was there at first, so that a producer does not keep it busy
		for left, first := purgeSome, true; left > 0; first = false {
			var deleted, rest int
			var err error
			if s == StateDone {
				deleted, rest, err = store.DropDone(ctx, asker{q: q, once: true}, k, min(left, purgeSome))
			} else {
				a := asker{q: q, once: true} // a second time would delete what has come since
				deleted, rest, err = store.RunPurge(ctx, a, k, key[s], set[s], min(left, purgeSome), first)
			}
			if err != nil {
				return sum, err
			}
			if first {
				left = deleted + rest
			}
			sum, left = sum+deleted, left-deleted
			if deleted == 0 {
				break
			}
		}
	}
	return sum, nil
}
