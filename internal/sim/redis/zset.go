package redis

import (
	"cmp"
	"maps"
	"slices"
	"sort"
	"strings"
)

type scored struct {
	score  float64
	member string
}

func (a scored) compare(b scored) int {
	return cmp.Or(cmp.Compare(a.score, b.score), strings.Compare(a.member, b.member))
}

// zset is a sorted set: a sorted slice, which is fast up to some ten thousand members.
type zset struct {
	scores map[string]float64
	sorted []scored
	bytes  int
}

func newZset() *zset { return &zset{scores: make(map[string]float64)} }

func (z *zset) kind() string { return "zset" }
func (z *zset) size() int    { return 64 + z.bytes + 96*len(z.sorted) }

func (z *zset) copied() value { return &zset{maps.Clone(z.scores), slices.Clone(z.sorted), z.bytes} }

// rank is where a member with this score is, or would be.
func (z *zset) rank(m scored) int {
	i, _ := slices.BinarySearchFunc(z.sorted, m, scored.compare)
	return i
}

// set tells whether the member is new.
func (z *zset) set(member string, score float64) bool {
	score += 0 // of -0 the sign is not kept
	old, is := z.scores[member]
	if is {
		if old == score {
			return false
		}
		i := z.rank(scored{old, member})
		z.sorted = slices.Delete(z.sorted, i, i+1)
	} else {
		z.bytes += len(member)
	}
	z.scores[member] = score
	m := scored{score, member}
	z.sorted = slices.Insert(z.sorted, z.rank(m), m)
	return !is
}

func (z *zset) remove(member string) bool {
	score, is := z.scores[member]
	if is {
		i := z.rank(scored{score, member})
		z.cut(i, i+1)
	}
	return is
}

// cut removes the members from rank i up to j.
func (z *zset) cut(i, j int) {
	for _, m := range z.sorted[i:j] {
		delete(z.scores, m.member)
		z.bytes -= len(m.member)
	}
	z.sorted = slices.Delete(z.sorted, i, j)
}

// between are the ranks of the members with scores in a range, from i up to j.
func (z *zset) between(r scoreRange) (i, j int) {
	i = sort.Search(len(z.sorted), func(i int) bool { return r.min.below(z.sorted[i].score) })
	j = sort.Search(len(z.sorted), func(i int) bool { return !r.max.above(z.sorted[i].score) })
	return i, max(i, j)
}

// limit is an end of a range of scores.
type limit struct {
	score float64
	open  bool // it does not belong to the range
}

func (l limit) below(score float64) bool { return l.score < score || !l.open && l.score == score }
func (l limit) above(score float64) bool { return l.score > score || !l.open && l.score == score }

type scoreRange struct{ min, max limit }

// readRange reads the ends of a range of scores.
func readRange(from, to string) (r scoreRange, bad any) {
	var is1, is2 bool
	r.min, is1 = readLimit(from)
	r.max, is2 = readLimit(to)
	if !is1 || !is2 {
		return r, failure("ERR min or max is not a float")
	}
	return r, nil
}

func readLimit(a string) (l limit, is bool) {
	if a, l.open = strings.CutPrefix(a, "("); a == "" {
		return l, true
	}
	l.score, is = float(a)
	return l, is
}

// emptiedSet removes a sorted set's key when it has nothing left.
func (s *Server) emptiedSet(key string, z *zset) {
	if len(z.sorted) == 0 {
		s.keys.delete(key)
	}
}
