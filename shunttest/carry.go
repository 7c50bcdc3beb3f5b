package shunttest

import (
	"slices"
	"strconv"

	"github.com/alicebob/miniredis/v2"
	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/store"
)

// carry copies messages from the stage's Redis to the Queue's: those that were enqueued in one step with the verdict.
// self is the serial of the message that was handled, which stays.
func (q *Queue) carry(stage *miniredis.Miniredis, pool *redis.Pool, self string) error {
	from, to := pool.Get(), q.pool.Get()
	defer from.Close()
	defer to.Close()
	for _, channel := range channelsOf(stage) {
		k := store.KeysOf(channel)
		ready, err := redis.Strings(from.Do("LRANGE", k.Prepare, 0, -1))
		if err != nil {
			return err
		}
		for _, raw := range slices.Backward(ready) { // the one to be taken next is the last
			if !isOf(self, raw) {
				if _, err := to.Do("LPUSH", k.Prepare, raw); err != nil {
					return err
				}
			}
		}
		later, err := dues(pool, channel)
		if err != nil {
			return err
		}
		for raw, due := range later {
			if !isOf(self, raw) {
				if _, err := to.Do("ZADD", k.Delay, strconv.FormatInt(int64(due), 10), raw); err != nil {
					return err
				}
			}
		}
	}
	return copyIDs(q.pool, pool, channelsOf(stage))
}

// copyIDs copies the records of the ids that are taken, except those that the target has.
func copyIDs(to, from *redis.Pool, channels []string) error {
	source, target := from.Get(), to.Get()
	defer source.Close()
	defer target.Close()
	for _, channel := range channels {
		k := store.KeysOf(channel)
		ids, err := redis.StringMap(source.Do("HGETALL", k.IDs))
		if err != nil {
			return err
		}
		for id, record := range ids {
			if _, err := target.Do("HSETNX", k.IDs, id, record); err != nil {
				return err
			}
		}
	}
	return nil
}

// without is all less some. Bare payloads have no serial, so they are compared by their bytes and number.
func without(all, some []Enqueue) (rest []Enqueue) {
	id := func(d *Enqueue) string { return d.Channel + " " + d.Serial + " " + string(d.Payload) }
	known := make(map[string]int)
	for i := range some {
		known[id(&some[i])]++
	}
	for i := range all {
		if k := id(&all[i]); known[k] > 0 {
			known[k]--
		} else {
			rest = append(rest, all[i])
		}
	}
	return rest
}
