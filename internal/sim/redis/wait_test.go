package redis

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/shuntmq/shunt/internal/redistest"
)

var waitWords = vocabulary{
	"k": {"a", "a", "b", "c", "str"}, "v": {"1", "2", "3"}, "ch": {"x", "y", "xy"}, "to": {"0"},
}

// waits are commands that may block, and what they may be followed by while they do.
var waits = []string{
	"brpoplpush k k 0", "brpoplpush k k 0", "blmove k k right right 0", "blmove k k left right 0", "brpop k k 0",
	"blpop k 0", "llen k", "lpush k v", "subscribe ch ch", "psubscribe xy*|x", "unsubscribe ch", "punsubscribe xy*",
	"ping hi?", "rpoplpush k k",
}

// pushes come from the one session that never blocks.
var pushes = []string{
	"lpush k v ( v )*", "rpush k v ( v )*", "rpush k v v v", "del k", "rename k k", "set k v", "rpoplpush k k",
	"flushall",
	"publish ch v", "publish ch v",
	"eval 'pushes' 2 k k",
}

// Sessions that wait are served as Redis serves them: the first one first, after the whole script that pushed, each
// reply in its order; and subscribers hear the same.
func TestWaitsAsRedis(t *testing.T) {
	t.Parallel()
	real := redistest.Start(t)
	script := "redis.call('LPUSH', KEYS[1], '7', '8')\nlocal n = redis.call('LLEN', KEYS[1])\n" +
		"redis.call('RPUSH', KEYS[2], '9')\nredis.call('RPOP', KEYS[1])\nreturn n"
	served := 0
	rapid.Check(t, func(rt *rapid.T) {
		s := New(Options{})
		hand := newPair(t, s, real)
		hand.t = rt
		defer hand.close()
		hand.same("flushall")
		hand.same("set", "str", "text")
		var ps []*pair
		var ids [][2]string
		for range 4 {
			p := newPair(t, s, real)
			p.t = rt
			defer p.close()
			model, id := p.ask("client", "id")
			ps, ids = append(ps, p), append(ids, [2]string{strings.TrimSpace(model[1:]), strings.TrimSpace(id[1:])})
		}
		for range many(rt, 40) {
			i := rapid.IntRange(0, len(ps)-1).Draw(rt, "session")
			switch oneOf(rt, map[string]int{"wait": 5, "push": 5, "unblock": 1}) {
			case "wait":
				ps[i].send(waitWords.draw(rt, rapid.SampledFrom(waits).Draw(rt, "wait"))...)
				hand.same("ping") // so the real server has read that
			case "push":
				args := waitWords.draw(rt, rapid.SampledFrom(pushes).Draw(rt, "push"))
				if args[0] == "eval" {
					args[1] = script
				}
				hand.same(args...)
			case "unblock":
				if model, r := hand.unblock(ids[i], "timeout"); model != r {
					rt.Fatalf("unblock: %q, Redis %q", model, r)
				}
			}
		}
		for i, p := range ps {
			p.send("unsubscribe", "x", "y", "xy")
			p.send("punsubscribe", "xy*", "x")
			p.send("echo", "the end")
			hand.same("ping")
			for range 50 { // it may be blocked, and its queue may block it again
				if model, r := hand.unblock(ids[i], "error"); model != r {
					rt.Fatalf("unblock: %q, Redis %q", model, r)
				} else if r == ":0\r\n" {
					break
				}
			}
		}
		for i, p := range ps {
			model, r := p.drained()
			if !slices.Equal(model, r) {
				rt.Fatalf("session %d heard\n the model %q\n Redis     %q", i, model, r)
			}
			served += len(r)
		}
		hand.sameKeys()
	})
	if served < 1000 {
		t.Errorf("only %d replies", served)
	}
}

func (p *pair) close() {
	p.model.Close()
	_ = p.real.Close()
}

// unblock ends the wait of a session, if it is in one.
func (p *pair) unblock(id [2]string, how string) (model, real string) {
	p.take()
	p.model.Command(bytesOf([]string{"client", "unblock", id[0], how}))
	if _, err := p.real.Write(wire("client", "unblock", id[1], how)); err != nil {
		p.t.Fatalf("unblock: %v", err)
	}
	real = p.reply()
	return p.answer(), real
}
