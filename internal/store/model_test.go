package store

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"pgregory.net/rapid"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/redistest"
)

// target is one server that must do as the model does.
type target struct {
	name    string
	link    *link.Link
	restart func()
}

func newTarget(t testing.TB, name, addr string, restart func()) *target {
	return &target{name, newLink(t, addr), restart}
}

// newLink is a link to a server, which the test's cleanup closes.
func newLink(t testing.TB, addr string) *link.Link {
	l := link.New(
		link.NewNode(redistest.Pool(t, addr),
			link.Settings{DialTimeout: 2 * time.Second, MaxBackoff: 10 * time.Millisecond}),
		5*time.Second,
		true,
	)
	t.Cleanup(l.Close)
	return l
}

// do runs one command.
func (s *target) do(cmd string, args ...any) (any, error) {
	return Do(context.Background(), s.link, cmd, args...)
}

// model is a channel as it should be: lists with their left end first. Of a sorted set it knows what is due at once and
// what is not due for an hour; what is in dead.
type model struct {
	prepare, suspect []string
	doing            map[string][]string
	due, later, dead []string
	living           []Incarnation
	gone             []Incarnation // superseded or not
	superseded       map[string]bool
}

// machine drives a channel of both servers and the model through the same history.
type machine struct {
	*rapid.T
	servers []*target
	k       *Keys
	m       model
	n       int
}

const hour = 3600_000

// script runs one of shunt's scripts on each server and returns what both replied; norm hides what may differ, which is
// times.
func (b *machine) script(norm func(any) any, s *link.Script, keys int, args ...any) string {
	b.Helper()
	return b.all(norm, func(c *link.Call) { c.AddScript(s, keys, args...) })
}

func (b *machine) command(name string, args ...any) string {
	b.Helper()
	return b.all(nil, func(c *link.Call) { c.Add(name, args...) })
}

func (b *machine) all(norm func(any) any, fill func(*link.Call)) string {
	b.Helper()
	first := ""
	for i, s := range b.servers {
		c := link.NewCall()
		fill(c)
		if err := s.link.Run(context.Background(), c); err != nil {
			b.Fatalf("%s: %v", s.name, err)
		}
		v := c.Replies[0].Any()
		if norm != nil {
			v = norm(v)
		}
		if reply := fmt.Sprintf("%q", v); i == 0 {
			first = reply
		} else if reply != first {
			b.Fatalf("%s replied %s, %s %s", b.servers[0].name, first, s.name, reply)
		}
	}
	return first
}

func (b *machine) expect(got string, want any) {
	b.Helper()
	if s := fmt.Sprintf("%q", want); got != s {
		b.Fatalf("replied %s, and the model says %s", got, s)
	}
}

// sign hides a time and tells whether there is one.
func sign(v any) any {
	if n, _ := redis.Int64(v, nil); n > 0 {
		return int64(1)
	}
	return int64(0)
}

// firsts hides all of a reply but its first n numbers.
func firsts(n int) func(any) any {
	return func(v any) any {
		vs, _ := redis.Values(v, nil)
		return vs[:min(n, len(vs))]
	}
}

func (b *machine) serial() (s [16]byte) {
	b.n++
	copy(s[:], fmt.Sprintf("%016d", b.n))
	return s
}

// drawn is an element as any producer may put it: with a header, bare, a twin of another.
func (b *machine) drawn() string {
	p := rapid.SampledFrom([]string{"x", "\xc1", "\xc1\x00y", "twin", "z" + string(bytes.Repeat([]byte("z"), 300)),
		"\xc1\x20newer, for it is longer than 20 bytes"}).
		Draw(b.T, "payload")
	if rapid.Bool().Draw(b.T, "bare") {
		return p
	}
	e := element.Element{
		Serial:     b.serial(),
		Payload:    []byte(p),
		Recoveries: rapid.Int16Range(0, 4).Draw(b.T, "recoveries"),
	}
	return string(e.Encode())
}

// list draws a doing list of some incarnations, one that holds something where full.
func (b *machine) list(of []Incarnation, full bool) (string, Incarnation) {
	var some []string
	owner := make(map[string]Incarnation)
	for _, i := range of {
		for w := range i.Workers {
			if l := b.k.Doing(i, w); !full || len(b.m.doing[l]) > 0 {
				some = append(some, l)
				owner[l] = i
			}
		}
	}
	if len(some) == 0 {
		b.Skip("no such list")
	}
	l := rapid.SampledFrom(some).Draw(b.T, "list")
	return l, owner[l]
}

func cut(list []string, e string) ([]string, bool) {
	i := slices.Index(list, e)
	if i < 0 {
		return list, false
	}
	return slices.Delete(slices.Clone(list), i, i+1), true
}

func identity(raw string) string {
	e, _ := element.Decode([]byte(raw))
	return e.Identity([]byte(raw))
}

// next is an element after a failed handling, as a receiver writes it.
func (b *machine) next(raw string) string {
	e, _ := element.Decode([]byte(raw))
	bare := e.Bare
	e = e.Next(fmt.Errorf("failed"))
	if bare {
		e.Serial = b.serial() // and not one by chance, which no history could repeat
	}
	return string(e.Encode())
}

// verdict is a retry or a reject: of something that is held, or too late.
func (b *machine) verdict(f func(doing, old, next string) (replied string), to *[]string) {
	doing, _ := b.list(append(slices.Clone(b.m.living), b.m.gone...), false)
	old := b.drawn()
	if held := b.m.doing[doing]; len(held) > 0 && rapid.IntRange(0, 3).Draw(b.T, "late") > 0 {
		old = rapid.SampledFrom(held).Draw(b.T, "held")
	}
	next := b.next(old)
	for range 1 + rapid.IntRange(0, 1).Draw(b.T, "again") { // sent again, it changes nothing
		left, found := cut(b.m.doing[doing], old)
		b.m.doing[doing] = left
		if found && !slices.Contains(*to, next) {
			*to = append(*to, next)
		}
		want := int64(0)
		if found {
			want = 1
		}
		b.expect(f(doing, old, next), want)
	}
}

func (b *machine) actions() map[string]func(*rapid.T) {
	k, m := b.k, &b.m
	one := func(n int) int64 { return int64(n) }
	acts := map[string]func(){
		"enqueue": func() {
			e := b.drawn()
			m.prepare = append([]string{e}, m.prepare...)
			b.expect(b.command("LPUSH", k.Prepare, e), one(len(m.prepare)))
		},
		"enqueue later": func() {
			e, mode, at := b.drawn(), In, int64(hour)
			to := &m.later
			if rapid.Bool().Draw(b.T, "due") {
				mode, at, to = At, 1, &m.due
			}
			if slices.Contains(m.due, e) || slices.Contains(m.later, e) {
				b.Skip("a set holds it once, at the time of the first")
			}
			*to = append(*to, e)
			b.expect(b.all(sign, func(c *link.Call) { AddLater(c, k, mode, at, []byte(e)) }), one(1))
		},
		"register": func() {
			i := Incarnation{Workers: 1 + b.n%2, Lease: time.Hour}
			s := b.serial()
			i.Name = fmt.Sprintf("%s-%d-%d", element.Element{Serial: s}.Serial, i.Workers, hour)
			m.living = append(m.living, i)
			b.expect(b.script(sign, Register, 1, k.Receivers, i.Name, hour), one(1))
		},
		"beat": func() {
			i := rapid.SampledFrom(append(slices.Clone(m.living), m.gone...)).Draw(b.T, "incarnation")
			there := one(0)
			if slices.Contains(m.living, i) {
				there = 1
			}
			b.expect(b.all(firsts(1), func(c *link.Call) { AddBeat(c, k, i) }), []any{there})
		},
		"take": func() {
			l, _ := b.list(m.living, false)
			from, source := &m.prepare, Source{Keys: k, Doing: l}
			if rapid.IntRange(0, 3).Draw(b.T, "suspect") == 0 {
				from, source.Suspect = &m.suspect, true
			}
			var want []any
			n := rapid.IntRange(1, 3).Draw(b.T, "n")
			for range min(n, len(*from)) {
				e := (*from)[len(*from)-1]
				*from = (*from)[:len(*from)-1]
				m.doing[l] = append([]string{e}, m.doing[l]...)
				want = append(want, one(1), []byte(e))
			}
			if n == 1 && !source.Suspect && rapid.Bool().Draw(b.T, "plain") {
				var e any
				if len(want) > 0 {
					e = want[1]
				}
				b.expect(b.all(nil, func(c *link.Call) { AddTakeOne(c, k, l) }), e)
				return
			}
			if want == nil {
				want = []any{}
			}
			b.expect(b.all(nil, func(c *link.Call) { AddTake(c, []Source{source}, n) }), want)
		},
		"ack": func() {
			l, _ := b.list(append(slices.Clone(m.living), m.gone...), false)
			e := b.drawn()
			if held := m.doing[l]; len(held) > 0 && rapid.IntRange(0, 3).Draw(b.T, "late") > 0 {
				e = rapid.SampledFrom(held).Draw(b.T, "held")
			}
			left, found := cut(m.doing[l], e)
			m.doing[l] = left
			want := one(0)
			if found {
				want = 1
			}
			b.expect(b.command("LREM", l, 1, e), want)
		},
		"ack of several": func() {
			l, _ := b.list(append(slices.Clone(m.living), m.gone...), false)
			held, n := m.doing[l], rapid.IntRange(1, 4).Draw(b.T, "n")
			first := n <= len(held)
			head := func(i int, name string) string { // of the ith from the taking end, or of something else
				if i > len(held) || rapid.IntRange(0, 3).Draw(b.T, name) == 0 {
					first = false
					s := b.serial()
					return "\x00\x00" + string(s[:])
				}
				raw := held[len(held)-i]
				return raw[min(2, len(raw)):min(20, len(raw))]
			}
			from, to := head(1, "other first"), head(n, "other last")
			want := one(-1)
			if first {
				want, m.doing[l] = 1, held[:len(held)-n]
			}
			b.expect(b.script(nil, Ack, 1, l, n, from, to), want)
		},
		"retry": func() {
			wait, to := int64(hour), &m.later
			if rapid.Bool().Draw(b.T, "due") {
				wait, to = -1, &m.due // now is rounded up
			}
			b.verdict(func(doing, old, next string) string {
				return b.script(sign, Retry, 3, k.Receivers, doing, k.Delay, wait, old, next)
			}, to)
		},
		"reject": func() {
			b.verdict(func(doing, old, next string) string {
				e, _ := element.Decode([]byte(old))
				v := &Verdict{Fate: Rejected, Next: []byte(next)}
				return b.all(func(v any) any { return v.([]any)[0] }, func(c *link.Call) {
					AddLeave(c, k, doing, Held{Element: &e, Raw: []byte(old)}, v, &Bounds{})
				})
			}, &m.dead)
		},
		"promote": func() {
			// Where due times are equal the order is that of the scores. The servers need not agree on which score is
			// whose, because each has its own clock. So one is moved at a time.
			for len(m.due) > 0 {
				got := b.script(func(v any) any { return v.([]any)[0] }, Promote, 4, k.Receivers, k.Delay,
					k.Prepare, k.Leased, 1, 1<<20)
				b.expect(got, one(1))
				var e string
				for i, s := range b.servers {
					v, err := redis.String(s.do("LINDEX", k.Prepare, 0))
					if err != nil || !slices.Contains(m.due, v) {
						b.Fatalf("%s promoted %q: %v", s.name, v, err)
					}
					if i == 0 {
						e = v
					} else if v != e {
						b.Fatalf("promoted %q and %q", e, v)
					}
				}
				m.due, _ = cut(m.due, e)
				m.prepare = append([]string{e}, m.prepare...)
			}
			b.expect(
				b.script(func(v any) any { return v.([]any)[0] }, Promote, 4, k.Receivers, k.Delay, k.Prepare, k.Leased,
					10, 1<<20),
				one(0),
			)
		},
		"release": func() {
			l, _ := b.list(m.living, true)
			held := m.doing[l]
			id := identity(rapid.SampledFrom(held).Draw(b.T, "held"))
			var left []string
			n := 0
			for _, e := range held { // the newest first
				if n == 0 && identity(e) == id {
					m.prepare = append(m.prepare, e)
					n++
				} else {
					left = append(left, e)
				}
			}
			m.doing[l] = left
			b.expect(b.all(nil, func(c *link.Call) { AddRelease(c, k, l, id) }), one(n))
		},
		"hand over": func() {
			l, from := b.list(append(slices.Clone(m.living), m.gone...), true)
			worker := slices.Index(k.AllDoing(from), l)
			holder := rapid.SampledFrom(m.living).Draw(b.T, "holder")
			if holder == from || holder.Workers <= worker {
				b.Skip("to itself, or it has no such worker")
			}
			to := k.Doing(holder, worker)
			var ids []any
			for _, e := range m.doing[l] {
				if rapid.Bool().Draw(b.T, "keeps") {
					ids = append(ids, identity(e))
				}
			}
			held := make(map[string][]int)
			for i, id := range ids {
				held[id.(string)] = append(held[id.(string)], i+1)
			}
			back, found := 0, []any{}
			for _, e := range m.doing[l] {
				if is := held[identity(e)]; len(is) > 0 {
					found = append(found, one(is[len(is)-1]))
					held[identity(e)] = is[:len(is)-1]
					m.doing[to] = append(m.doing[to], e)
				} else {
					back++
					m.prepare = append(m.prepare, e)
				}
			}
			m.doing[l] = nil
			h := Handing{From: from, To: holder, Worker: worker, Holder: Holder(holder, worker), Held: ids}
			b.expect(b.all(nil, func(c *link.Call) { AddHandover(c, k, h) }), append([]any{one(back)}, found...))
		},
		"supersede": func() {
			if len(m.living) < 2 {
				b.Skip("the last one stays")
			}
			i := rapid.SampledFrom(m.living).Draw(b.T, "incarnation")
			m.living = slices.DeleteFunc(m.living, func(o Incarnation) bool { return o == i })
			m.gone = append(m.gone, i)
			m.superseded[i.Name] = true
			b.expect(b.all(nil, func(c *link.Call) { AddSupersede(c, k, i.Name, false) }), one(1))
		},
		"reap": func() {
			l, owner := b.list(m.gone, true)
			raise := one(1)
			if m.superseded[owner.Name] && rapid.Bool().Draw(b.T, "superseded") {
				raise = 0
			}
			args := []any{
				k.Receivers,
				l,
				k.Prepare,
				k.Suspect,
				k.Dead,
				k.IDs,
				k.Cancelled,
				k.Done,
				k.Kept,
				k.Running,
				k.Waited,
				0,
				1000,
				raise,
				1 << 20,
				0,
				0,
				element.FailureField("poison"),
				0,
				0,
			}
			var serials [][16]byte
			for range 1 + rapid.IntRange(0, 3).Draw(b.T, "serials") {
				s := b.serial()
				serials = append(serials, s)
				args = append(args, string(s[:]))
			}
			n := min(len(serials), len(m.doing[l]))
			counts, bytes := make([]int64, 3), 0
			var suspects []string
			for i, raw := range m.doing[l][:n] {
				bytes += len(raw)
				e, err := element.Decode([]byte(raw))
				recoveries := 0
				if raise == 1 && err == nil {
					if e.Bare {
						e.Bare, e.Serial = false, serials[i]
					}
					e.Recoveries = min(e.Recoveries+1, 255)
					recoveries = int(e.Recoveries)
					raw = string(e.Encode())
				}
				switch {
				case recoveries < 2:
					m.prepare = append(m.prepare, raw)
					counts[0]++
				case recoveries < 4:
					suspects = append(suspects, raw)
					counts[1]++
				default:
					e.SetFailure("poison")
					if raw = string(e.Encode()); !slices.Contains(m.dead, raw) {
						m.dead = append(m.dead, raw)
					}
					counts[2]++
				}
			}
			m.suspect = append(suspects, m.suspect...)
			m.doing[l] = slices.Clone(m.doing[l][n:])
			b.expect(b.script(nil, Reap, 11, args...),
				[]any{counts[0], counts[1], counts[2], one(0), one(len(m.doing[l])), one(bytes)})
		},
		"revive": func() {
			if len(m.dead) == 0 {
				b.Skip("nothing is dead")
			}
			e := rapid.SampledFrom(m.dead).Draw(b.T, "dead")
			m.dead, _ = cut(m.dead, e)
			m.prepare = append([]string{e}, m.prepare...)
			b.expect(b.script(nil, Revive, 4, k.Dead, k.Prepare, k.IDs, k.Running, e, e, ""), one(1))
		},
		"unregister": func() {
			if len(m.living) < 2 {
				b.Skip("the last one stays")
			}
			i := rapid.SampledFrom(m.living).Draw(b.T, "incarnation")
			held := 0
			for _, l := range k.AllDoing(i) {
				held += len(m.doing[l])
			}
			want := one(0)
			if held == 0 {
				want = 1
				m.living = slices.DeleteFunc(m.living, func(o Incarnation) bool { return o == i })
			}
			b.expect(b.all(nil, func(c *link.Call) { AddUnregister(c, k, i) }), want)
		},
		"restart": func() {
			if rapid.IntRange(0, 4).Draw(b.T, "seldom") > 0 {
				b.Skip("seldom")
			}
			for _, s := range b.servers {
				s.restart()
				// the link learns that its connection is gone
				for _, err := s.do("PING"); err != nil; _, err = s.do("PING") {
				}
			}
		},
	}
	out := map[string]func(*rapid.T){"": func(t *rapid.T) { b.T = t; b.check() }}
	for name, f := range acts {
		out[name] = func(t *rapid.T) { b.T = t; f() }
	}
	return out
}

// check compares all that lies in Redis with the model.
func (b *machine) check() {
	b.Helper()
	m := &b.m
	for _, s := range b.servers {
		list := func(what string, key any, want []string) {
			got, err := redis.Strings(s.do("LRANGE", key, 0, -1))
			if err != nil || !slices.Equal(got, want) {
				b.Fatalf("%s: %s is %q, and the model says %q (%v)", s.name, what, got, want, err)
			}
		}
		set := func(what string, key any, want []string) {
			got, err := redis.Strings(s.do("ZRANGE", key, 0, -1))
			if err != nil || !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))) {
				b.Fatalf("%s: %s is %q, and the model says %q (%v)", s.name, what, got, want, err)
			}
		}
		list("prepare", b.k.Prepare, m.prepare)
		list("suspect", b.k.Suspect, m.suspect)
		for _, l := range slices.Sorted(maps.Keys(m.doing)) {
			list(l, l, m.doing[l])
		}
		set("delay", b.k.Delay, append(slices.Clone(m.due), m.later...))
		set("dead", b.k.Dead, m.dead)
		var names []string
		for _, i := range m.living {
			names = append(names, i.Name)
		}
		set("living", b.k.Receivers, names)
	}
}

// Every transition does the same on miniredis and on redis-server, in whatever order: both reply and end as the model
// says.
func TestModel(t *testing.T) {
	t.Parallel()
	mini, s := redistest.Mini(t), redistest.Start(t, "appendonly yes", "appendfsync always")
	servers := []*target{
		newTarget(t, "miniredis", mini.Addr(), func() {
			mini.Close()
			if err := mini.Restart(); err != nil {
				t.Fatal(err)
			}
		}),
		newTarget(t, "redis-server", s.Addr(), func() { s.Kill(); s.Restart() }),
	}
	histories := 0
	rapid.Check(t, func(rt *rapid.T) {
		histories++
		b := &machine{T: rt, servers: servers, k: KeysOf("h" + strconv.Itoa(histories))}
		b.m.doing, b.m.superseded = make(map[string][]string), make(map[string]bool)
		acts := b.actions()
		acts["register"](rt)
		rt.Repeat(acts)
	})
}
