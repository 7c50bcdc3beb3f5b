package store

import (
	"context"
	"strconv"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/link"
)

// NewTake is the take of one element into one doing list, as a command that is sent often. Its reply has the
// element as Bulk, or none. A take is never repeated: its first may have been executed.
func NewTake(k *Keys, doing Key) *link.Command {
	return link.NewCommand(0, "RPOPLPUSH", k.arg.Prepare, doing)
}

// AddTakeOne adds the same as an ordinary command.
func AddTakeOne(c *link.Call, k *Keys, doing Key) { c.Add("RPOPLPUSH", k.arg.Prepare, doing) }

// Source is where a take may come from, and the list that it goes to.
type Source struct {
	Keys    *Keys
	Doing   Key
	Suspect bool // of its suspects
}

// AddTake adds the take of up to n elements from the first source that has any; EachTaken reads it. A full
// Redis does not refuse it.
func AddTake(c *link.Call, from []Source, n int) {
	args := make([]any, 0, 3*len(from)+1)
	for _, s := range from {
		list := s.Keys.arg.Prepare
		if s.Suspect {
			list = s.Keys.Suspect
		}
		args = append(args, s.Keys.arg.Receivers, list, s.Doing)
	}
	c.AddScript(Take, 3*len(from), append(args, n)...)
}

// EachTaken gives what AddTake came to, by the number of the source: an element, or why the source could not be read.
func EachTaken(rep link.Reply, give func(source int, raw []byte, err error)) error {
	vs, err := redis.Values(rep.Value, rep.Err)
	for i := 0; i+1 < len(vs); i += 2 {
		n, _ := redis.Int(vs[i], nil)
		raw, _ := vs[i+1].([]byte)
		switch {
		case n > 0:
			give(n-1, raw, nil)
		case n < 0:
			give(-n-1, nil, redis.Error(raw))
		}
	}
	return err
}

// AddCountWaiting adds the question how many of up to 64 channels have something to take; CountReply reads it.
func AddCountWaiting(c *link.Call, prepare []string) {
	var keys [64]any
	for i, k := range prepare {
		keys[i] = k
	}
	c.Add("EXISTS", keys[:len(prepare)]...)
}

// CountReply is a reply that is a number.
func CountReply(rep link.Reply) (int, error) { return redis.Int(rep.Value, rep.Err) }

// BlockingTake waits for an element and takes it, on a connection of its own. d is some whole seconds, or less than one
// where the server is no Redis before 6.0. It returns nil if none came. A take is never repeated.
func BlockingTake(w *link.Waiter, k *Keys, doing Key, d time.Duration) ([]byte, error) {
	v, err := w.Do(d, "BRPOPLPUSH", k.arg.Prepare, doing, strconv.FormatFloat(d.Seconds(), 'f', -1, 64))
	raw, _ := v.([]byte)
	return raw, err
}

// AwaitNext waits until a channel has an element to be taken, and moves nothing. d is as for BlockingTake; false: none
// came. Servers before 6.2 do not know the command.
func AwaitNext(w *link.Waiter, k *Keys, d time.Duration) (bool, error) {
	v, err := w.Do(d, "BLMOVE", k.arg.Prepare, k.arg.Prepare, "RIGHT", "RIGHT",
		strconv.FormatFloat(d.Seconds(), 'f', -1, 64))
	return v != nil, err
}

// AddWaiting adds the question whether a channel has something to take, suspects included; CountReply reads it.
func AddWaiting(c *link.Call, k *Keys) { c.Add("EXISTS", k.arg.Prepare, k.Suspect) }

// UnblockLimit bounds one CLIENT UNBLOCK.
const UnblockLimit = 100 * time.Millisecond

// Unblock ends the blocking command of a connection, if it is in one. refused says that the server does not allow it.
func Unblock(ctx context.Context, l *link.Link, id int64) (refused bool) {
	c := link.NewCall()
	c.Add("CLIENT", "UNBLOCK", id)
	ctx, cancel := context.WithTimeout(ctx, UnblockLimit)
	defer cancel()
	return l.Do(ctx, c) == nil && link.Code(c.Replies[0].Err) != ""
}
