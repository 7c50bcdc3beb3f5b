package shunttest

import (
	"github.com/alicebob/miniredis/v2"
	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/store"
)

// carry copies messages from the stage's Redis to the Queue's: those that were enqueued in one step with the verdict.
// self is the serial of the message that was handled, which stays.
func (q *Queue) carry(stage *miniredis.Miniredis, pool *redis.Pool, self string) error {
	for _, channel := range channelsOf(stage) {
		if err := store.Copy(q.pool, pool, store.KeysOf(channel), self); err != nil {
			return err
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
