package link

import (
	"context"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"
)

// A subscription is asked whether it lives every pingEvery, and given up when nothing came for twice as long.
const pingEvery = 30 * time.Second

// Subscription is one connection that hears any number of pub/sub channels, for as long as there are any. What is
// published while it is away is not heard: it says when it listens, and the listener then asks for what it may have
// missed.
type Subscription struct {
	node *Node

	mu     sync.Mutex
	hears  map[string][]*Listener
	conn   redis.Conn // nil while away; writes hold mu, reads are the goroutine's
	socket net.Conn   // of conn, where it is known
	cancel context.CancelFunc
	ended  chan struct{}
}

// Listener is one Listen.
type Listener struct {
	channel   string
	heard     func(payload string)
	listening func(bool)
}

// NewSubscription starts nothing until the first Listen.
func NewSubscription(node *Node) *Subscription {
	return &Subscription{node: node, hears: make(map[string][]*Listener)}
}

// Listen calls listening(true) once the channel is heard, heard for what is published, and listening(false) when the
// connection is lost, all from one goroutine, which they must not keep waiting.
func (s *Subscription) Listen(channel string, heard func(payload string), listening func(bool)) *Listener {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := &Listener{channel, heard, listening}
	s.hears[channel] = append(s.hears[channel], l)
	if s.cancel == nil {
		var ctx context.Context
		ctx, s.cancel = context.WithCancel(context.Background())
		s.ended = make(chan struct{})
		go s.run(ctx, s.ended)
	} else if s.conn != nil { // also where the channel is heard already: the server confirms it again
		s.conn.Send("SUBSCRIBE", channel)
		s.conn.Flush() // an error is seen by the reader
	}
	return l
}

// Forget ends a Listen; with the last one the connection and the goroutine end, for which it waits. When ctx is over
// a connection that is mute is cut, where its socket is known.
func (s *Subscription) Forget(ctx context.Context, l *Listener) {
	s.mu.Lock()
	channel := l.channel
	s.hears[channel] = slices.DeleteFunc(s.hears[channel], func(o *Listener) bool { return o == l })
	if len(s.hears[channel]) > 0 {
		s.mu.Unlock()
		return
	}
	delete(s.hears, channel)
	if len(s.hears) > 0 {
		if s.conn != nil {
			s.conn.Send("UNSUBSCRIBE", channel)
			s.conn.Flush()
		}
		s.mu.Unlock()
		return
	}
	ended, socket := s.ended, s.socket
	s.cancel() // before the reply to what follows can come
	s.cancel = nil
	if s.conn != nil {
		s.conn.Send("UNSUBSCRIBE") // its reply ends the reader's wait
		s.conn.Flush()
	}
	s.mu.Unlock()
	select {
	case <-ended:
	case <-ctx.Done():
		if socket != nil { // mute; where it is not known the reader's timeout ends it
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
		s.mu.Lock()
		if ctx.Err() == nil {
			s.conn, s.socket = c, socket
			for channel := range s.hears {
				c.Send("SUBSCRIBE", channel)
			}
			c.Flush()
		}
		s.mu.Unlock()
		refused := s.read(ctx, c)
		s.mu.Lock()
		if s.conn == c {
			s.conn, s.socket = nil, nil
		}
		var lost []*Listener
		if ctx.Err() == nil {
			for _, ls := range s.hears {
				lost = append(lost, ls...)
			}
		}
		discard(c)
		s.mu.Unlock()
		for _, l := range lost {
			l.listening(false)
		}
		switch {
		case refused: // an ACL without it: hints are optional
			Sleep(ctx, pingEvery)
		case time.Since(began) > MaxTrouble:
			wait = 0
		default: // had and lost at once
			wait = min(max(2*wait, minBackoff), MaxTrouble)
			Sleep(ctx, wait)
		}
	}
}

// read hands out what comes until the connection ends or nothing is subscribed to; it says whether the server refused.
func (s *Subscription) read(ctx context.Context, c redis.Conn) (refused bool) {
	var ping *time.Timer
	s.mu.Lock()
	ping = time.AfterFunc(pingEvery, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.conn == c {
			c.Send("PING")
			c.Flush()
			ping.Reset(pingEvery)
		}
	})
	s.mu.Unlock()
	defer ping.Stop()
	for listens := false; ctx.Err() == nil; {
		v, err := redis.ReceiveWithTimeout(c, 2*pingEvery)
		if err != nil {
			if listens && Code(err) != "" {
				continue // PING is not allowed; that is an answer too
			}
			return Code(err) != ""
		}
		m, _ := redis.Values(v, nil)
		if len(m) < 3 {
			continue // a pong
		}
		kind, _ := redis.String(m[0], nil)
		listens = listens || kind == "subscribe"
		channel, _ := redis.String(m[1], nil)
		s.mu.Lock()
		ls := slices.Clone(s.hears[channel])
		s.mu.Unlock()
		for _, l := range ls {
			switch kind {
			case "subscribe":
				l.listening(true)
			case "message":
				payload, _ := redis.String(m[2], nil)
				l.heard(payload)
			}
		}
	}
	return false
}
