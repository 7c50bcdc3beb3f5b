package store

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/link"
)

// DeadReceiver is a member of {C}.receivers.dead.
type DeadReceiver struct {
	Incarnation

	Death      string // ms
	Superseded bool   // by its own receiver, so that it may be swept at any time
	// the reap raises the recovery counts: its process died, or what it holds has broken its connection
	Counted bool
}

func ParseDeadReceiver(member string) (DeadReceiver, error) {
	part := strings.Fields(member)
	if len(part) != 3 {
		return DeadReceiver{}, fmt.Errorf("shunt: %.80q among the dead receivers is no entry of shunt's: remove it",
			member)
	}
	i, err := ParseIncarnation(part[0])
	if _, bad := strconv.ParseUint(part[1], 10, 63); err == nil &&
		(bad != nil || len(part[2]) != 1 || !strings.Contains("src", part[2])) {
		err = fmt.Errorf("shunt: %.80q among the dead receivers is no entry of shunt's: remove it", member)
	}
	return DeadReceiver{i, part[1], part[2] != "r", part[2] != "s"}, err
}

// ReapAnswer is the reply to the reap of one list.
type ReapAnswer struct {
	Late                   bool // the fence is too old: nothing was moved
	Prepare, Suspect, Dead int  // messages that went there
	Trimmed, Left, Bytes   int  // dropped from dead; still in the list; of what was moved
	Dropped                int  // cancelled
}

// Why a message that was recovered too often is dead.
var (
	diedReason = element.FailureField("shunt: in the hands of a dying process 4 times")
	cutReason  = element.FailureField("shunt: in the hands of a receiver whose connection broke, or whose process " +
		"died, 4 times: look at the size of its take and its verdict")
)

// AddReap moves up to n elements, or some more than so many bytes, of a dead receiver's list to where they are taken
// again. Where dead.Counted is set it raises the recoveries. So a message which keeps killing its process, or breaking
// its connection, becomes a suspect, and then dead. A superseded receiver needs no fence. It may be sent again.
func AddReap(c *link.Call, k *Keys, list string, fence Fence, dead DeadReceiver, n, bytes int, b *Bounds) {
	raised, reason := 0, diedReason
	if dead.Counted {
		raised = 1
	}
	if dead.Superseded {
		reason = cutReason
	}
	c.AddScript(Reap, 11, k.Receivers, list, k.Prepare, k.Suspect, k.Dead, k.IDs, k.Cancelled, k.Done, k.Kept,
		k.Running, k.Waited, ms(fence.At), fence.Age.Milliseconds(), raised, bytes, max(0, b.MaxDead),
		max(0, b.DeadFor.Milliseconds()), reason, max(0, b.MaxDone), max(0, b.MaxDoneBytes))
	for range n {
		s := element.NewSerial()
		c.AddElements(s[:])
	}
}

// ReapReply reads the reply to AddReap.
func ReapReply(rep link.Reply) (r ReapAnswer, err error) {
	ns, err := redis.Ints(rep.Value, rep.Err)
	if err != nil {
		return r, err
	}
	if len(ns) < 7 {
		return ReapAnswer{Late: true}, nil
	}
	return ReapAnswer{Prepare: ns[0], Suspect: ns[1], Dead: ns[2], Trimmed: ns[3], Left: ns[4], Bytes: ns[5],
		Dropped: ns[6]}, nil
}

// FinishDead ends the sweep of a dead receiver whose lists were found empty: it is looked at again later, and forgotten
// after an hour. It may be sent again.
func FinishDead(ctx context.Context, l *link.Link, k *Keys, member string, d DeadReceiver) error {
	doing := k.AllDoing(d.Incarnation)
	c := link.NewCall()
	keys := append([]any{k.Receivers, k.DeadReceivers}, args(doing)...)
	c.AddScript(Finish, len(keys), append(keys, member, d.Death)...)
	return l.Run(ctx, c)
}
