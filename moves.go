package shunt

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/shuntmq/shunt/internal/link"
)

// moving are the commands by which messages come, move and go, receivers start and end, and operators act. What idle
// receivers send again and again is not among them, as waits and ZREM.
var moving = []string{"lpush", "rpush", "rpoplpush", "lmove", "lpop", "rpop", "lrem", "ltrim", "rename", "del",
	"unlink", "flushdb", "flushall", "publish", "sadd", "srem", "hsetnx", "hdel", "xadd", "zremrangebyrank"}

// Moves is a number that is another one when messages have moved meanwhile, in whichever channel of this Redis, or
// receivers have started or ended: a screen that shows them need not look while it stays. It is one INFO, however many
// channels there are. Commands of other programs change it, too. That a receiver was killed does not, unless another
// one of its channel finds it, nor do dead letters and delayed messages that a program deletes by a Filter, or by
// DeleteDead: so look once in a while all the same.
func (q *Queue) Moves(ctx context.Context) (n int64, err error) {
	replies, _, err := asker{q: q}.Ask(ctx, "", func(c *link.Call) { c.Add("INFO", "commandstats") })
	if err != nil {
		return 0, err
	}
	info, _ := replies[0].Any().([]byte)
	stats := parseInfo(string(info))
	calls := func(command string) int64 {
		text, _, _ := strings.Cut(strings.TrimPrefix(stats["cmdstat_"+command], "calls="), ",")
		n, _ := strconv.ParseInt(text, 10, 64)
		return n
	}
	for _, command := range moving {
		n += calls(command)
	}
	// A beat has a ZSCORE with its ZADD; what puts a message into delay or dead, or enters a receiver, has none. The
	// beat of a receiver that is gone has only the first: it must not hide its end.
	n = n<<20 + calls("zadd") - calls("zscore")
	if len(stats) == 0 {
		return 0, errors.New("shunt: this Redis does not tell which commands it has run: look without Moves")
	}
	return n, nil
}
