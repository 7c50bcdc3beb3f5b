package store

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/redistest"
)

// fixture is a channel of a server, as the packages above the store see it.
type fixture struct {
	*testing.T
	s redistest.Backend
	l *link.Link
	k *Keys
	i Incarnation // registered, of two workers
}

// each runs f on miniredis and on redis-server.
func each(t *testing.T, f func(f *fixture)) {
	t.Helper()
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		t.Parallel()
		x := &fixture{t, s, newLink(t, s.Addr()), KeysOf(redistest.Name(t)), NewIncarnation(2, time.Minute)}
		if _, err := RegisterIncarnation(context.Background(), x.l, []*Keys{x.k}, x.i, nil); err != nil {
			t.Fatal(err)
		}
		f(x)
	})
}

// Ask implements Asker, and loses no reply.
func (f *fixture) Ask(ctx context.Context, _ string, fill func(*link.Call)) ([]link.Reply, bool, error) {
	c := link.NewCall()
	fill(c)
	err := f.l.Run(ctx, c)
	return c.Replies, false, err
}

// run sends what fill adds, and returns the first reply.
func (f *fixture) run(fill func(*link.Call)) link.Reply {
	f.Helper()
	c := link.NewCall()
	fill(c)
	if err := f.l.Run(context.Background(), c); !c.Answered {
		f.Fatal(err)
	}
	return c.Replies[0]
}

func (f *fixture) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// named is a message with an id, or without one.
func named(id string, set ...func(*element.Extra)) *element.Element {
	e := &element.Element{Serial: element.NewSerial(), Payload: []byte("payload of " + id)}
	if id != "" || set != nil {
		e.Extra = &element.Extra{ID: id}
	}
	for _, s := range set {
		s(e.Extra)
	}
	return e
}

// enqueue enqueues messages, all with an id or all without, which must not be refused.
func (f *fixture) enqueue(mode Mode, ms int64, es ...*element.Element) {
	f.Helper()
	raws := make([][]byte, len(es))
	for i, e := range es {
		raws[i] = e.Encode()
	}
	if es[0].Extra == nil { // none has
		f.run(func(c *link.Call) {
			if mode == Now {
				AddPush(c, f.k, raws...)
			} else {
				AddLater(c, f.k, mode, ms, raws...)
			}
		})
		return
	}
	_, refused, err := EnqueueReply(f.run(func(c *link.Call) { AddEnqueue(c, f.k, mode, ms, nil, es, raws) }), len(es))
	f.must(err)
	for i, r := range refused {
		if r != nil {
			f.Fatalf("%q is refused: %q", es[i].ID(), r)
		}
	}
}

// take takes up to n messages into a worker's list.
func (f *fixture) take(worker, n int) (held []Held) {
	f.Helper()
	from := []Source{{Keys: f.k, Doing: f.k.Doing(f.i, worker)}}
	err := EachTaken(f.run(func(c *link.Call) { AddTake(c, from, n) }), func(source int, raw []byte, err error) {
		f.must(err)
		e, err := element.Decode(raw)
		f.must(err)
		held = append(held, Held{Element: &e, Raw: bytes.Clone(raw), OwnsID: e.ID() != ""})
	})
	f.must(err)
	return held
}

// started is what a Consultation came to.
type started struct {
	*Consultation
	records   map[int][]byte
	cancelled map[int]bool
}

// start notes that a worker handles what it has taken.
func (f *fixture) start(worker int, held []Held, expires bool) started {
	f.Helper()
	s := started{records: make(map[int][]byte), cancelled: make(map[int]bool)}
	s.Consultation = &Consultation{Read: expires, Marks: Marks{
		N: len(held), Expires: expires,
		At:   func(i int) *element.Element { return held[i].Element },
		Mark: func(i int) []byte { return Mark(f.i, worker, held[i].Attempt(), time.UnixMilli(1)) },
	}, Record: func(i int, raw []byte) { s.records[i] = raw }, Cancelled: func(i int) { s.cancelled[i] = true }}
	c := link.NewCall()
	f.must(s.Ask(c, f.k, func(c *link.Call) error { return f.l.Run(context.Background(), c) }))
	return s
}

// leave sends a verdict of one message in a worker's list.
func (f *fixture) leave(worker int, h Held, v *Verdict, b *Bounds) LeaveAnswer {
	f.Helper()
	l, err := LeaveReply(v, f.run(func(c *link.Call) { AddLeave(c, f.k, f.k.Doing(f.i, worker), h, v, b) }))
	f.must(err)
	return l
}

func (f *fixture) status(id string) StatusAnswer {
	f.Helper()
	a, err := RunStatus(context.Background(), f, f.k, id)
	f.must(err)
	return a
}

// state is that of the record of an id, 0 for none.
func (f *fixture) state(id string) byte {
	f.Helper()
	r, _ := element.ParseRecord(f.status(id).Record)
	return r.State
}

func (f *fixture) length(command, key string) int {
	f.Helper()
	n, err := redis.Int(f.s.Do(command, key), nil)
	f.must(err)
	return n
}

// lengths says how many lie in prepare, delay, dead and the first worker's list.
func (f *fixture) lengths(prepare, delay, dead, doing int) {
	f.Helper()
	got := [4]int{f.length("LLEN", f.k.Prepare), f.length("ZCARD", f.k.Delay), f.length("ZCARD", f.k.Dead),
		f.length("LLEN", f.k.Doing(f.i, 0))}
	if want := [4]int{prepare, delay, dead, doing}; got != want {
		f.Fatalf("in prepare, delay, dead and doing are %v, want %v", got, want)
	}
}

// empty says that nothing of a message with an id is left.
func (f *fixture) empty() {
	f.Helper()
	f.lengths(0, 0, 0, 0)
	for _, key := range []string{f.k.IDs, f.k.Running, f.k.Cancelled, f.k.Waited} {
		if f.length("EXISTS", key) != 0 {
			f.Fatalf("%s is left", key)
		}
	}
}

var errBoom = errors.New("boom")
