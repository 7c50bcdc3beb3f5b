package worker

import (
	"bytes"
	"cmp"
	"time"

	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/store"
)

// takes are the takes of one step.
type takes struct {
	slot    *worker
	n       int
	got     int
	script  bool
	suspect bool
	stuck   bool       // there are channels to leave out: see settles
	above   bool       // the last reply counts the channels above that have something
	again   bool       // there may be more at once
	from    []*Channel // what each source of the script stands for; the only one, without a script
	bytes   int64      // reserved for large elements
	origin  *takeBatch
	chunk   []Item // of one piece of memory, for those that come
	items   []*Item
}

// add appends the takes to the call. A suspect is taken alone, and only one a receiver.
func (t *takes) add(call *link.Call) {
	s, r := t.slot, t.slot.r
	open := s.takeable(s.now, t.stuck)
	if len(open) == 0 {
		return
	}
	if r.large.on() {
		if t.bytes = r.large.reserve(); t.bytes == 0 {
			return // too much is under way
		}
	}
	t.n, t.from, t.origin = 1, open, s.origin()
	call.Into = &t.origin.memory
	for i, in := range open {
		if r.suspects.claim(in, s.now) {
			t.suspect, t.script, t.from = true, true, open[i:i+1]
			if r.order.strict() {
				t.from = open[: i+1 : i+1]
			}
			t.ask(call)
			return
		}
	}
	t.script = r.full.lasts(s.now)
	if r.order != nil {
		t.from = r.order.turn(r.channels, open)
		i := r.order.guess(t.from)
		t.script = t.script || i < 0
		if !t.script {
			t.guess(call, t.from[:i+1])
			t.above, t.from = i > 0, t.from[i:i+1]
			return
		}
	}
	t.n = s.want()
	if t.script {
		t.ask(call)
		return
	}
	for range t.n {
		call.AddReady(s.take)
	}
}

// guess takes from the last of the channels, which had something lately. Then it counts the channels above that have
// something, without the costs of a script. Where there are some, the messages that it has brought start only after
// those channels were asked.
func (t *takes) guess(call *link.Call, from []*Channel) {
	n := len(from) - 1
	store.AddTakeOne(call, from[n].Keys, from[n].doing[t.slot.n])
	if n > 0 { // last, so that nothing which was enqueued after a message of theirs starts before it
		var keys [64]string
		for i, in := range from[:n] {
			keys[i] = in.Prepare
		}
		store.AddCountWaiting(call, keys[:n])
	}
}

// ask asks the channels in turn, in one script; the last one, where a suspect is wanted, for a suspect.
func (t *takes) ask(call *link.Call) {
	var from [64]store.Source
	for i, in := range t.from {
		from[i] = store.Source{Keys: in.Keys, Doing: in.doing[t.slot.n], Suspect: t.suspect && i == len(t.from)-1}
	}
	store.AddTake(call, from[:len(t.from)], t.n)
}

// receive files what came. empty: there was nothing, so the worker may park.
func (t *takes) receive(replies []link.Reply, order int64) (empty bool, trouble error) {
	if t.n == 0 {
		return false, nil
	}
	s, r := t.slot, t.slot.r
	defer r.large.release(t.bytes)
	t.origin.order = order
	t.items = s.took[:0]
	asked := true
	if t.above {
		asked, replies = t.counted(replies)
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
		t.from[0].nonEmptyLately.Store(false)
		t.again = true // the others, by script
	}
	own(t.items)
	for _, it := range t.items {
		it.asked = asked
		it.suspect = t.suspect && it.Channel == t.from[len(t.from)-1]
		r.large.saw(len(it.Raw))
	}
	if t.suspect {
		trouble = t.suspected(trouble)
	}
	t.file()
	return t.got == 0 && !t.again && trouble == nil, trouble
}

// take files one element; more of the same take may follow.
func (t *takes) take(in *Channel, raw []byte, more int) {
	if len(t.chunk) == 0 {
		t.chunk = make([]Item, 1+more)
	}
	in.nonEmptyLately.Store(true)
	it := &t.chunk[0]
	it.fill(in, raw, t.origin)
	t.items, t.chunk = append(t.items, it), t.chunk[1:]
}

// counted reads the last reply: whether the channels above have nothing. It returns the others.
func (t *takes) counted(replies []link.Reply) (nothing bool, others []link.Reply) {
	last := len(replies) - 1
	n, err := store.CountReply(replies[last])
	if link.Classify(err) == link.Fatal { // without this right it is the scripts that ask
		if r := t.slot.r; !r.order.blind.Swap(true) {
			r.ReportFatal(t.from[0], err)
		}
		return false, replies[:last]
	}
	return n == 0 && err == nil, replies[:last]
}

// failed takes in the error of a command, and returns what is the receiver's trouble.
func (t *takes) failed(err error, only bool) error {
	r := t.slot.r
	switch class := link.Classify(err); {
	case link.Code(err) == "OOM" && !t.script:
		r.full.seen(time.Now())
		t.again = true
	case class == link.Unknown:
		t.again = true // the handover comes first
	case r.order != nil && !t.script && only:
		return t.refused(t.from[0], err)
	default:
		return err // no one channel's
	}
	return nil
}

// refused takes in why a channel could not be read. One channel of several is left out for a while, unless only its
// suspects could not be read. It returns an error that concerns the whole receiver.
func (t *takes) refused(in *Channel, why error) error {
	r := t.slot.r
	if len(r.channels) == 1 || t.suspect && in == t.from[len(t.from)-1] || link.Classify(why) != link.Fatal {
		return why
	}
	in.unreadable.begin(time.Now(), link.MaxTrouble)
	r.ReportFatal(in, why)
	return nil
}

// suspected takes in what a take of suspects came to. A refusal concerns suspects alone: they wait, and other
// takes go on. It returns what is left of the receiver's trouble.
func (t *takes) suspected(trouble error) error {
	r, in := t.slot.r, t.from[len(t.from)-1]
	if trouble != nil {
		wait := r.suspects.refused(trouble)
		time.AfterFunc(wait, r.parking.wakeOne)
		if class := link.Classify(trouble); class == link.Fatal || class == link.Failed {
			r.ReportFatal(in, trouble)
		}
	} else {
		r.suspects.off = link.Holdoff{}
	}
	if t.got > 0 && t.items[0].suspect {
		return nil
	}
	if t.got == 0 && trouble == nil && !t.again {
		in.mayHaveSuspects.Store(false)
	}
	r.suspects.busy.Store(false)
	t.again = true
	return nil
}

// file puts what came into the worker's hands.
func (t *takes) file() {
	s, r := t.slot, t.slot.r
	s.mu.Lock()
	s.items = append(s.items, t.items...)
	t.origin.left = len(t.items)
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
