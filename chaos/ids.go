package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
)

// asked is what an enqueue asks for beside its ID.
type asked struct{ unique, retain, expire, in time.Duration }

func (a asked) options() (opts []shunt.Option) {
	if a.unique > 0 {
		opts = append(opts, shunt.UniqueFor(a.unique))
	}
	if a.retain > 0 {
		opts = append(opts, shunt.Retain(a.retain))
	}
	if a.expire > 0 {
		opts = append(opts, shunt.Expire(a.expire))
	}
	if a.in > 0 {
		opts = append(opts, shunt.In(a.in))
	}
	return opts
}

// named is a load in which everything that a message with an ID can ask for has its part.
var named = []struct {
	plan string
	asked
}{
	{
		planOK,
		asked{},
	}, {planSlow + "20", asked{}}, {planRetry, asked{}}, {planThen + "1", asked{}}, {planOK,
		asked{unique: 200 * time.Millisecond}},
	{
		planAfter + "50",
		asked{},
	}, {planOK, asked{retain: 500 * time.Millisecond}}, {planReject, asked{retain: 300 * time.Millisecond}},
	{
		planOK,
		asked{expire: 60 * time.Millisecond},
	}, {planSlow + "100", asked{expire: 100 * time.Millisecond}}, {planOK, asked{in: 100 * time.Millisecond}},
	{
		planTwice,
		asked{unique: 100 * time.Millisecond},
	}, {planPanic, asked{}}, {planRetry, asked{in: 150 * time.Millisecond}},
	{
		planOK,
		asked{in: 200 * time.Millisecond, expire: 400 * time.Millisecond},
	}, {planFalter + "1", asked{retain: 200 * time.Millisecond}},
}

// namer enqueues messages with IDs, and does with them what can be done by ID. All of it is said.
type namer struct {
	q       *shunt.Queue
	log     *ledger
	channel string
	next    atomic.Int64
}

// message makes one of that ID.
func (n *namer) message(id, plan string) *message {
	return &message{channel: n.channel, id: fmt.Sprintf("%s#%s.%d", id, n.log.by, n.next.Add(1)), plan: plan}
}

func (n *namer) enqueue(id, plan string, a asked) error {
	m := n.message(id, plan)
	n.log.say(a.entry(m))
	err := n.q.Enqueue(context.Background(), m, append(a.options(), shunt.ID(id))...)
	n.answered(m, a, err)
	return err
}

// entry begins an enqueue.
func (a asked) entry(m *message) entry {
	return entry{Op: enqueue, Phase: invoke, ID: m.id, Note: m.plan, N: int(a.unique.Milliseconds())}
}

// all enqueues several at once.
func (n *namer) all(ids []string, plan string, a asked) {
	var ms []shunt.IMessage
	var said []*message
	for _, id := range ids {
		m := n.message(id, plan)
		n.log.say(a.entry(m))
		ms, said = append(ms, shunt.With(m, shunt.ID(id))), append(said, m)
	}
	err := n.q.EnqueueAll(context.Background(), ms, a.options()...)
	var of *shunt.EnqueueError
	for i, m := range said {
		err := err
		if errors.As(err, &of) {
			err = of.Failed[i]
			if unknown := of.Unknown[i]; unknown != nil {
				err = unknown
			}
		}
		n.answered(m, a, err)
	}
}

func (n *namer) answered(m *message, a asked, err error) {
	e := entry{At: time.Now(), Op: enqueue, Phase: outcome(err), ID: m.id}
	if dup := (*shunt.DuplicateError)(nil); errors.As(err, &dup) {
		e.Note = duplicate
		n.log.say(entry{At: e.At, Op: refused, Phase: info, ID: m.id, Serial: dup.Status.Serial})
	} else if err != nil {
		e.Note = err.Error()
	}
	n.log.say(e)
	if a.expire > 0 {
		n.log.say(entry{At: e.At, Op: expires, Phase: info, ID: m.id, Due: e.At.Add(a.expire)})
	}
}

// callOff cancels. What it cannot say for sure is info.
func (n *namer) callOff(id string) error {
	n.log.say(entry{Op: callOff, Phase: invoke, ID: id})
	s, err := n.q.Cancel(context.Background(), shunt.ByID(n.channel, id))
	e := entry{Op: callOff, Phase: ok, ID: id, Serial: s.Serial, Note: string(s.State)}
	if err != nil {
		e.Phase, e.Note = info, err.Error()
	}
	n.log.say(e)
	return err
}

// putOff postpones by d.
func (n *namer) putOff(id string, d time.Duration) error {
	due := time.Now().Add(d)
	n.log.say(entry{Op: putOff, Phase: invoke, ID: id, Due: due})
	err := n.q.Postpone(context.Background(), shunt.ByID(n.channel, id), shunt.In(d))
	e := entry{Op: putOff, Phase: ok, ID: id, Due: due}
	if err != nil {
		e.Phase, e.Note = info, err.Error()
	}
	n.log.say(e)
	return err
}

const namers = 8 // goroutines of a load

// name has some goroutines enqueue to a few IDs, again and again, and cancel, postpone, and wait for what has them,
// until ctx ends.
func (o *orders) name(ctx context.Context, q *shunt.Queue, log *ledger) {
	n := &namer{q: q, log: log, channel: o.Channels[0]}
	var all sync.WaitGroup
	for i := range namers {
		all.Go(func() {
			r := rand.New(rand.NewPCG(o.Seed, uint64(i)))
			by := &ledger{by: fmt.Sprintf("%s%d", log.by, i), file: log.file} // whose calls come one after another
			n := &namer{q: q, log: by, channel: n.channel}
			tick := time.NewTicker(namers * time.Second / time.Duration(o.Enqueue))
			defer tick.Stop()
			for ctx.Err() == nil {
				id := func() string { return fmt.Sprintf("%s/x%d", n.channel, r.IntN(o.Names)) }
				switch k := named[r.IntN(len(named))]; r.IntN(10) {
				case 0, 1:
					_ = n.callOff(id())
				case 2:
					_ = n.putOff(id(), between(r, 100*time.Millisecond, 400*time.Millisecond))
				case 3:
					ctx, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
					_, _ = q.Wait(ctx, shunt.ByID(n.channel, id()))
					cancel()
				case 4:
					n.all([]string{id(), id(), id(), id()}, k.plan, k.asked)
				default:
					_ = n.enqueue(id(), k.plan, k.asked)
				}
				select {
				case <-tick.C:
				case <-ctx.Done():
				}
			}
		})
	}
	all.Wait()
}

// freed waits until no ID is taken any more, and nothing else is known of one, as it has to be at the end. What is left
// after that is the checker's. Unless forgotten is set, what became of messages may yet be kept.
func (w *world) freed(limit time.Duration, forgotten bool) {
	keys := []string{"ids", "running", "cancelled", "waited"}
	if forgotten {
		keys = append(keys, "done", "kept")
	}
	var left []entry
	w.within(limit, func() bool {
		if left = nil; forgotten {
			w.hurryForgetting()
		}
		for _, c := range w.channels {
			for _, key := range keys {
				key = "{" + c + "}." + key
				for _, m := range w.members(key) {
					left = append(left, entry{Op: taken, Phase: info, ID: key, Note: m})
				}
			}
		}
		return len(left) == 0
	})
	w.log.say(left...)
}

// hurryForgetting has what is to be forgotten within a minute forgotten at the next sweep. The outcome of a message
// that somebody waited for is kept that long, and nobody waits here any more.
func (w *world) hurryForgetting() {
	const soon = time.Minute
	for _, c := range w.channels {
		kept := store.KeysOf(c).Kept
		now, until := time.Now(), time.Now().Add(soon+time.Second)
		due, _ := redis.Strings(w.server.TryDo("ZRANGEBYSCORE", kept, now.UnixMilli(), until.UnixMilli()))
		for _, member := range due {
			_, _ = w.server.TryDo("ZADD", kept, "XX", now.UnixMilli(), member)
		}
	}
}

// members are the fields or members of a key, whatever its type.
func (w *world) members(key string) []string {
	kind, err := redis.String(w.server.TryDo("TYPE", key))
	var ms []string
	switch {
	case err != nil:
	case kind == "hash":
		ms, err = redis.Strings(w.server.TryDo("HKEYS", key))
	case kind == "set":
		ms, err = redis.Strings(w.server.TryDo("SMEMBERS", key))
	case kind == "zset":
		ms, err = redis.Strings(w.server.TryDo("ZRANGE", key, 0, -1))
	case kind != "none":
		ms = []string{"a " + kind}
	}
	if err != nil {
		return []string{err.Error()}
	}
	return ms
}

// receipted complains of more receipts than there can be: one for each enqueue that was in doubt once.
func (w *world) receipted(most int) {
	w.Helper()
	for _, c := range w.channels {
		if ms := w.members(store.KeysOf(c).Receipts); len(ms) > most {
			w.Errorf("%d receipts are left of %d enqueues that may have been in doubt", len(ms), most)
		}
	}
}

// aimsOfNames are the commands at which a cut can strike what has an ID.
var aimsOfNames = []func(channel string) redistest.Match{
	redistest.ByName(
		"HSET",
		".running",
	), redistest.ByScript(store.Start), redistest.ByName("EXISTS", ".cancelled"), redistest.ByName("HMGET", ".ids"),
	redistest.ByScript(store.Settle), redistest.ByScript(store.Follow), redistest.ByScript(store.Retry),
	redistest.ByScript(store.Reject),
	enqueueing, redistest.ByScript(store.Cancel), redistest.ByScript(store.Postpone),
}

const ofCallers = 8 // the first of those that are no receiver's

// ids has everything happen to messages with IDs. Their workers are killed, by us and by some of the messages.
// redis-server is killed, and connections are cut at each of their scripts.
func ids(w *world, r *rand.Rand, long bool) {
	const cutting = 300 * time.Millisecond
	over, tended := make(chan struct{}), make(chan struct{})
	go func() { // whoever is gone has a successor
		defer close(tended)
		for {
			xs := w.all()
			for _, x := range xs {
				if x.Gone() {
					w.kill(x)
				}
			}
			if len(xs) < 3 {
				w.start(orders{Workers: 4, Lease: time.Second})
			}
			select {
			case <-time.After(20 * time.Millisecond):
			case <-over:
				return
			}
		}
	}()
	w.until(5*time.Second, "they are there", func() bool { return len(w.all()) == 3 })
	producer := w.start(orders{Name: "namer", Enqueue: sized(long, 200, 300), Names: 60, Seed: r.Uint64()})
	killers := &namer{q: w.direct, log: w.log, channel: w.channels[0]}
	for i := range 2 {
		if err := killers.enqueue(fmt.Sprintf("%s/killer%d", w.channels[0], i), planKill, asked{}); err != nil {
			w.Fatal(err)
		}
	}
	doubts := 0
	for n := range sized(long, 14, 60) {
		time.Sleep(between(r, 100*time.Millisecond, 500*time.Millisecond))
		xs := w.all()
		switch x := xs[r.IntN(len(xs))]; n % 7 {
		case 3:
			w.kill(x)
		case 6:
			w.server.Kill()
			w.struck("kill the server", xs...)
			time.Sleep(between(r, 0, 500*time.Millisecond))
			w.server.Restart()
			doubts++
		default:
			at := r.IntN(len(aimsOfNames))
			what := "cut at a verdict or a start"
			if at >= ofCallers {
				x, what = producer, "cut at a call"
				doubts++
			}
			cut := []redistest.Action{redistest.CutAfter, redistest.CutAfter, redistest.CutUnread,
				redistest.CutBefore}[r.IntN(4)]
			began, rule := time.Now(), x.proxy.On(aimsOfNames[at](w.channels[0]), 1, cut)
			time.Sleep(cutting)
			if rule.Remove(); rule.Struck() > 0 {
				allowed := x.flight()
				if x == producer {
					allowed = 0
				}
				w.log.say(
					entry{At: began, By: x.Name, Op: fault, Phase: info, ID: what, N: allowed, Due: began.Add(cutting)},
				)
			}
		}
	}
	_ = producer.Term()
	if <-producer.Ended(); producer.Code() != 0 {
		w.Errorf("%s ended with %d: %s", producer.Name, producer.Code(), producer.Said())
	}
	w.forget(producer)
	w.drained(60 * time.Second)
	close(over)
	<-tended
	w.freed(20*time.Second, true)
	w.receipted(2 + (1+doubts)*namers*4)
}

// endNames brings messages with IDs to all their ends.
func endNames(w *world) {
	w.start(orders{Workers: 4})
	n := &namer{q: w.direct, log: w.log, channel: w.channels[0]}
	for i, k := range named {
		if err := n.enqueue(fmt.Sprintf("%s/x%d", n.channel, i), k.plan, k.asked); err != nil {
			w.Fatal(err)
		}
	}
	w.struck("none")
	w.drained(5 * time.Second)
	w.freed(15*time.Second, true)
}

// loseEnqueues loses replies to enqueues whose messages may be over before their producer is back.
func loseEnqueues(w *world) {
	w.start(orders{Workers: 8})
	x := w.start(orders{Name: "namer", Enqueue: 100, Names: 40, Seed: 1})
	for range 6 {
		rule := x.proxy.On(redistest.Command("", "}.receipts"), 1, redistest.CutAfter)
		w.until(5*time.Second, "the fault strikes", func() bool { return rule.Struck() > 0 })
		w.struck("lost reply")
		x.proxy.Refuse(true)
		time.Sleep(300 * time.Millisecond)
		x.proxy.Refuse(false)
		time.Sleep(100 * time.Millisecond)
	}
	_ = x.Term()
	<-x.Ended()
	w.forget(x)
}

// callOffWaiting cancels what waits behind others.
func callOffWaiting(w *world) {
	x := w.start(orders{Workers: 1})
	n := &namer{q: w.direct, log: w.log, channel: w.channels[0]}
	w.enqueue(1, planDeaf+"500")
	w.holds(x, 1)
	for i := range 4 {
		id := fmt.Sprintf("%s/x%d", n.channel, i)
		if err := n.enqueue(id, planOK, asked{}); err != nil {
			w.Fatal(err)
		}
		if err := n.callOff(id); err != nil {
			w.Fatal(err)
		}
	}
	w.struck("cancel")
}

// atRandom is a run in which nothing is aimed at the defect: of its row, or of the random mix.
func (d *defect) atRandom(t testing.TB, seed uint64) *verdict {
	t.Helper()
	if i := slices.IndexFunc(rows, func(r row) bool { return r.id == d.row }); i >= 0 {
		return rows[i].play(t, redistest.Start(t, rows[i].conf...), d.name, seed, false)
	}
	return mix(t, redistest.Start(t, always...), d.name, seed, mixOfHunt)
}
