package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/shuntmq/shunt"
)

const (
	mostCompared = 20_000    // messages of a channel whose serials are compared with records
	mostBytes    = 64 << 20  // of them
	pageBytes    = 128 << 10 // of elements that one command goes through
	mostInHand   = 128       // messages of one worker or lease that are read
	sampled      = 64        // elements of each end of what is longer
	nearSize     = 0.8       // of MaxSize
	mostRecords  = 20_000
	scanRecords  = 200
)

// glimpse reads the first 20 bytes and the length of some elements, and no more, so that Redis sends no payloads.
// KEYS 1 a list or sorted set  ARGV 1 list or zset  2 first  3 last  reply: bytes and lengths in turns
const glimpse = `
local es
if ARGV[1] == 'list' then es = redis.call('LRANGE', KEYS[1], ARGV[2], ARGV[3])
else es = redis.call('ZREVRANGE', KEYS[1], ARGV[2], ARGV[3]) end
local out = {}
for i, e in ipairs(es) do
  out[2 * i - 1], out[2 * i] = string.sub(e, 1, 20), #e
end
return out`

// contents are the messages that one look at a channel has seen.
type contents struct {
	serials  map[string]bool // of 16 bytes each
	doing    map[string]bool // of these, those that somebody has in hand
	complete bool            // no message is missing
	largest  int
	where    string          // the largest lies
	newer    map[string]bool // heads of those that a newer version of shunt has written
	next     string          // what is taken next from prepare, and how many there are
}

// lookMessages compares messages with records.
func (e *examination) lookMessages(c *channel, s *state, alive bool, ds *[]doubt) {
	m, ok := e.messages(c, s)
	if !ok {
		return
	}
	add := func(sev shunt.Severity, kind Kind, f Finding, evidence []string, each bool, text func(int) string) {
		f.Severity, f.Kind, f.Channel = sev, kind, c.name
		*ds = append(*ds, doubt{Finding: f, evidence: evidence, each: each, text: text})
	}
	say := func(text string, args ...any) func(int) string {
		return func(int) string { return fmt.Sprintf(text, args...) }
	}
	if part := float64(m.largest) / float64(e.o.MaxSize); part > nearSize {
		add(shunt.Warning, NearSize, Finding{Number: float64(m.largest), Key: m.where,
			Do: "keep large payloads elsewhere and send their address, or raise MaxSize everywhere"},
			[]string{"large"}, false,
			say("an element in %s has %d bytes, %.0f %% of MaxSize", m.where, m.largest, 100*part))
	}
	if n := len(m.newer); n > 0 {
		add(shunt.Warning, Newer, Finding{Number: float64(n), Do: "upgrade the programs that receive"},
			[]string{"newer"}, false, say("%s written by a newer version of shunt", many(n, "message was",
				"messages were")))
	}
	var held int
	for _, r := range s.receivers {
		held += s.held[r.member]
	}
	if alive && held == 0 && m.next != "" {
		add(shunt.Warning, Starving, Finding{Number: float64(c.o.Prepare), Key: c.key("prepare"),
			Do: "see what the workers do in other channels (shunt receivers); ReceiveWeighted starves none"},
			[]string{m.next}, false,
			say("receivers are alive and hold nothing of the channel, and what waits is not taken"))
	}
	if m.complete {
		e.lookRecords(c, s, m, add)
	}
}

// messages goes through the places of a channel: what somebody has in hand first and last. So a message that moves
// meanwhile is seen twice rather than not at all, unless its record changes, too.
func (e *examination) messages(c *channel, s *state) (*contents, bool) {
	m := &contents{serials: make(map[string]bool), doing: make(map[string]bool), newer: make(map[string]bool),
		complete: true}
	held := s.lists(c)
	e.inHand(m, held)
	places := []struct{ key, kind, count string }{{c.key("delay"), "zset", "ZCARD"}, {c.key("prepare"), "list", "LLEN"},
		{c.key("suspect"), "list", "LLEN"}, {c.key("dead"), "zset", "ZCARD"}}
	cmds := make([]command, len(places))
	for i, p := range places {
		cmds[i] = command{p.count, p.key}
	}
	lens, err := e.ask(cmds...)
	if err != nil {
		return nil, false
	}
	total := 0
	for _, r := range lens {
		total += r.int()
	}
	for i, p := range places {
		if !e.glimpses(c, m, p.key, p.kind, lens[i].int(), total <= mostCompared) {
			m.complete = false
		}
	}
	e.inHand(m, held)
	return m, true
}

// lists are those of all workers and leases that are known, or were seen.
func (s *state) lists(c *channel) []string {
	held := make(map[string]bool)
	for _, r := range slices.Concat(s.receivers, s.dead) {
		name, _, _ := strings.Cut(r.member, " ")
		workers, _ := parseIncarnation(name)
		for w := range min(workers, mostLists-len(held)) {
			held[fmt.Sprintf("%s.%s.%d", c.key("doing"), name, w)] = true
		}
	}
	for lease := range s.leases {
		held[c.key("leased")+"."+lease] = true
	}
	for _, names := range []map[string]string{c.doing, c.leases} {
		for name := range names {
			held[name] = true
		}
	}
	return slices.Collect(maps.Keys(held))
}

// inHand reads the lists of workers and leases, which are short.
func (e *examination) inHand(m *contents, lists []string) {
	cmds := make([]command, len(lists))
	for i, name := range lists {
		cmds[i] = command{"EVAL", glimpse, 1, name, "list", 0, mostInHand - 1}
	}
	all, err := e.ask(cmds...)
	if err != nil || len(lists) >= mostLists {
		m.complete = false
	}
	for i, r := range all {
		vs := r.values()
		m.complete = m.complete && r.err == nil && len(vs) < 2*mostInHand
		for j := 0; j+1 < len(vs); j += 2 {
			m.see(lists[i], reply{v: vs[j]}.text(), reply{v: vs[j+1]}.int(), true)
		}
	}
}

// glimpses reads one place, whole or from both ends. It says whether it has seen all.
func (e *examination) glimpses(c *channel, m *contents, key, kind string, n int, all bool) bool {
	if n == 0 && key != c.key("prepare") {
		return true
	}
	each := 1024
	if size := e.one("MEMORY", "USAGE", key, "SAMPLES", 5).int(); size > 0 && n > 0 {
		each = max(1, size/n)
	}
	step := min(max(1, pageBytes/each), 128)
	if all = all && each*n <= mostBytes; !all {
		e.limit("channel %s: of its %d messages in %s some of each end were looked at", c.name, n, key)
	}
	read := func(first, last int) (got int, ok bool) {
		r := e.one("EVAL", glimpse, 1, key, kind, first, last)
		vs := r.values()
		for i := 0; i+1 < len(vs); i += 2 {
			head, size := reply{v: vs[i]}.text(), reply{v: vs[i+1]}.int()
			m.see(key, head, size, false)
			if key == c.key("prepare") && last == -1 && i+2 >= len(vs) {
				m.next = head + " " + fmt.Sprint(size)
			}
		}
		return len(vs) / 2, r.err == nil
	}
	whole := all
	if all {
		for from := 0; ; from += step {
			got, ok := read(from, from+step-1)
			if whole = whole && ok; got < step || !ok || from > 2*mostCompared {
				break
			}
			e.rest(e.o.Pause)
		}
	} else {
		ends := min(sampled, step*4)
		for from := 0; from < ends; from += step {
			_, _ = read(from, from+step-1)
			_, _ = read(-from-step, -from-1)
		}
	}
	if key == c.key("prepare") {
		_, _ = read(-1, -1)
	}
	return whole
}

func (m *contents) see(key, head string, size int, held bool) {
	if size > m.largest {
		m.largest, m.where = size, key
	}
	if len(head) < 20 || head[0] != 0xC1 {
		return
	}
	switch version := head[1] >> 4; {
	case version == 1:
		m.serials[head[4:20]] = true
		if held {
			m.doing[head[4:20]] = true
		}
	case version >= 2:
		m.newer[head] = true
	}
}
