package worker

import (
	"time"

	"github.com/shuntmq/shunt/internal/custody"
	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/event"
	"github.com/shuntmq/shunt/internal/lane"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/store"
)

// Item is one message that a worker holds, with the context of its handler. Its worker's mu guards its state. It is
// small, for memory is what most of a receiver's time goes to.
type Item struct {
	element.Element
	Context
	Lane *lane.Lane
	Raw  []byte // as received: what is removed

	batch   *takeBatch
	verdict *custody.Verdict
	took    time.Duration // by the handler

	state     itemState
	Newer     bool // the version is not known here
	suspect   bool
	asked     bool // the higher channels had nothing when it was taken
	ownsID    bool // its id, as Redis said when its handling began
	begun     bool // of one with an Extra: Redis has an entry that it is about to be handled
	cancelled bool // somebody has cancelled it
}

// takeBatch is what the items share that came together. left is guarded by the worker's mu.
type takeBatch struct {
	order  int64       // of the replies that brought them
	at     time.Time   // of the take's sending; of one that waited in Redis, of its reply
	memory link.Memory // of Raw
	left   int         // of them, whose Raw is still needed
}

func (it *Item) fill(l *lane.Lane, raw []byte, from *takeBatch) {
	it.Lane, it.Raw, it.batch = l, raw, from
	it.Newer = it.Read(raw) != nil
}

// held is the item as the store knows it.
func (it *Item) held() store.Held {
	return store.Held{Element: &it.Element, Raw: it.Raw, OwnsID: it.ownsID}
}

// custody is the item without its goroutine, in the list of the worker that holds it.
func (it *Item) custody(s *worker) custody.Held {
	return custody.Held{Held: it.held(), Keys: it.Lane.Keys, List: it.Lane.Lists[s.n], Newer: it.Newer}
}

// Decide is the verdict on the item, whose handler has failed with err.
func (it *Item) Decide(p custody.Policy, err error) *custody.Verdict {
	h := custody.Held{Held: it.held(), Newer: it.Newer} // no command is made of it
	return h.Decide(p, it.Cause(), err)
}

// receiver is the incarnation that holds the item.
func (it *Item) receiver() string { return it.Lane.Site.Live().Name }

// event is one that is about the item. Its worker's mu is held.
func (it *Item) event(kind event.Kind, s *worker) event.Event {
	return event.Event{Kind: kind, Channel: it.Lane.Name, Serial: it.Serial, ID: it.ID(), Receiver: it.receiver(),
		Worker: s.n}
}

// timed is an event about the item while its handler runs, or has not returned. Its worker's mu is held.
func (it *Item) timed(kind event.Kind, s *worker, now time.Time) event.Event {
	e := it.event(kind, s)
	e.Attempt, e.Took, e.Err = it.Attempt(), now.Sub(it.Started), it.Cause()
	return e
}

// decide files a verdict, and says whether it could. Its worker's mu is held.
func (it *Item) decide(v *custody.Verdict) bool {
	may := it.move(judge)
	if may {
		it.verdict = v
	}
	return may
}
