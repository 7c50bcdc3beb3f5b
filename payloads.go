package shunt

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/shuntmq/shunt/internal/custody"
	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/event"
	"github.com/shuntmq/shunt/internal/store"
)

// EncodingHeader is the header that says what Payloads.Encode has made of a message's payload. The option Header does
// not set it where Queue.Payloads encodes or decodes. Where it does neither, the header travels as any other: so a
// program without the codecs can move messages on, by Pull or Copy, if it keeps their payloads and headers. A receiver
// without Decode fails such a message, for its handler would take encoded bytes for plain ones.
const EncodingHeader = "shunt-encoding"

// Payload is a payload on its way to Redis or back, with what is known of its message.
type Payload struct {
	Channel string
	// Serial is empty for a bare payload, and in Encode of a recurring message: one payload is that of all its ticks.
	Serial string
	ID     string
	Type   string
	// Headers are as given by Header, and not to be written to.
	Headers map[string]string
	// Encoding is what Encode has returned; empty in Encode, and for a payload that is as Marshal made it.
	Encoding string
	Bytes    []byte // in Over nil
}

// Payloads changes the payloads of all messages between Marshal and Redis, and back before Unmarshal: it compresses
// them, encrypts them or stores them elsewhere. Module codec has such funcs, as a chain. The zero Payloads changes
// nothing and costs nothing. All funcs are called by many goroutines at once.
type Payloads struct {
	// Encode is called once an enqueue, after Marshal and WrapEnqueue: by Enqueue, EnqueueAll, EnqueueOnce, Then,
	// recur's Add and their like. EnqueueAll calls it for one message after another. It returns the bytes for Redis,
	// and what Decode must know of them, up to 16 KB, which travels as EncodingHeader. Where the encoding is empty the
	// payload goes as it is. An error is that of the enqueue, and Redis gets nothing. ctx is the enqueue's, with
	// EnqueueTimeout where that has no deadline. Queue.MaxSize bounds what it returns, and not what it gets.
	Encode func(ctx context.Context, p Payload) (encoding string, encoded []byte, err error)
	// Decode is called for every payload, also one without an Encoding: by a receiver before Unmarshal, by Pull, and by
	// PayloadOf. It must not write to p.Bytes. An error is a failed attempt, as if the handler had returned it, and the
	// message is tried again as MaxAttempts and Backoff of the Queue or of its options say. Reject sends it to dead at
	// once. ctx is the handler's, and its timeout runs. When its reply has come, a Pull begins no more of them after
	// half of what is then left of its lease, and gives the rest back.
	Decode func(ctx context.Context, p Payload) ([]byte, error)
	// Over, which may be nil, is told of a message with an Encoding that Redis has surely no more: it was acked,
	// cancelled or expired here, deleted by its Ref, Entry or Filter, or its Enqueue has failed. It is not told of
	// others: of Purge, of dead letters that a channel drops, of a delayed message with an ID that Cancel ends, of what
	// EnqueueAll, EnqueueOnce or Then has not enqueued though it was not too large, where a reply was lost, and where
	// the process ends first. It runs on up to 8 goroutines, each call with EnqueueTimeout; while 1,024 messages wait
	// for them, others are left out. Its error is an EventReceiverError. Close waits EnqueueTimeout for what waits, and
	// for a call under way.
	Over func(ctx context.Context, p Payload) error
}

// payloadOf is what the funcs get of an element.
func payloadOf(channel string, e *element.Element) Payload {
	p := Payload{Channel: channel, ID: e.ID(), Type: e.Type(), Headers: e.Headers(), Bytes: e.Payload,
		Encoding: e.Headers()[EncodingHeader]}
	if e.Serial != ([16]byte{}) {
		p.Serial = e.SerialString()
	}
	return p
}

// plain gives a copy the payload as Marshal made it, which is encoded anew: it has another serial, and perhaps another
// channel.
func (q *Queue) plain(ctx context.Context, d *draft) error {
	if d.copied == nil || q.conf.Payloads.Decode == nil {
		return nil
	}
	ctx, cancel := q.bounded(ctx)
	defer cancel()
	payload, err := q.decode(ctx, *d.copied)
	if err != nil {
		return fmt.Errorf("shunt: copy message %s of %q: %w", d.copied.Serial, d.copied.Channel, err)
	}
	d.Element.Payload, d.copied = payload, nil
	d.Element.DropHeader(EncodingHeader)
	return nil
}

// encode gives an element the payload that goes to Redis.
func (q *Queue) encode(ctx context.Context, channel string, e *element.Element) (err error) {
	if q.conf.Payloads.Decode != nil && e.Headers()[EncodingHeader] != "" {
		e.DropHeader(EncodingHeader) // the user's, which would be taken for ours
	}
	encode := q.conf.Payloads.Encode
	if encode == nil {
		return nil
	}
	ctx, cancel := q.bounded(ctx)
	defer cancel()
	p := payloadOf(channel, e)
	var encoding string
	encoded := e.Payload
	guard("Payloads.Encode", func() (err error) { encoding, encoded, err = encode(ctx, p); return err },
		func(e error) { err = e })
	if err == nil && encoding != "" {
		e.Payload = encoded
		err = e.SetHeader(EncodingHeader, encoding)
	}
	if err != nil {
		return fmt.Errorf("shunt: encode the payload of a message for %q: %w", channel, err)
	}
	return nil
}

// decode is the payload as Marshal made it.
func (q *Queue) decode(ctx context.Context, p Payload) (payload []byte, err error) {
	decode := q.conf.Payloads.Decode
	if decode == nil {
		return p.Bytes, nil
	}
	guard("Payloads.Decode", func() (err error) { payload, err = decode(ctx, p); return err },
		func(e error) { err = e })
	switch {
	case err == nil:
		return payload, nil
	case custody.Rejects(err):
		err = custody.Undecodable(err)
	}
	return nil, fmt.Errorf("shunt: decode the payload: %w", err)
}

// PayloadOf is the payload of a message that List, Browse, Peek or another method has given, as its Marshal made it.
// Without Queue.Payloads that is e.Payload. It is an error where e does not have the whole payload. Where ctx has no
// deadline it takes EnqueueTimeout at most.
func (q *Queue) PayloadOf(ctx context.Context, e Entry) ([]byte, error) {
	if err := q.open(ctx); err != nil {
		return nil, err
	}
	switch {
	case e.State == StateDone:
		return nil, e.Ref().failed("decode", errors.New("the message is over, and its payload is not kept"))
	case len(e.Payload) < e.PayloadSize:
		return nil, e.Ref().failed("decode", fmt.Errorf("the entry has %d of %d bytes: browse with a Payload of -1",
			len(e.Payload), e.PayloadSize))
	}
	ctx, cancel := q.bounded(ctx)
	defer cancel()
	payload, err := q.decode(ctx, Payload{Channel: e.Channel, Serial: e.Serial, ID: e.ID, Type: e.Type,
		Headers: e.Headers, Encoding: e.Headers[EncodingHeader], Bytes: e.Payload})
	if err != nil {
		return nil, e.Ref().failed("look at", err)
	}
	return payload, nil
}

const (
	oversAtOnce = 8
	oversMost   = 1024 // that wait
)

// overs calls Payloads.Over. It is nil where there is none.
type overs struct {
	q       *Queue
	waiting chan Payload
	group   sync.WaitGroup
	stop    chan struct{} // closed: what waits now is the last
	ctx     context.Context
	cancel  context.CancelFunc
}

func newOvers(q *Queue) *overs {
	if q.conf.Payloads.Over == nil {
		return nil
	}
	o := &overs{q: q, waiting: make(chan Payload, oversMost), stop: make(chan struct{})}
	o.ctx, o.cancel = context.WithCancel(context.Background())
	for range oversAtOnce {
		o.group.Go(o.run)
	}
	return o
}

func (o *overs) run() {
	ended := false
	defer func() {
		if !ended { // Over has called runtime.Goexit
			o.group.Go(o.run)
		}
	}()
	for {
		select {
		case p := <-o.waiting:
			o.call(p)
			continue
		default:
		}
		select {
		case p := <-o.waiting:
			o.call(p)
		case <-o.stop:
			ended = true
			return
		}
	}
}

func (o *overs) call(p Payload) {
	if o.ctx.Err() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(o.ctx, o.q.conf.EnqueueTimeout)
	defer cancel()
	guard("Payloads.Over", func() error { return o.q.conf.Payloads.Over(ctx, p) }, func(err error) {
		if err != nil {
			o.q.emit(event.Event{Kind: event.ReceiverError, Channel: p.Channel, Err: fmt.Errorf(
				"shunt: after the end of message %s: %w", p.Serial, err)})
		}
	})
}

// add takes in an element that Redis has no more. It does not block.
func (o *overs) add(channel string, e *element.Element) {
	if o == nil || e.Headers()[EncodingHeader] == "" {
		return
	}
	p := payloadOf(channel, e)
	p.Bytes = nil
	select {
	case o.waiting <- p:
	default:
	}
}

// settled takes in a message whose verdict was executed.
func (o *overs) settled(h *custody.Held, v *custody.Verdict) {
	switch v.Fate {
	case store.Acked, store.Cancelled, store.Expired:
		o.add(h.Keys.Name, h.Element)
	}
}

// removed takes in entries that were removed.
func (o *overs) removed(es ...Entry) {
	if o == nil {
		return
	}
	for _, e := range es {
		if el, err := element.Decode(e.raw); err == nil {
			o.add(e.Channel, &el)
		}
	}
}

// close waits for what waits, as long as one call may take. A call that ignores its context is left behind.
func (o *overs) close(limit context.Context) {
	if o == nil {
		return
	}
	close(o.stop)
	over := make(chan struct{})
	go func() {
		defer close(over)
		o.group.Wait()
		for { // what came when they had seen stop
			select {
			case p := <-o.waiting:
				o.call(p)
			default:
				return
			}
		}
	}()
	select {
	case <-over:
	case <-limit.Done():
	}
	o.cancel()
}
