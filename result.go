package shunt

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/store"
)

// waitEvery is how often a Wait looks for what it may have missed.
const waitEvery = 5 * time.Second

// Wait returns when the message with that id is over, and says what became of it; at once if that is kept already. It is told by the
// server, over the Queue's subscription, and does not poll. ctx alone bounds it, and Close. What somebody waits for is kept for 10 s at least.
// ErrNotFound: there is no such message; ErrNotKept: its end was missed, because the connection was away for longer, and nothing is kept of it.
func (q *Queue) Wait(ctx context.Context, channel, id string) (Outcome, error) {
	if err := checkID(id); err != nil {
		return Outcome{}, err
	}
	if err := store.CheckChannel(channel); err != nil {
		return Outcome{}, err
	}
	if err := q.open(ctx); err != nil {
		return Outcome{}, err
	}
	k := store.KeysOf(channel)
	told, look := make(chan Status, 16), make(chan struct{}, 1)
	if err := q.begin(); err != nil {
		return Outcome{}, err
	}
	hints, listens := q.serverOf(channel).Hints, false
	l := hints.Listen(k.Done, func(payload string) {
		if s, ok := published(payload, id); ok {
			select {
			case told <- s:
			default:
			}
		}
	}, func(listening bool) { // from one goroutine
		if listening && !listens {
			select {
			case look <- struct{}{}:
			default:
			}
		}
		listens = listening // each new Wait of the channel has it confirmed to all
	})
	defer q.waits.Done()
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		hints.Forget(ctx, l)
	}()
	serial := "" // of the one that is waited for
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case s := <-told:
			if serial == "" || s.Serial == serial {
				return s.Outcome, nil
			}
			continue
		case <-look:
		case <-timer.C:
		case <-q.over:
			return Outcome{}, fmt.Errorf("shunt: wait for %q on %q: %w", id, channel, ErrClosed)
		case <-ctx.Done():
			return Outcome{}, fmt.Errorf("shunt: wait for %q on %q: %w", id, channel, context.Cause(ctx))
		}
		timer.Reset(link.Jitter(waitEvery))
		v, err := q.query(ctx, channel, func(c *link.Call) { c.AddScript(store.Wait, 4, k.Receivers, k.IDs, k.Done, k.Waited, id) })
		if err != nil {
			if link.Classify(err) != link.NotExecuted && link.Classify(err) != link.Unknown || errors.Is(err, ErrClosed) {
				return Outcome{}, err
			}
			timer.Reset(link.Jitter(waitEvery / 10))
			continue // Redis is away
		}
		vs, _ := redis.Values(v, nil)
		if len(vs) == 0 {
			return Outcome{}, fmt.Errorf("shunt: wait for %q on %q: Redis answered %v", id, channel, v)
		}
		lives, _ := redis.Int(vs[0], nil)
		var found Status // the one that lives, or whose end is kept
		if len(vs) > 1 {
			raw, _ := vs[1].([]byte)
			found = ended(id, raw)
		}
		switch same := serial == "" || serial == found.Serial; {
		case lives == 1 && same:
			serial = found.Serial
		case found.Serial != "" && same:
			return found.Outcome, nil
		case serial == "":
			return Outcome{}, fmt.Errorf("shunt: wait for %q on %q: %w", id, channel, ErrNotFound)
		default:
			select { // told just now
			case s := <-told:
				if s.Serial == serial {
					return s.Outcome, nil
				}
			default:
			}
			return Outcome{}, fmt.Errorf("shunt: wait for %q on %q: %w", id, channel, ErrNotKept)
		}
	}
}

// published reads what is told of a message's end: bytes of its id, the id, and what would be kept.
func published(payload, id string) (Status, bool) {
	n, rest, _ := strings.Cut(payload, " ")
	length, err := strconv.Atoi(n)
	if err != nil || length != len(id) || !strings.HasPrefix(rest, id) {
		return Status{}, false
	}
	return ended(id, []byte(rest[length:])), true
}
