package redis

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/shuntmq/shunt/internal/redistest"
)

var commandWords = vocabulary{
	"key": {"l1", "l2", "h1", "s1", "z1", "t1", "x1", "none"},
	"l":   {"l1", "l1", "l1", "l1", "l2", "l2", "l2", "z1", "none"},
	"h":   {"h1", "h1", "h1", "h1", "h1", "h2", "s1"},
	"s":   {"s1", "s1", "s1", "s1", "s2", "s2", "l1"},
	"z":   {"z1", "z1", "z1", "z1", "z1", "z2", "h1"},
	"t":   {"t1", "t1", "t1", "t2", "t2", "l1"},
	"x":   {"x1", "x1", "x1", "x2", "t1"},
	"i":   {"0", "1", "2", "3", "-1", "-2", "-3", "5", "100", "-100"},
	"j":   {"0", "1", "2", "-1", "9223372036854775807", "-9223372036854775808", "1.5", "x", "007", "+1", " 1", ""},
	"v":   {"a", "b", "c", "", "two words", "\x00\xff\r\n", "12", "-7", "9223372036854775807", "é", "'q'"},
	"f":   {"a", "b", "c", "d", "", "\r\n"},
	"sc": {"0", "1", "2", "3", "2", "-1", "0.1", "1e20", "inf", "-inf", "+inf", "123456789012345678", "1.5e-7",
		"1764113338123", "x", "nan", ""},
	"r":  {"-inf", "+inf", "0", "1", "(1", "2", "(2", "(0.1", "3", "inf", "x", "(", "(x", "-1"},
	"ms": {"300000", "301000", "3000000", "0", "-5", "x", "9223372036854775807"},
	"id": {"1-1", "1-2", "2-1", "5", "7-0", "9-9", "0-0", "x", "3-x"},
	"to": {"0", "0.01", "-1", "x", "1e18"},
}

// commandShapes are what is drawn.
var commandShapes = []string{
	"del key key?", "unlink key", "exists key ( key )*", "type key", "rename key key", "ttl key", "pttl key",
	"expire key 300|600 nx|xx|gt|lt?", "pexpire key ms nx|xx|gt|lt?", "pexpire key ms nx xx?", "persist key",
	"pexpireat key 4000000000000|1000|x lt|gt?", "expireat key 4000000000|1000",
	"keys *|l*|?1|[lh]1|[^l]?|x\\1|none|[a-m]*|*1*", "scan 0 count 1000",
	"scan 0|x match l* count 1000 type list|zset",
	"dbsize", "flushall", "flushdb async|sync|x?",
	"get t", "mget t t key", "getdel t", "getrange t i i", "strlen t", "set t v", "set t v nx|xx|get|keepttl?",
	"set t v px|ex ms get?", "set t v pxat 4000000000000|x|-1 nx|xx?", "set t v exat 4000000000",
	"set t v nx|keepttl xx|get|ex", "setnx t v",
	"setex t ms v", "psetex t ms v", "append t v", "incr t", "incrby t j", "decr t", "decrby t j",
	"lpush l v ( v )*", "lpush l v ( v )*", "rpush l v ( v )*", "rpush l v ( v )*", "lpushx l v",
	"rpushx l v v?", "lpop l",
	"rpop l", "lpop l i|j", "rpop l i", "llen l", "lrange l i i", "lrange l 0 -1", "lrange l j i", "lindex l i",
	"lindex l j", "lset l i v", "lset l j v", "linsert l before|after|x v v", "lrem l i v", "lrem l j v",
	"ltrim l i i",
	"ltrim l i j", "lpos l v", "lpos l v rank|count|maxlen i|j rank|count|maxlen? i?",
	"lmove l l left|right left|right|x", "rpoplpush l l", "rpoplpush l l",
	"brpoplpush l2 l 0.01|x", "brpoplpush l2 l to", "blmove l2 l left right to", "brpop l2 l1 to", "blpop l2 l to",
	"hset h f v ( f v )*", "hset h f v ( f v )*", "hset h f v f", "hmset h f v ( f v )*", "hsetnx h f v", "hget h f",
	"hmget h f ( f )*", "hdel h f ( f )*", "hlen h", "hexists h f", "hstrlen h f", "hkeys h", "hvals h", "hgetall h",
	"hincrby h f i|j", "hscan h 0 count 1000", "hscan h 0 match a* count 1000", "hscan h x|0 count 0|x",
	"sadd s v ( v )*", "sadd s v ( v )*", "srem s v ( v )*", "sismember s v", "smismember s v v", "smembers s",
	"scard s",
	"sscan s 0 count 1000", "sscan s 0 match ?",
	"zadd z sc f ( sc f )*", "zadd z sc f ( sc f )*", "zadd z sc f ( sc f )*", "zadd z nx|xx|gt|lt|ch sc f ( sc f )*",
	"zadd z nx|xx|gt|lt|ch|incr nx|xx|gt|lt|ch|incr sc f", "zadd z incr sc f sc f", "zincrby z sc f",
	"zrem z f ( f )*",
	"zscore z f", "zcard z", "zcount z r r", "zrank z f", "zrevrank z f", "zrange z i i withscores?",
	"zrange z 0 -1 withscores",
	"zrange z i j", "zrange z r r byscore rev? withscores? limit? i?", "zrange z r r byscore rev? limit i i",
	"zrange z i i rev limit i i", "zrange z i i limit i i", "zrevrange z i i withscores?",
	"zrevrange z 0 0 withscores|rev",
	"zrangebyscore z r r withscores?", "zrangebyscore z r r withscores? limit i i",
	"zrangebyscore z -inf +inf limit i j",
	"zrevrangebyscore z r r withscores? limit? i? i?", "zremrangebyrank z i i|j", "zremrangebyscore z r r",
	"zpopmin z i?",
	"zpopmax z i|j?",
	"xadd x id f v ( f v )*", "xadd x id f v f", "xadd x maxlen =|~? i id f v", "xadd x maxlen j id f v", "xlen x",
	"xrange x id|- id|+", "xrange x - + count i|j", "xrevrange x + - count i", "xrevrange x id -", "xrange x - + x?",
	"publish a b", "ping v?", "echo v", "select 0|x|100", "wait 0 0|-1|x", "wait x 0", "script exists x",
	"script nope",
	"script flush x|sync", "client nope", "client unblock 99999|x timeout|error|x?", "client kill id 99999|0|x",
	"client kill type x", "client kill id", "client no-evict on|off|x", "client setname 'a\x01'|x?", "client getname",
	"config set nope 1", "config set maxmemory x", "config get maxmemory-policy maxmemory-policy?", "auth x",
	"auth default|x x",
	"hello x|4", "nope v v", "pubsub numsub x",
	"eval v 0|j|2 v?", "eval 'return' 0", "evalsha v 0|j|2", "script load ''|x",
}

// scripts by which a command is given, too: as it is, its error returned, or its numbers as numbers.
var callers = []string{
	"return redis.call(unpack(ARGV))",
	"local r = redis.pcall(unpack(ARGV))\nreturn r",
	"local ok, r = pcall(redis.call, unpack(ARGV))\nif not ok then return {'failed', r} end\nreturn {ok, r}",
	"local a = {}\nfor i, w in ipairs(ARGV) do a[i] = i > 1 and tonumber(w) or w end\n" +
		"local r = redis.call(unpack(a))\nif type(r) == 'table' then return {#r, r} end\nreturn {type(r), tostring(r)}",
	"redis.call('zrem', KEYS[1] or 'none', 'x')\nreturn redis.call(unpack(ARGV))",
}

// alone are the commands that are given as they are: they would answer later, or end the connection.
var alone = []string{"hello", "auth", "quit", "client", "config", "eval", "evalsha", "script", "select", "brpoplpush"}

// twists are what happens to a command, or to both servers, before it is given.
var twists = map[string]int{"none": 82, "shorter": 3, "longer": 3, "full": 2, "read-only": 2, "": 8}

var ways = map[string]int{"plain": 2, "script": 1}

// Both servers reply alike to random commands, plain and in scripts, also when full or read-only. Afterwards they have
// the same keys. A command that chance left out is drawn by itself.
func TestCommandsAsRedis(t *testing.T) {
	t.Parallel()
	real := redistest.Start(t)
	s := New(Options{})
	p := newPair(t, s, real)
	met := make(map[string]int)
	draw := func(shapes []string) {
		rapid.Check(t, func(rt *rapid.T) {
			p.t = rt
			p.fault(s, real, "")
			p.same("flushall")
			for range many(rt, 100) {
				args := commandWords.draw(rt, rapid.SampledFrom(shapes).Draw(rt, "shape"))
				switch twist := oneOf(rt, twists); twist {
				case "shorter":
					args = args[:len(args)-1]
				case "longer":
					args = append(args, "x")
				case "full", "read-only", "":
					p.fault(s, real, twist)
				}
				if len(args) == 0 || args[0] == "hello" && len(args) == 1 || mayBlock(args) {
					continue
				}
				met[args[0]]++
				if oneOf(rt, ways) == "script" && !slices.Contains(alone, args[0]) {
					args = append([]string{"eval", rapid.SampledFrom(callers).Draw(rt, "caller"), "0"}, args...)
				}
				p.same(args...)
			}
			p.fault(s, real, "")
			p.sameKeys()
		})
		p.t = t
	}
	draw(commandShapes)
	for name, cmd := range byName {
		if name != strings.ToLower(name) || cmd.run == nil || met[name] > 0 || slices.Contains(notDrawn, name) {
			continue
		}
		if shapes := shapesOf(name); len(shapes) > 0 {
			draw(shapes)
		}
		if met[name] == 0 {
			t.Fatalf("%s was never drawn", name)
		}
	}
}

// shapesOf are the shapes of one command.
func shapesOf(name string) (of []string) {
	for _, shape := range commandShapes {
		if first, _, _ := strings.Cut(shape, " "); first == name {
			of = append(of, shape)
		}
	}
	return of
}

// notDrawn are commands with tests of their own, or whose replies are the server's own.
var notDrawn = []string{"info", "quit", "replicaof", "subscribe", "psubscribe", "unsubscribe", "punsubscribe", "role",
	"time"}

// mayBlock says whether a command would wait for ever.
func mayBlock(args []string) bool {
	return (args[0][0] == 'b') && args[len(args)-1] == "0" || args[0] == "wait" && args[len(args)-1] == "x"
}

// fault has both servers full, or read-only, or neither.
func (p *pair) fault(s *Server, real *redistest.Server, which string) {
	memory, master := "0", []any{"no", "one"}
	switch which {
	case "full":
		memory = "1"
	case "read-only":
		master = []any{"127.0.0.1", "1"}
	}
	if s.full != (which == "full") {
		real.Do("CONFIG", "SET", "maxmemory", memory)
	}
	if s.readOnly != (which == "read-only") {
		real.Do("REPLICAOF", master...)
	}
	s.Full(which == "full")
	s.ReadOnly(which == "read-only")
}
