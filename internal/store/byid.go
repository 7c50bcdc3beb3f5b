package store

import (
	"context"
	"fmt"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/oklog/ulid/v2"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/link"
)

// dueLooks is how many a script looks through for one message, among those that are due at the very millisecond.
const dueLooks = 1024

// StatusAnswer is what is known of an id, at one moment.
type StatusAnswer struct {
	Now       time.Time // by the server's clock
	Record    []byte    // of the message that has the id; empty: none
	Holder    Handling
	Cancelled bool
	Outcome   Outcome // of the last message of that id, where it is kept
	// the earliest due time in delay: what is due then or later lies there yet, for it is promoted in order
	NextDue time.Time // zero: nothing is there
}

// AddStatus asks for what is known of an id.
func AddStatus(c *link.Call, k *Keys, id string) {
	c.AddScript(Status, 5, k.IDs, k.Running, k.Cancelled, k.Done, k.Delay, id)
}

// StatusReply reads the reply to AddStatus.
func StatusReply(v any) (a StatusAnswer, err error) {
	vs, err := redis.Values(v, nil)
	if err != nil || len(vs) < 6 {
		return a, fmt.Errorf("shunt: status answered %v", v)
	}
	now, _ := redis.Int64(vs[0], nil)
	a.Now = time.UnixMilli(now)
	a.Record = bytesOf(vs[1])
	a.Holder = ParseMark(bytesOf(vs[2]))
	a.Cancelled = vs[3] == int64(1)
	a.Outcome = ParseOutcome(bytesOf(vs[4]))
	if due, err := redis.Int64(vs[5], nil); err == nil {
		a.NextDue = time.UnixMilli(due)
	}
	return a, nil
}

// AddCancel cancels a message: one that waits is never handled, and the worker that has one ends its handler. A repeat
// finds nothing more to do.
func AddCancel(c *link.Call, k *Keys, id string, serial ulid.ULID, b *Bounds) {
	addCancel(c, k, id, serial, b, 0)
}

func addCancel(c *link.Call, k *Keys, id string, serial ulid.ULID, b *Bounds, waits int) {
	c.AddScript(Cancel, 8, k.Receivers, k.IDs, k.Cancelled, k.Delay, k.Done, k.Kept, k.Running, k.Waited,
		id, serial[:], dueLooks, max(0, b.MaxDone), max(0, b.MaxDoneBytes), waits)
}

// CancelReply reads the reply to AddCancel.
func CancelReply(v any) (a CancelAnswer) {
	vs, _ := redis.Values(v, nil)
	if len(vs) < 2 {
		return a
	}
	return CancelAnswer{Record: bytesOf(vs[0]), Holder: ParseMark(bytesOf(vs[1])), Found: true,
		Gone: len(vs) > 2 && vs[2] == int64(1)}
}

// bytesOf is a part of a reply that is bytes, or nil.
func bytesOf(v any) []byte {
	raw, _ := v.([]byte)
	return raw
}

// PostponeResult is what a postponement came to.
type PostponeResult int

// The results of a postponement; lua/postpone.lua has the numbers.
const (
	// it lies in delay among more that are due at the same time than the script looks at
	NotAmongSome PostponeResult = iota
	Postponed
	BeingHandled
	WaitsAlready // to be taken, so it cannot be given a time that is ahead
)

// AddPostpone gives a message that is due later another due time: a wait, or ms since 1970. raw is its element where
// that is known. known says that the element was looked for.
func AddPostpone(c *link.Call, k *Keys, id string, serial ulid.ULID, mode Mode, ms int64, raw []byte, known bool) {
	args := []any{k.Receivers, k.IDs, k.Delay, k.Prepare, k.Running, id, string(mode), ms, dueLooks, serial[:]}
	if known {
		args = append(args, raw)
	}
	c.AddScript(Postpone, 5, args...)
}

// PostponeReply reads the reply to AddPostpone: the record as it was, empty where the message has none.
func PostponeReply(v any) (record []byte, result PostponeResult, err error) {
	vs, err := redis.Values(v, nil)
	if err != nil || len(vs) < 2 {
		return nil, 0, fmt.Errorf("shunt: postpone answered %v", v)
	}
	n, err := redis.Int(vs[1], nil)
	return bytesOf(vs[0]), PostponeResult(n), err
}

// AddWait notes that somebody waits for a message's end, and asks what is known of it. serial is the message's where it
// is known already.
func AddWait(c *link.Call, k *Keys, id string, serial *ulid.ULID) {
	var known []byte
	if serial != nil {
		known = serial[:]
	}
	c.AddScript(Wait, 5, k.Receivers, k.IDs, k.Done, k.Waited, k.Kept, id, known)
}

// WaitAnswer is what is known of a message that somebody waits for.
type WaitAnswer struct {
	Lives   bool
	Serial  ulid.ULID // of the one that lives
	Outcome Outcome   // of the one that is over, where it is kept
	// LastEnd is how long ago the last message ended of which anything is kept; 0: it is not known, or there is none.
	LastEnd time.Duration
}

// WaitReply reads the reply to AddWait.
func WaitReply(v any) (a WaitAnswer, err error) {
	vs, err := redis.Values(v, nil)
	if err != nil || len(vs) == 0 {
		return a, fmt.Errorf("shunt: wait answered %v", v)
	}
	n, _ := redis.Int(vs[0], nil)
	if len(vs) == 1 {
		return a, nil
	}
	kept := ParseOutcome(bytesOf(vs[1]))
	if n == 1 {
		return WaitAnswer{Lives: true, Serial: kept.Serial}, nil
	}
	a.Outcome = kept
	if len(vs) > 2 {
		if ms, err := redis.Int64(vs[2], nil); err == nil {
			a.LastEnd = time.Duration(max(1, ms)) * time.Millisecond
		}
	}
	return a, nil
}

// AddHolders asks which workers handle some messages. Each reply is bytes, or nothing.
func AddHolders(c *link.Call, k *Keys, serials ...ulid.ULID) {
	for _, serial := range serials {
		c.Add("HGET", k.Running, serial[:])
	}
}

// SerialOf is the serial of an element, zero for a bare payload.
func SerialOf(raw []byte) ulid.ULID {
	e, _ := element.Decode(raw)
	return e.Serial
}

// RunStatus asks for what is known of an id.
func RunStatus(ctx context.Context, a Asker, k *Keys, id string) (StatusAnswer, error) {
	v, err := askOne(ctx, a, k.Name, func(c *link.Call) { AddStatus(c, k, id) })
	if err != nil {
		return StatusAnswer{}, err
	}
	return StatusReply(v)
}

// CancelAnswer is what a cancellation came to.
type CancelAnswer struct {
	Record []byte // as it was
	Holder Handling
	Found  bool // the message was there
	Gone   bool // it was removed from delay: else who meets it drops it
	Twice  bool // it was sent again, so that the first may have cancelled it
}

// RunCancel cancels a message: see AddCancel.
func RunCancel(ctx context.Context, a Asker, k *Keys, id string, serial ulid.ULID, b *Bounds) (CancelAnswer, error) {
	return runCancel(ctx, a, k, id, serial, b, 0)
}

// RunCancelWaiting is RunCancel of a message that no worker has. Where one has it, it says who, and cancels nothing.
func RunCancelWaiting(
	ctx context.Context, a Asker, k *Keys, id string, serial ulid.ULID, b *Bounds,
) (CancelAnswer, error) {
	return runCancel(ctx, a, k, id, serial, b, 1)
}

func runCancel(
	ctx context.Context, a Asker, k *Keys, id string, serial ulid.ULID, b *Bounds, waits int,
) (CancelAnswer, error) {
	replies, twice, err := a.Ask(ctx, k.Name, func(c *link.Call) { addCancel(c, k, id, serial, b, waits) })
	if err != nil {
		return CancelAnswer{}, err
	}
	answer := CancelReply(replies[0].Any())
	answer.Twice = twice
	return answer, nil
}

// PostponeAnswer is what a postponement came to.
type PostponeAnswer struct {
	Record []byte // as it was; empty: there is none
	Result PostponeResult
	Twice  bool // it was sent again, so that the first may have postponed it
}

// RunPostpone gives a message that is due later another due time: see AddPostpone.
func RunPostpone(
	ctx context.Context, a Asker, k *Keys, id string, serial ulid.ULID, mode Mode, ms int64, raw []byte, known bool,
) (p PostponeAnswer, err error) {
	replies, twice, err := a.Ask(ctx, k.Name,
		func(c *link.Call) { AddPostpone(c, k, id, serial, mode, ms, raw, known) })
	if err != nil {
		return p, err
	}
	p.Twice = twice
	p.Record, p.Result, err = PostponeReply(replies[0].Any())
	return p, err
}

// RunWait notes that somebody waits for a message's end: see AddWait.
func RunWait(ctx context.Context, a Asker, k *Keys, id string, serial *ulid.ULID) (WaitAnswer, error) {
	v, err := askOne(ctx, a, k.Name, func(c *link.Call) { AddWait(c, k, id, serial) })
	if err != nil {
		return WaitAnswer{}, err
	}
	return WaitReply(v)
}
