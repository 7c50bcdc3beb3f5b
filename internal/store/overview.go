package store

import (
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/link"
)

// Overview is a channel at a glance. Its numbers are not of one moment.
type Overview struct {
	Prepare, Suspect, Delay, Dead, Done int
	Leases                              int    // not the messages that they hold
	Next                                []byte // to be taken next; nil: none
	FirstDelay, FirstLease              *Scored
	Receivers, Workers, DeadReceivers   int
}

// overviewCommands is how many commands AddOverview adds.
const overviewCommands = 11

// AddOverview asks for the overview of a channel; OverviewReply reads the replies to its commands.
func AddOverview(c *link.Call, k *Keys) {
	c.Add("LLEN", k.Prepare)
	c.Add("LINDEX", k.Prepare, -1)
	c.Add("LLEN", k.Suspect)
	c.Add("ZCARD", k.Delay)
	c.Add("ZRANGE", k.Delay, 0, 0, "WITHSCORES")
	c.Add("ZCARD", k.Dead)
	c.Add("ZCOUNT", k.Kept, "-inf", "(0")
	c.Add("ZCARD", k.Leased)
	c.Add("ZRANGE", k.Leased, 0, 0, "WITHSCORES")
	c.Add("ZRANGE", k.Receivers, 0, -1)
	c.Add("ZCARD", k.DeadReceivers)
}

// OverviewReply takes in the replies for one channel, and gives those that are left.
func OverviewReply(replies []link.Reply) (o Overview, left []link.Reply, err error) {
	replies, left = replies[:overviewCommands], replies[overviewCommands:]
	for _, r := range replies {
		if r.Err != nil {
			return o, left, r.Err
		}
	}
	number := func(i int) int { n, _ := redis.Int(replies[i].Any(), nil); return n }
	o = Overview{
		Prepare: number(0), Suspect: number(2), Delay: number(3), Dead: number(5), Done: number(6), Leases: number(7),
		DeadReceivers: number(10), FirstDelay: firstScored(replies[4].Any()), FirstLease: firstScored(replies[8].Any()),
	}
	o.Next, _ = replies[1].Any().([]byte)
	names, _ := redis.Strings(replies[9].Any(), nil)
	for _, name := range names {
		if i, err := ParseIncarnation(name); err == nil {
			o.Receivers++
			o.Workers += i.Workers
		}
	}
	return o, left, nil
}

// Since is how long ago a score was, by the server's clock; negative where it is ahead, 0 where there is none.
func (s *Scored) Since(now time.Time) time.Duration {
	if s == nil {
		return 0
	}
	return now.Sub(s.At)
}
