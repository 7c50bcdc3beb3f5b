package trial

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// Rules that look at who was struck, by what, and for how long.
func TestRules(t *testing.T) {
	at := func(ms int) time.Time { return time.UnixMilli(int64(1000_000 + ms)) }
	enqueued := []Entry{{At: at(0), Op: Enqueue, Phase: Invoke, ID: "a/1", Note: PlanOK},
		{At: at(1), Op: Enqueue, Phase: OK, ID: "a/1"}}
	handled := func(from, attempt int) []Entry {
		return []Entry{{At: at(from), By: "p1", Op: Handle, Phase: Invoke, ID: "a/1", Serial: "sa", Attempt: attempt},
			{At: at(from + 1), By: "p1", Op: Handle, Phase: OK, ID: "a/1", Serial: "sa", Attempt: attempt},
			{At: at(from + 2), By: "p1", Op: "acked", Serial: "sa", Attempt: attempt}}
	}
	failsFor := func(from, due int) []Entry {
		es := handled(from, 1)[:2]
		es[1].Phase, es[1].Due = Fail, at(due)
		return es
	}
	pulled := func(from, attempt int) Entry {
		return Entry{At: at(from), By: "p1", Op: Pulled, ID: "a/1", Serial: "sa", Attempt: attempt,
			Due: at(from + 2000)}
	}
	lost := func(ms int) Entry {
		return Entry{At: at(ms), By: "p1", Op: Answered, Phase: Fail, Serial: "sa", Attempt: 1, Note: "ack " + tooLate}
	}
	tells := func(ms int, op string) Entry {
		return Entry{At: at(ms), By: "p1", Op: op, Serial: "sa", Attempt: 1}
	}
	unsettled := func(ms int) Entry {
		e := tells(ms, "receiver-error")
		e.Note = ` shunt: settle a message of "a": the key {a}.prepare holds something that is not shunt's`
		return e
	}
	fault := func(from, to int, kind, note string) Entry {
		return Entry{At: at(from), By: "p1", Op: Fault, ID: kind, N: 1, Due: at(to), Note: note}
	}
	killed := Entry{At: at(8900), By: "p1", Op: Fault, ID: "kill", N: 1, Due: ForEver}
	stood := Entry{At: at(5), By: "p1", Op: Fault, ID: "stop", N: 1}
	quiet := func(channel, note string) Entry {
		return Entry{At: at(9000), Op: Quiet, Due: at(4000), ID: channel, Note: note}
	}
	later := []Entry{{At: at(0), Op: Enqueue, Phase: Invoke, ID: "a/1", Note: PlanOK, Due: at(100)},
		{At: at(1), Op: Enqueue, Phase: OK, ID: "a/1"}}
	inBatch := func(es []Entry, since int) []Entry {
		es[0].Due = at(since)
		return es
	}
	slow := handled(9500, 1)
	named := slices.Concat(enqueued, slow)
	for i := range named {
		if named[i].ID != "" {
			named[i].ID = "a/n#1"
		}
	}
	putsOff := func(ms, to int) Entry {
		return Entry{At: at(ms), By: "namer", Op: putOff, Phase: Invoke, ID: "a/n", Due: at(to)}
	}
	began := Entry{At: at(0), By: "p1", Op: "started", Note: "one"}
	next := func(ms int) Entry { return Entry{At: at(ms), By: "p1", Op: "handed-over", Note: "two"} }
	dead := Entry{At: at(6900), Op: judged, Note: "one"}
	bare := []Entry{{At: at(10), By: "p1", Op: Handle, Phase: Invoke, ID: "a/1", Attempt: 1},
		{At: at(11), By: "p1", Op: Handle, Phase: OK, ID: "a/1", Attempt: 1}}
	closed := Entry{At: at(9900), By: "p1", Op: Closed, Phase: OK}
	takes := func(channel string, workers int) Entry {
		return Entry{At: at(0), By: "p1", Op: Takes, Phase: OK, ID: channel, N: workers}
	}
	busy := func(from, to int) []Entry {
		return []Entry{{At: at(from - 1), Op: Enqueue, Phase: Invoke, ID: "a/0", Note: PlanOK},
			{At: at(from - 1), Op: Enqueue, Phase: OK, ID: "a/0"},
			{At: at(from), By: "p1", Op: Handle, Phase: Invoke, ID: "a/0", Serial: "s0", Attempt: 1},
			{At: at(to), By: "p1", Op: Handle, Phase: OK, ID: "a/0", Serial: "s0", Attempt: 1},
			{At: at(to), By: "p1", Op: "acked", Serial: "s0", Attempt: 1}}
	}
	brings := func(from, to int, id, serial string) []Entry {
		return []Entry{{At: at(from), By: "p1", Op: Pulled, ID: id, Serial: serial, Attempt: 1, Due: at(99999)},
			{At: at(to), By: "p1", Op: Settled, Phase: Info}}
	}
	batch := func(from, to, workers int) (es []Entry) {
		for n := range workers {
			es = append(es, Entry{At: at(from), By: "p1", Op: Gathered, ID: "a/0", N: n},
				Entry{At: at(to), By: "p1", Op: Returned, ID: "a/0", N: n})
		}
		return es
	}
	reads := func(from, to int) []Entry {
		return []Entry{{At: at(from), By: "p1", Op: decodes, Phase: Invoke},
			{At: at(to), By: "p1", Op: decodes, Phase: OK}}
	}
	meets := func(key string, until int) (es []Entry) {
		if !strings.Contains(key, "}") {
			key = "a}." + key
		}
		for ms := 8950; ms <= until; ms += 50 {
			es = append(es, Entry{At: at(ms), By: "p1", Op: unpulled, Phase: Fail,
				Note: "the key {" + key + " holds something that is not shunt's"})
		}
		return es
	}
	rejected := func(from, told int, id, serial string) []Entry {
		return []Entry{{At: at(from), Op: Enqueue, Phase: Invoke, ID: id, Note: PlanReject},
			{At: at(from), Op: Enqueue, Phase: OK, ID: id},
			{At: at(from + 2), By: "p1", Op: Handle, Phase: Invoke, ID: id, Serial: serial, Attempt: 1},
			{At: at(from + 3), By: "p1", Op: Handle, Phase: Fail, ID: id, Serial: serial, Attempt: 1},
			{At: at(told), By: "p1", Op: "rejected", Serial: serial, Attempt: 1}}
	}
	rejects := func(told int) []Entry { return rejected(2, told, "a/0", "s0") }
	chain := slices.Clone(enqueued)
	chain[0].Note = PlanThen + "1"
	step := []Entry{{At: at(9600), By: "p1", Op: Handle, Phase: Invoke, ID: "a/1>", Serial: "sb", Attempt: 1},
		{At: at(9601), By: "p1", Op: Handle, Phase: OK, ID: "a/1>", Serial: "sb", Attempt: 1},
		{At: at(9602), By: "p1", Op: "acked", Serial: "sb", Attempt: 1}}
	alone := Entry{At: at(8999), Op: Alone, ID: "a/1"}
	refused := Entry{At: at(7), By: "p1", Op: "receiver-error", Note: "one WRONGTYPE"}
	for name, c := range map[string]struct {
		es   [][]Entry
		want string
	}{
		"living and judged":     {[][]Entry{{began, dead}}, "I7 judged"},
		"left, and then judged": {[][]Entry{{began, next(2000), dead}}, ""},
		"left, after a first message": {[][]Entry{{began}, {{At: at(1990), By: "p1", Op: Handle, Phase: Invoke,
			ID: "a/1", Serial: "sa", Attempt: 1, Note: "two"}}, {next(2000), dead}, enqueued,
			handled(1990, 1)[1:]}, ""},
		"judged, and then left": {[][]Entry{{began, dead, next(7000)}}, "I7 judged"},
		"cut and judged":        {[][]Entry{{began, fault(6000, 6000, "cut", Brief), dead}}, "I7 judged"},
		"a skip for nothing":    {[][]Entry{enqueued, {pulled(10, 2)}, handled(20, 2)}, "I18 attempts"},
		"a skip for a cut": {[][]Entry{enqueued, {fault(5, 6, "kill", Brief), pulled(10, 2)},
			handled(20, 2)}, "I18 attempts"},
		"a skip for a kill": {[][]Entry{enqueued, {fault(5, 6, "kill", ""), pulled(10, 2)}, handled(20, 2)}, ""},
		"a skip for an outage": {[][]Entry{enqueued, {fault(5, 6000, "outage", ""), pulled(6010, 2)},
			handled(6020, 2)}, ""},
		"a skip for a hole": {[][]Entry{enqueued, {fault(5, 6000, "hole", ""), pulled(6010, 2)},
			handled(6020, 2)}, ""},
		"a skip for a mute line": {[][]Entry{enqueued, {fault(5, 6000, "mute", ""), pulled(6010, 2)},
			handled(6020, 2)}, ""},
		"a skip, and Redis took it not back": {[][]Entry{enqueued, {unsettled(10), pulled(3000, 2)},
			handled(3010, 2)}, ""},
		"two skips, and Redis took it not back once": {[][]Entry{enqueued, {unsettled(10),
			pulled(3000, 3)}, handled(3010, 3)}, "I18 attempts"},
		"a skip, and Redis took not back what was handed out": {[][]Entry{enqueued, {pulled(10, 1),
			unsettled(20), pulled(3000, 3)}, handled(3010, 3)}, "I18 attempts"},
		"a skip for another error": {[][]Entry{enqueued, {tells(10, "receiver-error"), pulled(3000, 2)},
			handled(3010, 2)}, "I18 attempts"},
		"a skip for a process that stood still": {[][]Entry{enqueued, {fault(5, 6000, "freeze", ""), pulled(6010, 2)},
			handled(6020, 2)}, ""},
		"a skip for a server that stood still": {[][]Entry{enqueued, {fault(5, 6000, "stop server", ""),
			pulled(6010, 2)}, handled(6020, 2)}, ""},
		"a skip for a line in pieces": {[][]Entry{enqueued, {fault(5, 6000, "slice", ""), pulled(6010, 2)},
			handled(6020, 2)}, ""},
		"a skip after its holder's second handling": {[][]Entry{enqueued, {pulled(10, 1),
			fault(2500, 2510, "kill", ""), pulled(3000, 2)}, handled(4900, 2)[:1], {pulled(6030, 4)},
			handled(6040, 4)}, "I18 attempts"},
		"a skip for a slow line": {[][]Entry{enqueued, {fault(5, 6000, "slow", ""), pulled(6010, 2)},
			handled(6020, 2)}, "I18 attempts"},
		"a skip, and then a verdict that may have settled it": {[][]Entry{enqueued, {fault(5, 6, "kill", ""),
			tells(9000, "unconfirmed-verdict"), pulled(9010, 2)}, handled(9020, 2)}, ""},
		"a skip, and then a verdict that is too late": {[][]Entry{enqueued, {fault(5, 6, "kill", ""),
			tells(9000, "late-verdict"), pulled(9010, 2)}, handled(9020, 2)}, ""},
		"a skip after a verdict": {[][]Entry{enqueued, {fault(5, 6, "kill", ""),
			tells(9000, "retried"), pulled(9010, 2)}, handled(9020, 2)}, "I18 attempts"},
		"a skip, and then one who had it before": {[][]Entry{enqueued, {pulled(10, 1), fault(2500, 2510, "kill", "")},
			handled(8990, 1)[:2], {lost(9000), pulled(9010, 3)}, handled(9020, 3)}, ""},
		"a skip, and one who told late what it had had": {[][]Entry{enqueued, {fault(2500, 2510, "kill", ""),
			stood, {At: at(8990), By: "p1", Op: Pulled, ID: "a/1", Serial: "sa", Attempt: 1, Due: at(2010)},
			lost(9000), pulled(9010, 3)}, handled(9020, 3)}, ""},
		"a skip amid a handling": {[][]Entry{enqueued, handled(10, 1)[:1], {fault(2500, 2510, "kill", "")},
			{{At: at(9000), By: "p1", Op: Handle, Phase: Fail, ID: "a/1", Serial: "sa", Attempt: 1}, pulled(9010, 3)},
			handled(9020, 3)}, ""},
		"a skip while it was held": {[][]Entry{enqueued, {fault(5, 6, "kill", ""), pulled(4000, 1)},
			handled(5000, 1)[:1], {lost(6020), pulled(6030, 3)}, handled(6040, 3)}, "I18 attempts"},
		"lost at its end": {[][]Entry{enqueued, {pulled(10, 1), lost(2020)}, handled(2030, 1)}, ""},
		"lost in its grace": {[][]Entry{enqueued, {pulled(10, 1), fault(1000, 3000, "stop", Spared),
			lost(3400)}, handled(3450, 1)}, "I20 lost too soon"},
		"lost after its grace": {[][]Entry{enqueued, {pulled(10, 1), fault(1000, 3000, "stop", Spared),
			lost(3600)}, handled(3650, 1)}, ""},
		"twice": {[][]Entry{enqueued, {fault(10, 20, "cut", Brief)}, handled(4000, 1)[:2], handled(4100, 1)},
			"I5 unexplained"},
		"a fail that was executed": {[][]Entry{enqueued, {pulled(10, 1)}, failsFor(20, 3000),
			{{At: at(22), By: "p1", Op: Answered, Phase: OK, Serial: "sa", Attempt: 1, Note: "fail"}, pulled(2030, 2)},
			handled(2040, 2)}, "I9 early"},
		"a fail that nobody answered": {[][]Entry{enqueued, {pulled(10, 1)}, failsFor(20, 3000),
			{fault(22, 23, "kill", ""), pulled(2030, 2)}, handled(2040, 2)}, ""},
		"twice, struck while its batch waited": {[][]Entry{enqueued, {fault(10, 20, "cut", Brief)},
			inBatch(handled(4000, 1)[:2], 5), handled(4100, 1)}, ""},
		"twice, struck before its batch": {[][]Entry{enqueued, {fault(10, 20, "cut", Brief)},
			inBatch(handled(4000, 1)[:2], 3990), handled(4100, 1)}, "I5 unexplained"},
		"stranded":                   {[][]Entry{enqueued, {quiet("", "")}, slow}, "I2 not drained"},
		"stranded, as one is killed": {[][]Entry{enqueued, {killed, quiet("", "")}, slow}, ""},
		"stranded after a kill": {[][]Entry{enqueued, {{At: at(3900), By: "p1", Op: Fault, ID: "kill", N: 1,
			Due: ForEver}, quiet("", "")}, slow}, "I2 not drained"},
		"stranded where it may be": {[][]Entry{enqueued, {quiet("a", "")}, slow}, ""},
		"stranded elsewhere":       {[][]Entry{enqueued, {quiet("b", "")}, slow}, "I2 not drained"},
		"stranded, not delayed":    {[][]Entry{enqueued, {quiet("a", LaterOnly)}, slow}, "I2 not drained"},
		"stranded, delayed":        {[][]Entry{later, {quiet("a", LaterOnly)}, slow}, ""},
		"stranded, put off":        {[][]Entry{named, {quiet("", "")}, {putsOff(3000, 3900)}}, "I2 not drained"},
		"stranded, put off later":  {[][]Entry{named, {quiet("", "")}, {putsOff(3000, 4100)}}, ""},
		"stranded, another put off": {[][]Entry{enqueued, {quiet("", "")}, slow, {putsOff(3000, 4100)}},
			"I2 not drained"},
		"stranded, a suspect": {[][]Entry{enqueued, {{At: at(8999), Op: Alone, ID: "a/1"}, quiet("", "")},
			slow}, ""},
		"stranded, a step": {[][]Entry{chain, handled(10, 1), {alone, quiet("", "")}, step}, "I2 not drained"},
		"of an ack to come": {[][]Entry{chain, handled(10, 1)[:2], {fault(10, 20, "cut", Brief), alone, quiet("", "")},
			handled(9500, 1), step}, ""},
		"behind another": {[][]Entry{enqueued, {takes("a", 1), quiet("", "")}, busy(8950, 9490), slow}, ""},
		"beside another": {[][]Entry{enqueued, {takes("a", 2), quiet("", "")}, busy(8950, 9490), slow},
			"I2 not drained"},
		"behind, and forgotten": {[][]Entry{enqueued, {takes("a", 1), quiet("", "")}, busy(8950, 9390), slow},
			"I2 not drained"},
		"behind, and struck": {[][]Entry{enqueued, {takes("a", 1), quiet("", ""), fault(9350, 9360, "cut", Brief)},
			busy(8950, 9390), slow}, ""},
		"behind another's": {[][]Entry{enqueued, {takes("b", 1), quiet("", "")}, busy(8950, 9490), slow},
			"I2 not drained"},
		"in a puller's hands": {[][]Entry{enqueued, {takes("a", 2), quiet("", "")}, brings(8950, 9503, "a/1", "sa"),
			slow}, ""},
		"behind a pull": {[][]Entry{enqueued, {takes("a", 1), quiet("", "")}, busy(8960, 8970),
			brings(8950, 9499, "a/0", "s0"), slow}, ""},
		"after a pull": {[][]Entry{enqueued, {takes("a", 1), quiet("", "")}, busy(8960, 8970),
			brings(8950, 9300, "a/0", "s0"), slow}, "I2 not drained"},
		"behind what decodes": {[][]Entry{enqueued, {takes("a", 1), quiet("", "")}, reads(8950, 9450), slow}, ""},
		"after what decodes": {[][]Entry{enqueued, {takes("a", 1), quiet("", "")}, reads(8950, 9350), slow},
			"I2 not drained"},
		"in a batch": {[][]Entry{enqueued, {takes("a", 2), {At: at(8900), By: "p1", Op: Gathered, ID: "a/1"},
			quiet("", "")}, busy(8910, 9490), slow}, ""},
		"behind a batch": {[][]Entry{enqueued, {takes("a", 2), quiet("", "")}, batch(8950, 9490, 2), slow}, ""},
		"beside a batch": {[][]Entry{enqueued, {takes("a", 3), quiet("", "")}, batch(8950, 9490, 2), slow},
			"I2 not drained"},
		"after a batch": {[][]Entry{enqueued, {takes("a", 2), quiet("", "")}, batch(8950, 9390, 2), slow},
			"I2 not drained"},
		"behind what is refused": {[][]Entry{enqueued, {takes("a", 1), refused, quiet("", "")}, rejects(9450),
			slow}, ""},
		"behind what nobody tells of": {[][]Entry{enqueued, {takes("a", 1), quiet("", "")}, rejects(9450),
			slow}, "I2 not drained"},
		"beside what is refused": {[][]Entry{enqueued, {takes("a", 2), refused, quiet("", "")}, rejects(9600),
			slow}, "I2 not drained"},
		"behind what is refused, while others are put back": {[][]Entry{enqueued, {takes("a", 1), refused,
			{At: at(20), By: "p1", Op: "released", N: 2}, quiet("", "")}, rejected(2, 9450, "a/0", ""), slow}, ""},
		"behind what is refused, while another is unconfirmed": {[][]Entry{enqueued, {takes("a", 1), refused,
			{At: at(20), By: "p1", Op: "unconfirmed-verdict", Attempt: 1}, quiet("", "")},
			rejected(2, 9450, "a/0", ""), slow}, ""},
		"after what is put back by its verdict": {[][]Entry{enqueued, {takes("a", 1), refused,
			{At: at(20), By: "p1", Op: "released", Serial: "s0", Attempt: 1}, quiet("", "")}, rejects(9450), slow},
			"I2 not drained"},
		"behind what is refused, while another is not": {[][]Entry{enqueued, {takes("a", 1), refused,
			quiet("", "")}, rejected(2, 9450, "a/0", ""), rejected(20, 24, "b/2", ""), slow}, ""},
		"behind a key that is in a pull's way": {[][]Entry{enqueued, {takes("a", 1), quiet("", "")},
			meets("suspect", 9450), slow}, ""},
		"behind such a key of leases": {[][]Entry{enqueued, {takes("a", 1), quiet("", "")},
			meets("leased", 9450), slow}, ""},
		"after such a key": {[][]Entry{enqueued, {takes("a", 1), quiet("", "")}, meets("suspect", 9350), slow},
			"I2 not drained"},
		"beside such a key": {[][]Entry{enqueued, {takes("a", 2), quiet("", "")}, meets("suspect", 9450), slow},
			"I2 not drained"},
		"behind a key that is in no pull's way": {[][]Entry{enqueued, {takes("a", 1), quiet("", "")},
			meets("keeper", 9450), slow}, "I2 not drained"},
		"behind such a key of another channel": {[][]Entry{enqueued, {takes("a", 1), quiet("", "")},
			meets("b}.suspect", 9450), slow}, "I2 not drained"},
		"silent": {[][]Entry{enqueued, bare, {closed}}, "I4 silent ack"},
		"not silent": {[][]Entry{enqueued, bare, {{At: at(12), By: "p1", Op: "acked", Attempt: 1},
			closed}}, ""},
		"not kept": {[][]Entry{{{At: at(5), Op: unkept, ID: "x"}}}, "I24 not kept"},
	} {
		t.Run(name, func(t *testing.T) {
			h := &History{Margins: VirtualTime(), Entries: slices.Concat(c.es...), Ends: time.Minute}
			sortEntries(h.Entries)
			var want []string
			if c.want != "" {
				want = []string{c.want}
			}
			for _, e := range h.Entries {
				if e.Op == Enqueue && e.Note == PlanReject {
					h.Left = append(h.Left, Place{ID: e.ID, State: "dead", Key: "{" + channelOf(e.ID) + "}.dead"})
				}
			}
			if v := Check(h); !slices.Equal(v.Broke(), want) {
				t.Errorf("reported %v, want %v\n%v", v.Broke(), want, v.Err())
			}
		})
	}
}

// A handling is counted where a handler has begun, and where a message left while it waited for a place in a batch.
func TestBegun(t *testing.T) {
	begins := Entry{By: "p", Op: Handle, Phase: Invoke, Serial: "s"}
	gathers := Entry{By: "p", Op: Gathered}
	end := func(by, op, serial string) Entry { return Entry{By: by, Op: op, Serial: serial} }
	retried := end("p", "retried", "s")
	for name, c := range map[string]struct {
		es   []Entry
		want int
	}{
		"handled":                      {[]Entry{gathers, begins, end("p", "acked", "s")}, 1},
		"handled, and released":        {[]Entry{gathers, begins, end("p", "released", "s")}, 1},
		"released, and never in hand":  {[]Entry{end("p", "released", "s")}, 0},
		"released by another":          {[]Entry{gathers, end("q", "released", "s")}, 0},
		"a wait, and a lost lease":     {[]Entry{gathers, end("p", "released", "")}, 1},
		"a wait, and a timeout":        {[]Entry{gathers, end("p", "timed-out", "s"), retried}, 1},
		"a handling, and then a wait":  {[]Entry{gathers, begins, retried, retried}, 2},
		"a wait beside a handling":     {[]Entry{gathers, begins, end("p", "released", "other")}, 2},
		"two handlings, two verdicts":  {[]Entry{gathers, begins, begins, end("p", "acked", "s"), retried}, 2},
		"a handling that has no end":   {[]Entry{gathers, begins}, 1},
		"an event that ends no tenure": {[]Entry{gathers, end("p", "orphaned", "s")}, 0},
	} {
		if n := (&History{Entries: c.es}).begun(); n != c.want {
			t.Errorf("%s: %d handlings, want %d", name, n, c.want)
		}
	}
}

// Of what dies, the last ones stay, whoever has put them into dead.
func TestDropped(t *testing.T) {
	for _, c := range []struct {
		left      []int
		step      time.Duration // a fifth of what lies between deaths
		slow      bool          // 3 has died first, and its process hears of it late
		unhandled int           // as many more have died just before 3, and nobody had begun them
		untold    int           // as many more are dead, and nobody has told of it
		want      []string
	}{
		{[]int{3, 4}, time.Millisecond, false, 0, 0, nil},
		{[]int{1, 3, 4}, time.Millisecond, false, 0, 0, nil},
		{[]int{1, 2, 4}, time.Millisecond, false, 0, 0, []string{"I12 dropped"}},
		{[]int{1, 2, 4}, time.Millisecond, false, 1, 0, nil},
		{[]int{1, 2, 4}, 0, false, 0, 0, nil},
		{[]int{1, 2, 4}, time.Millisecond / 5, false, 0, 0, nil},
		{[]int{1, 2, 4}, time.Millisecond, false, 0, 1, nil},
		{[]int{0, 1, 2}, time.Millisecond, false, 0, 1, []string{"I12 dropped"}},
		{[]int{0, 1}, time.Millisecond, false, 0, 2, nil},
		{[]int{4}, time.Millisecond, false, 0, 0, []string{"I12 dropped"}},
		{[]int{1, 2, 4}, time.Millisecond, true, 0, 0, nil},
	} {
		h := &History{MaxDead: 4}
		at := time.Unix(1000, 0)
		for i := range 5 {
			id := string(rune('0' + i))
			for _, e := range []Entry{{Op: Enqueue, Phase: Invoke, ID: "a/" + id, Note: PlanReject},
				{Op: Enqueue, Phase: OK, ID: "a/" + id},
				{By: "p", Op: Handle, Phase: Invoke, ID: "a/" + id, Serial: id, Attempt: 1},
				{By: "p", Op: Handle, Phase: Fail, ID: "a/" + id, Serial: id, Attempt: 1},
				{By: "p", Op: "rejected", Serial: id, Attempt: 1}} {
				at = at.Add(c.step)
				if i == 3 && e.Op == "rejected" {
					for n := range c.unhandled {
						h.Entries = append(h.Entries, Entry{At: at, By: "p", Op: e.Op, Serial: string(rune('a' + n))})
					}
				}
				if e.At = at; c.slow && i == 3 && e.Op != "rejected" {
					e.At = time.Unix(1000, 0)
				}
				h.Entries = append(h.Entries, e)
			}
		}
		for _, i := range c.left {
			n := string(rune('0' + i))
			h.Left = append(h.Left, Place{ID: "a/" + n, Serial: n, State: "dead", Key: "{a}.dead"})
		}
		for i := range c.unhandled + c.untold {
			n := string(rune('a' + i))
			h.Entries = append(h.Entries, Entry{Op: Enqueue, Phase: Invoke, ID: "a/" + n, Note: PlanReject},
				Entry{Op: Enqueue, Phase: OK, ID: "a/" + n})
			h.Left = append(h.Left, Place{ID: "a/" + n, Serial: n, State: "dead", Key: "{a}.dead"})
		}
		sortEntries(h.Entries)
		if got := Check(h).Broke(); !slices.Equal(got, c.want) {
			t.Errorf("with %v left, and %d: reported %v, want %v", c.left, c.unhandled+c.untold, got, c.want)
		}
	}
}
