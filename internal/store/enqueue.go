package store

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/oklog/ulid/v2"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/link"
)

// MaxWait keeps a due time within what a score holds exactly: 100 years.
const MaxWait = 100 * 365 * 24 * time.Hour

// Due is when a message is due: at once, or after a wait, or at a time. Both are judged by the server's clock.
type Due struct {
	In time.Duration
	At time.Time
}

// Later says that a message is not due at once.
func (d Due) Later() bool { return d.In > 0 || !d.At.IsZero() }

// From is when a message is due, if that is found out at the given time.
func (d Due) From(now time.Time) time.Time {
	if d.At.IsZero() {
		return now.Add(d.In)
	}
	return d.At
}

// Mode says how a script reads a due time.
type Mode string

// The modes of a due time. The last one is that of an element which is sent again: it is added only while At is ahead.
const (
	Now   Mode = "now"
	In    Mode = "in"
	At    Mode = "at"
	Again Mode = "again"
)

// When is the due time as scripts take it: in so many ms, or at that ms since 1970. Both are cut to MaxWait from now
// on.
func (d Due) When(now time.Time) (mode Mode, ms int64) {
	switch {
	case !d.Later():
		return Now, 0
	case d.At.IsZero():
		return In, (min(d.In, MaxWait) + time.Millisecond - 1).Milliseconds()
	}
	at := d.At
	if far := now.Add(MaxWait); at.After(far) {
		at = far
	}
	if first := time.UnixMilli(1); at.Before(first) { // all that is past is alike; a reply of 0 says otherwise
		at = first
	}
	return At, CeilMilli(at)
}

// CeilMilli is the first whole millisecond that is not before t.
func CeilMilli(t time.Time) int64 {
	ms := t.UnixMilli()
	if t.After(time.UnixMilli(ms)) {
		ms++
	}
	return ms
}

// AddPush adds elements to prepare. Its reply is nobody's; a repeat would double them.
func AddPush(c *link.Call, k *Keys, elements ...[]byte) {
	c.Add("LPUSH", k.arg.Prepare)
	c.AddElements(elements...)
}

// AddLater adds elements to delay; LaterReply reads the reply. A repeat adds nothing that is still there. So it may be
// sent again for as long as the due time is ahead: afterwards the elements may have been promoted.
func AddLater(c *link.Call, k *Keys, mode Mode, ms int64, elements ...[]byte) {
	c.AddScript(Later, 1, k.arg.Delay, string(mode), ms)
	c.AddElements(elements...)
}

// LaterReply is when the elements are due. over: they were sent before, and their time has come since.
func LaterReply(rep link.Reply) (due time.Time, over bool, err error) {
	ms, err := redis.Int64(rep.Any(), rep.Err)
	return time.UnixMilli(ms), ms == 0 && err == nil, err
}

// Receipt is a member of {C}.receipts: of a sending that may be repeated.
type Receipt []byte

// ReceiptOf is the receipt of a sending whose first message is e.
func ReceiptOf(e *element.Element) Receipt { return e.Serial[:] }

// RefusalOf stands among the receipts for a message that was refused beside others.
func RefusalOf(e *element.Element) Receipt { return append([]byte{'x'}, e.Serial[:]...) }

// AddEnter adds messages that have an id, and are due now; EnterReply reads the reply. It is sent but once: where its
// reply is lost, AddEnqueue follows. forget are receipts that are needed no more.
func AddEnter(c *link.Call, k *Keys, forget []Receipt, es []*element.Element, raws [][]byte) {
	words := 2
	if slices.ContainsFunc(es, func(e *element.Element) bool { return e.Extra.Expires != 0 }) {
		words = 3
	}
	c.AddScript(Enter, 3, k.arg.Prepare, k.arg.IDs, k.arg.Receipts, len(forget), words)
	for _, r := range forget {
		c.AddElements(r)
	}
	for i, e := range es {
		c.AddElements(e.Extra.IDBytes(), raws[i])
		if words == 3 {
			c.AddElements(strconv.AppendInt(nil, e.Extra.Expires, 10))
		}
	}
}

// AddEnqueue adds messages that have an id or expire, those that are not refused in one step. EnqueueReply reads the
// reply. It may be sent again, by AddEnqueueAgain: a receipt, the first one's serial, says whether it was executed.
func AddEnqueue(c *link.Call, k *Keys, mode Mode, ms int64, forget []Receipt, es []*element.Element, raws [][]byte) {
	addEnqueue(c, k, mode, ms, 0, forget, es, raws)
}

// AddEnqueueAgain is AddEnqueue after a sending that got no reply. What it refuses no sending enqueues any more,
// however late Redis gets it.
func AddEnqueueAgain(
	c *link.Call, k *Keys, mode Mode, ms int64, forget []Receipt, es []*element.Element, raws [][]byte,
) {
	addEnqueue(c, k, mode, ms, 1, forget, es, raws)
}

func addEnqueue(
	c *link.Call, k *Keys, mode Mode, ms int64, again int, forget []Receipt, es []*element.Element, raws [][]byte,
) {
	args := make([]any, 0, 9+len(forget)+3*len(es))
	a := &k.arg
	args = append(args, a.Prepare, a.Delay, a.IDs, a.Receipts, a.Running, string(mode), ms, again, len(forget))
	for _, r := range forget {
		args = append(args, []byte(r))
	}
	for i, e := range es {
		args = append(args, e.Extra.ID, e.Extra.TTL(), raws[i])
	}
	c.AddScript(Enqueue, 5, args...)
}

// ExpiresCode is the first word of the error where a message would expire before it is due.
const ExpiresCode = "EXPIRES"

// Refusal is the record of the message that has the id of one that was refused; nil: it was not.
type Refusal []byte

// EnterReply has a refusal for each of n messages. stale: an id that is taken may be so no more, which AddEnqueue finds
// out; all that were not refused are enqueued.
func EnterReply(rep link.Reply, n int) (refused []Refusal, stale bool, err error) {
	vs, err := redis.Values(rep.Any(), rep.Err)
	if err != nil {
		return nil, false, err
	}
	last := max(0, len(vs)-1)
	if refused, err = refusals(vs[:last], n); err != nil {
		return nil, false, err
	}
	now, _ := redis.Int64(vs[last], nil)
	for _, raw := range refused {
		if raw == nil {
			continue
		}
		r, ok := element.ParseRecord(raw)
		stale = stale || !ok || r.State == 'u' && r.At <= now || r.Expires > 0 && r.Expires <= now
	}
	return refused, stale, err
}

// EnqueueReply has the due time of the messages, by the server's clock, and a refusal for each of n.
func EnqueueReply(rep link.Reply, n int) (due time.Time, refused []Refusal, err error) {
	vs, err := redis.Values(rep.Any(), rep.Err)
	if err != nil {
		return due, nil, err
	}
	if len(vs) == 0 {
		return due, nil, fmt.Errorf("shunt: enqueue answered %v", vs)
	}
	ms, _ := redis.Int64(vs[0], nil)
	refused, err = refusals(vs[1:], n)
	return time.UnixMilli(ms), refused, err
}

func refusals(vs []any, n int) ([]Refusal, error) {
	if len(vs) != n {
		return nil, fmt.Errorf("shunt: enqueue answered for %d of %d messages", len(vs), n)
	}
	all := make([]Refusal, n)
	for i, v := range vs {
		all[i], _ = v.([]byte)
	}
	return all, nil
}

// AddDropReceipts adds that receipts are needed no more.
func AddDropReceipts(c *link.Call, k *Keys, receipts ...Receipt) {
	c.Add("SREM", k.arg.Receipts)
	for _, r := range receipts {
		c.AddElements(r)
	}
}

// Enqueued says whether the receipts say that every message was enqueued. A full Redis, which runs no script that
// writes, answers that.
func Enqueued(ctx context.Context, a Asker, k *Keys, es []*element.Element) bool {
	replies, _, err := a.Ask(ctx, k.Name, func(c *link.Call) {
		c.Add("SISMEMBER", k.arg.Receipts, []byte(ReceiptOf(es[0])))
		for _, e := range es {
			c.Add("SISMEMBER", k.arg.Receipts, []byte(RefusalOf(e)))
		}
	})
	if err != nil {
		return false
	}
	for i, r := range replies {
		if n, err := redis.Int(r.Any(), r.Err); err != nil || (n == 1) != (i == 0) {
			return false
		}
	}
	return true
}

// Holders asks which workers handle some messages.
func Holders(ctx context.Context, a Asker, k *Keys, serials ...ulid.ULID) ([]Handling, error) {
	replies, _, err := a.Ask(ctx, k.Name, func(c *link.Call) { AddHolders(c, k, serials...) })
	if err != nil {
		return nil, err
	}
	holders := make([]Handling, len(replies))
	for i, r := range replies {
		holders[i] = ParseMark(bytesOf(r.Any()))
	}
	return holders, nil
}
