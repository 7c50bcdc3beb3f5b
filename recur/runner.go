package recur

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"
	"golang.org/x/sync/errgroup"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/inside"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/store"
)

const (
	startTimeout = 5 * time.Second
	lookEvery    = 5 * time.Second // for what no hint told; it costs two small commands

	// Who did not fire a message last waits for so long behind its tick, to hear of it: a round trip, and jitter.
	giveWay       = 3
	giveWayJitter = 7 // ms

	mostScripts  = 64      // of one pipeline
	mostElements = 100     // of one script; a Policy may ask for more, and then it is fired more than once
	mostBytes    = 1 << 20 // of one script, unless one element alone is larger
	mostHints    = 10000   // that may wait; then all is read anew
)

// Run enqueues the recurring messages of channels at their ticks, until ctx ends or shutdown is called. Any number of processes may, and each
// tick is enqueued once; a channel in which nobody runs enqueues none. The error says what is wrong with the channels, the Queue or Redis,
// after at most 5 s, and then nothing is left running. A Redis that goes away later is waited for; meanwhile Events "receiver-error" tell why. An
// idle channel costs Redis two small commands every 5 s, a tick one script and, from processes that cannot subscribe, one more each.
//
// shutdown waits for what is under way until its ctx ends, and then cuts that short; it returns nil. Call it before Queue.Close: a closed
// Queue ends it, too, but only when it next asks Redis, after at most 5 s.
func (t *Timetable) Run(ctx context.Context, channels ...string) (shutdown shunt.Shutdown, err error) {
	if len(channels) == 0 {
		return nil, errors.New("recur: run: no channel: want those of the recurring messages")
	}
	door, err := inside.Open(t.Queue)
	if err != nil {
		return nil, err
	}
	hard, cut := context.WithCancel(context.WithoutCancel(ctx))
	soft, stop := context.WithCancel(ctx)
	seen := make(map[string]bool)
	var runners []*runner
	start, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for _, channel := range channels {
		if seen[channel] {
			continue
		}
		seen[channel] = true
		r := &runner{door: door, channel: channel, key: store.KeysOf(channel).Recur, soft: soft, hard: hard,
			entries: make(map[string]*entry), most: mostScripts, wake: make(chan struct{}, 1), back: make(chan struct{}, 1)}
		if err := r.readAll(start); err != nil {
			stop()
			cut()
			return nil, fmt.Errorf("recur: run channel %q: %w", channel, err)
		}
		runners = append(runners, r)
	}
	var g errgroup.Group
	for _, r := range runners {
		g.Go(func() error {
			r.run()
			return nil
		})
	}
	ended := make(chan struct{})
	go func() {
		_ = g.Wait() // no runner returns an error
		stop()
		cut()
		close(ended)
	}()
	return func(ctx context.Context) error {
		stop()
		select {
		case <-ended:
		case <-ctx.Done():
			cut()
			<-ended
		}
		return nil
	}, nil
}

// entry is a recurring message in a runner's hands.
type entry struct {
	name string
	record
	mine  bool         // this runner fired it last
	due   int64        // when to try, ms of the clock of Redis
	place int          // in the heap; -1: not there
	off   link.Holdoff // of refusals that concern it alone
	pen   string       // the writer of its next write, however often that is tried: found in a head, it says that one of the tries was executed
}

// runner enqueues the ticks of one channel in one process.
type runner struct {
	door    inside.Door
	channel string
	key     any
	soft    context.Context // ends: nothing more is begun
	hard    context.Context // ends: what is under way is cut short

	// Its goroutine's own.
	entries map[string]*entry
	heap    queue // of those that are to be tried, by due
	clock   clock
	mark    string    // as read last
	look    time.Time // of the next look
	most    int       // scripts of one pipeline: one after an error, so that it concerns one message
	off     link.Holdoff

	wake chan struct{} // of capacity 1: there are hints, or what follows
	back chan struct{} // likewise: the subscription is, or is there again

	mu    sync.Mutex
	heard []string // hints not yet taken in
	asked bool     // a look is due at once
	anew  bool     // all is to be read, because hints are missing
}

// run is the runner's goroutine.
func (r *runner) run() {
	hints := r.door.Hints(r.channel)
	l := hints.Listen(r.key.(string), r.hint, func(listening bool) {
		if listening { // what was published before was not heard
			r.ask(false)
			poke(r.back)
		}
	})
	defer func() {
		ctx, cancel := context.WithTimeout(r.hard, time.Second)
		defer cancel()
		hints.Forget(ctx, l)
	}()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for r.soft.Err() == nil {
		err := r.step()
		if errors.Is(err, shunt.ErrClosed) {
			return
		}
		if err != nil {
			timer.Reset(r.off.Refuse(err))
			r.trouble(err)
			select {
			case <-timer.C:
			case <-r.back:
			case <-r.soft.Done():
			}
			continue
		}
		r.off = link.Holdoff{}
		wait := time.Until(r.look)
		if len(r.heap) > 0 {
			wait = min(wait, r.clock.until(r.heap[0].due))
		}
		timer.Reset(max(wait, 0))
		select {
		case <-timer.C:
		case <-r.wake:
		case <-r.soft.Done():
		}
	}
}

func (r *runner) trouble(err error) {
	if r.soft.Err() == nil {
		r.door.Emit(string(shunt.EventReceiverError), r.channel, "", "", 0, time.Time{}, fmt.Errorf("recur: channel %q: %w", r.channel, err))
	}
}

// hint takes what was published: a head, and the name whose it is.
func (r *runner) hint(payload string) {
	r.mu.Lock()
	if len(r.heard) < mostHints {
		r.heard = append(r.heard, payload)
	} else {
		r.anew = true
	}
	r.mu.Unlock()
	poke(r.wake)
}

// ask has a look made at once, or all read.
func (r *runner) ask(anew bool) {
	r.mu.Lock()
	r.asked, r.anew = true, r.anew || anew
	r.mu.Unlock()
	poke(r.wake)
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// step takes in what was heard, looks if it is time, and fires what is due, one pipeline of it.
func (r *runner) step() error {
	r.mu.Lock()
	heard, asked, anew := r.heard, r.asked, r.anew
	r.heard, r.asked, r.anew = nil, false, false
	r.mu.Unlock()

	if err := r.learn(heard, asked, anew); err != nil {
		r.ask(true) // whatever was heard
		return err
	}
	return r.fire()
}

func (r *runner) learn(heard []string, asked, anew bool) error {
	names := make(map[string]bool)
	for _, h := range heard {
		line, name, _ := strings.Cut(h, "\n")
		head, _, err := parseHead(line + "\n")
		e := r.entries[name]
		switch {
		case err != nil || e == nil || e.revision != head.revision:
			names[name] = true // removed, added or replaced: read what is there now, because hints may be late
		case head.version > e.version:
			r.adopt(e, head)
		}
	}
	if anew || len(names) > mostScripts {
		return r.readAll(r.hard)
	}
	if err := r.read(names); err != nil {
		return err
	}
	if !asked && time.Until(r.look) > 0 {
		return nil
	}
	sent := time.Now()
	vs, err := r.door.Looks(r.hard, r.channel, func(c *link.Call) {
		c.Add("TIME")
		c.Add("HGET", r.key, "")
	})
	if err != nil {
		return err
	}
	now, err := serverMillis(vs[0])
	if err != nil {
		return err
	}
	r.clock.hear(now, sent, time.Now())
	r.look = time.Now().Add(link.Jitter(lookEvery))
	if mark, _ := redis.String(vs[1], nil); mark != r.mark {
		return r.readAll(r.hard)
	}
	return nil
}

// readAll reads the whole timetable of the channel.
func (r *runner) readAll(ctx context.Context) error {
	sent := time.Now()
	now, mark, raws, err := readAll(ctx, r.door, r.channel)
	if err != nil {
		return err
	}
	r.clock.hear(now, sent, time.Now())
	r.look, r.mark = time.Now().Add(link.Jitter(lookEvery)), mark
	for name := range r.entries {
		if _, ok := raws[name]; !ok {
			r.set(name, "")
		}
	}
	for name, raw := range raws {
		r.set(name, raw)
	}
	return nil
}

// read reads some records.
func (r *runner) read(names map[string]bool) error {
	if len(names) == 0 {
		return nil
	}
	all := slices.Collect(maps.Keys(names))
	vs, err := r.door.Looks(r.hard, r.channel, func(c *link.Call) {
		for _, name := range all {
			c.Add("HGET", r.key, name)
		}
	})
	if err != nil {
		return err
	}
	for i, name := range all {
		raw, _ := redis.String(vs[i], nil)
		r.set(name, raw)
	}
	return nil
}

// set takes in what a record was read as, empty for none.
func (r *runner) set(name, raw string) {
	e := r.entries[name]
	if e != nil {
		head, _, err := parseHead(raw)
		if err == nil && head.revision == e.revision {
			if head.writer != e.writer || e.place < 0 {
				r.adopt(e, head)
			}
			return
		}
		r.drop(e)
		delete(r.entries, name)
	}
	if raw == "" {
		return
	}
	rec, err := parseRecord(raw)
	if err == nil {
		err = rec.spec.Err()
	}
	if err != nil {
		r.trouble(fmt.Errorf("%q cannot run here: %w", name, err))
		return
	}
	e = &entry{name: name, place: -1}
	r.entries[name] = e
	r.know(e, rec, false)
}

// adopt takes in a head that was written by another, or by this runner although an error came.
func (r *runner) adopt(e *entry, head record) {
	mine := head.writer == e.pen
	if n := int(head.count - e.count); mine && n > 0 {
		r.door.Emit(string(shunt.EventEnqueued), r.channel, "", "", n, time.Time{}, nil)
	}
	r.know(e, e.with(head), mine)
}

// know sets what is known of a message.
func (r *runner) know(e *entry, rec record, mine bool) {
	e.record, e.mine, e.pen = rec, mine, element.NewSerial().String()
	r.arm(e)
}

// arm sets when a message is to be tried next.
func (r *runner) arm(e *entry) {
	r.drop(e)
	if e.paused || e.next == 0 {
		return
	}
	e.due = e.next + 1 // a script that comes too early is for nothing
	if !e.mine {
		e.due = e.next + giveWay + rand.Int64N(giveWayJitter+1)
	}
	heap.Push(&r.heap, e)
}

func (r *runner) drop(e *entry) {
	if e.place >= 0 {
		heap.Remove(&r.heap, e.place)
	}
}

// shot is one script.
type shot struct {
	*entry
	old         string
	then        record
	from, until int64 // when it holds
	missed      bool  // the ticks are
	elements    []element.Element
	raws        [][]byte
}

// aim makes the script that fires what is due of a message at now.
func aim(e *entry, now int64) (s shot, bytes int) {
	ticks, after := e.spec.due(e.next, now, e.policy)
	s = shot{entry: e, old: e.head(), then: e.record, from: e.next}
	if s.missed = !onTime(e.next, now); !s.missed {
		s.until = e.next + Grace.Milliseconds() // later it is missed, and that is for the policy
	}
	for i, tick := range ticks {
		if i == mostElements || bytes > mostBytes {
			after = tick
			break
		}
		el := e.message(tick, now)
		raw := el.Encode()
		s.elements, s.raws, bytes = append(s.elements, el), append(s.raws, raw), bytes+len(raw)
		s.from, s.then.last = tick, tick
	}
	s.then.version++
	s.then.writer = e.pen
	s.then.next = after
	s.then.count += int64(len(s.elements))
	return s, bytes
}

// fire sends the scripts of what is due, as many as go in one pipeline.
func (r *runner) fire() error {
	now, bytes := r.clock.now(), 0
	var shots []shot
	for len(r.heap) > 0 && r.heap[0].due <= now && len(shots) < r.most && bytes < mostBytes {
		s, n := aim(heap.Pop(&r.heap).(*entry), now)
		shots, bytes = append(shots, s), bytes+n
	}
	if len(shots) == 0 {
		return nil
	}
	sent := time.Now()
	vs, err := r.door.Looks(r.hard, r.channel, func(c *link.Call) {
		for _, s := range shots {
			first := &s.element
			if len(s.elements) > 0 {
				first = &s.elements[0]
			}
			addFire(c, r.channel, s.name, s.old, s.then.head(), s.from, s.until, first, s.raws...)
		}
	})
	came := time.Now()
	if err != nil {
		return r.refused(shots, err)
	}
	r.most = min(2*r.most, mostScripts)
	stale := make(map[string]bool)
	for i, s := range shots {
		now, n, found, err := fired(vs[i])
		if err != nil {
			r.ask(len(stale) > 0)
			return r.refused(shots[i:], err)
		}
		r.clock.hear(now, sent, came)
		if !r.judge(s, n, found) {
			stale[s.name] = true
		}
	}
	if err := r.read(stale); err != nil {
		r.ask(true)
		return err
	}
	return nil
}

// judge takes in a script's reply; false if the record must be read anew.
func (r *runner) judge(s shot, n int, found string) bool {
	e := s.entry
	e.off = link.Holdoff{}
	switch {
	case n >= 0:
		r.done(s, n)
	case n == -2: // the clock has been set by the reply
		r.arm(e)
		e.due = max(e.due, r.clock.now()+1)
		heap.Fix(&r.heap, e.place)
		return true
	default:
		head, _, err := parseHead(found)
		if err != nil || head.revision != e.revision {
			return false
		}
		r.adopt(e, head)
	}
	return true
}

// done takes in that a script was executed, and enqueued n.
func (r *runner) done(s shot, n int) {
	tell(r.door, r.channel, n, s.elements...)
	if s.missed {
		r.door.Emit(string(MissedTicks), r.channel, "", "", n, time.UnixMilli(s.next), fmt.Errorf("recur: %q missed its ticks: policy %q", s.name, s.policy))
	}
	r.know(s.entry, s.then, true)
}

// refused puts back what an error kept from being fired. What concerns a single message must not hold up the others.
func (r *runner) refused(shots []shot, err error) error {
	for _, s := range shots {
		heap.Push(&r.heap, s.entry)
	}
	if class := link.Classify(err); class != link.Failed && class != link.Fatal || errors.Is(err, shunt.ErrClosed) {
		return err
	}
	if r.most > 1 || len(shots) > 1 {
		r.most = 1
		return nil
	}
	e := shots[0].entry
	e.due = r.clock.now() + e.off.Refuse(err).Milliseconds()
	heap.Fix(&r.heap, e.place)
	r.trouble(fmt.Errorf("%q: %w", e.name, err))
	return nil
}

// clock is the clock of Redis, as known from replies.
type clock struct {
	at    time.Time // when, here
	there float64   // it showed this, in ms
	err   float64   // give or take this
}

// hear takes in that the clock showed ms, which it had not passed by more than 1, between two times here. A reply that took long and does not
// contradict what is known is passed over; clocks may part by 1 ms a second.
func (c *clock) hear(ms int64, sent, came time.Time) {
	half := came.Sub(sent) / 2
	at, there, err := sent.Add(half), float64(ms)+0.5, millis(half)+0.5
	if !c.at.IsZero() {
		age := millis(at.Sub(c.at))
		if off := c.there + age - there; err > c.err+age/1000 && off <= err && off >= -err {
			return
		}
	}
	*c = clock{at, there, err}
}

// now is what it shows, in whole ms.
func (c *clock) now() int64 { return int64(c.there + millis(time.Since(c.at))) }

// until is how long it takes to show ms.
func (c *clock) until(ms int64) time.Duration {
	return time.Duration((float64(ms)-c.there)*1e6) - time.Since(c.at)
}

func millis(d time.Duration) float64 { return float64(d) / 1e6 }

// queue is a heap by due.
type queue []*entry

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].due < q[j].due }
func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].place, q[j].place = i, j
}
func (q *queue) Push(x any) {
	e := x.(*entry)
	e.place = len(*q)
	*q = append(*q, e)
}
func (q *queue) Pop() any {
	last := len(*q) - 1
	e := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	e.place = -1
	return e
}
