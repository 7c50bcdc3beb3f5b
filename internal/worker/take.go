package worker

import (
	"bytes"
	"cmp"
	"errors"
	"time"

	"github.com/shuntmq/shunt/internal/lane"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/store"
)

// takes are the takes of one visit.
type takes struct {
	worker  *worker
	site    *lane.Site
	from    []*lane.Lane // what each source of the script stands for; the only one, without a script
	most    int          // that each of them may give
	n       int
	got     int
	script  bool
	suspect bool
	later   bool  // lanes of other sites come first
	above   bool  // the last reply counts the lanes above that have something
	again   bool  // there may be more at once
	bytes   int64 // reserved for large elements
	batch   *takeBatch
	chunk   []Item // of one piece of memory, for those that come
	items   []*Item
}

// add appends the takes to the call. A suspect is taken alone, and only one a site.
func (t *takes) add(call *link.Call) {
	s, r := t.worker, t.worker.r
	if len(t.from) == 0 {
		return
	}
	if large := &t.site.Large; large.On() {
		if t.bytes = large.Reserve(); t.bytes == 0 {
			return // too much is under way
		}
	}
	t.n, t.batch = 1, s.batch()
	t.batch.at = s.now
	call.Into = &t.batch.memory
	for i, l := range t.from {
		if t.site.Suspects.Claim(l, s.now) {
			t.suspect, t.script = true, true
			if r.order.strict() {
				t.from = t.from[: i+1 : i+1]
			} else {
				t.from = t.from[i : i+1]
			}
			t.ask(call)
			return
		}
	}
	t.script = t.site.Full.Lasts(s.now)
	if r.order != nil {
		i := r.order.guess(t.from)
		t.script = t.script || i < 0
		if !t.script {
			t.guess(call, t.from[:i+1])
			t.above, t.from = i > 0, t.from[i:i+1]
			return
		}
	}
	t.n = min(s.pace.want(r), t.most)
	if t.script {
		t.ask(call)
		return
	}
	for range t.n {
		call.AddReady(s.take)
	}
}

// guess takes from the last of the lanes, which had something lately. Then it counts the lanes above that have
// something, without the costs of a script. Where there are some, the messages that it has brought start only after
// those lanes were asked.
func (t *takes) guess(call *link.Call, from []*lane.Lane) {
	n := len(from) - 1
	store.AddTakeOne(call, from[n].Keys, from[n].Lists[t.worker.n])
	if n > 0 { // last, so that nothing which was enqueued after a message of theirs starts before it
		var keys [64]string
		for i, l := range from[:n] {
			keys[i] = l.Prepare
		}
		store.AddCountWaiting(call, keys[:n])
	}
}

// ask asks the lanes in turn, in one script; the last one, where a suspect is wanted, for a suspect.
func (t *takes) ask(call *link.Call) {
	var from [64]store.Source
	for i, l := range t.from {
		from[i] = store.Source{Keys: l.Keys, Doing: l.Lists[t.worker.n], Suspect: t.suspect && i == len(t.from)-1}
	}
	store.AddTake(call, from[:len(t.from)], t.n)
}

// receive files what came. empty: there was nothing, so the worker may park.
func (t *takes) receive(replies []link.Reply, order int64) (empty bool, trouble error) {
	defer t.site.Large.Release(t.bytes)
	if t.n == 0 {
		return false, nil
	}
	s, r := t.worker, t.worker.r
	t.batch.order = order
	t.items = s.took[:0]
	asked := !t.later // else those before were asked, and may have something by now
	if t.above {
		var nothing bool
		nothing, replies = t.counted(replies)
		asked = asked && nothing
	}
	for i, rep := range replies {
		switch {
		case rep.Err != nil:
			trouble = cmp.Or(t.failed(rep.Err, i == 0), trouble)
		case t.script:
			trouble = cmp.Or(trouble, store.EachTaken(rep, func(source int, raw []byte, err error) {
				if source >= len(t.from) {
					return
				}
				if err != nil {
					trouble = cmp.Or(trouble, t.refused(t.from[source], err))
				} else {
					t.take(t.from[source], raw, 0)
				}
			}))
		case rep.Bulk != nil:
			more := len(replies) - 1 - i
			if len(t.chunk) == 0 && replies[len(replies)-1].Bulk == nil {
				more = 0 // the list's end
			}
			t.take(t.from[0], rep.Bulk, more)
		}
	}
	t.got = len(t.items)
	if r.order != nil && !t.script && t.got == 0 {
		t.from[0].NonEmptyLately.Store(false)
		t.again = true // the others, by script
	}
	own(t.items)
	for _, it := range t.items {
		it.asked = asked
		it.suspect = t.suspect && it.Lane == t.from[len(t.from)-1]
		t.site.Large.Saw(len(it.Raw))
	}
	if t.suspect {
		trouble = t.suspected(trouble)
	}
	t.file()
	return t.got == 0 && !t.again && trouble == nil, trouble
}

// take files one element; more of the same take may follow.
func (t *takes) take(l *lane.Lane, raw []byte, more int) {
	if len(t.chunk) == 0 {
		t.chunk = make([]Item, 1+more)
	}
	l.NonEmptyLately.Store(true)
	it := &t.chunk[0]
	it.fill(l, raw, t.batch)
	t.items, t.chunk = append(t.items, it), t.chunk[1:]
}

// counted reads the last reply: whether the lanes above have nothing. It returns the others.
func (t *takes) counted(replies []link.Reply) (nothing bool, others []link.Reply) {
	last := len(replies) - 1
	n, err := store.CountReply(replies[last])
	if link.Classify(err) == link.Fatal { // without this right it is the scripts that ask
		if !t.worker.r.order.blind.Swap(true) {
			t.site.ReportFatal(t.from[0], err)
		}
		return false, replies[:last]
	}
	return n == 0 && err == nil, replies[:last]
}

// failed takes in the error of a command, and returns what is the site's trouble.
func (t *takes) failed(err error, only bool) error {
	r := t.worker.r
	switch class := link.Classify(err); {
	case errors.Is(err, link.ErrYoung):
		t.again = true // a beat comes first
	case link.Code(err) == "OOM" && !t.script:
		t.site.Full.Begin(time.Now(), fullFor)
		t.again = true
	case class == link.Unknown:
		t.again = true // the handover comes first
	case r.order != nil && !t.script && only:
		return t.refused(t.from[0], err)
	default:
		return err // no one lane's
	}
	return nil
}

// fullFor is how long a Redis without memory is asked by script.
const fullFor = 10 * time.Second

// refused takes in why a lane could not be read. One of several is left out for a while, unless only its suspects could
// not be read. It returns an error that concerns the whole site.
func (t *takes) refused(l *lane.Lane, why error) error {
	if len(t.worker.r.Lanes) == 1 || t.suspect && l == t.from[len(t.from)-1] || link.Classify(why) != link.Fatal {
		return why
	}
	l.CouldNotBeRead()
	t.site.ReportFatal(l, why)
	return nil
}

// suspected takes in what a take of suspects came to. A refusal concerns suspects alone: they wait, and other
// takes go on. It returns what is left of the site's trouble.
func (t *takes) suspected(trouble error) error {
	l, suspects := t.from[len(t.from)-1], &t.site.Suspects
	if trouble != nil {
		time.AfterFunc(suspects.Refused(trouble), t.worker.r.parking.wakeOne)
		t.site.ReportFatal(l, trouble)
	} else {
		suspects.Granted()
	}
	if t.got > 0 && t.items[0].suspect {
		return nil
	}
	if t.got == 0 && trouble == nil && !t.again {
		l.MayHaveSuspects.Store(false)
	}
	suspects.Done()
	t.again = true
	return nil
}

// file puts what came into the worker's hands.
func (t *takes) file() {
	s, r := t.worker, t.worker.r
	s.mu.Lock()
	s.items = append(s.items, t.items...)
	t.batch.left = len(t.items)
	s.mu.Unlock()
	clear(t.items)
	s.took = t.items
	s.pace.came(t.got, t.n, r.conf.Prefetch)
	if t.got > 0 && r.parking.polls.Load() {
		r.parking.wakeOne() // no waiter does it
	}
}

// ownTogether bounds the payloads that share a piece of memory, which all of them keep alive.
const ownTogether = 1 << 10

// batch is one of which nothing is left, or a new one.
func (s *worker) batch() *takeBatch {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.batches {
		if b != nil && b.left == 0 {
			b.memory.Reuse()
			return b
		}
	}
	b := new(takeBatch)
	s.batches[0], s.batches[1] = s.batches[1], b
	return b
}

// own gives each message a payload that it may write to: Raw is what is removed in the end.
func own(items []*Item) {
	n := 0
	for _, it := range items {
		if len(it.Payload) <= ownTogether {
			n += len(it.Payload)
		}
	}
	all := make([]byte, 0, n)
	for _, it := range items {
		if len(it.Payload) > ownTogether {
			it.Payload = bytes.Clone(it.Payload)
			continue
		}
		from := len(all)
		all = append(all, it.Payload...)
		it.Payload = all[from:len(all):len(all)]
	}
}
