package store

import (
	"context"
	"fmt"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/oklog/ulid/v2"

	"github.com/shuntmq/shunt/internal/link"
)

// seekSome is how many elements one script looks through for one.
const seekSome = 1000

// Sought is what a search is for: an identity (see element.Identity), or an id.
type Sought struct {
	Identity string
	ID       string // where Identity is empty
	At       time.Time
}

// RunSeek looks for one message in a list, or a set, of the channel; nil: it is not there. Where At is set the
// element's score is known, and only those of that score are looked at.
func RunSeek(ctx context.Context, a Asker, k *Keys, key string, set bool, s Sought) (*Scored, error) {
	kind, by, what, score := "list", "serial", s.Identity, ""
	if set {
		kind = "set"
	}
	if what == "" {
		by, what = "id", s.ID
	}
	if set && !s.At.IsZero() {
		score = fmt.Sprint(s.At.UnixMilli())
	}
	for from := 0; ; {
		v, err := askOne(ctx, a, k.Name, func(c *link.Call) {
			c.AddScript(Seek, 1, key, kind, by, []byte(what), from, seekSome, score)
		})
		vs, err := redis.Values(v, err)
		if err != nil || len(vs) == 0 {
			return nil, err
		}
		if len(vs) == 3 {
			ms, _ := redis.Float64(vs[2], nil)
			return &Scored{Raw: bytesOf(vs[1]), At: time.UnixMilli(int64(ms))}, nil
		}
		looked, _ := redis.Int(vs[0], nil)
		if looked == 0 {
			return nil, nil
		}
		from += looked
	}
}

// Length is how many elements a list or a set of the channel has.
func Length(ctx context.Context, a Asker, k *Keys, key string, set bool) (int, error) {
	command := "LLEN"
	if set {
		command = "ZCARD"
	}
	v, err := askOne(ctx, a, k.Name, func(c *link.Call) { c.Add(command, key) })
	return redis.Int(v, err)
}

// AddDead puts elements into dead with the times at which they died, and counts those that were not there. Where a
// reply was lost, those that the first command has put there are not counted.
func AddDead(ctx context.Context, a Asker, k *Keys, dead []Scored) (int, error) {
	args := []any{k.Dead, "NX"}
	for _, d := range dead {
		args = append(args, d.At.UnixMilli(), d.Raw)
	}
	v, err := askOne(ctx, a, k.Name, func(c *link.Call) { c.Add("ZADD", args...) })
	return redis.Int(v, err)
}

// Waiting is an element that waits in a list or a set.
type Waiting struct {
	Raw    []byte
	ID     string
	Serial ulid.ULID // zero of a bare one
}

// CancelSome cancels elements of a list, from the end that is taken next or from the other one, or of a set, in one
// pipeline, and says of each whether it was there, and whether Redis has it no more: else who meets it drops it. After
// an error it may have cancelled any. twice: it was sent again, and what the first time did is not known.
func CancelSome(
	ctx context.Context, a Asker, k *Keys, key string, set, nextFirst bool, all []Waiting, b *Bounds,
) (ended, gone []bool, twice bool, err error) {
	if len(all) == 0 {
		return nil, nil, false, nil
	}
	side := 1
	if nextFirst {
		side = -1
	}
	replies, twice, err := a.Ask(ctx, k.Name, func(c *link.Call) {
		for i := range all {
			switch w := &all[i]; {
			case w.ID != "" && w.Serial != ulid.ULID{}:
				AddCancel(c, k, w.ID, w.Serial, b)
			case set:
				c.Add("ZREM", key, w.Raw)
			default:
				c.Add("LREM", key, side, w.Raw)
			}
		}
	})
	if err != nil {
		return nil, nil, twice, err
	}
	ended, gone = make([]bool, len(all)), make([]bool, len(all))
	for i := range all {
		if all[i].ID != "" {
			a := CancelReply(replies[i].Any())
			ended[i], gone[i] = a.Found, a.Gone
		} else {
			n, _ := redis.Int(replies[i].Any(), nil)
			ended[i], gone[i] = n > 0, n > 0
		}
	}
	return ended, gone, twice, nil
}

// Hastened is a delayed element, and its id where it has one.
type Hastened struct {
	Raw []byte
	ID  string
}

// RunHasten moves delayed elements to prepare, those that are still there, and counts them. twice: it was sent again,
// and counts only what the first time has left.
func RunHasten(ctx context.Context, a Asker, k *Keys, delayed []Hastened) (n int, twice bool, err error) {
	args := []any{k.Receivers, k.Delay, k.Prepare, k.IDs}
	for _, d := range delayed {
		args = append(args, d.Raw, d.ID)
	}
	return askCount(ctx, a, k.Name, func(c *link.Call) { c.AddScript(Hasten, 4, args...) })
}

// Remove removes one element that waits in a list, or a set, of the channel, and says whether it was there. Its id, if
// it has one, stays as it is. twice: it was sent again, so that the first may have removed it.
func Remove(ctx context.Context, a Asker, k *Keys, key string, set bool, raw []byte) (removed, twice bool, err error) {
	replies, twice, err := a.Ask(ctx, k.Name, func(c *link.Call) {
		if set {
			c.Add("ZREM", key, raw)
		} else {
			c.Add("LREM", key, 1, raw)
		}
	})
	if err != nil {
		return false, twice, err
	}
	n, err := redis.Int(replies[0].Any(), nil)
	return n > 0, twice, err
}

// CancelHint publishes that a message without an id is to be cancelled, to whichever worker handles it. heard: somebody
// listens.
func CancelHint(ctx context.Context, a Asker, k *Keys, serial ulid.ULID) (heard bool, err error) {
	v, err := askOne(ctx, a, k.Name, func(c *link.Call) {
		c.Add("PUBLISH", k.Delay, append([]byte(cancelWord+" "), serial[:]...))
	})
	n, err := redis.Int(v, err)
	return n > 0, err
}

// RunDrop forgets what was kept of a message that is over, and frees its id. It says whether something was kept.
func RunDrop(ctx context.Context, a Asker, k *Keys, id string, serial ulid.ULID) (bool, error) {
	v, err := askOne(ctx, a, k.Name, func(c *link.Call) { c.AddScript(Drop, 3, k.IDs, k.Done, k.Kept, id, serial[:]) })
	n, err := redis.Int(v, err)
	return n == 1, err
}
