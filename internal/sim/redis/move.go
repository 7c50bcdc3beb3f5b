package redis

import "strings"

// move moves an element from one list to another, or turns one.
func (s *Server) move(from, to string, left, toLeft bool) any {
	l, bad := of[*list](s, from)
	if l == nil || bad != nil {
		return bad
	}
	d, bad := of[*list](s, to)
	if bad != nil {
		return bad
	}
	e := l.pop(left)
	if d == nil {
		d = &list{}
		s.put(to, d, 0)
	}
	d.push(toLeft, e)
	s.emptied(from, l)
	return e
}

func rPopLPush(s *Server, _ *Session, a []string) any { return s.move(a[1], a[2], false, true) }

// ends reads LEFT and RIGHT.
func ends(a, b string) (left, toLeft, is bool) {
	left, toLeft = strings.EqualFold(a, "left"), strings.EqualFold(b, "left")
	return left, toLeft, (left || strings.EqualFold(a, "right")) && (toLeft || strings.EqualFold(b, "right"))
}

func lMove(s *Server, _ *Session, a []string) any {
	left, toLeft, is := ends(a[3], a[4])
	if !is {
		return syntax
	}
	return s.move(a[1], a[2], left, toLeft)
}
