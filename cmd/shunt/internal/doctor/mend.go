package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/shuntmq/shunt"
)

// ErrByHand says that Mend does not mend such a finding: a person has to do what its Do says.
var ErrByHand = errors.New("doctor: a person has to mend that: see Do")

// ErrSetting says that Mend may not change settings of Redis: Options.Config is not set.
var ErrSetting = errors.New("doctor: that changes a setting of Redis, which is not allowed here: set Options.Config")

// ErrGone says that there was nothing to mend any more.
var ErrGone = errors.New("doctor: a new look finds nothing that is wrong there")

const (
	upkeepFor = 20 * time.Second // in which an Upkeep must have mended what it can
	lookEvery = 100 * time.Millisecond
)

// Mend mends one finding of Examine, if its Fix says that it can be done. It looks anew before it changes anything, so
// a finding may be old, or come from JSON. It takes up to 30 s. Of q nothing is changed; upkeep is done by a Queue of
// its own on pool.
func Mend(ctx context.Context, q *shunt.Queue, pool *redis.Pool, f Finding, o Options) error {
	o = o.withDefaults()
	o.Channels = nil
	if f.Channel != "" {
		o.Channels = []string{f.Channel}
	}
	ctx, cancel := context.WithTimeout(ctx, o.Within)
	defer cancel()
	e := &examination{ctx: ctx, q: q, pool: pool, o: o, seen: make(map[string]*channel)}
	switch f.Fix {
	case Safe:
	case Setting:
		if !o.Config {
			return ErrSetting
		}
		return e.set(f)
	default:
		return ErrByHand
	}
	switch f.Kind {
	case Expires:
		return e.change("PERSIST", f.Key)
	case Unlisted:
		return e.change("SADD", channelsKey, f.Channel)
	case of(shunt.FindingOverdue):
		return e.upkeep(func() (bool, error) { return e.healthy(f) })
	case of(shunt.FindingLeaseOverdue):
		s, _ := e.read(e.channel(f.Channel))
		var over []string
		for name, ends := range s.leases {
			if ends < float64(s.now.UnixMilli()) {
				over = append(over, "{"+f.Channel+"}.leased."+name)
			}
		}
		return e.upkeep(func() (bool, error) { return e.empty(over) })
	}
	d, err := e.again(f)
	if err != nil {
		return err
	}
	switch f.Kind {
	case DoingOfNobody, LeaseOfNobody:
		if err := e.register(d); err != nil {
			return err
		}
		return e.upkeep(func() (bool, error) { return e.empty(d.evidence) })
	case DeadUnswept:
		return e.upkeep(func() (bool, error) { return e.gone(f) && e.swept(f.Channel, d.evidence), nil })
	case Unforgotten:
		return e.upkeep(func() (bool, error) { return e.gone(f), nil })
	case IDs, Marks:
		return e.unmark(f, d)
	}
	return ErrByHand
}

// again looks twice at the finding's channel, and gives what is still wrong.
func (e *examination) again(f Finding) (doubt, error) {
	e.scan("{" + glob.Replace(f.Channel) + "}.*") // a list of nobody may have the message that a record is of
	if err := e.ctx.Err(); err != nil {
		return doubt{}, fmt.Errorf("doctor: not all keys were looked at: %w", err)
	}
	c := e.channel(f.Channel)
	first := e.look(c)
	e.rest(e.o.Apart)
	for _, d := range same(first, e.look(c)) {
		if d.Kind == f.Kind {
			return d, e.ctx.Err()
		}
	}
	return doubt{}, ErrGone
}

var glob = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`)

// gone says whether one look does not find it any more.
func (e *examination) gone(f Finding) bool {
	for _, d := range e.look(e.channel(f.Channel)) {
		if d.Kind == f.Kind {
			return false
		}
	}
	return e.ctx.Err() == nil
}

// swept says whether dead receivers hold nothing any more. Whoever claims one puts the next look at it off first, and
// empties its lists then.
func (e *examination) swept(channel string, names []string) bool {
	s, ok := e.read(e.channel(channel))
	return ok && !slices.ContainsFunc(names, func(name string) bool { return s.held[name] > 0 })
}

func (e *examination) healthy(f Finding) (bool, error) {
	all, err := e.q.Health(e.ctx, f.Channel)
	for _, g := range all {
		if of(g.Kind) == f.Kind {
			return false, err
		}
	}
	return err == nil, err
}

func (e *examination) empty(lists []string) (bool, error) {
	for _, name := range lists {
		if r := e.one("EXISTS", name); r.err != nil || r.int() > 0 {
			return false, r.err
		}
	}
	return true, nil
}

// register lists those whose lists nobody knows as dead, or their leases as over, so that a sweep empties them.
func (e *examination) register(d doubt) error {
	now := e.one("TIME").time().UnixMilli()
	for _, name := range d.evidence {
		k := parseKey(name)
		var r reply
		if d.Kind == DoingOfNobody {
			member := fmt.Sprintf("%s %d r", k.holder, now)
			r = e.one("ZADD", "{"+k.channel+"}.receivers.dead", "NX", now, member)
		} else {
			r = e.one("ZADD", "{"+k.channel+"}.leased", "NX", now, k.holder)
		}
		if r.err != nil {
			return fmt.Errorf("doctor: list %s: %w", name, r.err)
		}
	}
	return e.change("SADD", channelsKey, d.Channel)
}

// upkeep runs Queue.Upkeep until done says so.
func (e *examination) upkeep(done func() (bool, error)) error {
	q := &shunt.Queue{Pool: e.pool, Quiet: true, NoCounts: true}
	defer q.Close()
	if err := q.Upkeep(e.ctx); err != nil {
		return fmt.Errorf("doctor: %w", err)
	}
	for until := time.Now().Add(upkeepFor); time.Now().Before(until); e.rest(lookEvery) {
		if is, err := done(); is || err != nil {
			return err
		}
	}
	return fmt.Errorf("doctor: %v of upkeep have not mended it", upkeepFor)
}

// drop removes records that are as they were read.
// KEYS 1 ids or running  ARGV fields and values in turns  reply: how many
const drop = `
local n = 0
for i = 1, #ARGV, 2 do
  if redis.call('HGET', KEYS[1], ARGV[i]) == ARGV[i + 1] then n = n + redis.call('HDEL', KEYS[1], ARGV[i]) end
end
return n`

// unmark removes records whose messages were nowhere in two looks.
func (e *examination) unmark(f Finding, d doubt) error {
	for _, text := range d.evidence {
		first, rest := unpair(text)
		var r reply
		switch {
		case f.Kind == IDs && len(rest) == 1:
			r = e.one("EVAL", drop, 1, "{"+f.Channel+"}.ids", first, rest[0])
		case first == "running" && len(rest) == 2:
			r = e.one("EVAL", drop, 1, "{"+f.Channel+"}.running", rest[0], rest[1])
		case len(rest) == 1:
			r = e.one("SREM", "{"+f.Channel+"}."+first, rest[0])
		}
		if r.err != nil {
			return fmt.Errorf("doctor: remove what is left of a message: %w", r.err)
		}
	}
	return nil
}

func (e *examination) change(cmd ...any) error {
	if r := e.one(cmd...); r.err != nil {
		return fmt.Errorf("doctor: %v: %w", cmd[0], r.err)
	}
	return nil
}

// values are what Mend sets, by what is wrong.
var values = map[Kind][2]string{
	of(shunt.FindingEviction): {"maxmemory-policy", "noeviction"},
	of(shunt.FindingNoAOF):    {"appendonly", "yes"},
	EvictionLater:             {"maxmemory-policy", "noeviction"},
	Fsync:                     {"appendfsync", "everysec"},
	Timeout:                   {"timeout", "0"},
	KeepAlive:                 {"tcp-keepalive", "300"},
	BufferPubSub:              {"client-output-buffer-limit", "pubsub 33554432 8388608 60"},
	BufferNormal:              {"client-output-buffer-limit", "normal 0 0 0"},
	BulkLength:                {"proto-max-bulk-len", "536870912"},
}

// setting is a finding that a setting of Redis mends.
func setting(kind Kind, n float64) Finding {
	name, value := values[kind][0], values[kind][1]
	if strings.Contains(value, " ") {
		value = "'" + value + "'"
	}
	return Finding{Key: name, Number: n, Do: "CONFIG SET " + name + " " + value + ", then CONFIG REWRITE", Fix: Setting}
}

// set changes a setting of Redis, and has Redis write it to its file where it has one.
func (e *examination) set(f Finding) error {
	to, is := values[f.Kind]
	if !is {
		return ErrByHand
	}
	if err := e.change("CONFIG", "SET", to[0], to[1]); err != nil {
		return err
	}
	if r := e.one("CONFIG", "REWRITE"); r.err != nil && !strings.Contains(r.err.Error(), "without a config file") {
		return fmt.Errorf("doctor: Redis has the setting, and forgets it at its next start: CONFIG REWRITE: %w", r.err)
	}
	return nil
}
