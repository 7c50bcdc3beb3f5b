package trial

import (
	"fmt"
	"slices"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/planted"
	"github.com/shuntmq/shunt/internal/store"
)

// Defect is a mistake that a run has to catch. It is planted in a process before that opens a Queue.
type Defect struct {
	Name    string
	Lua     []Edit
	Door    func()          // opens one of package planted
	Mislead func(o *Orders) // has handlers make it
}

// Edit is one change to a file of internal/store/lua. The old text must be there exactly once.
type Edit struct{ File, Old, New string }

// Plant has this process make the mistake of that name.
func Plant(name string) (*Defect, error) {
	i := slices.IndexFunc(Defects, func(d Defect) bool { return d.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("there is no defect %q", name)
	}
	d := &Defects[i]
	for _, e := range d.Lua {
		if err := store.Alter(e.File, e.Old, e.New); err != nil {
			return nil, err
		}
	}
	if d.Door != nil {
		d.Door()
	}
	return d, nil
}

// Defects are those that every kind of run has to catch.
var Defects = []Defect{
	{Name: "ack before the handler", Mislead: func(o *Orders) { o.AckFirst = true }},
	{
		Name: "a reaper that does LREM and then LPUSH as two commands",
		Door: func() { planted.Reap = reapInTwo },
	},
	{
		Name: "a reaper that ignores the lease",
		Lua: []Edit{{"sweep", "redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', printed(now),",
			"redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', '+inf',"}},
	},
	{Name: "no new incarnation after a lost reply", Door: func() { planted.IgnoreLostReply = true }},
	{
		Name: "a promoter that does ZREM and then LPUSH as two commands",
		Door: func() { planted.Promote = promoteInTwo },
	},
	{
		Name: "a script that removes first, with a .prepare of the wrong type",
		Lua: []Edit{{"promote", "  redis.call('LPUSH', KEYS[3], unpack(es))\n",
			"  redis.call('ZREM', KEYS[2], unpack(es))\n  redis.call('LPUSH', KEYS[3], unpack(es))\n"}},
	},
	{
		Name: "an undo without NX",
		Lua: []Edit{{"ending", "  if left ~= 1 and added == 1 then redis.call('ZREM', set, new) end\n",
			"  if left ~= 1 then redis.call('ZREM', set, new) end\n"}},
	},
	{Name: "one serial for two bare payloads", Lua: []Edit{{"reap", "ARGV[9 + n]", "ARGV[10]"}}},
	{Name: "a waiter's break without a new incarnation", Door: func() { planted.IgnoreWaiterBreak = true }},
	{
		Name: "a sweep without its fence",
		Lua: []Edit{
			{"sweep", "local judge = fence > 0 and now - fence <= tonumber(ARGV[2])", "local judge = true"},
			{"sweep", "lease > 0 and (now - fence > lease * 3 / 4 or fence - tonumber(ARGV[6]) < lease / 3)", "false"},
		},
	},
	{
		Name: "an ack of several that does not look what lies there",
		Lua:  []Edit{{"first", "return head('-1') == from and head('-' .. n) == to", "return true"}},
	},
	{
		Name: "an ack that does not free its id",
		Lua: []Edit{
			{"settle", "  redis.pcall('HDEL', KEYS[2], unpack(ids))\n", ""},
			{"settle", "    redis.pcall('HDEL', KEYS[2], unpack(ARGV, 6, 5 + n))\n", ""},
		},
	},
	{
		Name: "an enqueue that does not look for its receipt",
		Lua:  []Edit{{"enqueue", "local again = new == 0", "local again = new == 2"}},
	},
	{
		Name: "a start that does not look for what was cancelled",
		Door: func() { planted.IgnoreCancelled = true },
	},
	{
		Name: "an ack that enqueues what follows although it finds nothing",
		Lua:  []Edit{{"follow", "if at == false or at == nil then return {0} end\n", ""}},
	},
	{
		Name: "counts that do not know a flush again",
		Lua: []Edit{{"tally", ">= tonumber(ARGV[2]) then return 0 end",
			">= tonumber(ARGV[2]) then before = nil end"}},
	},
	{
		Name: "an unlease that forgets a lease which still holds something",
		Lua:  []Edit{{"unlease", "if redis.call('EXISTS', KEYS[1 + i]) == 0 then", "if true then"}},
	},
	{
		Name: "an end of a lease that counts no attempt",
		Lua: []Edit{{"lapse", "attempt = math.min(255, string.byte(e, 4) + 1)",
			"attempt = string.byte(e, 4)"}},
	},
	{
		Name: "an end of a lease without a grace",
		Lua: []Edit{{"lapse", "local seen = fence > 0 and now - fence <= tonumber(ARGV[5]) and " +
			"now - tonumber(ARGV[6]) >= grace", "local seen = true"}},
	},
	{
		Name: "an end of a lease that removes first, with a .prepare of the wrong type",
		Lua: []Edit{
			{"lapse", "if #prepare > 0 then redis.call('LLEN', KEYS[4]) end\n",
				"if n > 0 then leaveFirst(KEYS[3], n) end\n"},
			{"lapse", "if n > 0 then leaveFirst(KEYS[3], n) end\nfor _, m in ipairs(prepare) do if m.id",
				"for _, m in ipairs(prepare) do if m.id"},
		},
	},
	{
		Name: "a take that does not give again what it had taken",
		Lua: []Edit{{"lease", "if redis.call('EXISTS', unpack(lists)) > 0 then\n",
			"if redis.call('EXISTS', unpack(lists)) > 0 then\n  do return out end\n"}},
	},
	{Name: "an ack that takes what another one holds", Mislead: func(o *Orders) { o.TakeAnyway = true }},
	{
		Name: "an extension that puts no end off",
		Lua:  []Edit{{"extend", "if not ends or tonumber(ends) < to then", "if not ends then"}},
	},
}

// reapInTwo removes an element from a dead worker's list, and then puts it back into prepare, as two commands.
func reapInTwo(do planted.Do, list, prepare string) (moved int, err error) {
	es, err := redis.Values(do("LRANGE", list, 0, -1))
	for _, e := range es {
		if _, err := do("LREM", list, 1, e); err != nil {
			return moved, err
		}
		if _, err := do("RPUSH", prepare, e); err != nil {
			return moved, err
		}
		moved++
	}
	return moved, err
}

// promoteInTwo removes what is due from delay, and then puts it into prepare, as two commands.
func promoteInTwo(do planted.Do, delay, prepare string) (moved int, err error) {
	es, err := redis.Values(do("ZRANGEBYSCORE", delay, "-inf", time.Now().UnixMilli(), "LIMIT", 0, 100))
	if err != nil || len(es) == 0 {
		return 0, err
	}
	if _, err := do("ZREM", append([]any{delay}, es...)...); err != nil {
		return 0, err
	}
	_, err = do("LPUSH", append([]any{prepare}, es...)...)
	return len(es), err
}
