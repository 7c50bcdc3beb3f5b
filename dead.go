package shunt

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/store"
)

// RetryDead puts dead messages, as List gave them, back into their channel behind all others, with no attempts behind them, no Expire and no Deadline. It
// returns how many were still there; one whose ID is another's by now stays dead. After a lost reply it asks once more, and what the
// first time had done is not counted.
func (q *Queue) RetryDead(ctx context.Context, channel string, dead ...Entry) (int, error) {
	return q.each(ctx, channel, dead, func(k *store.Keys, c *link.Call, es []Entry) {
		args := []any{k.Dead, k.Prepare, k.IDs, k.Running}
		for _, e := range es {
			args = append(args, e.raw, revived(e.raw), e.ID)
		}
		c.AddScript(store.Revive, 4, args...)
	})
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
	e.Attempts, e.Recoveries = 0, 0
	if e.Extra != nil { // its time is over: whoever revives it wants it handled
		e.Extra.Expires, e.Extra.ToDead, e.Extra.Deadline = 0, false, 0
	}
	if e.Bare {
		e.Bare, e.Serial = false, element.NewSerial()
	}
	return e.Encode()
}

// wrapped says whether raw, decoded as e, is a newer shunt's element behind the header that its verdict put before it. That has a failure and
// nothing else. A message whose payload only looks like such an element has an attempt or a recovery behind it when a handler's
// error or a reaper brings it to dead, and another failure when it expired.
func wrapped(e *element.Element, raw []byte) bool {
	if _, err := element.Decode(e.Payload); err == nil {
		return false
	}
	w := element.Element{Serial: e.Serial, Payload: e.Payload}
	w.SetFailure(element.ErrNewerVersion.Error())
	return bytes.Equal(w.Encode(), raw)
}

// DeleteDead deletes dead messages, as List gave them, for good. It returns how many were still there, counted as
// by RetryDead.
func (q *Queue) DeleteDead(ctx context.Context, channel string, dead ...Entry) (int, error) {
	return q.each(ctx, channel, dead, func(k *store.Keys, c *link.Call, es []Entry) {
		args := []any{k.Dead}
		for _, e := range es {
			args = append(args, e.raw)
		}
		c.Add("ZREM", args...)
	})
}

// each sends one command for every hundred entries and adds up the replies.
func (q *Queue) each(ctx context.Context, channel string, all []Entry, add func(*store.Keys, *link.Call, []Entry)) (int, error) {
	for _, e := range all {
		if e.channel != channel || e.raw == nil {
			return 0, fmt.Errorf("shunt: entry %s is not from a List of channel %q", e.Serial, channel)
		}
	}
	k := store.KeysOf(channel)
	sum := 0
	for es := range slices.Chunk(all, 100) {
		v, err := q.query(ctx, channel, func(c *link.Call) { add(k, c, es) })
		if err != nil {
			return sum, err
		}
		n, _ := redis.Int(v, nil)
		sum += n
	}
	return sum, nil
}

// purgeSome is how many messages one script deletes, where some may have an id.
const purgeSome = 100

// Purge deletes every message of the given states, for good, and returns how many, counted as by RetryDead. What is Doing cannot be
// purged: shut its receivers down.
func (q *Queue) Purge(ctx context.Context, channel string, states ...State) (int, error) {
	k := store.KeysOf(channel)
	set := map[State]bool{StatePrepare: false, StateSuspect: false, StateDelay: true, StateDead: true}
	key := map[State]string{StatePrepare: k.Prepare, StateSuspect: k.Suspect, StateDelay: k.Delay, StateDead: k.Dead}
	sum := 0
	for _, s := range states {
		if _, ok := key[s]; !ok && s != StateDone {
			return sum, fmt.Errorf("shunt: purge %q: state %q cannot be purged: want prepare, delay, suspect, dead or done", channel, s)
		}
		for left, first := purgeSome, true; left > 0; first = false { // what was there at first, so that a producer does not keep it busy
			v, err := q.query(ctx, channel, func(c *link.Call) {
				if s == StateDone {
					store.AddDropDone(c, k, min(left, purgeSome))
					return
				}
				store.AddPurge(c, k, key[s], set[s], min(left, purgeSome), first)
			})
			if err != nil {
				return sum, err
			}
			deleted, rest, err := store.PurgeReply(v)
			if err != nil {
				return sum, fmt.Errorf("shunt: purge %q: %w", channel, err)
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
