package redis

import (
	"slices"
	"strings"
)

// query is a range of a sorted set, as one of several commands asks for it.
type query struct {
	byScore, latest, scores bool
	limited                 bool
	offset, count           int
}

// zRange is ZRANGE and its kin; own: the command is ZRANGE itself, whose options say more.
func zRange(q query, own bool) func(*Server, *Session, []string) any {
	return func(s *Server, _ *Session, a []string) any {
		q := q
		q.count = -1
		for i := 4; i < len(a); i++ {
			opt := strings.ToLower(a[i])
			switch {
			case opt == "withscores":
				q.scores = true
			case opt == "limit" && i+2 < len(a):
				offset, is1 := integer(a[i+1])
				count, is2 := integer(a[i+2])
				if !is1 || !is2 {
					return notInteger
				}
				q.limited, q.offset, q.count = true, offset, count
				i += 2
			case own && opt == "rev":
				q.latest = true
			case own && opt == "byscore":
				q.byScore = true
			default:
				return syntax
			}
		}
		if q.count != -1 && !q.byScore {
			return failure("ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX")
		}
		return s.ranged(a[1], a[2], a[3], q)
	}
}

func (s *Server) ranged(key, from, to string, q query) any {
	var r scoreRange
	var first, last int
	if q.byScore {
		var bad any
		if q.latest {
			from, to = to, from
		}
		if r, bad = readRange(from, to); bad != nil {
			return bad
		}
	} else {
		var is1, is2 bool
		first, is1 = integer(from)
		last, is2 = integer(to)
		if !is1 || !is2 {
			return notInteger
		}
	}
	z, bad := of[*zset](s, key)
	if z == nil || bad != nil {
		return or(bad, []string{})
	}
	n := len(z.sorted)
	var i, j int
	if q.byScore {
		i, j = z.between(r)
	} else {
		first, last = bounds(first, last, n)
		if first > last {
			return []string{}
		}
		i, j = first, last+1
		if q.latest {
			i, j = n-j, n-i
		}
	}
	found := z.sorted[i:j]
	if q.latest {
		found = slices.Clone(found)
		slices.Reverse(found)
	}
	if q.byScore && q.limited {
		if q.offset < 0 || q.offset > len(found) {
			q.offset = len(found)
		}
		found = found[q.offset:]
		if q.count >= 0 {
			found = found[:min(q.count, len(found))]
		}
	}
	return shown(found, q.scores)
}

// shown are members, with their scores if asked for.
func shown(found []scored, scores bool) []string {
	all := make([]string, 0, 2*len(found))
	for _, m := range found {
		all = append(all, m.member)
		if scores {
			all = append(all, printed(m.score))
		}
	}
	return all
}
