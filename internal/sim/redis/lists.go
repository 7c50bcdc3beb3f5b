package redis

import "strings"

// emptied removes a list's key when it has nothing left.
func (s *Server) emptied(key string, l *list) {
	if l.n == 0 {
		s.keys.delete(key)
	}
}

// pushTo is LPUSH and RPUSH; must: only to a list that is there.
func pushTo(left, must bool) func(*Server, *Session, []string) any {
	return func(s *Server, _ *Session, a []string) any {
		l, bad := of[*list](s, a[1])
		if bad != nil {
			return bad
		}
		if l == nil {
			if must {
				return 0
			}
			l = &list{}
			s.put(a[1], l, 0)
		}
		for _, e := range a[2:] {
			l.push(left, e)
		}
		return l.n
	}
}

func popFrom(left bool) func(*Server, *Session, []string) any {
	return func(s *Server, _ *Session, a []string) any {
		if len(a) > 3 {
			return wrongNumber(strings.ToLower(a[0]))
		}
		n := 1
		if len(a) == 3 {
			is := false
			if n, is = integer(a[2]); !is || n < 0 {
				return failure("ERR value is out of range, must be positive")
			}
		}
		l, bad := of[*list](s, a[1])
		switch {
		case bad != nil:
			return bad
		case l == nil && len(a) == 3:
			return noArray
		case l == nil:
			return nil
		}
		all := []string{}
		for range min(n, l.n) {
			all = append(all, l.pop(left))
		}
		s.emptied(a[1], l)
		if len(a) == 3 {
			return all
		}
		return all[0]
	}
}

func lLen(s *Server, _ *Session, a []string) any {
	l, bad := of[*list](s, a[1])
	if l == nil || bad != nil {
		return or(bad, 0)
	}
	return l.n
}

// or is the first of two replies that is one.
func or(bad, v any) any {
	if bad != nil {
		return bad
	}
	return v
}

func lRange(s *Server, _ *Session, a []string) any {
	from, is1 := integer(a[2])
	to, is2 := integer(a[3])
	if !is1 || !is2 {
		return notInteger
	}
	l, bad := of[*list](s, a[1])
	if l == nil || bad != nil {
		return or(bad, []string{})
	}
	from, to = bounds(from, to, l.n)
	all := make([]string, 0, max(0, to-from+1))
	for ; from <= to; from++ {
		all = append(all, *l.place(from))
	}
	return all
}

func lIndex(s *Server, _ *Session, a []string) any {
	l, bad := of[*list](s, a[1])
	if l == nil || bad != nil {
		return bad
	}
	i, is := integer(a[2])
	if !is {
		return notInteger
	}
	if i < 0 {
		i += l.n
	}
	if i < 0 || i >= l.n {
		return nil
	}
	return *l.place(i)
}

func lSet(s *Server, _ *Session, a []string) any {
	l, bad := of[*list](s, a[1])
	if l == nil || bad != nil {
		return or(bad, noSuchKey)
	}
	i, is := integer(a[2])
	if !is {
		return notInteger
	}
	if i < 0 {
		i += l.n
	}
	if i < 0 || i >= l.n {
		return failure("ERR index out of range")
	}
	at := l.place(i)
	l.bytes += len(a[3]) - len(*at)
	*at = a[3]
	return ok
}

func lInsert(s *Server, _ *Session, a []string) any {
	before := strings.EqualFold(a[2], "before")
	if !before && !strings.EqualFold(a[2], "after") {
		return syntax
	}
	l, bad := of[*list](s, a[1])
	if l == nil || bad != nil {
		return or(bad, 0)
	}
	for i := range l.n {
		if *l.place(i) == a[3] {
			if !before {
				i++
			}
			l.insert(i, a[4])
			return l.n
		}
	}
	return -1
}

func lRem(s *Server, _ *Session, a []string) any {
	n, is := integer(a[2])
	if !is {
		return notInteger
	}
	l, bad := of[*list](s, a[1])
	if l == nil || bad != nil {
		return or(bad, 0)
	}
	most, removed := n, 0
	if n < 0 {
		most = -n
	}
	done := func() bool { return most > 0 && removed == most }
	if n >= 0 {
		for i := 0; i < l.n && !done(); {
			if *l.place(i) != a[3] {
				i++
				continue
			}
			l.remove(i)
			removed++
		}
	} else {
		for i := l.n - 1; i >= 0 && !done(); i-- {
			if *l.place(i) == a[3] {
				l.remove(i)
				removed++
			}
		}
	}
	s.emptied(a[1], l)
	return removed
}

func lTrim(s *Server, _ *Session, a []string) any {
	from, is1 := integer(a[2])
	to, is2 := integer(a[3])
	if !is1 || !is2 {
		return notInteger
	}
	l, bad := of[*list](s, a[1])
	if l == nil || bad != nil {
		return or(bad, ok)
	}
	from, to = bounds(from, to, l.n)
	if from > to {
		s.keys.delete(a[1])
		return ok
	}
	for range l.n - 1 - to {
		l.pop(false)
	}
	for range from {
		l.pop(true)
	}
	return ok
}

func lPos(s *Server, _ *Session, a []string) any {
	rank, count, most, many := 1, 1, 0, false
	for i := 3; i < len(a); i += 2 {
		if i+1 == len(a) {
			return syntax
		}
		n, is := integer(a[i+1])
		switch opt := strings.ToLower(a[i]); {
		case opt != "rank" && opt != "count" && opt != "maxlen":
			return syntax
		case opt == "rank" && !is:
			return notInteger
		case opt == "rank" && n == 0:
			return failure("ERR RANK can't be zero: use 1 to start from the first match, 2 from the second " +
				"... or use negative to start from the end of the list")
		case opt == "rank":
			rank = n
		case !is || n < 0:
			return failure("ERR " + strings.ToUpper(opt) + " can't be negative")
		case opt == "count":
			count, many = n, true
		default:
			most = n
		}
	}
	l, bad := of[*list](s, a[1])
	if bad != nil {
		return bad
	}
	all := []any{}
	if l != nil {
		skip := max(rank, -rank) - 1
		for i := 0; i < l.n && (most == 0 || i < most) && (count == 0 || len(all) < count); i++ {
			at := i
			if rank < 0 {
				at = l.n - 1 - i
			}
			if *l.place(at) != a[2] {
				continue
			}
			if skip > 0 {
				skip--
				continue
			}
			all = append(all, at)
		}
	}
	switch {
	case many:
		return all
	case len(all) == 0:
		return nil
	}
	return all[0]
}
