package store

import (
	"context"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/oklog/ulid/v2"

	"github.com/shuntmq/shunt/internal/link"
)

// askOne asks one question, of one command.
func askOne(ctx context.Context, a Asker, channel string, fill func(*link.Call)) (reply any, err error) {
	replies, _, err := a.Ask(ctx, channel, fill)
	if err != nil {
		return nil, err
	}
	return replies[0].Any(), nil
}

// askCount asks one question to which a number is the answer. twice: it was sent again.
func askCount(ctx context.Context, a Asker, channel string, fill func(*link.Call)) (n int, twice bool, err error) {
	replies, twice, err := a.Ask(ctx, channel, fill)
	if err != nil {
		return 0, twice, err
	}
	n, err = redis.Int(replies[0].Any(), nil)
	return n, twice, err
}

// askAll asks several questions in one pipeline.
func askAll(ctx context.Context, a Asker, channel string, fill func(*link.Call)) ([]any, error) {
	replies, _, err := a.Ask(ctx, channel, fill)
	if err != nil {
		return nil, err
	}
	all := make([]any, len(replies))
	for i, r := range replies {
		all[i] = r.Any()
	}
	return all, nil
}

// ListPage gives n elements of a list from its taking end, after offset others, the one to be taken next first. n < 0:
// all.
func ListPage(ctx context.Context, a Asker, k *Keys, list string, offset, n int) ([][]byte, error) {
	from := 0
	if n >= 0 {
		from = -offset - n
	}
	v, err := askOne(ctx, a, k.Name, func(c *link.Call) { c.Add("LRANGE", list, from, -1-offset) })
	if err != nil || n == 0 {
		return nil, err
	}
	return reversed(v), nil
}

// reversed are the elements of a reply, the last one first.
func reversed(v any) [][]byte {
	vs, _ := redis.Values(v, nil)
	var all [][]byte
	for i := len(vs) - 1; i >= 0; i-- {
		if raw, ok := vs[i].([]byte); ok {
			all = append(all, raw)
		}
	}
	return all
}

// SetPage gives n elements of a set with their scores, after offset others: the earliest first, or the latest. n < 0:
// all.
func SetPage(ctx context.Context, a Asker, k *Keys, set string, latest bool, offset, n int) ([]Scored, error) {
	command, last := "ZRANGE", -1
	if latest {
		command = "ZREVRANGE"
	}
	if n >= 0 {
		last = offset + n - 1
	}
	v, err := askOne(ctx, a, k.Name, func(c *link.Call) { c.Add(command, set, offset, last, "WITHSCORES") })
	if err != nil || n == 0 {
		return nil, err
	}
	return allScored(v), nil
}

func allScored(v any) []Scored {
	vs, _ := redis.Values(v, nil)
	var all []Scored
	for i := 0; i+1 < len(vs); i += 2 {
		raw, ok := vs[i].([]byte)
		if !ok {
			continue
		}
		ms, _ := redis.Float64(vs[i+1], nil)
		all = append(all, Scored{Raw: raw, At: time.UnixMilli(int64(ms))})
	}
	return all
}

// HeldBy gives the elements in each doing list of an incarnation that lie within a Span, the oldest first.
func HeldBy(ctx context.Context, a Asker, k *Keys, i Incarnation, s *Span) ([][][]byte, error) {
	return s.of(ctx, a, k, k.AllDoing(i))
}

// WereCancelled says of each serial whether its message was cancelled, and has not left its list yet.
func WereCancelled(ctx context.Context, a Asker, k *Keys, serials []ulid.ULID) ([]bool, error) {
	vs, err := askAll(ctx, a, k.Name, func(c *link.Call) {
		for _, s := range serials {
			c.Add("SISMEMBER", k.Cancelled, s[:])
		}
	})
	all := make([]bool, len(vs))
	for i, v := range vs {
		all[i] = v == int64(1)
	}
	return all, err
}

// Kept is an outcome that is kept.
type Kept struct {
	ID string
	Outcome
}

// DonePage gives n outcomes that are kept, after offset others, the latest end first. n < 0: all. One that is forgotten
// meanwhile is left out.
func DonePage(ctx context.Context, a Asker, k *Keys, offset, n int) ([]Kept, error) {
	v, err := askOne(ctx, a, k.Name, func(c *link.Call) { AddDonePage(c, k, offset, n) })
	if err != nil {
		return nil, err
	}
	ids, err := DonePageReply(v)
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	vs, err := askAll(ctx, a, k.Name, func(c *link.Call) {
		for _, id := range ids {
			c.Add("HGET", k.Done, id)
		}
	})
	var all []Kept
	for i, v := range vs {
		if raw, ok := v.([]byte); ok {
			all = append(all, Kept{ids[i], ParseOutcome(raw)})
		}
	}
	return all, err
}

// Channels are the names of all channels that are listed for operators.
func Channels(ctx context.Context, a Asker) ([]string, error) {
	v, err := askOne(ctx, a, "", func(c *link.Call) { c.Add("SMEMBERS", ChannelsKey) })
	return redis.Strings(v, err)
}

// Known is an incarnation that a channel knows.
type Known struct {
	Incarnation
	Alive   bool
	Until   time.Time // end of its lease; of a dead one, its next sweep
	Holding int       // elements in its lists
}

// Receivers are the incarnations that a channel knows, the living first.
func Receivers(ctx context.Context, a Asker, k *Keys) ([]Known, error) {
	vs, err := askAll(ctx, a, k.Name, func(c *link.Call) {
		c.Add("ZRANGE", k.Receivers, 0, -1, "WITHSCORES")
		c.Add("ZRANGE", k.DeadReceivers, 0, -1, "WITHSCORES")
	})
	if err != nil {
		return nil, err
	}
	var all []Known
	for i, v := range vs {
		for _, m := range allScored(v) {
			dead, err := ParseDeadReceiver(string(m.Raw))
			if i == 0 {
				dead.Incarnation, err = ParseIncarnation(string(m.Raw))
			}
			if err != nil {
				return nil, err
			}
			all = append(all, Known{Incarnation: dead.Incarnation, Alive: i == 0, Until: m.At})
		}
	}
	if len(all) == 0 {
		return nil, nil
	}
	vs, err = askAll(ctx, a, k.Name, func(c *link.Call) {
		for _, r := range all {
			for _, l := range k.AllDoing(r.Incarnation) {
				c.Add("LLEN", l)
			}
		}
	})
	if err != nil {
		return nil, err
	}
	for i := range all {
		for range all[i].Workers {
			n, _ := redis.Int(vs[0], nil)
			all[i].Holding += n
			vs = vs[1:]
		}
	}
	return all, nil
}

// Revival is a dead element, and what goes to prepare in its place.
type Revival struct {
	Raw, Next []byte
	ID        string
}

// RunRevive puts dead elements back into prepare, those that are still there and whose id is free, and counts them. A
// repeat counts only what the first time has left. twice: it was sent again.
func RunRevive(ctx context.Context, a Asker, k *Keys, dead []Revival) (n int, twice bool, err error) {
	args := []any{k.Dead, k.Prepare, k.IDs, k.Running}
	for _, d := range dead {
		args = append(args, d.Raw, d.Next, d.ID)
	}
	return askCount(ctx, a, k.Name, func(c *link.Call) { c.AddScript(Revive, 4, args...) })
}

// DeleteDead deletes dead elements, and says of each whether it was there. twice is as RunHasten's.
func DeleteDead(ctx context.Context, a Asker, k *Keys, raws [][]byte) (gone []bool, twice bool, err error) {
	replies, twice, err := a.Ask(ctx, k.Name, func(c *link.Call) {
		for _, raw := range raws {
			c.Add("ZREM", k.Dead)
			c.AddElements(raw)
		}
	})
	if err != nil {
		return nil, twice, err
	}
	gone = make([]bool, len(raws))
	for i, r := range replies {
		gone[i] = r.Any() == int64(1)
	}
	return gone, twice, nil
}

// RunPurge deletes up to n of what waits in a list, or a set, of the channel: see AddPurge.
func RunPurge(
	ctx context.Context, a Asker, k *Keys, key string, set bool, n int, first bool,
) (deleted, left int, err error) {
	v, err := askOne(ctx, a, k.Name, func(c *link.Call) { AddPurge(c, k, key, set, n, first) })
	if err != nil {
		return 0, 0, err
	}
	return PurgeReply(v)
}

// DropDone drops up to n outcomes that are kept, the oldest first. A repeat drops more.
func DropDone(ctx context.Context, a Asker, k *Keys, n int) (deleted, left int, err error) {
	v, err := askOne(ctx, a, k.Name, func(c *link.Call) { AddDropDone(c, k, n) })
	if err != nil {
		return 0, 0, err
	}
	return PurgeReply(v)
}
