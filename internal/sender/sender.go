// Package sender brings messages into their channels. Plain ones go by one command, those with an id or an expiry by a
// script that may be sent again. It says of each message whether Redis has it, does not have it, or may have it.
package sender

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/shuntmq/shunt/internal/crowd"
	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/store"
)

// Message is a message on its way into its channel.
type Message struct {
	Keys    *store.Keys
	Due     store.Due
	Element element.Element
}

// Tracked says that a script has to bring the message: a plain one is no more than its element.
func (m *Message) Tracked() bool {
	x := m.Element.Extra
	return x != nil && (x.ID != "" || x.Expires != 0)
}

// Refused is why a message was not enqueued: the record of the message that has its id, and the worker that handles
// that one, if any. Without a record it was enqueued.
type Refused struct {
	Record store.Refusal
	Holder store.Handling
}

// Sender brings the messages of one Queue into their channels. Its methods may be called by many goroutines at once.
// Their errors are the link's; of unknown outcome is what may have been executed.
type Sender struct {
	router  *link.Router
	asker   store.Asker
	timeout time.Duration // of an enqueue whose context has no deadline

	ledger receiptLedger
	crowd  crowd.Crowd[outgoing]
}

// New makes a Sender. timeout bounds each enqueue whose context has no deadline.
func New(router *link.Router, asker store.Asker, timeout time.Duration) *Sender {
	s := &Sender{router: router, asker: asker, timeout: timeout}
	s.crowd = crowd.Crowd[outgoing]{Base: context.Background(), Timeout: timeout, Most: chunkTracked, Bytes: chunkBytes,
		Size: func(o *outgoing) int { return len(o.raw) }, Send: s.sendAll}
	return s
}

// Send brings one message into its channel, and returns when it is due if that is later.
func (s *Sender) Send(ctx context.Context, m *Message) (due time.Time, refused Refused, err error) {
	if m.Tracked() {
		return s.sendTracked(ctx, m)
	}
	raws := [1][]byte{m.Element.Encode()}
	due, err = s.push(ctx, m.Keys, m.Due, raws[:])
	return due, refused, err
}

// push brings plain elements into a channel in one step.
func (s *Sender) push(ctx context.Context, k *store.Keys, due store.Due, raws [][]byte) (time.Time, error) {
	if due.Later() {
		return s.pushLater(ctx, k, due, raws)
	}
	var limit time.Duration
	if _, ok := ctx.Deadline(); !ok {
		limit = s.timeout
	}
	_, err := s.call(ctx, limit, k, func(c *link.Call) { store.AddPush(c, k, raws...) })
	return time.Time{}, err
}

// calls are those whose replies have all come: the link is done with them.
var calls = sync.Pool{New: func() any { c := link.NewCall(); c.KeepWhileDown = true; return c }}

// call sends one command, and again while it is surely not executed and that may change. It ends with ctx or, where
// limit is not 0, after that time. A full Redis ends it at once, and so does one that refuses this client.
func (s *Sender) call(
	ctx context.Context, limit time.Duration, k *store.Keys, fill func(*link.Call),
) (link.Reply, error) {
	began, left := time.Now(), limit
	over := func() error {
		if limit > 0 && left <= 0 {
			return context.DeadlineExceeded
		}
		return ctx.Err()
	}
	again := link.Resend{First: 50 * time.Millisecond}
	for texts := 0; ; {
		server := s.router.For(k.Name)
		if why := server.Hopeless(); why != nil {
			return link.Reply{}, &link.Error{Class: link.NotExecuted, Err: why}
		}
		c := calls.Get().(*link.Call)
		c.Reset()
		fill(c)
		err := server.Data.DoFor(ctx, left, c)
		var r link.Reply
		if err == nil {
			r = c.Replies[0]
			err = r.Err
			calls.Put(c)
		}
		if err == nil || link.Classify(err) != link.NotExecuted || errors.Is(err, link.ErrClosed) ||
			link.Code(err) == "OOM" {
			return r, err
		}
		if server.Hopeless() != nil {
			continue
		}
		if limit > 0 {
			left = limit - time.Since(began)
		}
		if over() != nil {
			return r, late(over(), cmp.Or(server.Why(), err))
		}
		if link.Code(err) == "NOSCRIPT" && texts == 0 {
			texts++ // the link sends the text at once
			continue
		}
		again.Until = server.Data.Closed()
		again.Pause(ctx, left)
		if limit > 0 {
			left = limit - time.Since(began)
		}
		if over() != nil {
			return r, late(over(), err)
		}
	}
}

// late is the error of a command that was not sent in time, with what had kept it.
func late(over, why error) error {
	return &link.Error{Class: link.NotExecuted, Err: fmt.Errorf("%w (%w)", why, over)}
}

// Close has Redis drop the receipts of enqueues whose replies have come.
func (s *Sender) Close(ctx context.Context) { s.ledger.flush(ctx, s.router) }
