package store

import (
	"fmt"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/link"
)

// Fate is the way on which an element leaves a doing list.
type Fate byte

const (
	Acked     Fate = iota // handled: it is over, and what follows it is enqueued
	Cancelled             // over, unhandled or not: somebody cancelled it
	Expired               // over, unhandled
	Retried               // its next form goes to delay
	Rejected              // its last form goes to dead
	Released              // it goes back to the taking end
)

// Verdict is what becomes of an element in a doing list.
type Verdict struct {
	Fate    Fate
	Wait    time.Duration // of Retried
	Snoozed bool          // Retried, and no attempt is counted
	Refused bool          // Rejected before any handler began: no attempt either
	Next    []byte        // of Retried and Rejected: the element that replaces it
	Failure string        // of these: its text, for the record of an id
	Result  []byte        // of Acked
	Then    []Followup    // of Acked: what is enqueued in the same step
}

// Followup is a message that is enqueued when another is acked.
type Followup struct {
	*Keys
	Mode    Mode
	MS      int64
	Expires int64 // ms after its enqueue; 0: never
	element.Element
	Raw []byte
}

// Held is an element as it lies in a doing list. The element and the list are all that its verdict needs.
type Held struct {
	*element.Element
	Raw    []byte
	OwnsID bool // its id was its own when its handling began
}

// Bounds are on what a channel keeps of messages that are over; 0 and less: no bound.
type Bounds struct {
	MaxDead, MaxDone, MaxDoneBytes int
	DeadFor                        time.Duration
}

// fromTail removes one element, looked for from the end where the one taken first is.
var fromTail any = -1

// NewAck is the ack of a plain message in one doing list, as a command that is sent often; the element follows.
func NewAck(doing Key) *link.Command { return link.NewCommand(1, "LREM", doing, fromTail) }

// over says whether the message ends here, with nothing that goes on from it.
func (v *Verdict) over() bool { return v.Fate <= Expired && v.Then == nil }

// Plain says whether the verdict is no more than the removal of the element, as NewAck has it.
func (v *Verdict) Plain(h Held) bool { return v.over() && h.ID() == "" }

// Shares says whether the verdict may leave with others of its kind, by AddAckFirst or AddSettleFirst. A bare
// payload has no serial to be known by.
func (v *Verdict) Shares(h Held) bool { return v.over() && !h.Bare }

// Keeps says whether something has to be kept of a message with an id that is over; AddSettleFirst is for
// those of which nothing is.
func (v *Verdict) Keeps(h Held) bool {
	x := h.Extra
	return v.Fate != Acked || !h.OwnsID || x.Retain > 0 || x.Unique > 0 || v.Result != nil
}

// AddLeave adds the one command that makes a verdict true, with the element in the given doing list. LeaveReply reads
// the result. The command depends on its arguments alone. A repeat changes nothing where the first was executed. The
// exception is a bare element with a twin of the same bytes in the list: so a bare element's verdict is not to be
// repeated.
func AddLeave(c *link.Call, k *Keys, doing Key, h Held, v *Verdict, b *Bounds) {
	switch {
	case v.Fate == Retried:
		addRetry(c, k, doing, h, v)
	case v.Fate == Rejected:
		addReject(c, k, doing, h, v, b)
	case v.Fate == Released:
		AddRelease(c, k, doing, h.Identity(h.Raw))
	case v.Then != nil:
		addFollow(c, k, doing, h, v, b)
	case h.ID() != "":
		AddSettle(c, k, doing, b, 1, func(int) (Held, *Verdict) { return h, v })
	default:
		c.Add("LREM", doing, fromTail)
		c.AddElements(h.Raw)
	}
}

// AddAckFirst adds the ack of n plain messages that were taken first into the list, by the first and the last
// of them; FirstReply reads it.
func AddAckFirst(c *link.Call, doing Key, first, last []byte, n int) {
	c.AddScript(Ack, 1, doing, n)
	c.AddElements(head(first), head(last))
}

// head is what scripts know one of several by: its counts and its serial.
func head(raw []byte) []byte { return raw[2:20] }

func addSettle(c *link.Call, k *Keys, doing Key, b *Bounds, first int) {
	a := &k.arg
	c.AddScript(Settle, 7, doing, a.IDs, a.Cancelled, a.Done, a.Kept, a.Running, a.Waited,
		max(0, b.MaxDone), max(0, b.MaxDoneBytes), first)
}

// AddSettle adds the end of n messages with an id, each for itself; EachReply gives the reply of each.
func AddSettle(c *link.Call, k *Keys, doing Key, b *Bounds, n int, at func(i int) (Held, *Verdict)) {
	addSettle(c, k, doing, b, 0)
	for i := range n {
		h, v := at(i)
		c.AddElements(h.Extra.IDBytes(), h.Raw, kept(h, v))
	}
}

// AddSettleEach is AddSettle for messages of which each lies in a list of its own.
func AddSettleEach(c *link.Call, k *Keys, b *Bounds, n int, at func(i int) (Key, Held, *Verdict)) {
	a := &k.arg
	args := make([]any, 0, 10+n)
	first, _, _ := at(0)
	args = append(args, first, a.IDs, a.Cancelled, a.Done, a.Kept, a.Running, a.Waited)
	for i := range n {
		list, _, _ := at(i)
		args = append(args, list)
	}
	c.AddScript(Settle, 7+n, append(args, max(0, b.MaxDone), max(0, b.MaxDoneBytes), 0)...)
	for i := range n {
		_, h, v := at(i)
		c.AddElements(h.Extra.IDBytes(), h.Raw, kept(h, v))
	}
}

// AddSettleFirst adds the ack of n messages with an id that were taken first into the list, of which nothing
// is to be kept; FirstReply reads it.
func AddSettleFirst(c *link.Call, k *Keys, doing Key, b *Bounds, n int, at func(i int) Held) {
	addSettle(c, k, doing, b, n)
	c.AddElements(head(at(0).Raw), head(at(n-1).Raw))
	for i := range n {
		c.AddElements(at(i).Extra.IDBytes())
	}
	for i := range n {
		c.AddElements(at(i).Serial[:])
	}
}

// kept says what is to be kept of a message with an id that is over; nothing for most.
func kept(h Held, v *Verdict) []byte {
	if !v.Keeps(h) {
		return nil
	}
	kind, attempt := byte('a'), h.Attempt()
	switch v.Fate {
	case Cancelled:
		kind = 'c'
	case Expired:
		kind, attempt = 'x', int(h.Attempts)
	}
	return append(
		fmt.Appendf(nil, "%c %d %d %d\n", kind, attempt, max(0, h.Extra.Retain), max(0, h.Extra.Unique)),
		v.Result...)
}

func addRetry(c *link.Call, k *Keys, doing Key, h Held, v *Verdict) {
	a, attempts := &k.arg, h.Attempt()
	if v.Snoozed {
		attempts--
	}
	wait := max(0, (v.Wait + time.Millisecond - 1).Milliseconds())
	if id := h.ID(); id != "" {
		c.AddScript(Retry, 9, a.Receivers, doing, a.Delay, a.IDs, a.Cancelled, a.Done, a.Kept, a.Running, a.Waited,
			wait, h.Raw, v.Next, id, h.Serial[:], attempts, v.Failure)
		return
	}
	c.AddScript(Retry, 3, a.Receivers, doing, a.Delay, wait, h.Raw, v.Next)
}

func addReject(c *link.Call, k *Keys, doing Key, h Held, v *Verdict, b *Bounds) {
	a := &k.arg
	most, age, attempts := max(0, b.MaxDead), max(0, b.DeadFor.Milliseconds()), h.Attempt()
	if v.Refused {
		attempts--
	}
	if id := h.ID(); id != "" {
		c.AddScript(Reject, 9, a.Receivers, doing, a.Dead, a.IDs, a.Cancelled, a.Done, a.Kept, a.Running, a.Waited,
			h.Raw, v.Next, most, age, id, h.Serial[:], attempts, v.Failure, max(0, h.Extra.Retain),
			max(0, b.MaxDone), max(0, b.MaxDoneBytes))
		return
	}
	c.AddScript(Reject, 3, a.Receivers, doing, a.Dead, h.Raw, v.Next, most, age)
}

// addFollow adds the script that acks a message and enqueues what follows it.
func addFollow(c *link.Call, k *Keys, doing Key, h Held, v *Verdict, b *Bounds) {
	a := &k.arg
	args := []any{a.Receivers, doing, a.IDs, a.Cancelled, a.Done, a.Kept, a.Running, a.Waited}
	for i := range v.Then {
		to := &v.Then[i].Keys.arg
		args = append(args, to.Prepare, to.Delay, to.IDs, to.Running)
	}
	keys := len(args)
	retain, unique := int64(0), int64(0)
	if x := h.Extra; x != nil {
		retain, unique = max(0, x.Retain), max(0, x.Unique)
	}
	args = append(args, h.Raw, h.ID(), h.Serial[:], h.Attempt(), v.Result, retain, unique,
		max(0, b.MaxDone), max(0, b.MaxDoneBytes))
	for i := range v.Then {
		f := &v.Then[i]
		args = append(args, string(f.Mode), f.MS, f.ID(), f.Expires, f.Raw)
	}
	c.AddScript(Follow, keys, args...)
}

// AddRelease adds the return of elements of one doing list to the taking end: of each identity one. They do
// not expire any more. The reply of ReleaseReply counts those that were there; a repeat finds none.
func AddRelease(c *link.Call, k *Keys, doing Key, identities ...string) {
	c.AddScript(Release, 5, k.arg.Receivers, doing, k.arg.Prepare, k.arg.IDs, k.arg.Running)
	for _, id := range identities {
		c.AddElements([]byte(id))
	}
}

// ReleaseReply is how many elements AddRelease has put back.
func ReleaseReply(rep link.Reply) (int, error) { return redis.Int(rep.Value, rep.Err) }

// LeaveAnswer is what a verdict came to.
type LeaveAnswer struct {
	Found     bool        // the element was there; else nothing has changed
	Cancelled bool        // it was cancelled meanwhile, and ended so in place of Retried or Rejected
	Trimmed   int         // of Rejected: how many of the oldest dead letters were dropped
	Followed  []bool      // of what follows: false where its id was taken
	Dues      []time.Time // of the same: when it is due, if that is later
}

// LeaveReply reads the reply to AddLeave, or one that EachReply or FirstReply gave.
func LeaveReply(v *Verdict, rep link.Reply) (l LeaveAnswer, err error) {
	if rep.Err != nil {
		return l, rep.Err
	}
	n := int64(0)
	vs, several := rep.Value.([]any)
	if several && len(vs) > 0 {
		n, _ = vs[0].(int64)
	} else {
		n, _ = rep.Value.(int64)
	}
	l.Found = n != 0
	switch v.Fate {
	case Retried, Rejected:
		l.Cancelled = n < 0
		if v.Fate == Rejected && len(vs) == 2 {
			l.Trimmed, _ = redis.Int(vs[1], nil)
		}
	default:
		l.Found = n > 0
		if v.Then != nil && l.Found {
			for _, enqueued := range vs[1:] {
				due := time.Time{}
				if ms, _ := enqueued.(int64); ms > 1 {
					due = time.UnixMilli(ms)
				}
				l.Followed, l.Dues = append(l.Followed, enqueued != int64(0)), append(l.Dues, due)
			}
		}
	}
	return l, nil
}

// FirstReply says whether those that AddAckFirst or AddSettleFirst named were the first in their list. Where
// not, nothing has changed, and each is to be sent by itself.
func FirstReply(rep link.Reply) bool { return rep.Value != int64(-1) }

// EachReply is the reply to the ith of several that AddSettle sent.
func EachReply(rep link.Reply, i int) link.Reply {
	if vs, each := rep.Value.([]any); each && i < len(vs) {
		rep.Value = vs[i]
		if err, is := rep.Value.(redis.Error); is {
			rep.Err = err
		}
	}
	return rep
}
