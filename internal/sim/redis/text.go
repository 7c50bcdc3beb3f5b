package redis

import (
	"math"
	"strconv"
	"strings"
)

// text is what a key of type string holds.
type text string

func (t text) kind() string  { return "string" }
func (t text) size() int     { return len(t) }
func (t text) copied() value { return t }

// ofText is of, for text, which has no nil.
func ofText(s *Server, key string) (t string, is bool, bad any) {
	e := s.lookup(key)
	if e == nil {
		return "", false, nil
	}
	v, is := e.value.(text)
	if !is {
		return "", false, wrongType
	}
	return string(v), true, nil
}

func get(s *Server, _ *Session, a []string) any {
	t, is, bad := ofText(s, a[1])
	if bad != nil || !is {
		return bad
	}
	return t
}

func mGet(s *Server, _ *Session, a []string) any {
	all := make([]any, len(a)-1)
	for i, key := range a[1:] {
		if t, is, _ := ofText(s, key); is {
			all[i] = t
		}
	}
	return all
}

func getDel(s *Server, c *Session, a []string) any {
	v := get(s, c, a)
	if _, is := v.(string); is {
		s.keys.delete(a[1])
	}
	return v
}

func set(s *Server, _ *Session, a []string) any {
	var nx, xx, old, keep bool
	var unit int64
	var absolute bool
	var when string
	for i := 3; i < len(a); i++ {
		opt := strings.ToLower(a[i])
		switch {
		case opt == "nx" && !xx:
			nx = true
		case opt == "xx" && !nx:
			xx = true
		case opt == "get":
			old = true
		case opt == "keepttl" && unit == 0:
			keep = true
		case (opt == "ex" || opt == "px" || opt == "exat" || opt == "pxat") && unit == 0 && !keep && i+1 < len(a):
			unit, absolute = 1, strings.HasSuffix(opt, "at")
			if opt[0] == 'e' {
				unit = 1000
			}
			i++
			when = a[i]
		default:
			return syntax
		}
	}
	var expires int64
	if unit != 0 {
		n, is := integer(when)
		if !is {
			return notInteger
		}
		at, bad := s.end(int64(n), unit, absolute, "set")
		if bad != nil {
			return bad
		}
		if n <= 0 || at <= 0 {
			return failure("ERR invalid expire time in 'set' command")
		}
		expires = at
	}
	e := s.lookup(a[1])
	var before any
	if old {
		t, is, bad := ofText(s, a[1])
		if bad != nil {
			return bad
		}
		if is {
			before = t
		}
	}
	if nx && e != nil || xx && e == nil {
		return before
	}
	if keep && e != nil {
		expires = e.expires
	}
	s.put(a[1], text(a[2]), expires)
	if old {
		return before
	}
	return ok
}

func setNX(s *Server, _ *Session, a []string) any {
	if s.lookup(a[1]) != nil {
		return 0
	}
	s.put(a[1], text(a[2]), 0)
	return 1
}

// setEX is SETEX, and PSETEX if unit is 1.
func setEX(unit int64) func(*Server, *Session, []string) any {
	return func(s *Server, _ *Session, a []string) any {
		n, is := integer(a[2])
		if !is {
			return notInteger
		}
		at, bad := s.end(int64(n), unit, false, a[0])
		if bad == nil && n <= 0 {
			bad = failure("ERR invalid expire time in '" + strings.ToLower(a[0]) + "' command")
		}
		if bad != nil {
			return bad
		}
		s.put(a[1], text(a[3]), at)
		return ok
	}
}

func strLen(s *Server, _ *Session, a []string) any {
	t, _, bad := ofText(s, a[1])
	return or(bad, len(t))
}

func getRange(s *Server, _ *Session, a []string) any {
	from, is1 := integer(a[2])
	to, is2 := integer(a[3])
	if !is1 || !is2 {
		return notInteger
	}
	t, _, bad := ofText(s, a[1])
	if bad != nil {
		return bad
	}
	if from < 0 && to < 0 && from > to {
		return ""
	}
	if to < 0 {
		to = max(0, to+len(t))
	}
	from, to = bounds(from, to, len(t))
	if from > to {
		return ""
	}
	return t[from : to+1]
}

func appendTo(s *Server, _ *Session, a []string) any {
	t, is, bad := ofText(s, a[1])
	if bad != nil {
		return bad
	}
	if is {
		s.lookup(a[1]).value = text(t + a[2])
	} else {
		s.put(a[1], text(a[2]), 0)
	}
	return len(t) + len(a[2])
}

// increment is INCR and its kin; by: a[2] is the number.
func increment(sign int, by bool) func(*Server, *Session, []string) any {
	return func(s *Server, _ *Session, a []string) any {
		d := 1
		if by {
			is := false
			if d, is = integer(a[2]); !is {
				return notInteger
			}
			if sign < 0 && d == math.MinInt {
				return failure("ERR decrement would overflow")
			}
		}
		t, is, bad := ofText(s, a[1])
		if bad != nil {
			return bad
		}
		n := 0
		if is {
			number := false
			if n, number = integer(t); !number {
				return notInteger
			}
		}
		sum, fits := plus(n, sign*d)
		if !fits {
			return failure("ERR increment or decrement would overflow")
		}
		if is {
			s.lookup(a[1]).value = text(strconv.Itoa(sum))
		} else {
			s.put(a[1], text(strconv.Itoa(sum)), 0)
		}
		return sum
	}
}

func plus(a, b int) (int, bool) {
	sum := a + b
	return sum, (a < 0) != (b < 0) || (sum < 0) == (a < 0)
}

// float reads a number as Redis does.
func float(a string) (float64, bool) {
	if n, err := strconv.ParseInt(a, 10, 53); err == nil && n != 0 { // as most are, and faster; -0 is not 0
		return float64(n), true
	}
	f, err := strconv.ParseFloat(a, 64)
	return f, err == nil && f == f && !strings.Contains(a, "_")
}

// printed is a number as Redis prints it, as C's %.17g.
func printed(f float64) string {
	switch {
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	case f == math.Trunc(f) && math.Abs(f) < 1e15 && !(f == 0 && math.Signbit(f)):
		return strconv.FormatInt(int64(f), 10)
	}
	return strconv.FormatFloat(f, 'g', 17, 64)
}
