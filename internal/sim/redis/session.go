package redis

import (
	"strconv"
	"time"
)

// Session is a client's connection. Its methods may be called from any goroutine.
type Session struct {
	s    *Server
	send func([]byte)
	cut  func()
	id   int
	key  string // the id as text
	hand bool   // of Do: it cannot be blocked or subscribe

	// Guarded by the server's mutex.
	name, last         string // last: the name of its last command
	authed             bool
	gone               bool
	wait               *wait      // not nil while it is blocked
	queue              [][]string // commands that came meanwhile
	channels, patterns dict[struct{}]
}

// wait is what a blocked session waits for.
type wait struct {
	keys  []string
	serve func(key string) any // what becomes of it once a key has a list
	until int64                // ms since 1970 by the server's clock; 0: for ever
	timer *time.Timer
}

// Connect opens a session. send is given replies and pushes, one or more a call, in order; the bytes are the server's
// again when it returns. hangUp is called once when the server ends the session, and may be nil. Both are called under
// the server's lock, from whichever goroutine caused what they tell: they must neither block nor call the server.
func (s *Server) Connect(send func(reply []byte), hangUp func()) *Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastID++
	c := &Session{s: s, send: send, cut: hangUp, id: s.lastID, authed: s.password == ""}
	c.key = strconv.Itoa(c.id)
	s.sessions.set(c.key, c)
	return c
}

// Command executes a command now; its name is the first argument. While the session is blocked its commands queue up.
// The arguments stay the caller's.
func (c *Session) Command(args [][]byte) {
	s := c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.gone || len(args) == 0 {
		return
	}
	own := make([]string, len(args))
	for i, a := range args {
		if s.maxBulk > 0 && len(a) > s.maxBulk {
			s.reply(c, lastReply{failure("ERR Protocol error: invalid bulk length")})
			return
		}
		own[i] = string(a)
	}
	if c.wait != nil || len(c.queue) > 0 {
		c.queue = append(c.queue, own)
		return
	}
	s.serve(c, own)
	s.settle()
}

// Close ends the session from the client's side: nothing is sent any more, and a blocked command takes nothing.
func (c *Session) Close() {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.s.remove(c)
}

// hangUp ends a session from the server's side.
func (s *Server) hangUp(c *Session) {
	if c.gone || c.hand {
		return
	}
	s.remove(c)
	if c.cut != nil {
		c.cut()
	}
}

// remove forgets a session.
func (s *Server) remove(c *Session) {
	if c.gone {
		return
	}
	c.gone = true
	c.queue = nil
	s.stopWaiting(c)
	s.topics.leave(c)
	s.sessions.delete(c.key)
}

// serve executes a command and sends the reply, unless that comes later.
func (s *Server) serve(c *Session, args []string) {
	s.at = 0
	v := s.execute(c, args)
	if s.heard != nil {
		s.heard(c.key, args, v)
	}
	if v != later {
		s.reply(c, v)
	}
}

func (s *Server) reply(c *Session, v any) {
	if c.gone || c.hand {
		return
	}
	s.out = appendReply(s.out[:0], v)
	if s.maxReply > 0 && len(s.out) > s.maxReply {
		s.hangUp(c)
		return
	}
	c.send(s.out)
	if _, is := v.(lastReply); is {
		s.hangUp(c)
	}
}

// settle serves those who wait for lists that have come to be, and then runs what the served have sent meanwhile.
func (s *Server) settle() {
	s.serveReady()
	for len(s.resumed) > 0 {
		c := s.resumed[0]
		s.resumed = s.resumed[1:]
		for len(c.queue) > 0 && c.wait == nil && !c.gone {
			args := c.queue[0]
			c.queue = c.queue[1:]
			s.serve(c, args)
			s.serveReady()
		}
	}
}

func (s *Server) serveReady() {
	for len(s.ready) > 0 {
		key := s.ready[0]
		s.ready = s.ready[1:]
		s.serveWaiting(key)
	}
}
