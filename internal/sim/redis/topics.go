package redis

import "strings"

// topics are the channels and patterns that sessions have subscribed to.
type topics struct{ channels, patterns dict[*dict[*Session]] }

// subscribed is how many subscriptions a session has.
func (c *Session) subscribed() int { return c.channels.len() + c.patterns.len() }

// leave ends all subscriptions of a session.
func (t *topics) leave(c *Session) {
	for name := range c.channels.all() {
		leave(&t.channels, name, c)
	}
	for name := range c.patterns.all() {
		leave(&t.patterns, name, c)
	}
	c.channels, c.patterns = dict[struct{}]{}, dict[struct{}]{}
}

func leave(of *dict[*dict[*Session]], name string, c *Session) {
	all, _ := of.get(name)
	if all == nil {
		return
	}
	if all.delete(c.key); all.len() == 0 {
		of.delete(name)
	}
}

// side has the channels, or the patterns, of the server and of a session, and what its replies begin with.
func (s *Server) side(c *Session, patterns bool) (of *dict[*dict[*Session]], own *dict[struct{}], letter string) {
	if patterns {
		return &s.topics.patterns, &c.patterns, "p"
	}
	return &s.topics.channels, &c.channels, ""
}

func subscribe(patterns bool) func(*Server, *Session, []string) any {
	return func(s *Server, c *Session, a []string) any {
		if c.hand {
			return failure("ERR " + strings.ToUpper(a[0]) + " is not allowed for Do")
		}
		of, own, letter := s.side(c, patterns)
		var all several
		for _, name := range a[1:] {
			if own.set(name, struct{}{}) {
				cs, _ := of.get(name)
				if cs == nil {
					cs = &dict[*Session]{}
					of.set(name, cs)
				}
				cs.set(c.key, c)
			}
			all = append(all, []any{letter + "subscribe", name, c.subscribed()})
		}
		return all
	}
}

func unsubscribe(patterns bool) func(*Server, *Session, []string) any {
	return func(s *Server, c *Session, a []string) any {
		of, own, letter := s.side(c, patterns)
		names := a[1:]
		if len(names) == 0 {
			for name := range own.all() {
				names = append(names, name)
			}
			if len(names) == 0 {
				return several{[]any{letter + "unsubscribe", nil, c.subscribed()}}
			}
		}
		var all several
		for _, name := range names {
			if own.delete(name) {
				leave(of, name, c)
			}
			all = append(all, []any{letter + "unsubscribe", name, c.subscribed()})
		}
		return all
	}
}

func publish(s *Server, _ *Session, a []string) any {
	n := 0
	if cs, _ := s.topics.channels.get(a[1]); cs != nil {
		for _, c := range cs.all() {
			s.reply(c, []string{"message", a[1], a[2]})
			n++
		}
	}
	for pattern, cs := range s.topics.patterns.all() {
		if !glob(pattern, a[1]) {
			continue
		}
		for _, c := range cs.all() {
			s.reply(c, []string{"pmessage", pattern, a[1], a[2]})
			n++
		}
	}
	return n
}

func numSub(s *Server, _ *Session, a []string) any {
	all := []any{}
	for _, name := range a[2:] {
		cs, _ := s.topics.channels.get(name)
		n := 0
		if cs != nil {
			n = cs.len()
		}
		all = append(all, name, n)
	}
	return all
}
