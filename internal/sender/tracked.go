package sender

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/store"
)

// outgoing is a message with an id, on its way with others.
type outgoing struct {
	element element.Element // not a pointer: so an enqueue has no Message on the heap
	raw     []byte
	refused Refused
	err     error
}

var errBehind = errors.New("others are enqueued before it")

// sendTracked brings one message with an id or an expiry into its channel, with others where several come at once.
func (s *Sender) sendTracked(ctx context.Context, m *Message) (due time.Time, refused Refused, err error) {
	raw := m.Element.Encode()
	if m.Due.Later() || m.Element.Extra.ID == "" {
		return s.alone(ctx, *m, raw)
	}
	o, err := s.crowd.Join(ctx, m.Keys, outgoing{element: m.Element, raw: raw})
	if link.Classify(err) == link.NotExecuted {
		return due, refused, late(errors.Unwrap(err), errBehind)
	}
	return due, o.refused, cmp.Or(err, o.err)
}

func (s *Sender) alone(ctx context.Context, m Message, raw []byte) (due time.Time, refused Refused, err error) {
	due, all, err := s.pushTracked(ctx, m.Keys, m.Due, []*element.Element{&m.Element}, [][]byte{raw})
	if err == nil {
		refused = all[0]
	}
	return due, refused, err
}

// sendAll brings messages with ids, all due now, into a channel by one script.
func (s *Sender) sendAll(ctx context.Context, k *store.Keys, some []*outgoing) {
	es, raws := make([]*element.Element, len(some)), make([][]byte, len(some))
	for i, o := range some {
		es[i], raws[i] = &o.element, o.raw
	}
	_, refused, err := s.pushTracked(ctx, k, store.Due{}, es, raws)
	for i, o := range some {
		if o.err = err; err == nil {
			o.refused = refused[i]
		}
	}
}

// pushTracked brings messages with an id or an expiry into a channel, all that are not refused in one step. Where the
// outcome is unknown they are sent again: a receipt says whether that step was made.
func (s *Sender) pushTracked(ctx context.Context, k *store.Keys, due store.Due, es []*element.Element, raws [][]byte) (
	at time.Time, refused []Refused, err error,
) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	mode, ms := due.When(time.Now())
	drop := s.ledger.take(k.Name)
	plain := mode == store.Now && !slices.ContainsFunc(es, func(e *element.Element) bool { return e.Extra.ID == "" })
	again := link.Resend{Until: s.router.For(k.Name).Data.Closed()}
	repeats := false // a sending that got no reply may yet be executed
	for {
		rep, err := s.call(ctx, 0, k, func(c *link.Call) {
			switch {
			case plain:
				store.AddEnter(c, k, drop, es, raws)
			case repeats:
				store.AddEnqueueAgain(c, k, mode, ms, drop, es, raws)
			default:
				store.AddEnqueue(c, k, mode, ms, drop, es, raws)
			}
		})
		var records []store.Refusal
		var stale bool
		if err == nil && plain {
			records, stale, err = store.EnterReply(rep, len(es))
		} else if err == nil {
			at, records, err = store.EnqueueReply(rep, len(es))
		}
		if err == nil && stale { // those that were not refused are enqueued, whatever becomes of the next sending
			_ = again.Failed(&link.Error{Class: link.Unknown})
			plain, drop = false, nil
			continue
		}
		if err == nil {
			refused = refusedOf(records)
			if !again.InDoubt() {
				s.ledger.put(k.Name, receiptsOf(es, refused)...)
			}
			s.findHolders(ctx, k, refused)
			if !due.Later() {
				at = time.Time{}
			}
			return at, refused, nil
		}
		full := link.Code(err) == "OOM"
		err = again.Failed(err)
		if !again.InDoubt() {
			s.ledger.put(k.Name, drop...)
			return at, nil, err
		}
		if full && store.Enqueued(ctx, s.asker, k, es) {
			return at, make([]Refused, len(es)), nil
		}
		if ctx.Err() != nil || errors.Is(err, link.ErrClosed) {
			return at, nil, err
		}
		plain, repeats = false, true
		again.Pause(ctx, 0)
	}
}

func refusedOf(records []store.Refusal) []Refused {
	all := make([]Refused, len(records))
	for i, r := range records {
		all[i].Record = r
	}
	return all
}

// findHolders adds to each refusal the worker that handles the message which has the id.
func (s *Sender) findHolders(ctx context.Context, k *store.Keys, refused []Refused) {
	var some []*Refused
	var serials []ulid.ULID
	for i := range refused {
		if refused[i].Record == nil {
			continue
		}
		if r, ok := element.ParseRecord(refused[i].Record); ok && r.State != 'u' {
			some, serials = append(some, &refused[i]), append(serials, r.Serial)
		}
	}
	if len(some) == 0 {
		return
	}
	holders, err := store.Holders(ctx, s.asker, k, serials...)
	if err != nil {
		return // it is known well enough
	}
	for i, h := range holders {
		some[i].Holder = h
	}
}
