package redis

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// seconds reads a timeout as ms since 1970; 0: for ever.
func (s *Server) seconds(a string) (until int64, bad any) {
	f, is := float(a)
	switch {
	case !is:
		return 0, failure("ERR timeout is not a float or out of range")
	case f < 0 || f*1000 >= math.MaxInt64: // which overflows there
		return 0, failure("ERR timeout is negative")
	case f == 0:
		return 0, nil
	case int64(math.Ceil(f*1000)) > math.MaxInt64-s.ms():
		return 0, failure("ERR timeout is out of range")
	}
	return s.ms() + int64(math.Ceil(f*1000)), nil
}

// block has a session wait until one of the keys is a list; serve then makes its reply.
func (s *Server) block(c *Session, keys []string, until int64, serve func(key string) any) any {
	if c.hand {
		return nil
	}
	keys = slices.Clone(keys)
	c.wait = &wait{keys: keys, until: until, serve: serve}
	for _, key := range keys {
		if !slices.Contains(s.waiting[key], c) {
			s.waiting[key] = append(s.waiting[key], c)
		}
	}
	if until > 0 {
		s.arm(c)
	}
	return later
}

// arm sets the timer that ends a wait.
func (s *Server) arm(c *Session) {
	w := c.wait
	if w.timer != nil {
		w.timer.Stop()
	}
	w.timer = time.AfterFunc(time.UnixMilli(w.until).Sub(s.clock()), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		switch {
		case c.wait != w:
		case s.clock().UnixMilli() < w.until:
			s.arm(c)
		default:
			s.unblock(c, noArray)
			s.settle()
		}
	})
}

// unblock answers a blocked session.
func (s *Server) unblock(c *Session, v any) {
	s.stopWaiting(c)
	s.reply(c, v)
	s.resumed = append(s.resumed, c)
}

// stopWaiting forgets what a session waits for, if it does.
func (s *Server) stopWaiting(c *Session) {
	if c.wait == nil {
		return
	}
	for _, key := range c.wait.keys {
		cs := slices.DeleteFunc(slices.Clone(s.waiting[key]), func(other *Session) bool { return other == c })
		if s.waiting[key] = cs; len(cs) == 0 {
			delete(s.waiting, key)
		}
	}
	if c.wait.timer != nil {
		c.wait.timer.Stop()
	}
	c.wait = nil
}

// serveWaiting serves those who wait for a key, the first one first, as long as it has elements.
func (s *Server) serveWaiting(key string) {
	for _, c := range s.waiting[key] {
		if l, _ := of[*list](s, key); l == nil {
			return
		}
		s.unblock(c, c.wait.serve(key))
	}
}

func bRPopLPush(s *Server, c *Session, a []string) any {
	return s.blockingMove(c, a[1], a[2], a[3], false, true)
}

func bLMove(s *Server, c *Session, a []string) any {
	left, toLeft, is := ends(a[3], a[4])
	if !is {
		return syntax
	}
	return s.blockingMove(c, a[1], a[2], a[5], left, toLeft)
}

func (s *Server) blockingMove(c *Session, from, to, timeout string, left, toLeft bool) any {
	until, bad := s.seconds(timeout)
	if bad != nil {
		return bad
	}
	if l, bad := of[*list](s, from); l != nil || bad != nil {
		return or(bad, s.move(from, to, left, toLeft))
	}
	return s.block(c, []string{from}, until, func(key string) any { return s.move(key, to, left, toLeft) })
}

func blockingPop(left bool) func(*Server, *Session, []string) any {
	return func(s *Server, c *Session, a []string) any {
		keys := a[1 : len(a)-1]
		until, bad := s.seconds(a[len(a)-1])
		if bad != nil {
			return bad
		}
		pop := func(key string) any {
			l, _ := of[*list](s, key)
			e := l.pop(left)
			s.emptied(key, l)
			return []string{key, e}
		}
		for _, key := range keys {
			if l, bad := of[*list](s, key); bad != nil {
				return bad
			} else if l != nil {
				return pop(key)
			}
		}
		return s.block(c, keys, until, pop)
	}
}

func unblockClient(s *Server, _ *Session, a []string) any {
	var v any = noArray
	if len(a) == 4 {
		switch {
		case strings.EqualFold(a[3], "error"):
			v = failure("UNBLOCKED client unblocked via CLIENT UNBLOCK")
		case !strings.EqualFold(a[3], "timeout"):
			return failure("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR")
		}
	}
	if len(a) > 4 {
		return failure("ERR unknown subcommand or wrong number of arguments for 'unblock'. Try CLIENT HELP.")
	}
	id, is := integer(a[2])
	if !is {
		return notInteger
	}
	c, _ := s.sessions.get(strconv.Itoa(id))
	if c == nil || c.wait == nil {
		return 0
	}
	s.unblock(c, v)
	return 1
}
