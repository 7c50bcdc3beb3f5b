package shunt

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/shuntmq/shunt/internal/link"
)

// moving are the commands by which messages come, move and go. What idle receivers send again and again is not among
// them: ZADD, ZREM and waits.
var moving = []string{"lpush", "rpush", "rpoplpush", "lmove", "lpop", "rpop", "lrem", "ltrim", "rename", "del",
	"unlink", "flushdb", "flushall", "publish"}

// Moves is a number that is another one when messages have moved meanwhile, in whichever channel of this Redis: a
// screen that shows them need not look while it stays. It is one INFO, however many channels there are. Commands of
// other programs change it, too. What is deleted from dead or delay does not, nor a delayed message that is not the
// first to come due: so look once in a while all the same.
func (q *Queue) Moves(ctx context.Context) (n int64, err error) {
	replies, _, err := asker{q: q}.Ask(ctx, "", func(c *link.Call) { c.Add("INFO", "commandstats") })
	if err != nil {
		return 0, err
	}
	info, _ := replies[0].Any().([]byte)
	stats := parseInfo(string(info))
	for _, command := range moving {
		calls, _, _ := strings.Cut(strings.TrimPrefix(stats["cmdstat_"+command], "calls="), ",")
		one, _ := strconv.ParseInt(calls, 10, 64)
		n += one
	}
	if len(stats) == 0 {
		return 0, errors.New("shunt: this Redis does not tell which commands it has run: look without Moves")
	}
	return n, nil
}
