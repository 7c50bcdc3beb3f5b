package store

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/link"
)

// ServerRun is the run_id of a Redis process: it differs after each restart and at each replica. It is empty where
// the server does not say, as one whose ACL refuses INFO.
type ServerRun string

// AddServerRun asks which process answers.
func AddServerRun(c *link.Call) { c.Add("INFO", "server") }

// ServerRunReply reads the reply to AddServerRun.
func ServerRunReply(rep link.Reply) (ServerRun, error) {
	text, err := redis.String(rep.Any(), rep.Err)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(text) {
		if id, is := strings.CutPrefix(line, "run_id:"); is {
			return ServerRun(strings.TrimSpace(id)), nil
		}
	}
	return "", nil
}

// RegisterIncarnation enters an incarnation among the living of every channel. Only after it may the incarnation take.
// It takes away those whose register failed before, which never held anything. It also returns the process of Redis at
// which the incarnation is entered. An error means that some channel may not have it, or has not replied. A repeat is
// for another name, because an entry may have run out and be listed as dead by then.
func RegisterIncarnation(
	ctx context.Context, l *link.Link, channels []*Keys, i Incarnation, abandoned []string,
) (ServerRun, error) {
	c := link.NewCall()
	AddServerRun(c)
	for _, k := range channels {
		if len(abandoned) > 0 {
			AddForget(c, k, abandoned...)
		}
		c.AddScript(Register, 1, k.Receivers, i.Name, i.Term().Milliseconds())
	}
	if err := l.Run(ctx, c); !c.Answered {
		return "", err
	}
	for _, rep := range c.Replies[1:] {
		if rep.Err != nil {
			return "", rep.Err
		}
	}
	run, err := ServerRunReply(c.Replies[0])
	if link.Classify(err) == link.Unknown && err != nil {
		var wire *link.Error
		if errors.As(err, &wire) {
			return "", err
		}
	}
	return run, nil
}

// Moved is what AddHandover found.
type Moved struct {
	Back  int   // elements that went to the taking end
	Found []int // numbers, from 0, of the held identities that were there
}

// Handing is how the list of one worker of an incarnation that ends is emptied.
type Handing struct {
	From, To  Incarnation
	Worker    int
	Holder    string // of To, as marks in running have it
	Held      []any  // identities, as element.Identity makes them, of what a handler holds
	LeaveRest bool   // what neither Held nor Back names stays where it is; else it goes to the taking end
	Back      []any  // with LeaveRest: what goes to the taking end all the same
}

// AddHandover empties a list: what a handler holds goes to the same worker's list of the next incarnation. A
// repeat finds what is still there.
func AddHandover(c *link.Call, k *Keys, h Handing) {
	rest := "back"
	if h.LeaveRest {
		rest = "leave"
	}
	args := make([]any, 0, 9+len(h.Held)+len(h.Back))
	args = append(args, k.Receivers, k.Doing(h.From, h.Worker), k.Doing(h.To, h.Worker), k.Prepare, k.IDs, k.Running,
		h.Holder, rest, len(h.Held))
	c.AddScript(Handover, 6, append(append(args, h.Held...), h.Back...)...)
}

// HandoverReply reads the reply to AddHandover.
func HandoverReply(rep link.Reply) (m Moved, err error) {
	ns, err := redis.Ints(rep.Value, rep.Err)
	if err != nil || len(ns) == 0 {
		return m, err
	}
	m.Back = ns[0]
	for _, n := range ns[1:] {
		m.Found = append(m.Found, n-1)
	}
	return m, nil
}

// AddEmpty puts all that a worker's list holds to the taking end.
func AddEmpty(c *link.Call, k *Keys, i Incarnation, worker int) {
	AddHandover(c, k, Handing{From: i, To: i, Worker: worker})
}

// AddSupersede lists an incarnation that its own receiver has ended as dead, so that sweeps of any receiver empty
// its lists at any time. With counted the reap raises the recovery counts of what it finds. A repeat may list it
// twice, which costs some looks of sweeps.
func AddSupersede(c *link.Call, k *Keys, name string, counted bool) {
	how := "s"
	if counted {
		how = "c"
	}
	c.AddScript(Supersede, 3, k.Receivers, k.DeadReceivers, k.Keeper, name, how)
}

// AddUnregister takes an incarnation from the living, unless one of its lists has something.
func AddUnregister(c *link.Call, k *Keys, i Incarnation) {
	c.AddScript(Unregister, 1+i.Workers, append(append([]any{k.Receivers}, Args(k.AllDoing(i))...), i.Name)...)
}

// UnregisterReply reads the reply to AddUnregister: false where the entry has to stay. A repeat says true.
func UnregisterReply(rep link.Reply) (gone bool, err error) {
	n, err := redis.Int(rep.Value, rep.Err)
	return n == 1, err
}

// AddForget takes an entry of an incarnation away that never took anything.
func AddForget(c *link.Call, k *Keys, names ...string) {
	c.Add("ZREM", append([]any{k.Receivers}, args(names)...)...)
}

// AddHeld asks how many of some doing lists have something.
func AddHeld(c *link.Call, lists ...string) { c.Add("EXISTS", Args(lists)...) }

// HeldReply reads the reply to AddHeld.
func HeldReply(rep link.Reply) (n int, err error) { return redis.Int(rep.Value, rep.Err) }

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
