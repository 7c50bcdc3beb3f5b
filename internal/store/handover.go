package store

import (
	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/link"
)

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
