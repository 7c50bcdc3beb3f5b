package v1

import (
	"errors"
	"strings"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/recur"
)

// errNoID says that a message has no id, by which its outcome would be found.
var errNoID = errors.New("v1: the message has no id")

// known are the errors that have a type of their own.
var known = []struct {
	err  error
	kind kind
}{
	{errNoID, noID},
	{shunt.ErrDuplicate, duplicate},
	{shunt.ErrNotFound, noMessage},
	{recur.ErrNotFound, noRecurring},
	{shunt.ErrRunning, running},
	{shunt.ErrWaiting, waits},
	{shunt.ErrCancelled, cancelled},
	{shunt.ErrLeaseLost, leaseLost},
	{shunt.ErrUnconfirmed, unconfirmed},
	{shunt.ErrNotKept, notKept},
	{shunt.ErrLost, notKept},
	{shunt.ErrTooLarge, tooLarge},
	{shunt.ErrFull, full},
	{shunt.ErrUnknown, unknownOutcome},
	{shunt.ErrClosed, stopping},
}

// problemOf is what an error means to a client. told: it is nobody's fault here, and no log needs to have it.
func problemOf(channel string, err error) (p *problem, told bool) {
	for _, k := range known {
		if errors.Is(err, k.err) {
			p = k.kind.problem("")
			var d *shunt.DuplicateError
			if errors.As(err, &d) && d.Status.State != "" {
				p.Existing = statusOf(channel, d.Status)
			}
			return p, k.kind.status < 500
		}
	}
	var said redis.Error
	switch {
	case !errors.As(err, &said) || passing(string(said)):
	case strings.HasPrefix(string(said), "OOM "): // of a command that is none of shunt's
		return full.problem(""), false
	default:
		return internal.problem(""), false
	}
	return unavailable.problem(""), false
}

// passing says that Redis has refused a command, and may take it later: after MISCONF once a snapshot is saved.
func passing(said string) bool {
	code, _, _ := strings.Cut(said, " ")
	switch code {
	case "LOADING", "BUSY", "READONLY", "MASTERDOWN", "TRYAGAIN", "CLUSTERDOWN", "NOREPLICAS", "MISCONF":
		return true
	}
	return false
}

// failed answers what an error means, and logs what somebody may have to mend.
func (c *call) failed(what string, err error) {
	p, told := problemOf(c.channel(), err)
	if !told && c.r.Context().Err() == nil {
		c.complain(what, err)
	}
	c.refuseWith(p)
}
