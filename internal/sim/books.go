package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	redigo "github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/store"
	"github.com/shuntmq/shunt/internal/trial"
)

// books is the channel of a clerk. Nobody else works on it, so what lies there is known when the clerk rests.
const books = "books"

// bookings is the stream of a seed from which it is drawn what a clerk does.
const bookings = 600

// Booking is what a clerk does in one lull. It brings some messages into each state, cancels some, and compares Stats
// and List with what is there. Then it purges the channel amid enqueues.
type Booking struct {
	Entries []BookEntry
	Backlog int // messages that nobody takes
	Named   int // one in so many of these has an ID
	Beside  int // messages that are enqueued during the purge
}

// booking are the states into which messages are brought, in that order.
var booking = []shunt.State{shunt.StateDead, shunt.StateDoing, shunt.StatePrepare, shunt.StateDelay}

// BookEntry is a message of a clerk.
type BookEntry struct {
	State     shunt.State // in which it is to be
	Named     bool
	Cancelled bool
}

// clerks draws what a clerk does.
func (p *Plot) clerks(r *rand.Rand) {
	if r.IntN(4) > 0 {
		return
	}
	for range p.Cycles {
		b := Booking{Backlog: r.IntN(500), Named: 1 + r.IntN(10), Beside: r.IntN(200)}
		for _, of := range []struct {
			state shunt.State
			most  int
		}{{shunt.StateDead, 5}, {shunt.StateDoing, 4}, {shunt.StatePrepare, 40}, {shunt.StateDelay, 80}} {
			for range 1 + r.IntN(of.most) {
				e := BookEntry{State: of.state, Named: r.IntN(2) == 0}
				e.Cancelled = e.Named && of.state != shunt.StateDead && r.IntN(3) == 0
				b.Entries = append(b.Entries, e)
			}
		}
		p.Bookings = append(p.Bookings, b)
	}
}

// booked is a clerk's message: a number, and the state to which its handler brings it.
type booked struct {
	name, state string
	c           *clerk
}

func (m *booked) Channel() string          { return books }
func (m *booked) Marshal() ([]byte, error) { return []byte(m.name + " " + m.state), nil }
func (m *booked) Unmarshal(payload []byte) (shunt.IMessage, error) {
	name, state, _ := strings.Cut(string(payload), " ")
	return &booked{name, state, m.c}, nil
}

// Resolve does not look at its context: what is cancelled stays in its worker's hands.
func (m *booked) Resolve(context.Context) error {
	m.c.begun <- m.name
	if m.state == string(shunt.StateDead) {
		return shunt.Reject(errors.New("as planned"))
	}
	<-m.c.rests
	return nil
}

// clerk works in one lull.
type clerk struct {
	*Booking
	w     *world
	q     *shunt.Queue
	begun chan string
	rests chan struct{} // closed when those in hand may go on
	made  int
}

// clerks has a clerk work in each lull, and gives its process. What is cancelled stays in hand for as long as it works.
func (w *world) clerks() []*process {
	if len(w.plot.Bookings) == 0 {
		return nil
	}
	p := w.start(trial.Orders{Name: "clerk", Quiet: true, Lease: lease, Prefetch: 1, Grace: 10 * time.Second})
	w.hands.Go(func() {
		for i := range w.plot.Bookings {
			w.sleepUntil(w.plot.lullAt(i) + half + 300*time.Millisecond)
			c := clerk{Booking: &w.plot.Bookings[i], w: w, q: p.queue, begun: make(chan string, 1000),
				rests: make(chan struct{})}
			if err := c.work(context.Background()); err != nil {
				w.problem("I23 clerk: %v", err)
			}
		}
	})
	return []*process{p}
}

func (c *clerk) work(ctx context.Context) error {
	err := c.compare(ctx)
	if err == nil {
		err = c.purge(ctx)
	}
	_, err2 := c.q.Purge(ctx, books, shunt.StatePrepare, shunt.StateDelay, shunt.StateSuspect, shunt.StateDead)
	return errors.Join(err, err2)
}

// all enqueues some at once, each n-th with an ID, and gives their names.
func (c *clerk) all(ctx context.Context, state shunt.State, named func(i int) bool, n int, opts ...shunt.Option) (
	names []string, err error) {
	var ms []shunt.IMessage
	for i := range n {
		c.made++
		m := &booked{name: fmt.Sprint("b", c.made), state: string(state)}
		names = append(names, m.name)
		if named(i) {
			ms = append(ms, shunt.With(m, shunt.ID(m.name)))
		} else {
			ms = append(ms, m)
		}
	}
	return names, c.q.EnqueueAll(ctx, ms, opts...)
}

// compare brings messages into their states, and compares Stats and List with what is there.
func (c *clerk) compare(ctx context.Context) (err error) {
	of, want := make(map[shunt.State][]BookEntry), make(map[shunt.State]int)
	for _, e := range c.Entries {
		of[e.State] = append(of[e.State], e)
		if want[e.State]++; e.Cancelled && e.State != shunt.StateDoing {
			want[e.State]--
		}
	}
	end, err := c.q.Receive(ctx, &booked{c: c}, max(1, len(of[shunt.StateDoing])))
	if err != nil {
		return err
	}
	defer func() {
		close(c.rests)
		err = errors.Join(err, end(ctx))
	}()
	for _, s := range booking {
		var opts []shunt.Option
		if s == shunt.StateDelay {
			opts = append(opts, shunt.In(time.Hour))
		}
		names, err := c.all(ctx, s, func(i int) bool { return of[s][i].Named }, len(of[s]), opts...)
		if err != nil {
			return err
		}
		for range names {
			if s != shunt.StateDead && s != shunt.StateDoing {
				break
			}
			select {
			case <-c.begun:
			case <-time.After(time.Second):
				return fmt.Errorf("not all of %d were begun in a calm, to be in %s", len(names), s)
			}
		}
		for i, e := range of[s] {
			if e.Cancelled {
				if _, err := c.q.Cancel(ctx, shunt.ByID(books, names[i])); err != nil {
					return err
				}
			}
		}
	}
	time.Sleep(200 * time.Millisecond) // so that nothing moves any more
	stats, err := c.q.Stats(ctx, books)
	if err != nil {
		return err
	}
	for _, s := range booking {
		n := want[s]
		es, err := c.q.List(ctx, books, s, 0, 1000)
		if err != nil {
			return err
		}
		if stats[s].Count != n || len(es) != n {
			c.w.problem("I24 books: Stats has %d in %s, and List %d, and %d are there", stats[s].Count, s, len(es), n)
		}
	}
	return nil
}

// purge purges what waits while others enqueue. What was there before is gone then, and nothing else.
func (c *clerk) purge(ctx context.Context) error {
	named := func(i int) bool { return i%c.Named == 0 }
	old, err := c.all(ctx, shunt.StatePrepare, named, c.Backlog)
	if err != nil {
		return err
	}
	prepare := store.KeysOf(books).Prepare
	there, err := redigo.Int(c.w.do("LLEN", prepare))
	if err != nil {
		return err
	}
	var beside sync.WaitGroup
	var failed error
	added := 0
	beside.Go(func() {
		for added < c.Beside && failed == nil {
			n := min(10, c.Beside-added)
			_, failed = c.all(ctx, shunt.StatePrepare, named, n)
			added += n
		}
	})
	deleted, err := c.q.Purge(ctx, books, shunt.StatePrepare)
	beside.Wait()
	if err = errors.Join(err, failed); err != nil {
		return err
	}
	raws, err := redigo.ByteSlices(c.w.do("LRANGE", prepare, 0, -1))
	if err != nil {
		return err
	}
	was, left := make(map[string]bool), 0
	for _, name := range old {
		was[name] = true
	}
	for _, raw := range raws {
		e, _ := element.Decode(raw)
		if name, _, _ := strings.Cut(string(e.Payload), " "); was[name] {
			left++
		}
	}
	if left > 0 || deleted+len(raws) != there+added {
		c.w.problem("I24 books: Purge deleted %d of %d, and of %d that came meanwhile: %d are there, "+
			"%d of the old ones", deleted, there, added, len(raws), left)
	}
	return nil
}
