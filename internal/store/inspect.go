package store

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/link"
)

// AddPurge deletes up to n of the messages in a list, or a set, of the channel, and frees the ids. first allows it to
// delete all of them at once, where no message of the channel has an id. A repeat deletes more.
func AddPurge(c *link.Call, k *Keys, key string, set bool, n int, first bool) {
	kind, all := "list", 0
	if set {
		kind = "set"
	}
	if first {
		all = 1
	}
	c.AddScript(Purge, 4, key, k.IDs, k.Cancelled, k.Waited, kind, n, all)
}

// PurgeReply reads the reply to AddPurge: how many were deleted, and how many are left.
func PurgeReply(v any) (deleted, left int, err error) {
	ns, err := redis.Ints(v, nil)
	if err != nil || len(ns) < 2 {
		return 0, 0, fmt.Errorf("shunt: purge answered %v", v)
	}
	return ns[0], ns[1], nil
}

// AddDonePage asks for the ids of n outcomes that are kept, the latest end first; n < 0: all.
func AddDonePage(c *link.Call, k *Keys, offset, n int) {
	c.Add("ZRANGEBYSCORE", k.Kept, "-inf", "(0", "LIMIT", offset, n)
}

// DonePageReply reads the reply to AddDonePage.
func DonePageReply(v any) (ids []string, err error) {
	members, err := redis.Strings(v, nil)
	for _, m := range members {
		if id, is := strings.CutPrefix(m, "e"); is {
			ids = append(ids, id)
		}
	}
	return ids, err
}

// AddDropDone drops up to n outcomes that are kept, the oldest first; PurgeReply reads the reply. A repeat drops more.
func AddDropDone(c *link.Call, k *Keys, n int) { c.AddScript(Forget, 2, k.Done, k.Kept, n) }

// WrongKey names the first key of the channel that holds a value of another type, with the server's error. It gives
// nothing where none is wrong, where Redis is away, and of keys that this user may not read.
func WrongKey(ctx context.Context, l *link.Link, k *Keys) (key string, err error) {
	var keys []string
	c := link.NewCall()
	look := func(command string, of ...string) {
		for _, key := range of {
			c.Add(command, key)
		}
		keys = append(keys, of...)
	}
	look("LLEN", k.Prepare, k.Suspect)
	look("ZCARD", k.Delay, k.Dead, k.Leased, k.Receivers, k.DeadReceivers, k.Kept)
	look("HLEN", k.Keeper, k.IDs, k.Running, k.Done, k.Recur, k.Counts)
	look("SCARD", k.Cancelled, k.Waited, k.Receipts)
	if err := l.Do(ctx, c); err != nil {
		return "", nil
	}
	for i, r := range c.Replies {
		if link.Code(r.Err) == "WRONGTYPE" {
			return keys[i], r.Err
		}
	}
	return "", nil
}

// Scored is an element with its score in a set, ms since 1970.
type Scored struct {
	Raw []byte
	At  time.Time
}

// Counts are how many messages a channel has in each state but doing, and which come first.
type Counts struct {
	Now                                 time.Time // by the server's clock
	Prepare, Suspect, Delay, Dead, Done int
	NextPrepare, NextSuspect            []byte // to be taken next; nil: none
	FirstDelay, FirstDead               *Scored
	FirstDone                           time.Time // when the oldest outcome ended; zero: none
	Cancelled                           int       // that are no worker's, and wait to be dropped
}

// maxCancelled is how many cancelled messages are asked for whether a worker has them.
const maxCancelled = 1000

// Count asks for the counts of a channel. They are not of one moment.
func Count(ctx context.Context, a Asker, k *Keys) (n Counts, err error) {
	vs, err := askAll(ctx, a, k.Name, func(c *link.Call) {
		c.Add("TIME")
		c.Add("LLEN", k.Prepare)
		c.Add("LINDEX", k.Prepare, -1)
		c.Add("LLEN", k.Suspect)
		c.Add("LINDEX", k.Suspect, -1)
		c.Add("ZCARD", k.Delay)
		c.Add("ZRANGE", k.Delay, 0, 0, "WITHSCORES")
		c.Add("ZCARD", k.Dead)
		c.Add("ZRANGE", k.Dead, 0, 0, "WITHSCORES")
		c.Add("SCARD", k.Cancelled)
		c.Add("ZCOUNT", k.Kept, "-inf", "(0")
	})
	if err != nil {
		return n, err
	}
	number := func(i int) int { v, _ := redis.Int(vs[i], nil); return v }
	n = Counts{
		Now: ServerTime(vs[0]), Prepare: number(1), Suspect: number(3), Delay: number(5), Dead: number(7),
		Done:       number(10),
		FirstDelay: firstScored(vs[6]), FirstDead: firstScored(vs[8]), Cancelled: number(9),
	}
	n.NextPrepare, _ = vs[2].([]byte)
	n.NextSuspect, _ = vs[4].([]byte)
	if n.Done > 0 {
		vs, err = askAll(ctx, a, k.Name,
			func(c *link.Call) { c.Add("ZRANGE", k.Kept, n.Done-1, n.Done-1, "WITHSCORES") })
		if err != nil {
			return n, err
		}
		if first := firstScored(vs[0]); first != nil && first.At.UnixMilli() < 0 {
			n.FirstDone = time.UnixMilli(-first.At.UnixMilli())
		}
	}
	if n.Cancelled == 0 || n.Cancelled > maxCancelled {
		return n, nil
	}
	vs, err = askAll(ctx, a, k.Name, func(c *link.Call) { c.Add("SMEMBERS", k.Cancelled) })
	if err != nil {
		return n, err
	}
	serials, _ := redis.ByteSlices(vs[0], nil)
	if len(serials) == 0 {
		return n, nil
	}
	vs, err = askAll(ctx, a, k.Name, func(c *link.Call) {
		c.Add("HMGET", k.Running)
		c.AddElements(serials...)
	})
	if err != nil {
		return n, err
	}
	held, _ := redis.Values(vs[0], nil)
	for _, holder := range held {
		if holder != nil {
			n.Cancelled--
		}
	}
	return n, nil
}

func firstScored(v any) *Scored {
	vs, _ := redis.Values(v, nil)
	if len(vs) < 2 {
		return nil
	}
	raw, _ := vs[0].([]byte)
	score, _ := redis.Float64(vs[1], nil)
	return &Scored{Raw: raw, At: time.UnixMilli(int64(score))}
}

// AddClock adds the question for the server's time; ServerTime reads the reply.
func AddClock(c *link.Call) { c.Add("TIME") }

// ServerTime reads the reply to TIME.
func ServerTime(v any) time.Time {
	t, _ := redis.Int64s(v, nil)
	if len(t) < 2 {
		return time.Now()
	}
	return time.Unix(t[0], t[1]*1000)
}

// Clock asks for the server's time.
func Clock(ctx context.Context, l *link.Link) (time.Time, error) {
	c := link.NewCall()
	AddClock(c)
	err := l.Run(ctx, c)
	if err != nil {
		return time.Time{}, err
	}
	return ServerTime(c.Replies[0].Value), nil
}
