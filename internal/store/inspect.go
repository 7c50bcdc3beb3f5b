package store

import (
	"fmt"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/link"
)

// AddPurge deletes up to n of what waits in a list, or a set, of the channel, and frees the ids. first allows it to delete
// all that is there at once, where no message of the channel has an id. A repeat deletes more.
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
