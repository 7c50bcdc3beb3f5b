package redis

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
)

// streamID is the id of an entry of a stream.
type streamID struct{ ms, n uint64 }

func (a streamID) compare(b streamID) int {
	return cmp.Or(cmp.Compare(a.ms, b.ms), cmp.Compare(a.n, b.n))
}

func (a streamID) String() string {
	return strconv.FormatUint(a.ms, 10) + "-" + strconv.FormatUint(a.n, 10)
}

type streamEntry struct {
	id     streamID
	fields []string
}

type stream struct {
	entries []streamEntry
	last    streamID
	bytes   int
}

func (t *stream) kind() string { return "stream" }
func (t *stream) size() int    { return 128 + t.bytes }

func (t *stream) copied() value { return &stream{slices.Clone(t.entries), t.last, t.bytes} }

const badID = failure("ERR Invalid stream ID specified as stream command argument")

// readID reads an id; n is what stands for a number that is not given.
func readID(a string, n uint64) (id streamID, is bool) {
	first, second, whole := strings.Cut(a, "-")
	ms, err := strconv.ParseUint(first, 10, 64)
	if whole && err == nil {
		n, err = strconv.ParseUint(second, 10, 64)
	}
	return streamID{ms, n}, err == nil
}

// xAdd has of the options only MAXLEN, and about so many are kept to whole hundreds, as the nodes of Redis' streams.
func xAdd(s *Server, _ *Session, a []string) any {
	i, most, about := 2, -1, false
	if strings.EqualFold(a[i], "maxlen") {
		i++
		if a[i] == "~" || a[i] == "=" {
			about = a[i] == "~"
			i++
		}
		n, is := integer(a[i])
		if !is {
			return notInteger
		}
		if most = n; most < 0 {
			return failure("ERR The MAXLEN argument must be >= 0.")
		}
		i++
	}
	var id streamID
	if is := true; a[i] != "*" {
		if id, is = readID(a[i], 0); !is {
			return badID
		}
	}
	if fields := len(a) - i - 1; fields < 2 || fields%2 == 1 {
		return wrongNumber("xadd")
	}
	if a[i] != "*" && id == (streamID{}) {
		return failure("ERR The ID specified in XADD must be greater than 0-0")
	}
	t, bad := of[*stream](s, a[1])
	if bad != nil {
		return bad
	}
	if t == nil {
		t = &stream{}
		s.put(a[1], t, 0)
	}
	switch {
	case a[i] == "*":
		if id.ms = uint64(s.ms()); id.ms <= t.last.ms {
			id = streamID{t.last.ms, t.last.n + 1}
		}
	case id.compare(t.last) <= 0:
		return failure("ERR The ID specified in XADD is equal or smaller than the target stream top item")
	}
	t.last = id
	t.entries = append(t.entries, streamEntry{id, slices.Clone(a[i+1:])})
	for _, f := range a[i+1:] {
		t.bytes += len(f) + 2
	}
	if most >= 0 {
		t.trim(most, about)
	}
	return id.String()
}

func (t *stream) trim(most int, about bool) {
	n := max(0, len(t.entries)-most)
	if about && most > 0 {
		n -= n % 100
	}
	for _, e := range t.entries[:n] {
		for _, f := range e.fields {
			t.bytes -= len(f) + 2
		}
	}
	t.entries = slices.Delete(t.entries, 0, n)
}

func xLen(s *Server, _ *Session, a []string) any {
	t, bad := of[*stream](s, a[1])
	if t == nil || bad != nil {
		return or(bad, 0)
	}
	return len(t.entries)
}

// xRange is XRANGE, and XREVRANGE if latest.
func xRange(latest bool) func(*Server, *Session, []string) any {
	return func(s *Server, _ *Session, a []string) any {
		first, last := a[2], a[3]
		if latest {
			first, last = last, first
		}
		from, is1 := end(first, 0)
		to, is2 := end(last, math.MaxUint64)
		if !is1 || !is2 {
			return badID
		}
		most := -1
		for i := 4; i < len(a); i += 2 {
			if i+1 == len(a) || !strings.EqualFold(a[i], "count") {
				return syntax
			}
			n, is := integer(a[i+1])
			if !is {
				return notInteger
			}
			most = max(0, n)
		}
		t, bad := of[*stream](s, a[1])
		switch {
		case bad != nil:
			return bad
		case t == nil:
			return []any{}
		case most == 0:
			return noArray
		}
		all := []any{}
		for i := range t.entries {
			e := t.entries[i]
			if latest {
				e = t.entries[len(t.entries)-1-i]
			}
			if e.id.compare(from) >= 0 && e.id.compare(to) <= 0 && (most < 0 || len(all) < most) {
				all = append(all, []any{e.id.String(), e.fields})
			}
		}
		return all
	}
}

// end reads an end of a range of ids.
func end(a string, n uint64) (streamID, bool) {
	switch a {
	case "-":
		return streamID{}, true
	case "+":
		return streamID{math.MaxUint64, math.MaxUint64}, true
	}
	return readID(a, n)
}
