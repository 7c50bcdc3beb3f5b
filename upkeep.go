package shunt

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/shuntmq/shunt/internal/event"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/store"
)

const (
	keepers = 8 // channels that an upkeep visits at a time
	// keptFor is how long a channel that was pulled from is kept, whether it needs that or not.
	keptFor = time.Minute
	// lookAll is how often Upkeep looks through the known channels for what no hint has told.
	lookAll = time.Minute
	// quietEvery is how often a channel is swept of which hints tell, and that has no receiver.
	quietEvery = 5 * time.Minute
	// deafFor is how long Upkeep waits for its subscription before it says that there is none.
	deafFor = 5 * time.Second
	// visitFor bounds one visit, but for the step that it is in.
	visitFor = 50 * time.Millisecond
)

// upkeep keeps channels that may have no receiver: those that this Queue pulls from, and after Queue.Upkeep all of the
// server. It does for each what a receiver's promoter and reaper do: due messages are promoted, leases end, what dead
// receivers held is recovered. Hints tell it of due times and ends of leases. A sweep finds the rest: every 5 s, or
// every 5 min where hints tell all. A channel that needs none of that is left alone until a hint, a pull or the look
// through all names it.
type upkeep struct {
	q      *Queue
	server *link.Server
	sight  *sight
	name   string // in which it bids to be a channel's keeper
	ready  chan *kept
	again  chan struct{} // of capacity 1: look through all now

	begin sync.Once

	mu        sync.Mutex
	of        map[string]*kept
	all       *link.Listener // hears of all channels; nil before Queue.Upkeep
	listening bool           // that one does
}

func newUpkeep(q *Queue, server *link.Server, s *sight) *upkeep {
	return &upkeep{q: q, server: server, sight: s, name: store.NewIncarnation(0, q.conf.Lease).Name,
		ready: make(chan *kept), again: make(chan struct{}, 1), of: make(map[string]*kept)}
}

// start starts the goroutines, once. They end with Close.
func (u *upkeep) start() {
	u.begin.Do(func() {
		u.sight.fence() // the row begins
		for range keepers {
			if u.q.begin() == nil {
				go u.run()
			}
		}
	})
}

// Upkeep keeps every channel of this Redis, whether this process knows it or not: delayed messages become due, leases
// end, and what dead receivers held is recovered. Receivers do that for their own channels, and Pull does it for those
// that it asks. Upkeep is for processes that serve others, and one of them is enough. It returns at once, and goes on
// until Close. A second call does nothing.
//
// It hears of what is due by one pattern subscription, and looks through the channels that Channels lists at the start
// and once a minute. So a channel where nothing happens costs Redis next to nothing, and no connection.
func (q *Queue) Upkeep(ctx context.Context) error {
	if err := q.open(ctx); err != nil {
		return err
	}
	return q.stationAt(q.server).upkeep.keepAll()
}

// keepAll begins to keep all channels.
func (u *upkeep) keepAll() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.all != nil {
		return nil
	}
	if err := u.q.begin(); err != nil {
		return err
	}
	u.start()
	u.all = u.server.Hints.ListenAll(store.AllHints, func(key, payload string) {
		if channel, is := store.ChannelOfHint(key); is {
			u.heard(store.KeysOf(channel), payload, true)
		}
	}, func(now bool) {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.listening = now
		for _, c := range u.of {
			c.look(rand.N(time.Second))
		}
		select {
		case u.again <- struct{}{}: // what was published before is in no hint
		default:
		}
	})
	go u.lookThrough()
	return nil
}

// lookThrough looks at all known channels, again and again.
func (u *upkeep) lookThrough() {
	defer u.q.waits.Done()
	timer := time.NewTimer(0)
	defer timer.Stop()
	deaf := time.Now().Add(deafFor)
	for {
		select {
		case <-timer.C:
		case <-u.again:
		case <-u.q.ending.Done():
			return
		}
		err := store.EachNeedy(u.q.life, u.server.Pulse, func(k *store.Keys, often bool) bool {
			u.found(k, often)
			return !u.closing()
		})
		u.mu.Lock()
		wait := link.Jitter(lookAll)
		if !u.listening {
			wait = link.Jitter(sweepEvery)
		}
		isDeaf := !u.listening && err == nil && time.Now().After(deaf)
		u.mu.Unlock()
		if isDeaf {
			u.tell("", errDeaf)
			deaf = time.Now().Add(lookAll)
		}
		if err != nil && !u.report("", err) {
			wait = link.Jitter(time.Second)
		}
		timer.Reset(wait)
	}
}

// errDeaf is what Upkeep says of a server that refuses its subscription.
var errDeaf = errors.New(
	"shunt: the pattern subscription " + store.AllHints + " of Upkeep is not confirmed: what " +
		"is due in channels that it does not know yet comes up to some seconds late: see docs/access.md",
)

// closing says that Close has begun.
func (u *upkeep) closing() bool { return u.q.ending.Err() != nil }

// report emits an error that waiting does not mend, and says whether it is one.
func (u *upkeep) report(channel string, err error) bool {
	class := link.Classify(err)
	if class != link.Fatal && class != link.Failed {
		return false
	}
	u.tell(channel, err)
	return true
}

// tell emits what only a person can mend.
func (u *upkeep) tell(channel string, err error) {
	u.q.emit(event.Event{Kind: event.ReceiverError, Channel: channel, Receiver: u.name, Err: err, Fatal: true})
}

// found takes in a channel that the look through all has found. One that has receivers is swept more often from now on.
// One that has leases is swept now: where their keeper was killed, nobody has told when they end.
func (u *upkeep) found(k *store.Keys, often bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	c := u.of[k.Name]
	switch {
	case c == nil:
		u.add(k)
	case often && time.Until(c.sweep) > 2*sweepEvery && !c.visiting:
		c.look(0)
	}
}

// keep begins to keep a channel, if it is not kept already.
func (u *upkeep) keep(k *store.Keys) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.of[k.Name] == nil {
		u.add(k)
	}
}

// pull keeps a channel for one who pulls from it, until pulled.
func (u *upkeep) pull(k *store.Keys) {
	u.start()
	u.mu.Lock()
	defer u.mu.Unlock()
	c := u.of[k.Name]
	if c == nil {
		c = u.add(k)
	}
	c.pullers++
}

// pulled takes in that one who pulled has ended.
func (u *upkeep) pulled(k *store.Keys) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if c := u.of[k.Name]; c != nil && c.pullers > 0 { // it may have been left, and kept anew
		c.pullers--
		c.pulled = time.Now()
	}
}

// tends says whether a channel has been looked at, and is kept since.
func (u *upkeep) tends(k *store.Keys) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	c := u.of[k.Name]
	return c != nil && c.visited
}

// add begins to keep a channel. mu is held.
func (u *upkeep) add(k *store.Keys) *kept {
	c := &kept{pulled: time.Now()}
	c.undertaker = undertaker{
		q: u.q, ctx: u.q.life, server: u.server, keys: k, fence: u.sight.fence,
		fatal: func(err error) bool { return u.report(k.Name, err) }, suspects: func() {},
	}
	u.of[k.Name] = c
	c.due = time.AfterFunc(0, func() {
		select {
		case u.ready <- c:
		case <-u.q.ending.Done():
		}
	})
	if u.all == nil {
		c.own = u.server.Hints.Listen(k.Delay, func(payload string) { u.heard(k, payload, false) }, func(now bool) {
			u.mu.Lock()
			defer u.mu.Unlock()
			c.listening = now
			c.look(0)
		})
	}
	return c
}

// heard takes a hint.
func (u *upkeep) heard(k *store.Keys, payload string, begin bool) {
	u.mu.Lock()
	c := u.of[k.Name]
	u.mu.Unlock()
	h := store.ParseHint(payload)
	switch {
	case h.Kind == store.HintCancelled:
		return
	case c == nil && begin && h.Kind == store.HintDue:
		u.keep(k)
		return
	case c == nil:
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	c.hints++
	switch {
	case h.Kind == store.HintDue && u.keepsTime(c):
		c.sooner(h.In)
	case h.Kind == store.HintLook:
		c.look(0)
	}
}

// run visits channels that are due.
func (u *upkeep) run() {
	defer u.q.waits.Done()
	for {
		select {
		case c := <-u.ready:
			u.visitOnce(c)
		case <-u.q.ending.Done():
			return
		}
	}
}

// end comes when no goroutine visits any more. It leaves the keeper's places, and hears of nothing.
func (u *upkeep) end(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	u.mu.Lock()
	var at []*store.Keys
	hears := []*link.Listener{u.all}
	for _, c := range u.of {
		c.due.Stop()
		hears = append(hears, c.own)
		at = append(at, c.keys) // a sweep without an answer may have made it keeper, too
	}
	u.mu.Unlock()
	for _, l := range hears {
		if l != nil {
			u.server.Hints.Forget(ctx, l)
		}
	}
	if len(at) > 0 {
		// if that fails the places are free when their time is over
		_ = store.YieldKeeper(ctx, u.server.Pulse, u.name, at...)
	}
}
