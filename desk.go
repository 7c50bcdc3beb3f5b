package shunt

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/lists"
)

// State is where in a channel a message is; its text is the key's suffix.
type State string

const (
	Prepare State = "prepare" // ready to be taken
	Doing   State = "doing"   // in a worker's hands, or a dead one's
	Delay   State = "delay"   // due later: delivered so, or to be tried again
	Suspect State = "suspect" // held by dying processes twice or more; taken one at a time a receiver
	Dead    State = "dead"    // given up on
	Done    State = "done"    // over, and kept as Retain asked
)

// States are all of them, in the order in which a message may meet them.
var States = []State{Prepare, Doing, Delay, Suspect, Dead, Done}

// StateStats counts a channel's messages in one state.
type StateStats struct {
	Count int
	// Oldest is how long ago the oldest was delivered; for Dead, how long ago it died; for Delay, how long the first is overdue, negative
	// while it is not due. For Prepare and Suspect it is that of the message to be taken next. Zero where there is none or it is a bare
	// payload.
	Oldest time.Duration
}

// Stats are a channel's, by state.
type Stats map[State]StateStats

// Entry is one message as it lies in Redis.
type Entry struct {
	Serial     string // empty for a bare payload
	ID         string
	Payload    []byte
	Headers    map[string]string
	Attempts   int
	Recoveries int
	Failure    string    // of the last attempt
	Delivered  time.Time // by the deliverer's clock; zero for a bare payload
	At         time.Time // Delay: due; Dead: died; Done: ended; by the server's clock
	Receiver   string    // Doing: the incarnation that holds it
	Worker     int       // Doing
	Outcome    Outcome   // Done, which has no payload

	channel string
	raw     []byte
}

// Receiver is an incarnation that is known to a channel.
type Receiver struct {
	Name    string
	Workers int
	Lease   time.Duration
	Alive   bool
	Until   time.Time // end of its term; for a dead one, when it is looked at next
	Holding int       // messages in its lists
}

// Channels lists all channels that were ever delivered to or received from, sorted; an operator may remove one with
// SREM shunt.channels.
func (q *Queue) Channels(ctx context.Context) ([]string, error) {
	names, err := redis.Strings(q.look(ctx, "", func(c *link.Call) { c.Add("SMEMBERS", lists.ChannelsKey) }))
	slices.Sort(names)
	return names, err
}

// look sends one command for an operator.
func (q *Queue) look(ctx context.Context, channel string, fill func(*link.Call)) (any, error) {
	vs, err := q.looks(ctx, channel, fill)
	if err != nil {
		return nil, err
	}
	return vs[0], nil
}

// looks sends commands for an operator in one pipeline; the first error is that of all.
func (q *Queue) looks(ctx context.Context, channel string, fill func(*link.Call)) ([]any, error) {
	return q.sends(ctx, channel, fill, nil)
}

// lookAgain is look; lost says that it was sent twice, because the first reply was lost.
func (q *Queue) lookAgain(ctx context.Context, channel string, fill func(*link.Call)) (v any, lost bool, err error) {
	vs, err := q.sends(ctx, channel, fill, &lost)
	if err != nil {
		return nil, lost, err
	}
	return vs[0], lost, nil
}

func (q *Queue) sends(ctx context.Context, channel string, fill func(*link.Call), lost *bool) ([]any, error) {
	if err := q.open(ctx); err != nil {
		return nil, err
	}
	if channel != "" {
		if err := lists.CheckChannel(channel); err != nil {
			return nil, err
		}
	}
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, q.conf.DeliverTimeout)
		defer cancel()
	}
	for again := false; ; again = true { // whatever an operator sends may be sent again when its outcome is unknown
		c := link.NewCall()
		c.FailFast = true
		fill(c)
		err := q.serverOf(channel).Data.Run(ctx, c)
		if link.Classify(err) == link.Unknown && ctx.Err() == nil && !again {
			if lost != nil {
				*lost = true
			}
			continue
		}
		if err != nil {
			if again { // the first one may have been executed
				err = &link.Error{Class: link.Unknown, Err: err}
			}
			return nil, explain(err, "look at", channel)
		}
		vs := make([]any, len(c.Replies))
		for i, r := range c.Replies {
			vs[i] = r.Any()
		}
		return vs, nil
	}
}

// Receivers lists a channel's receivers, the living first, and what each holds.
func (q *Queue) Receivers(ctx context.Context, channel string) ([]Receiver, error) {
	k := lists.KeysOf(channel)
	vs, err := q.looks(ctx, channel, func(c *link.Call) {
		c.Add("ZRANGE", k.Living, 0, -1, "WITHSCORES")
		c.Add("ZRANGE", k.Gone, 0, -1, "WITHSCORES")
	})
	if err != nil {
		return nil, err
	}
	var rs []Receiver
	var held []any
	for i, v := range vs {
		ms, _ := redis.Strings(v, nil)
		for j := 0; j+1 < len(ms); j += 2 {
			dead, err := lists.ParseCorpse(ms[j])
			if i == 0 {
				dead.Incarnation, err = lists.ParseIncarnation(ms[j])
			}
			if err != nil {
				return nil, err
			}
			until, _ := redis.Int64([]byte(ms[j+1]), nil)
			rs = append(rs, Receiver{Name: dead.Name, Workers: dead.Workers, Lease: dead.Lease, Alive: i == 0, Until: time.UnixMilli(until)})
			held = append(held, k.Doings(dead.Incarnation)...)
		}
	}
	if len(held) == 0 {
		return nil, nil
	}
	vs, err = q.looks(ctx, channel, func(c *link.Call) {
		for _, l := range held {
			c.Add("LLEN", l)
		}
	})
	if err != nil {
		return nil, err
	}
	for i := range rs {
		for range rs[i].Workers {
			n, _ := redis.Int(vs[0], nil)
			rs[i].Holding += n
			vs = vs[1:]
		}
	}
	return rs, nil
}

// Stats counts a channel's messages in every state, and their ages by the server's clock. The counts are not of one moment.
func (q *Queue) Stats(ctx context.Context, channel string) (Stats, error) {
	k := lists.KeysOf(channel)
	vs, err := q.looks(ctx, channel, func(c *link.Call) {
		c.Add("TIME")
		c.Add("LLEN", k.Prepare)
		c.Add("LINDEX", k.Prepare, -1)
		c.Add("LLEN", k.Suspect)
		c.Add("LINDEX", k.Suspect, -1)
		c.Add("ZCARD", k.Delay)
		c.Add("ZRANGE", k.Delay, 0, 0, "WITHSCORES")
		c.Add("ZCARD", k.Dead)
		c.Add("ZRANGE", k.Dead, 0, 0, "WITHSCORES")
		c.Add("SCARD", k.Cancelled)
		c.Add("ZCARD", k.DoneAt)
		c.Add("ZRANGE", k.DoneAt, 0, 0, "WITHSCORES")
	})
	if err != nil {
		return nil, err
	}
	now := serverTime(vs[0])
	count := func(v any) int { n, _ := redis.Int(v, nil); return n }
	scored := func(v any) time.Duration {
		es := entries(channel, v, true)
		if len(es) == 0 {
			return 0
		}
		return now.Sub(es[0].At)
	}
	s := Stats{
		Prepare: {max(0, count(vs[1])-count(vs[9])), oldest(channel, now, vs[2:3])},
		Suspect: {count(vs[3]), oldest(channel, now, vs[4:5])},
		Delay:   {count(vs[5]), scored(vs[6])},
		Dead:    {count(vs[7]), scored(vs[8])},
		Done:    {count(vs[10]), scored(vs[11])},
	}
	held, err := q.List(ctx, channel, Doing, 0, 0)
	if err != nil {
		return nil, err
	}
	var doing StateStats
	for _, e := range held {
		doing.Count++
		if !e.Delivered.IsZero() {
			doing.Oldest = max(doing.Oldest, now.Sub(e.Delivered))
		}
	}
	s[Doing] = doing
	return s, nil
}

func serverTime(v any) time.Time {
	t, _ := redis.Int64s(v, nil)
	if len(t) < 2 {
		return time.Now()
	}
	return time.Unix(t[0], t[1]*1000)
}

// oldest is the age of the oldest of some elements.
func oldest(channel string, now time.Time, elements []any) (age time.Duration) {
	for _, e := range entries(channel, elements, false) {
		if !e.Delivered.IsZero() {
			age = max(age, now.Sub(e.Delivered))
		}
	}
	return age
}

// entries decodes a reply of elements, each followed by its score or not.
func entries(channel string, reply any, scores bool) []Entry {
	vs, _ := redis.Values(reply, nil)
	step := 1
	if scores {
		step = 2
	}
	var es []Entry
	for i := 0; i+step <= len(vs); i += step {
		raw, ok := vs[i].([]byte)
		if !ok {
			continue
		}
		el, _ := lists.Decode(raw)
		e := Entry{Serial: el.Name(), ID: el.ID(), Payload: el.Payload, Headers: el.Headers, Attempts: el.Attempts, Recoveries: el.Recoveries,
			Failure: el.Failure, channel: channel, raw: raw}
		if !el.Bare {
			e.Delivered = lists.DeliveredAt(el.Serial)
		}
		if scores {
			ms, _ := redis.Float64(vs[i+1], nil)
			e.At = time.UnixMilli(int64(ms))
		}
		es = append(es, e)
	}
	return es
}

// List shows messages of one state: limit of them (0: all) from offset, the one to be taken next first, the one due first, the latest
// dead and the latest done first; those in hand by receiver and worker, always all of them. What is cancelled is left out, so there may be
// less than limit. It reads, and locks nothing: a message that moves meanwhile may be missed or seen twice.
func (q *Queue) List(ctx context.Context, channel string, state State, offset, limit int) ([]Entry, error) {
	if offset < 0 || limit < 0 {
		return nil, fmt.Errorf("shunt: list %q: offset %d and limit %d: want 0 or more", channel, offset, limit)
	}
	k := lists.KeysOf(channel)
	last := -1
	if limit > 0 {
		last = offset + limit - 1
	}
	list := func(key any) ([]Entry, error) { // from its taking end
		from, to := -1-last, -1-offset
		if limit == 0 {
			from = 0
		}
		v, err := q.look(ctx, channel, func(c *link.Call) { c.Add("LRANGE", key, from, to) })
		es := entries(channel, v, false)
		slices.Reverse(es)
		if err == nil {
			es, err = q.uncancelled(ctx, &k, es)
		}
		return es, err
	}
	set := func(command string, key any) ([]Entry, error) {
		v, err := q.look(ctx, channel, func(c *link.Call) { c.Add(command, key, offset, last, "WITHSCORES") })
		es := entries(channel, v, true)
		if err == nil {
			es, err = q.uncancelled(ctx, &k, es)
		}
		return es, err
	}
	switch state {
	case Prepare:
		return list(k.Prepare)
	case Suspect:
		return list(k.Suspect)
	case Delay:
		return set("ZRANGE", k.Delay)
	case Dead:
		return set("ZREVRANGE", k.Dead)
	case Doing:
		return q.held(ctx, &k)
	case Done:
		return q.listDone(ctx, &k, offset, last)
	}
	return nil, fmt.Errorf("shunt: list %q: there is no state %q", channel, state)
}

// held lists what all receivers of a channel hold.
func (q *Queue) held(ctx context.Context, k *lists.Keys) ([]Entry, error) {
	rs, err := q.Receivers(ctx, k.Channel)
	if err != nil {
		return nil, err
	}
	var es []Entry
	for _, r := range rs {
		if r.Holding == 0 {
			continue
		}
		vs, err := q.looks(ctx, k.Channel, func(c *link.Call) {
			for _, l := range k.Doings(lists.Incarnation{Name: r.Name, Workers: r.Workers, Lease: r.Lease}) {
				c.Add("LRANGE", l, 0, -1)
			}
		})
		if err != nil {
			return nil, err
		}
		for worker, v := range vs {
			of := entries(k.Channel, v, false)
			slices.Reverse(of)
			for i := range of {
				of[i].Receiver, of[i].Worker = r.Name, worker
			}
			es = append(es, of...)
		}
	}
	return es, nil
}

// uncancelled leaves out what is cancelled, and only waits to be dropped.
func (q *Queue) uncancelled(ctx context.Context, k *lists.Keys, es []Entry) ([]Entry, error) {
	if !slices.ContainsFunc(es, func(e Entry) bool { return e.ID != "" }) {
		return es, nil
	}
	vs, err := q.looks(ctx, k.Channel, func(c *link.Call) {
		for _, e := range es {
			c.Add("SISMEMBER", k.Cancelled, e.serial())
		}
	})
	if err != nil {
		return nil, err
	}
	var left []Entry
	for i, e := range es {
		if n, _ := redis.Int(vs[i], nil); n == 0 {
			left = append(left, e)
		}
	}
	return left, nil
}

// serial is as scripts know it.
func (e *Entry) serial() []byte {
	el, _ := lists.Decode(e.raw)
	return el.Serial[:]
}

// listDone lists what is kept of messages that are over.
func (q *Queue) listDone(ctx context.Context, k *lists.Keys, offset, last int) ([]Entry, error) {
	ids, err := redis.Strings(q.look(ctx, k.Channel, func(c *link.Call) { c.Add("ZREVRANGE", k.DoneAt, offset, last) }))
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	vs, err := q.looks(ctx, k.Channel, func(c *link.Call) {
		for _, id := range ids {
			c.Add("HGET", k.Done, id)
		}
	})
	var es []Entry
	for i, v := range vs {
		if raw, ok := v.([]byte); ok {
			s := ended(ids[i], raw)
			es = append(es, Entry{ID: s.ID, Serial: s.Serial, Attempts: s.Attempt, Failure: s.Failure, Delivered: s.Delivered, At: s.Outcome.Ended,
				Outcome: s.Outcome, channel: k.Channel})
		}
	}
	return es, err
}
