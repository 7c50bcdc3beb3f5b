package redis

import (
	"math"
	"slices"
	"strings"
)

// adding are the options of ZADD.
type adding struct{ nx, xx, gt, lt, ch, incr bool }

func zAdd(s *Server, _ *Session, a []string) any {
	var o adding
	i := 2
options:
	for ; i < len(a); i++ {
		switch strings.ToLower(a[i]) {
		case "nx":
			o.nx = true
		case "xx":
			o.xx = true
		case "gt":
			o.gt = true
		case "lt":
			o.lt = true
		case "ch":
			o.ch = true
		case "incr":
			o.incr = true
		default:
			break options
		}
	}
	pairs := a[i:]
	switch {
	case len(pairs) == 0 || len(pairs)%2 == 1:
		return syntax
	case o.nx && o.xx:
		return failure("ERR XX and NX options at the same time are not compatible")
	case o.gt && o.nx || o.lt && o.nx || o.gt && o.lt:
		return failure("ERR GT, LT, and/or NX options at the same time are not compatible")
	case o.incr && len(pairs) > 2:
		return failure("ERR INCR option supports a single increment-element pair")
	}
	return s.add(a[1], pairs, o)
}

// add is ZADD of scores and members in turns.
func (s *Server) add(key string, pairs []string, o adding) any {
	scores := make([]float64, len(pairs)/2)
	for i := range scores {
		is := false
		if scores[i], is = float(pairs[2*i]); !is {
			return notFloat
		}
	}
	z, bad := of[*zset](s, key)
	if bad != nil {
		return bad
	}
	fresh := z == nil
	if fresh {
		if o.xx {
			if o.incr {
				return nil
			}
			return 0
		}
		z = newZset()
	}
	added, changed := 0, 0
	for i, score := range scores {
		member := pairs[2*i+1]
		old, is := z.scores[member]
		if is && o.incr {
			if score += old; math.IsNaN(score) {
				return failure("ERR resulting score is not a number (NaN)")
			}
		}
		skipped := is && (o.nx || o.gt && score <= old || o.lt && score >= old) || !is && o.xx
		if !skipped && z.set(member, score) {
			added++
		} else if !skipped && score != old {
			changed++
		}
		if o.incr && skipped {
			return nil
		}
		if o.incr {
			scores[0] = score
		}
	}
	if fresh && len(z.sorted) > 0 {
		s.put(key, z, 0)
	}
	switch {
	case o.incr:
		return printed(scores[0])
	case o.ch:
		return added + changed
	}
	return added
}

func zIncrBy(s *Server, _ *Session, a []string) any { return s.add(a[1], a[2:], adding{incr: true}) }

func zRem(s *Server, _ *Session, a []string) any {
	z, bad := of[*zset](s, a[1])
	if z == nil || bad != nil {
		return or(bad, 0)
	}
	n := 0
	for _, member := range a[2:] {
		if z.remove(member) {
			n++
		}
	}
	s.emptiedSet(a[1], z)
	return n
}

func zScore(s *Server, _ *Session, a []string) any {
	z, bad := of[*zset](s, a[1])
	if z == nil || bad != nil {
		return bad
	}
	if score, is := z.scores[a[2]]; is {
		return printed(score)
	}
	return nil
}

func zCard(s *Server, _ *Session, a []string) any {
	z, bad := of[*zset](s, a[1])
	if z == nil || bad != nil {
		return or(bad, 0)
	}
	return len(z.sorted)
}

func zCount(s *Server, _ *Session, a []string) any {
	r, bad := readRange(a[2], a[3])
	if bad != nil {
		return bad
	}
	z, bad := of[*zset](s, a[1])
	if z == nil || bad != nil {
		return or(bad, 0)
	}
	i, j := z.between(r)
	return j - i
}

func zRank(latest bool) func(*Server, *Session, []string) any {
	return func(s *Server, _ *Session, a []string) any {
		z, bad := of[*zset](s, a[1])
		if z == nil || bad != nil {
			return bad
		}
		score, is := z.scores[a[2]]
		if !is {
			return nil
		}
		i := z.rank(scored{score, a[2]})
		if latest {
			i = len(z.sorted) - 1 - i
		}
		return i
	}
}

func zRemRangeByRank(s *Server, _ *Session, a []string) any {
	first, is1 := integer(a[2])
	last, is2 := integer(a[3])
	if !is1 || !is2 {
		return notInteger
	}
	z, bad := of[*zset](s, a[1])
	if z == nil || bad != nil {
		return or(bad, 0)
	}
	first, last = bounds(first, last, len(z.sorted))
	if first > last {
		return 0
	}
	z.cut(first, last+1)
	s.emptiedSet(a[1], z)
	return last + 1 - first
}

func zRemRangeByScore(s *Server, _ *Session, a []string) any {
	r, bad := readRange(a[2], a[3])
	if bad != nil {
		return bad
	}
	z, bad := of[*zset](s, a[1])
	if z == nil || bad != nil {
		return or(bad, 0)
	}
	i, j := z.between(r)
	z.cut(i, j)
	s.emptiedSet(a[1], z)
	return j - i
}

func zPop(latest bool) func(*Server, *Session, []string) any {
	return func(s *Server, _ *Session, a []string) any {
		if len(a) > 3 {
			return syntax
		}
		n := 1
		if len(a) == 3 {
			is := false
			if n, is = integer(a[2]); !is || n < 0 {
				return failure("ERR value is out of range, must be positive")
			}
		}
		z, bad := of[*zset](s, a[1])
		if z == nil || bad != nil {
			return or(bad, []string{})
		}
		i, j := 0, min(n, len(z.sorted))
		if latest {
			i, j = len(z.sorted)-j, len(z.sorted)
		}
		found := slices.Clone(z.sorted[i:j])
		if latest {
			slices.Reverse(found)
		}
		z.cut(i, j)
		s.emptiedSet(a[1], z)
		return shown(found, true)
	}
}
