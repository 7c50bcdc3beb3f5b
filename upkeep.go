package shunt

import (
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/oklog/ulid/v2"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/link"
)

const (
	upkeepEvery = time.Minute
	receiptFor  = 24 * time.Hour // by the producer's clock: the one place where that counts
	upkeepMost  = 1000           // members that one command looks at, more or less
)

// upkeep removes, about once a minute by whoever keeps a channel's time, what faults have left of messages with an id: marks in running that a
// command of a broken connection set late, and receipts that nobody came back for. Neither holds an id or a message.
func (r *receiver) upkeep(in *channel, server time.Time) error {
	if time.Since(in.kept) < upkeepEvery {
		return nil
	}
	in.kept = time.Now()
	pulse := func(fill func(c *link.Call)) ([]any, error) {
		c := link.NewCall()
		fill(c)
		if err := r.s.Pulse.Run(r.PoolCtx, c); err != nil {
			return nil, err
		}
		vs := make([]any, len(c.Replies))
		for i, rep := range c.Replies {
			vs[i] = rep.Any()
		}
		return vs, nil
	}
	vs, err := pulse(func(c *link.Call) { c.Add("EXISTS", in.Running, in.Receipts) })
	if err != nil {
		return err
	}
	if n, _ := redis.Int(vs[0], nil); n == 0 {
		return nil
	}
	vs, err = pulse(func(c *link.Call) {
		c.Add("HSCAN", in.Running, in.marks, "COUNT", upkeepMost)
		c.Add("SSCAN", in.Receipts, in.receipts, "COUNT", upkeepMost)
		c.Add("ZRANGE", in.Receivers, 0, -1)
		c.Add("ZRANGE", in.DeadReceivers, 0, -1)
	})
	if err != nil {
		return err
	}
	known := make(map[string]bool)
	for _, v := range vs[2:] {
		names, _ := redis.Strings(v, nil)
		for _, n := range names {
			name, _, _ := strings.Cut(n, " ") // empty where others have put it there
			known[name] = true
		}
	}
	var marks, old [][]byte
	scan := func(v any, cursor *string) [][]byte {
		page, _ := redis.Values(v, nil)
		if len(page) < 2 {
			return nil
		}
		*cursor, _ = redis.String(page[0], nil)
		members, _ := redis.ByteSlices(page[1], nil)
		return members
	}
	held := scan(vs[0], &in.marks)
	for i := 0; i+1 < len(held); i += 2 {
		if name, _, _ := strings.Cut(string(held[i+1]), "/"); !known[name] {
			marks = append(marks, held[i])
		}
	}
	for _, receipt := range scan(vs[1], &in.receipts) {
		serial := receipt[max(0, len(receipt)-len(ulid.ULID{})):]
		if len(serial) != len(ulid.ULID{}) || server.Sub(element.EnqueuedAt(ulid.ULID(serial))).Abs() > receiptFor {
			old = append(old, receipt)
		}
	}
	if len(marks)+len(old) == 0 {
		return nil
	}
	_, err = pulse(func(c *link.Call) {
		if len(marks) > 0 {
			c.Add("HDEL", in.Running)
			c.AddElements(marks...)
		}
		if len(old) > 0 {
			c.Add("SREM", in.Receipts)
			c.AddElements(old...)
		}
	})
	return err
}
