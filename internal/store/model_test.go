package store

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/oklog/ulid/v2"
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

// channel is a channel as it should be: lists with their left end first. Of a sorted set it knows what is due at once
// and what is not due for an hour; what is in dead; and of each lease that is listed when it ends.
type channel struct {
	k                *Keys
	prepare, suspect []string
	due, later, dead []string
	ends             map[string]end
}

// model is a channel that has receivers, and one beside it that has none. What they hold is by the list's key.
type model struct {
	channel
	low        channel
	doing      map[string][]string
	living     []Incarnation
	gone       []Incarnation // superseded or not
	superseded map[string]bool
	leases     []Lease // all that were ever drawn
}

// machine drives two channels of both servers and the model through the same history.
type machine struct {
	*rapid.T
	servers []*target
	k       *Keys
	m       model
	n       int
}

const hour = 3600_000

// end is when a lease ends, as a test knows it that takes some seconds.
type end struct {
	in      int  // half hours from now; over: none
	putOff  bool // .5 behind a whole number
	lapsing bool // .25 behind one
}

// over stands for the end that the machine gives a lease that is over: one of 1970, which each lapse of a part makes 1
// less. It is no round number: miniredis would print 1e+09, and its Lua would read no number from that.
const (
	over   = -1 << 20
	of1970 = 1234567890
)

// endOf reads a score.
func endOf(score float64, now time.Time) end {
	part := score - math.Trunc(score)
	e := end{int(math.Round((score - float64(now.UnixMilli())) / (hour / 2))), part == .5, part == .25}
	if score < 2*of1970 {
		e.in = over
	}
	return e
}

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
	if own := rapid.SampledFrom([]int{0, 0, 1, 3, -1}).Draw(b.T, "own bound"); own != 0 {
		e.SetMaxAttempts(own)
	}
	return string(e.Encode())
}

// often is true three times of four. A range of numbers is not drawn evenly: its ends come more often.
func (b *machine) often(label string) bool {
	once := rapid.Bool().Draw(b.T, label)
	return once || rapid.Bool().Draw(b.T, label)
}

// upTo draws 1 to n, one about as often as another.
func (b *machine) upTo(n int, label string) int {
	return 1 + rapid.IntRange(0, 1<<20).Draw(b.T, label)%n
}

// bytes draws after how many bytes a script stops.
func (b *machine) bytes() int {
	if b.often("no bound") {
		return 1 << 20
	}
	return 100
}

// lease draws the name of one, which was used before or not.
func (b *machine) lease() Lease {
	if n := len(b.m.leases); n > 0 && b.often("known lease") {
		return rapid.SampledFrom(b.m.leases).Draw(b.T, "lease")
	}
	b.n++
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
	most := rapid.SampledFrom([]int{0, 1, 3}).Draw(b.T, "most attempts")
	l, err := ParseLease(fmt.Sprintf("%s%c%c%c-%d-%d", letters[:23], letters[b.n>>10&31], letters[b.n>>5&31],
		letters[b.n&31], most, hour))
	if err != nil {
		b.Fatal(err)
	}
	b.m.leases = append(b.m.leases, l)
	return l
}

// one draws one of the channels.
func (b *machine) one() *channel {
	if b.often("high") {
		return &b.m.channel
	}
	return &b.m.low
}

// any draws a list that a worker or a lease holds, and mostly one that has something.
func (b *machine) any() (string, *channel) {
	var some, full []string
	at := make(map[string]*channel)
	add := func(c *channel, l string) {
		at[l] = c
		if some = append(some, l); len(b.m.doing[l]) > 0 {
			full = append(full, l)
		}
	}
	for _, i := range append(slices.Clone(b.m.living), b.m.gone...) {
		for _, l := range b.k.AllDoing(i) {
			add(&b.m.channel, l)
		}
	}
	for _, l := range b.m.leases {
		add(&b.m.channel, b.m.k.LeaseList(l.Name))
		add(&b.m.low, b.m.low.k.LeaseList(l.Name))
	}
	if len(full) > 0 && b.often("full") {
		some = full
	}
	l := rapid.SampledFrom(some).Draw(b.T, "list")
	return l, at[l]
}

// held draws an element for a list to lose: one that it holds, or one that comes too late or is another's.
func (b *machine) held(list string) string {
	if !b.often("its own") {
		list, _ = b.any()
	}
	if held := b.m.doing[list]; len(held) > 0 && b.often("one that is held") {
		return rapid.SampledFrom(held).Draw(b.T, "held")
	}
	return b.drawn()
}

// listed draws a lease that a channel lists, and mostly one that holds something.
func (b *machine) listed() (Lease, *channel) {
	type at struct {
		name string
		*channel
	}
	var some, full []at
	for _, c := range []*channel{&b.m.channel, &b.m.low} {
		for _, name := range slices.Sorted(maps.Keys(c.ends)) {
			if some = append(some, at{name, c}); len(b.m.doing[c.k.LeaseList(name)]) > 0 {
				full = append(full, at{name, c})
			}
		}
	}
	if len(some) == 0 {
		b.Skip("no lease")
	}
	if len(full) > 0 && b.often("full") {
		some = full
	}
	drawn := some[b.upTo(len(some), "listed")-1]
	l, _ := ParseLease(drawn.name)
	return l, drawn.channel
}

// setEnd sets when a lease ends.
func (b *machine) setEnd(c *channel, l Lease, to end) {
	c.ends[l.Name] = to
	for _, s := range b.servers {
		at := int64(of1970)
		if to.in != over {
			at = time.Now().Add(time.Duration(to.in) * 30 * time.Minute).UnixMilli()
		}
		score := strconv.FormatInt(at, 10)
		if to.putOff {
			score += ".5"
		}
		if _, err := s.do("ZADD", c.k.Leased, score, l.Name); err != nil {
			b.Fatal(err)
		}
	}
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

// supersede ends an incarnation that lives.
func (b *machine) supersede(i Incarnation) {
	m := &b.m
	m.living = slices.DeleteFunc(m.living, func(o Incarnation) bool { return o == i })
	m.gone = append(m.gone, i)
	m.superseded[i.Name] = true
	b.expect(b.all(nil, func(c *link.Call) { AddSupersede(c, b.k, i.Name, false) }), int64(1))
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
func (b *machine) verdict(f func(c *channel, doing, old, next string) (replied string), to func(*channel) *[]string) {
	doing, c := b.any()
	old := b.held(doing)
	next := b.next(old)
	for range 1 + rapid.IntRange(0, 1).Draw(b.T, "again") { // sent again, it changes nothing
		left, found := cut(b.m.doing[doing], old)
		b.m.doing[doing] = left
		if set := to(c); found && !slices.Contains(*set, next) {
			*set = append(*set, next)
		}
		want := int64(0)
		if found {
			want = 1
		}
		b.expect(f(c, doing, old, next), want)
	}
}

func (b *machine) actions() map[string]func(*rapid.T) {
	k, m := b.k, &b.m
	one := func(n int) int64 { return int64(n) }
	acts := map[string]func(){
		"enqueue": func() {
			c := b.one()
			to, args := &c.prepare, []any{c.k.Prepare}
			if !b.often("prepare") {
				to, args = &c.suspect, []any{c.k.Suspect}
			}
			for range b.upTo(6, "n") {
				e := b.drawn()
				*to = append([]string{e}, *to...)
				args = append(args, e)
			}
			b.expect(b.command("LPUSH", args...), one(len(*to)))
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
			l, _ := b.any()
			e := b.held(l)
			left, found := cut(m.doing[l], e)
			m.doing[l] = left
			want := one(0)
			if found {
				want = 1
			}
			b.expect(b.command("LREM", l, 1, e), want)
		},
		"ack of several": func() {
			l, _ := b.any()
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
			wait, due := int64(hour), false
			if rapid.Bool().Draw(b.T, "due") {
				wait, due = -1, true // now is rounded up
			}
			b.verdict(func(c *channel, doing, old, next string) string {
				return b.script(sign, Retry, 3, c.k.Receivers, doing, c.k.Delay, wait, old, next)
			}, func(c *channel) *[]string {
				if due {
					return &c.due
				}
				return &c.later
			})
		},
		"reject": func() {
			b.verdict(func(c *channel, doing, old, next string) string {
				e, _ := element.Decode([]byte(old))
				v := &Verdict{Fate: Rejected, Next: []byte(next)}
				return b.all(func(v any) any { return v.([]any)[0] }, func(call *link.Call) {
					AddLeave(call, c.k, doing, Held{Element: &e, Raw: []byte(old)}, v, &Bounds{})
				})
			}, func(c *channel) *[]string { return &c.dead })
		},
		"promote": func() {
			// Each server has its own clock, so which of two scores is less, or whether they are equal, may differ. All
			// are due on each of them; then they are given an order.
			c := b.one()
			if len(c.due) > 0 {
				for _, s := range b.servers {
					b.order(s, c)
				}
			}
			promote := func(n int) string {
				return b.script(func(v any) any { return v.([]any)[0] }, Promote, 4, c.k.Receivers, c.k.Delay,
					c.k.Prepare, c.k.Leased, n, 1<<20)
			}
			for len(c.due) > 0 {
				n := b.upTo(3, "n")
				due := c.due[:min(n, len(c.due))]
				b.expect(promote(n), one(len(due)))
				for _, e := range due {
					c.prepare = append([]string{e}, c.prepare...)
				}
				c.due = slices.Clone(c.due[len(due):])
			}
			b.expect(promote(10), one(0))
		},
		"release": func() {
			l, c := b.any()
			held := m.doing[l]
			if len(held) == 0 {
				b.Skip("it is empty")
			}
			id := identity(rapid.SampledFrom(held).Draw(b.T, "held"))
			var left []string
			n := 0
			for _, e := range held { // the newest first
				if n == 0 && identity(e) == id {
					c.prepare = append(c.prepare, e)
					n++
				} else {
					left = append(left, e)
				}
			}
			m.doing[l] = left
			b.expect(b.all(nil, func(call *link.Call) { AddRelease(call, c.k, l, id) }), one(n))
		},
		"hand over": func() {
			l, from := b.list(append(slices.Clone(m.living), m.gone...), true)
			worker := slices.Index(k.AllDoing(from), l)
			others := slices.DeleteFunc(slices.Clone(m.living), func(i Incarnation) bool {
				return i == from || i.Workers <= worker
			})
			if len(others) == 0 {
				b.Skip("no other has such a worker")
			}
			holder := rapid.SampledFrom(others).Draw(b.T, "holder")
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
			b.supersede(rapid.SampledFrom(m.living).Draw(b.T, "incarnation"))
		},
		"reap": func() {
			if len(m.living) > 1 { // one dies that holds something, where any does
				_, holder := b.list(m.living[1:], true)
				b.supersede(holder)
			}
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
				[]any{counts[0], counts[1], counts[2], one(0), one(len(m.doing[l])), one(bytes), one(0)})
		},
		"revive": func() {
			c := b.one()
			if len(c.dead) == 0 {
				b.Skip("nothing is dead")
			}
			e := rapid.SampledFrom(c.dead).Draw(b.T, "dead")
			c.dead, _ = cut(c.dead, e)
			c.prepare = append([]string{e}, c.prepare...)
			b.expect(b.script(nil, Revive, 4, c.k.Dead, c.k.Prepare, c.k.IDs, c.k.Running, e, e, ""), one(1))
		},
		"lease": func() {
			l, from := b.lease(), []*channel{&m.channel, &m.low}
			switch rapid.IntRange(0, 3).Draw(b.T, "from") {
			case 1:
				slices.Reverse(from)
			case 2:
				from = from[:1]
			case 3:
				from = from[1:]
			}
			budget, serials := b.bytes(), make([]ulid.ULID, b.upTo(4, "n"))
			for i := range serials {
				serials[i] = b.serial()
			}
			want := []any{}
			took := func(i int) {
				c := from[i]
				c.ends[l.Name] = end{in: 2}
				for _, e := range slices.Backward(m.doing[c.k.LeaseList(l.Name)]) {
					want = append(want, one(i+1), []byte(e))
				}
			}
			ks := make([]*Keys, len(from))
			for i, c := range from {
				ks[i] = c.k
				if len(m.doing[c.k.LeaseList(l.Name)]) > 0 { // sent again
					took(i)
				}
			}
			for i := 0; i < len(from) && len(want) == 0; i++ {
				c := from[i]
				if _, known := c.ends[l.Name]; known { // it was given up, or settled
					continue
				}
				list, most, bytes, source := c.k.LeaseList(l.Name), len(serials), 0, &c.prepare
				if len(c.suspect) > 0 {
					source, most = &c.suspect, 1
				}
				for i := 0; i < most && bytes < budget && len(*source) > 0; i++ {
					raw := (*source)[len(*source)-1]
					*source = (*source)[:len(*source)-1]
					bytes += len(raw)
					if e, err := element.Decode([]byte(raw)); err == nil && e.Bare {
						e.Bare, e.Serial = false, serials[i]
						raw = string(e.Encode())
					}
					m.doing[list] = append([]string{raw}, m.doing[list]...)
				}
				if len(m.doing[list]) > 0 {
					took(i)
				}
			}
			timeless := func(v any) any { return v.([]any)[2:] }
			b.expect(b.all(timeless, func(c *link.Call) { addLease(c, ks, l, budget, time.Now(), serials) }), want)
		},
		"lease each": func() {
			var ls []Lease
			for range b.upTo(3, "n") {
				if l := b.lease(); !slices.Contains(ls, l) {
					ls = append(ls, l)
				}
			}
			c, want, empty := &m.channel, []any{}, 1
			suspect := len(c.suspect) > 0
			if suspect {
				empty = 0
			}
			bare := func(raw string) bool {
				e, err := element.Decode([]byte(raw))
				return err == nil && e.Bare
			}
			if len(ls) == 0 || slices.ContainsFunc(c.prepare[max(0, len(c.prepare)-len(ls)):], bare) {
				b.Skip("no lease, or it would get a serial of the script's")
			}
			for i, l := range ls {
				if suspect || len(c.prepare) == 0 {
					break
				}
				if _, known := c.ends[l.Name]; known {
					empty = 0
					continue
				}
				raw := c.prepare[len(c.prepare)-1]
				c.prepare = c.prepare[:len(c.prepare)-1]
				c.ends[l.Name] = end{in: 2}
				list := c.k.LeaseList(l.Name)
				m.doing[list] = append([]string{raw}, m.doing[list]...)
				want = append(want, one(i+1), []byte(raw))
			}
			timeless := func(v any) any { return v.([]any)[1:] }
			b.expect(b.all(timeless, func(call *link.Call) { AddLeaseEach(call, c.k, ls, 1<<20) }),
				append([]any{one(empty)}, want...))
		},
		"extend": func() {
			l, c := b.lease(), b.one()
			if b.often("listed") {
				l, c = b.listed()
			}
			by, want := rapid.SampledFrom([]int{1, 4}).Draw(b.T, "half hours"), []any{one(0)}
			if len(m.doing[c.k.LeaseList(l.Name)]) > 0 && !c.ends[l.Name].lapsing {
				want = []any{one(1)}
				if c.ends[l.Name].in < by {
					c.ends[l.Name] = end{in: by}
				}
			}
			b.expect(b.all(nil, func(call *link.Call) {
				AddExtend(call, c.k, l.Name, time.Duration(by)*30*time.Minute)
			}), want)
		},
		"lease is over": func() {
			l, c := b.listed()
			b.setEnd(c, l, end{in: over})
			var names []string
			for _, name := range slices.Sorted(maps.Keys(c.ends)) {
				if e := c.ends[name]; e.in == over {
					names = append(names, name)
				}
			}
			for _, s := range b.servers {
				leases, err := OverLeases(context.Background(), s.link, c.k, 1000)
				var got []string
				for _, l := range leases {
					got = append(got, l.Name)
				}
				if slices.Sort(got); err != nil || !slices.Equal(got, names) {
					b.Fatalf("%s: over are %q, want %q: %v", s.name, got, names, err)
				}
			}
		},
		"lapse": b.lapse,
		"sweep after the clock was set back": func() {
			l, c := b.listed()
			b.setEnd(c, l, end{in: 400, putOff: !b.often("not put off")}) // more than a week
			for _, s := range b.servers {
				if _, err := RunSweep(context.Background(), s.link, c.k, Sweeping{}); err != nil {
					b.Fatalf("%s: %v", s.name, err)
				}
			}
			c.ends[l.Name] = end{in: 2}
		},
		"give back": func() {
			l, c := b.listed()
			list := c.k.LeaseList(l.Name)
			held := m.doing[list]
			c.prepare = append(c.prepare, held...)
			delete(m.doing, list)
			c.ends[l.Name] = end{} // it stays known for a minute
			b.expect(b.all(nil, func(call *link.Call) { AddGiveBack(call, c.k, l.Name) }), one(len(held)))
		},
		"unlease": func() {
			forgotten := one(0)
			l, c := b.listed()
			names := []string{b.lease().Name, l.Name}
			for _, name := range names {
				if _, is := c.ends[name]; is && len(m.doing[c.k.LeaseList(name)]) == 0 {
					delete(c.ends, name)
					forgotten++
				}
			}
			b.expect(b.all(nil, func(call *link.Call) { AddUnlease(call, c.k, names...) }), forgotten)
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
			if rapid.IntRange(0, 4).Draw(b.T, "seldom") > 0 || rapid.Bool().Draw(b.T, "more so") {
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
	for _, often := range []string{"enqueue", "lease", "retry", "reject", "lapse"} {
		acts["more of "+often] = acts[often]
	}
	for name, f := range acts {
		out[name] = func(t *rapid.T) { b.T = t; f() }
	}
	return out
}

// order checks what of a channel is due at a server, and has it be due in the model's order.
func (b *machine) order(s *target, c *channel) {
	b.Helper()
	now, err := Clock(context.Background(), s.link)
	if err != nil {
		b.Fatal(err)
	}
	got, err := redis.Strings(s.do("ZRANGEBYSCORE", c.k.Delay, "-inf", now.UnixMilli()))
	if err != nil || !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(c.due))) {
		b.Fatalf("%s: due are %q, and the model says %q (%v)", s.name, got, c.due, err)
	}
	args := []any{c.k.Delay, "XX"}
	for i, e := range c.due {
		args = append(args, i+1, e)
	}
	if _, err := s.do("ZADD", args...); err != nil {
		b.Fatal(err)
	}
}

// lapse ends a lease, or does not.
func (b *machine) lapse() {
	l, c := b.lease(), b.one()
	if b.often("listed") {
		l, c = b.listed()
		if b.often("over") {
			b.setEnd(c, l, end{in: over, putOff: !b.often("not put off")})
		}
	}
	list, before := c.k.LeaseList(l.Name), c.ends[l.Name]
	now := time.Now()
	f := Fence{At: now, Since: now.Add(-time.Minute), Age: time.Hour}
	inSight := b.often("in sight")
	if !inSight {
		f = Fence{}
	}
	_, is := c.ends[l.Name]
	n, budget := b.upTo(4, "n"), b.bytes()
	var want []any
	switch putsOff := !inSight && is && !before.putOff && !before.lapsing; {
	case is && before.in != over:
		want = []any{one64(-1)}
	case putsOff:
		want, c.ends[l.Name] = []any{one64(-1)}, end{in: 0, putOff: true}
	default:
		want = b.lapsed(c, l, list, n, budget)
	}
	b.expect(b.all(nil, func(call *link.Call) { AddLapse(call, c.k, l, f, n, budget, &Bounds{}) }), want)
	if e := c.ends[l.Name]; e.putOff && e != before {
		b.check()
		b.setEnd(c, l, end{in: 3, putOff: true}) // 5 s from now could be over before the test is
	}
}

// lapsed moves what a lease holds, and gives the reply to that.
func (b *machine) lapsed(c *channel, l Lease, list string, n, budget int) []any {
	prepare, dead, bytes := 0, 0, 0
	held := b.m.doing[list]
	for i := 0; i < n && bytes < budget && len(held) > 0; i++ {
		raw := held[len(held)-1]
		held = held[:len(held)-1]
		bytes += len(raw)
		attempt, bound := 0, l.MaxAttempts
		if e, err := element.Decode([]byte(raw)); err == nil {
			e.Attempts = min(e.Attempts+1, 255)
			attempt, raw = int(e.Attempts), string(e.Encode())
			if own := e.MaxAttempts(); own != 0 {
				bound = own
			}
		}
		if attempt > 0 && bound > 0 && attempt >= bound {
			raw = raw[:20] + lapsedReason + raw[20:]
			c.dead = append(c.dead, raw)
			dead++
		} else {
			c.prepare = append([]string{raw}, c.prepare...)
			prepare++
		}
	}
	b.m.doing[list] = slices.Clone(held)
	if _, is := c.ends[l.Name]; len(held) == 0 {
		delete(c.ends, l.Name)
	} else if is {
		c.ends[l.Name] = end{in: over, lapsing: true}
	}
	return []any{one64(prepare), one64(dead), one64(0), one64(0), one64(len(held))}
}

func one64(n int) int64 { return int64(n) }

// check compares all that lies in Redis with the model: every element is where that says, and nowhere else.
func (b *machine) check() {
	b.Helper()
	m := &b.m
	doing := slices.Sorted(maps.Keys(m.doing))
	for _, s := range b.servers {
		call := link.NewCall()
		var verify []func(v any)
		list := func(what, key string, want []string) {
			call.Add("LRANGE", key, 0, -1)
			verify = append(verify, func(v any) {
				if got, err := redis.Strings(v, nil); err != nil || !slices.Equal(got, want) {
					b.Fatalf("%s: %s is %q, and the model says %q (%v)", s.name, what, got, want, err)
				}
			})
		}
		set := func(what, key string, want []string) {
			call.Add("ZRANGE", key, 0, -1)
			verify = append(verify, func(v any) {
				got, err := redis.Strings(v, nil)
				if err != nil || !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))) {
					b.Fatalf("%s: %s is %q, and the model says %q (%v)", s.name, what, got, want, err)
				}
			})
		}
		for _, c := range []*channel{&m.channel, &m.low} {
			list("prepare", c.k.Prepare, c.prepare)
			list("suspect", c.k.Suspect, c.suspect)
			set("delay", c.k.Delay, append(slices.Clone(c.due), c.later...))
			set("dead", c.k.Dead, c.dead)
			call.Add("ZRANGE", c.k.Leased, 0, -1, "WITHSCORES")
			verify = append(verify, func(v any) {
				got, now := make(map[string]end), time.Now()
				for _, l := range allScores(v) {
					got[l.name] = endOf(l.score, now)
				}
				if !maps.Equal(got, c.ends) {
					b.Fatalf("%s: leased is %v, and the model says %v", s.name, got, c.ends)
				}
			})
		}
		for _, l := range doing {
			list(l, l, m.doing[l])
		}
		var names []string
		for _, i := range m.living {
			names = append(names, i.Name)
		}
		set("living", b.k.Receivers, names)
		if err := s.link.Run(context.Background(), call); err != nil {
			b.Fatalf("%s: %v", s.name, err)
		}
		for i, f := range verify {
			f(call.Replies[i].Any())
		}
	}
}

// scored is a member of a sorted set.
type scored struct {
	name  string
	score float64
}

func allScores(v any) (all []scored) {
	vs, _ := redis.Strings(v, nil)
	for i := 0; i+1 < len(vs); i += 2 {
		score, _ := strconv.ParseFloat(vs[i+1], 64)
		all = append(all, scored{vs[i], score})
	}
	return all
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
		b.m.channel = channel{k: b.k, ends: make(map[string]end)}
		b.m.low = channel{k: KeysOf("low" + strconv.Itoa(histories)), ends: make(map[string]end)}
		b.m.doing, b.m.superseded = make(map[string][]string), make(map[string]bool)
		acts := b.actions()
		for _, first := range []string{"register", "register", "enqueue", "enqueue", "lease", "take", "take"} {
			acts[first](rt)
		}
		rt.Repeat(acts)
		if rapid.Bool().Draw(rt, "a long history") {
			rt.Repeat(acts)
		}
	})
}
