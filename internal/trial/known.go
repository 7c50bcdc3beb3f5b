package trial

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/store"
)

// Entered is what Redis still knows of receivers. These are the leases that some receiver has found to be over, which
// Redis keeps for an hour, and the living.
func Entered(do Doer, channels ...string) (es []Entry) {
	now := time.Now()
	for _, c := range channels {
		k := store.KeysOf(c)
		members, _ := redis.Strings(do("ZRANGE", k.DeadReceivers, 0, -1))
		for _, m := range members {
			if dead, err := store.ParseDeadReceiver(m); err == nil && !dead.Superseded {
				ms, _ := strconv.ParseInt(dead.Death, 10, 64)
				es = append(es, Entry{At: time.UnixMilli(ms), By: "redis", Op: judged, Phase: Info, Note: dead.Name})
			}
		}
		living, _ := redis.Strings(do("ZRANGE", k.Receivers, 0, -1))
		for _, name := range living {
			es = append(es, Entry{At: now, By: "redis", Op: remains, Phase: Info, ID: k.Receivers, Note: name})
		}
	}
	return es
}

// IDsLeft is what is still known of IDs, and of what became of their messages if that is to be forgotten, too.
func IDsLeft(do Doer, forgotten bool, channels ...string) (left []Entry) {
	keys := []string{"ids", "running", "cancelled", "waited"}
	if forgotten {
		keys = append(keys, "done", "kept")
	}
	for _, c := range channels {
		for _, key := range keys {
			key = "{" + c + "}." + key
			for _, m := range Members(do, key) {
				if record, err := redis.String(do("HGET", key, m)); err == nil { // it says in which state it is
					m = fmt.Sprintf("%s (%q)", m, record)
				}
				left = append(left, Entry{Op: taken, Phase: Info, ID: key, Note: m})
			}
		}
	}
	return left
}

// Members are the fields or members of a key, whatever its type.
func Members(do Doer, key string) []string {
	kind, err := redis.String(do("TYPE", key))
	var ms []string
	switch {
	case err != nil:
	case kind == "hash":
		ms, err = redis.Strings(do("HKEYS", key))
	case kind == "set":
		ms, err = redis.Strings(do("SMEMBERS", key))
	case kind == "zset":
		ms, err = redis.Strings(do("ZRANGE", key, 0, -1))
	case kind != "none":
		ms = []string{"a " + kind}
	}
	if err != nil {
		return []string{err.Error()}
	}
	return ms
}

// Counts are those of all channels, one after another.
func Counts(ctx context.Context, q *shunt.Queue, channels ...string) (all []shunt.Counts, err error) {
	cs, err := q.Counts(ctx, shunt.CountsOptions{Channels: channels})
	for _, of := range cs {
		all = append(all, of...)
	}
	return all, err
}
