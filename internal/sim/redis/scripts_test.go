package redis

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
)

// clock is the time that scripts have on both servers, in ms.
const clock = 1764113338123

// use is a script with the shapes of its KEYS and its ARGV.
type use struct {
	name       string
	script     *link.Script
	keys, argv string
}

const ending = "ids cancelled done kept running waited"

var uses = []use{
	{"Later", store.Later, "delay", "in|at|again due el ( el )*"},
	{"Enter", store.Enter, "prepare ids receipts", "0 2 id el ( id el )*"},
	{"Enter", store.Enter, "prepare ids receipts", "1 3 serial id el ttl ( id el ttl )*"},
	{"Enqueue", store.Enqueue, "prepare delay ids receipts running",
		"now|in|at due 0|1 0 id|'' ttl el ( id|'' ttl el )*"},
	{"Enqueue", store.Enqueue, "prepare delay ids receipts running", "in|at due 0|1 1 serial id ttl el ( id ttl el )*"},
	{"Take", store.Take, "receivers prepare doing ( receivers prepare doing )*", "n"},
	{"TakeLease", store.TakeLease, "receivers prepare suspect leased leased.a delay keeper ids running cancelled",
		"a ms bytes 1000 holder near serial serial serial"},
	{"LeaseEach", store.LeaseEach,
		"receivers prepare suspect leased delay keeper ids running cancelled leased.a leased.b",
		"1000 p- near bytes a ms serial b ms serial"},
	{"Extend", store.Extend, "receivers leased leased.a cancelled", "a|b ms ( serial )*"},
	{"Unlease", store.Unlease, "leased leased.a leased.b", "a b"},
	{"Abandon", store.Abandon, "receivers leased leased.a prepare ids running", "a|b ms"},
	{"Lapse", store.Lapse, "receivers leased leased.a prepare dead " + ending,
		"a ms n fence age near bytes n ms failure n n n"},
	{"Start", store.Start, "receivers running ids", "( id serial holder ms|'' )*"},
	{"Ack", store.Ack, "doing", "n head head"},
	{"Settle", store.Settle, "doing " + ending, "n n 0 id el ''|verdict ( id el ''|verdict )*"},
	{"Settle", store.Settle, "doing " + ending, "n n 1 head head id serial"},
	{"Follow", store.Follow, "receivers doing " + ending + " prepare delay ids running",
		"el id|'' serial n result ms|0 ms|0 n n now|in|at due id|'' ttl el"},
	{"Retry", store.Retry, "receivers doing delay " + ending, "ms el el"},
	{"Retry", store.Retry, "receivers doing delay " + ending, "ms el el id serial n failure"},
	{"Reject", store.Reject, "receivers doing dead " + ending, "el el n ms|0"},
	{"Reject", store.Reject, "receivers doing dead " + ending, "el el n ms|0 id serial n failure ms|0 n n"},
	{"Promote", store.Promote, "receivers delay prepare leased", "n bytes"},
	{"Register", store.Register, "receivers", "name ms"},
	{"Beat", store.Beat, "receivers", "name ms"},
	{"SetAbout", store.SetAbout, "receivers about", "name text 600000"},
	{"Sweep", store.Sweep, "receivers receivers.dead suspect delay keeper " + ending + " leased",
		"fence age n name|'' ms near ms"},
	{"Reap", store.Reap, "receivers doing prepare suspect dead " + ending,
		"fence age 0|1 bytes n ms|0 failure n n serial serial serial"},
	{"Finish", store.Finish, "receivers receivers.dead doing", "deadname near"},
	{"Unregister", store.Unregister, "receivers doing doing2", "name"},
	{"Supersede", store.Supersede, "receivers receivers.dead keeper", "name s|c"},
	{"Release", store.Release, "receivers doing prepare ids running", "( identity )*"},
	{"Handover", store.Handover, "receivers doing doing2 prepare ids running",
		"holder back|leave 1 identity ( identity )*"},
	{"Yield", store.Yield, "receivers keeper delay leased", "name 0|1"},
	{"Revive", store.Revive, "dead prepare ids running", "( el el id|'' )*"},
	{"Purge", store.Purge, "prepare ids cancelled waited", "list some 0|1"},
	{"Purge", store.Purge, "delay ids cancelled waited", "set some 0|1"},
	{"Forget", store.Forget, "done kept", "n"},
	{"Drop", store.Drop, "ids done kept", "id serial"},
	{"Seek", store.Seek, "prepare|delay|dead", "list|set serial serial 0|1 n ''"},
	{"Seek", store.Seek, "prepare|delay|dead", "list|set id id 0|1 n due|''"},
	{"Browse", store.Browse, "prepare|suspect|doing", "list 0|1 some 0|5|-1|100 0|1|2"},
	{"Browse", store.Browse, "delay|dead", "set 0|1 some 0|5|-1|100 ''|near head 0|1"},
	{"Hasten", store.Hasten, "receivers delay prepare ids", "( el id|'' )*"},
	{"Cancel", store.Cancel, "receivers ids cancelled delay done kept running waited", "id serial n n n 0|1"},
	{"Postpone", store.Postpone, "receivers ids delay prepare running", "id in|at due n serial"},
	{"Postpone", store.Postpone, "receivers ids delay prepare running", "id|'' in|at due n serial el|''"},
	{"Wait", store.Wait, "receivers ids done waited kept", "id serial|''"},
	{"Status", store.Status, "ids running cancelled done delay", "id"},
	{"Unmark", store.Unmark, "receivers running", "( serial holder )*"},
	{"Tally", store.Tally, "counts prepare suspect delay dead", "name n sums 86400000 caps"},
	{"Glance", store.Glance, "prepare suspect delay dead kept leased receivers receivers.dead", ""},
	{"Once", store.Once, "once prepare delay ids running", "600000 text always|'' now|in|at due id|'' ttl el"},
	{"RecurSet", store.RecurSet, "recur", "text line|'' record|'' n"},
	{"RecurFire", store.RecurFire, "recur prepare ids running", "text line line 0|near 0|near|1 id|'' 0|due ( el )*"},
}

// textOf is a script's text, at the clock's time.
func textOf(s *link.Script) string {
	text := reflect.ValueOf(s).Elem().FieldByName("text").Elem().String()
	return strings.Replace(text, "redis.call('TIME')", fmt.Sprintf("{'%d', '%d'}", clock/1000,
		clock%1000*1000+456), 1)
}

// scriptWords are what scripts are given, of few messages, so that they meet again.
func scriptWords() vocabulary {
	around := func(ds ...int) (all []string) {
		for _, d := range ds {
			all = append(all, strconv.Itoa(clock+d))
		}
		return all
	}
	v := vocabulary{
		// Lua's -0 is an error for Redis, and a plain 0 here, so some are at least one.
		"n": {"0", "1", "2", "3", "100"}, "some": {"1", "2", "3", "100"}, "ms": {"1", "1000", "60000",
			"3600000"}, "bytes": {"1", "100", "100000"},
		"near": around(-5000, -1, 0, 1, 5000), "due": append(around(-1000, 0, 1, 60000), "0", "1", "1500", "60000"),
		"ttl": {"0", "0", "1", "1000", "100000"}, "fence": append(around(-100, -10000), "0"), "age": {"0",
			"1000", "60000"},
		"id": {"i0", "i1", "i2", "i3"}, "holder": {"p-a 1", "p-b 2 1 17"}, "text": {"", "x", "about=1"},
		"result": {"", "done\x00\xff"}, "failure": {"", "\x01\x00\x05wrong"}, "line": {"1 a\n", "2 b\n"},
		"record": {"1 a\nrest", "2 b\n"}, "sums": {"", "\x01\x05", "\x02\xac\x02\x03\x01"},
		"caps": {"100000 100000 100000", "1 1 1"},
	}
	for i := range 6 {
		serial := fmt.Sprintf("serial-%09d", i)
		v["serial"] = append(v["serial"], serial)
		e := &element.Element{Serial: [16]byte([]byte(serial)), Payload: []byte("payload " + serial[:8+i])}
		if i > 1 {
			e.Extra = &element.Extra{ID: v["id"][i-2]}
		}
		if i == 3 {
			e.Extra.Retain, e.Extra.Unique = 60000, 1000
		}
		e.Recoveries, e.Attempts = int16(i%4), int16(i%3)
		raw := string(e.Encode())
		v["el"] = append(v["el"], raw)
		v["head"] = append(v["head"], raw[2:20])
		v["identity"] = append(v["identity"], raw[4:20])
		v["name"] = append(v["name"], fmt.Sprintf("01K%s-%d-%d", strings.Repeat("A", 22)+strconv.Itoa(i), 1+i%2,
			30000))
		v["deadname"] = append(v["deadname"], v["name"][i]+" "+strconv.Itoa(i%3))
	}
	v["el"] = append(v["el"], "bare", "\xc1\x00escaped", "\xc1\x20newer form")
	v["identity"] = append(v["identity"], "bare")
	v["verdict"] = []string{"a 1 0 0\n", "a 1 60000 1000\nresult", "c 0 0 0\n", "x 2 1000 0\n"}
	for i, state := range []string{"p", "d", "u"} {
		for _, serial := range v["serial"][:4] {
			v["idrecord"] = append(v["idrecord"], fmt.Sprintf("%s%s %d %d %d \nfailed", serial, state, i,
				clock+(i-1)*1000,
				[]int{0, clock - 1, clock + 9000}[i]))
		}
	}
	return v
}

// states are commands that lay out a channel.
var states = []string{
	"lpush prepare el ( el )*", "lpush suspect el ( el )*", "lpush doing el ( el )*", "lpush doing el ( el )*",
	"lpush leased.a el ( el )*", "zadd delay due el ( due el )*", "zadd dead near el ( near el )*",
	"zadd leased near a ( near b )*",
	"zadd receivers near name ( near name )*", "zadd receivers.dead near deadname ( near deadname )*",
	"hset keeper 'name' name until near", "hset ids id idrecord ( id idrecord )*",
	"hset ids id idrecord ( id idrecord )*",
	"hset running serial holder", "sadd cancelled serial", "sadd waited serial ( serial )*", "sadd receipts serial",
	"hset recur text record", "lpush doing2 el", "hset counts kept 5 x y", "zadd kept near ei0 ( near ri1 )*",
	"del prepare|doing|dead|leased|receivers|ids|running|done|kept",
}

// wrong makes a key of another type.
const wrong = "set prepare|suspect|doing|delay|dead|leased|receivers|receivers.dead|keeper|ids|running|cancelled|" +
	"waited|receipts|done|kept|recur|counts|once|about|leased.a wrong"

// steps are what happens before a script.
var steps = map[string]int{"none": 50, "state": 30, "wrong type": 4, "full": 20, "read-only": 2, "": 10}

// The scripts of the store do the same on both servers, whatever state a channel is in.
func TestScriptsAsRedis(t *testing.T) {
	t.Parallel()
	real := redistest.Start(t)
	s := New(Options{})
	p := newPair(t, s, real)
	words := scriptWords()
	met := make(map[string]map[string]int)
	once := func(rt *rapid.T) {
		p.t = rt
		p.fault(s, real, "")
		p.same("flushall")
		for range many(rt, 150) {
			step := oneOf(rt, steps)
			switch step {
			case "full", "read-only", "":
				p.fault(s, real, step)
			case "state", "wrong type":
				if s.full || s.readOnly {
					break
				}
				shape := wrong
				if step == "state" {
					shape = rapid.SampledFrom(states).Draw(rt, "state")
				}
				p.same(words.draw(rt, shape)...)
				continue
			}
			u := rapid.SampledFrom(uses).Draw(rt, "use")
			keys := vocabulary(nil).draw(rt, u.keys)
			args := append([]string{"eval", textOf(u.script), strconv.Itoa(len(keys))}, keys...)
			reply := p.same(append(args, words.draw(rt, u.argv)...)...)
			if met[u.name] == nil {
				met[u.name] = make(map[string]int)
			}
			met[u.name][outcome(reply)]++
			if s.full {
				met[u.name]["while full"]++
			}
		}
		p.fault(s, real, "")
		p.sameKeys()
	}
	unmet := func() (names []string) {
		for _, u := range uses {
			if met[u.name]["success"] == 0 || met[u.name]["while full"] == 0 {
				names = append(names, u.name)
			}
		}
		return names
	}
	const rounds = 3 // one may leave out a script
	for round := 0; round < rounds && len(unmet()) > 0; round++ {
		rapid.Check(t, once)
	}
	p.t = t
	for _, name := range unmet() {
		t.Errorf("%s: met with %v", name, met[name])
	}
	if os.Getenv("SIMREDIS_TELL") != "" {
		t.Log(met)
	}
}

// outcome is how a script has ended.
func outcome(reply string) string {
	if reply[0] != '-' {
		return "success"
	}
	code, _, _ := strings.Cut(reply[1:], " ")
	return code
}

// Every script of the store is among the uses.
func TestEveryScriptIsUsed(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../store/*.go")
	if err != nil {
		t.Fatal(err)
	}
	declared := regexp.MustCompile(`(?m)^\s*(?:var )?([A-Z]\w+)\s+= (?:script|lean)\(`)
	n := 0
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range declared.FindAllStringSubmatch(string(text), -1) {
			n++
			if !slices.ContainsFunc(uses, func(u use) bool { return u.name == found[1] }) {
				t.Errorf("%s: no use of %s", name, found[1])
			}
		}
	}
	if n < 40 {
		t.Errorf("found %d scripts", n)
	}
}
