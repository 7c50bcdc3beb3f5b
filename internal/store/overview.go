package store

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/link"
)

// Overview is a channel at a glance.
type Overview struct {
	Now                                 time.Time
	Prepare, Suspect, Delay, Dead, Done int
	Leases                              int       // not the messages that they hold
	Next                                time.Time // when what is taken next was enqueued, or due; zero: nobody knows
	DueIn, LapseIn                      time.Duration
	Due, Leased                         bool // whether there is one
	Receivers, Workers, DeadReceivers   int
}

// AddOverview asks for the overview of a channel; OverviewReply reads the reply.
func AddOverview(c *link.Call, k *Keys) {
	c.AddScript(Glance, 8, k.Prepare, k.Suspect, k.Delay, k.Dead, k.Kept, k.Leased, k.Receivers, k.DeadReceivers)
}

const overviewFixed = 12

// OverviewReply reads what AddOverview came to.
func OverviewReply(rep link.Reply) (o Overview, err error) {
	vs, err := redis.Values(rep.Any(), rep.Err)
	if err != nil {
		return o, err
	}
	if len(vs) < overviewFixed {
		return o, errors.New("the overview is cut off")
	}
	for i, n := range []*int{&o.Prepare, &o.Suspect, &o.Delay, &o.Dead, &o.Done, &o.Leases, &o.DeadReceivers} {
		if *n, err = redis.Int(vs[1+i], nil); err != nil {
			return o, err
		}
	}
	text := func(i int) string { b, _ := vs[i].([]byte); return string(b) }
	ms, err := strconv.ParseInt(text(0), 10, 64)
	if err != nil {
		return o, err
	}
	o.Now = time.UnixMilli(ms)
	for _, i := range []int{8, 9} { // of the two that may be next the older one
		head := text(i)
		at, has := element.EnqueuedIn([]byte(head))
		if !has {
			continue
		}
		if due, _ := strconv.ParseInt(strings.TrimPrefix(head[20:], " "), 10, 64); due > at.UnixMilli() {
			at = time.UnixMilli(due)
		}
		if o.Next.IsZero() || at.Before(o.Next) {
			o.Next = at
		}
	}
	o.DueIn, o.Due = aheadOf(vs[10])
	o.LapseIn, o.Leased = aheadOf(vs[11])
	for _, v := range vs[overviewFixed:] {
		name, _ := redis.String(v, nil)
		if i, err := ParseIncarnation(name); err == nil {
			o.Receivers++
			o.Workers += i.Workers
		}
	}
	return o, nil
}
