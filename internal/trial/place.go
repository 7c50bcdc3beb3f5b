package trial

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/store"
)

// Place is where a message lies in Redis when all is over.
type Place struct {
	ID, Serial string
	State      string // prepare, doing, leased, delay, suspect, dead; doing is also a lease's that has no end
	Key        string
	Recoveries int
	Failure    string
}

// ends says whether a lease has an end.
func ends(do Doer, k *store.Keys, name string) bool {
	v, err := do("ZSCORE", k.Leased, name)
	return err != nil || v != nil
}

// Doer is what runs one command on Redis.
type Doer func(cmd string, args ...any) (any, error)

// Places is all that lies in channels. It reads their keys one after another, as no receiver may.
func Places(do Doer, channels ...string) (all []Place, err error) {
	for _, c := range channels {
		ps, err := placesIn(do, c)
		if err != nil {
			return nil, err
		}
		all = append(all, ps...)
	}
	return all, nil
}

func placesIn(do Doer, channel string) ([]Place, error) {
	keys, err := redis.Strings(do("KEYS", "{"+channel+"}.*"))
	if err != nil {
		return nil, err
	}
	k := store.KeysOf(channel)
	var all []Place
	for _, key := range keys {
		state := strings.TrimPrefix(key, "{"+channel+"}.")
		var raws [][]byte
		switch {
		case !hasElements(k, key):
			continue
		case key == k.Delay || key == k.Dead:
			raws, err = redis.ByteSlices(do("ZRANGE", key, 0, -1))
		default:
			if strings.HasPrefix(state, "doing.") {
				state = "doing"
			} else if name, leased := strings.CutPrefix(state, "leased."); leased {
				if state = "leased"; !ends(do, k, name) {
					state = "doing" // of nobody
				}
			}
			raws, err = redis.ByteSlices(do("LRANGE", key, 0, -1))
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		for _, raw := range raws {
			e, _ := element.Decode(raw)
			m := ParseMessage(e.Payload)
			id := m.ID
			if m.corrupt != "" {
				id = "corrupt " + id
			}
			all = append(all,
				Place{ID: id, Serial: e.SerialString(), State: state, Key: key, Recoveries: int(e.Recoveries),
					Failure: e.Failure()})
		}
	}
	return all, nil
}

// MessageIn is the message that an element holds.
func MessageIn(raw []byte) string {
	e, err := element.Decode(raw)
	if err != nil {
		return ""
	}
	return ParseMessage(e.Payload).ID
}

// hasElements says whether a key of a channel holds elements; the others hold what is known of receivers and of IDs.
func hasElements(k *store.Keys, key string) bool {
	return slices.Contains([]any{k.Prepare, k.Suspect, k.Delay, k.Dead}, any(key)) ||
		strings.Contains(key, "}.doing.") ||
		strings.HasPrefix(key, k.Leased+".")
}

// tally counts what is left but the dead, also in the lists of every incarnation and every lease that is known. It does
// so in one step, and looks at no other channel's keys.
const tally = `
local function n(command, key) local v = redis.pcall(command, key) return type(v) == 'number' and v or 0 end
local sum = 0
for _, c in ipairs(ARGV) do
  local k = '{' .. c .. '}.'
  sum = sum + n('LLEN', k .. 'prepare') + n('LLEN', k .. 'suspect') + n('ZCARD', k .. 'delay')
  local leases = redis.pcall('ZRANGE', k .. 'leased', 0, -1)
  for _, name in ipairs(leases) do sum = sum + n('LLEN', k .. 'leased.' .. name) end
  for _, set in ipairs({'receivers', 'receivers.dead'}) do
    local names = redis.pcall('ZRANGE', k .. set, 0, -1)
    for _, name in ipairs(names) do
      name = string.match(name, '^%S+')
      local workers = tonumber(string.match(name, '%-(%d+)%-'))
      for w = 0, workers - 1 do sum = sum + n('LLEN', k .. 'doing.' .. name .. '.' .. w) end
    end
  end
end
return sum`

// Busy counts what is left in channels but the dead.
func Busy(do Doer, channels ...string) (int, error) {
	args := []any{tally, 0}
	for _, c := range channels {
		args = append(args, c)
	}
	return redis.Int(do("EVAL", args...))
}
