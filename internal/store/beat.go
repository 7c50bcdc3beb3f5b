package store

import (
	"fmt"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/link"
)

// BeatAnswer is the reply to a beat.
type BeatAnswer struct {
	Alive bool      // the entry is among the receivers; a beat never brings back one that is gone
	Now   time.Time // by the server's clock

	// Earliest is how long until the earliest entry of the channel runs out, negative if one has. It counts only where
	// there is one.
	Earliest time.Duration
	Others   bool
}

// AddBeat extends an incarnation's entry by its term. It may be sent again.
func AddBeat(c *link.Call, k *Keys, i Incarnation) {
	c.AddScript(Beat, 1, k.Receivers, i.Name, i.Term().Milliseconds())
}

// BeatReply reads the reply to AddBeat.
func BeatReply(rep link.Reply) (b BeatAnswer, err error) {
	ns, err := redis.Int64s(rep.Value, rep.Err)
	if err == nil && len(ns) < 2 {
		err = fmt.Errorf("shunt: beat answered %v", rep.Value)
	}
	if err != nil {
		return b, err
	}
	b.Alive, b.Now = ns[0] == 1, time.UnixMilli(ns[1])
	if len(ns) > 2 {
		b.Others, b.Earliest = true, bounded(ns[2], time.Millisecond)
	}
	return b, nil
}
