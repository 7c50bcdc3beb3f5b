package link

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"
)

// pingEvery is how often a subscription asks its connection whether it is alive, and asks again for channels that
// were refused. A connection on which nothing came for twice as long is closed.
const pingEvery = 30 * time.Second

// Subscription is one connection that hears any number of pub/sub channels, for as long as there are any. Messages that
// are published while it is away are lost. So it reports when it listens, and the listener then asks for what it may
// have missed. A channel that the server refuses, by an ACL, is not heard; the others are.
type Subscription struct {
	node *Node

	mu        sync.Mutex
	hears     map[topic][]*Listener
	conn      redis.Conn     // nil while away; writes hold mu, the goroutine reads
	confirmed map[topic]bool // those that conn is subscribed to
	socket    net.Conn       // of conn, where it is known
	cancel    context.CancelFunc
	ended     chan struct{}
}

// topic is what one can subscribe to: a channel, or all whose names match a pattern.
type topic struct {
	name    string
	pattern bool
}

// verb is the command that begins, or ends, the subscription.
func (t topic) verb(begin bool) string {
	switch {
	case t.pattern && begin:
		return "PSUBSCRIBE"
	case t.pattern:
		return "PUNSUBSCRIBE"
	case begin:
		return "SUBSCRIBE"
	}
	return "UNSUBSCRIBE"
}

// Listener is one Listen.
type Listener struct {
	topic     topic
	heard     func(channel, payload string)
	listening func(bool)
}

// NewSubscription starts nothing until the first Listen.
func NewSubscription(node *Node) *Subscription {
	return &Subscription{node: node, hears: make(map[topic][]*Listener)}
}

// Listen calls listening(true) once the channel is subscribed, and heard for each published message. It calls
// listening(false) when the connection of a subscribed channel is lost. All calls come from one goroutine. They must
// not block.
func (s *Subscription) Listen(channel string, heard func(payload string), listening func(bool)) *Listener {
	return s.listen(&Listener{topic{channel, false}, func(_, payload string) { heard(payload) }, listening})
}

// ListenAll is Listen for all channels whose names match a pattern.
func (s *Subscription) ListenAll(pattern string, heard func(channel, payload string), listening func(bool)) *Listener {
	return s.listen(&Listener{topic{pattern, true}, heard, listening})
}

func (s *Subscription) listen(l *Listener) *Listener {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hears[l.topic] = append(s.hears[l.topic], l)
	if s.cancel == nil {
		var ctx context.Context
		ctx, s.cancel = context.WithCancel(context.Background())
		s.ended = make(chan struct{})
		go s.run(ctx, s.ended)
	} else if s.conn != nil { // also where the channel is heard already: the server confirms it again
		s.conn.Send(l.topic.verb(true), l.topic.name)
		s.conn.Flush() // the reader finds an error
	}
	return l
}

// Forget ends a Listen; with the last one the connection and the goroutine end, for which it waits. When ctx ends
// first, a mute connection is closed, where its socket is known.
func (s *Subscription) Forget(ctx context.Context, l *Listener) {
	s.mu.Lock()
	t := l.topic
	s.hears[t] = slices.DeleteFunc(s.hears[t], func(o *Listener) bool { return o == l })
	if len(s.hears[t]) > 0 {
		s.mu.Unlock()
		return
	}
	delete(s.hears, t)
	if len(s.hears) > 0 {
		if s.conn != nil {
			s.conn.Send(t.verb(false), t.name)
			s.conn.Flush()
		}
		s.mu.Unlock()
		return
	}
	ended, socket := s.ended, s.socket
	s.cancel() // before UNSUBSCRIBE can be answered
	s.cancel = nil
	if s.conn != nil {
		s.conn.Send(t.verb(false)) // its reply ends the reader's wait
		s.conn.Flush()
	}
	s.mu.Unlock()
	select {
	case <-ended:
	case <-ctx.Done():
		if socket != nil { // otherwise the reader's timeout ends it
			socket.Close()
			<-ended
		}
	}
}

func (s *Subscription) run(ctx context.Context, ended chan struct{}) {
	defer close(ended)
	wait := time.Duration(0)
	for ctx.Err() == nil {
		c, socket, err := s.node.DialOwn(ctx)
		if err != nil {
			continue // Dial waits
		}
		began := time.Now()
		s.attach(ctx, c, socket)
		s.read(ctx, c)
		for _, l := range s.detach(ctx, c) {
			l.listening(false)
		}
		if time.Since(began) > MaxTrouble {
			wait = 0
		} else { // dialled and lost at once
			wait = min(max(2*wait, minBackoff), MaxTrouble)
			Sleep(ctx, wait)
		}
	}
}

// attach subscribes a new connection to all channels.
func (s *Subscription) attach(ctx context.Context, c redis.Conn, socket net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() == nil {
		s.conn, s.socket, s.confirmed = c, socket, make(map[topic]bool)
		s.subscribeLocked()
	}
}

// subscribeLocked asks for all channels that are not confirmed.
func (s *Subscription) subscribeLocked() {
	for t := range s.hears {
		if !s.confirmed[t] {
			s.conn.Send(t.verb(true), t.name)
		}
	}
	s.conn.Flush()
}

// detach closes a connection, and returns the listeners that have lost it.
func (s *Subscription) detach(ctx context.Context, c redis.Conn) (lost []*Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for t := range s.confirmed {
		if ctx.Err() == nil {
			lost = append(lost, s.hears[t]...)
		}
	}
	if s.conn == c {
		s.conn, s.socket, s.confirmed = nil, nil, nil
	}
	discard(c)
	return lost
}

// retryRefused asks again for channels that the server has refused: an ACL may have changed.
func (s *Subscription) retryRefused() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != nil {
		s.subscribeLocked()
	}
}

// read hands out what comes until the connection ends, or until nothing is subscribed to any more.
func (s *Subscription) read(ctx context.Context, c redis.Conn) {
	defer s.keepAlive(c)()
	for ctx.Err() == nil {
		v, err := redis.ReceiveWithTimeout(c, 2*pingEvery)
		if Code(err) != "" && !drops(err) {
			continue // a channel is refused, or PING, which is an answer too
		}
		if err != nil {
			return
		}
		m, _ := redis.Values(v, nil)
		if len(m) < 3 {
			continue // the reply to PING
		}
		kind, _ := redis.String(m[0], nil)
		name, _ := redis.String(m[1], nil)
		kind, pattern := strings.CutPrefix(kind, "p")
		channel, _ := redis.String(m[len(m)-2], nil) // of a message
		for _, l := range s.listeners(c, kind, topic{name, pattern}) {
			switch kind {
			case "subscribe":
				l.listening(true)
			case "message":
				payload, _ := redis.String(m[len(m)-1], nil)
				l.heard(channel, payload)
			}
		}
	}
}

// keepAlive asks the connection now and then, until stop is called.
func (s *Subscription) keepAlive(c redis.Conn) (stop func() bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var tick *time.Timer
	tick = time.AfterFunc(pingEvery, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.conn == c {
			c.Send("PING")
			s.subscribeLocked()
			tick.Reset(pingEvery)
		}
	})
	return tick.Stop
}

// listeners are those of a topic, after the server has sent a message of a kind about it.
func (s *Subscription) listeners(c redis.Conn, kind string, t topic) []*Listener {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn == c {
		switch kind {
		case "subscribe":
			s.confirmed[t] = true
		case "unsubscribe":
			delete(s.confirmed, t)
		}
	}
	return slices.Clone(s.hears[t])
}
