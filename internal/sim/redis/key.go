package redis

import "strings"

// value is what a key holds: text, *list, *hash, *set, *zset or *stream.
type value interface {
	kind() string
	size() int // about how many bytes it uses
	copied() value
}

// entry is a key.
type entry struct {
	key     string
	value   value
	expires int64 // ms since 1970; 0: never
}

func (e *entry) clone() entry { return entry{e.key, e.value.copied(), e.expires} }

// lookup is a key that is there, or nil.
func (s *Server) lookup(key string) *entry {
	e, _ := s.keys.get(key)
	if e == nil || e.expires == 0 || s.ms() <= e.expires {
		return e
	}
	s.keys.delete(key)
	return nil
}

// put sets a key.
func (s *Server) put(key string, v value, expires int64) {
	s.keys.set(key, &entry{key, v, expires})
	if len(s.waiting[key]) > 0 {
		s.ready = append(s.ready, key)
	}
}

// of is what a key holds, V's zero value if there is no such key, or an error if it holds something else.
func of[V value](s *Server, key string) (v V, bad any) {
	e := s.lookup(key)
	if e == nil {
		return v, nil
	}
	v, is := e.value.(V)
	if !is {
		return v, wrongType
	}
	return v, nil
}

// living drops the keys whose time is over.
func (s *Server) living() *dict[*entry] {
	for key, e := range s.keys.all() {
		if e.expires != 0 {
			s.lookup(key)
		}
	}
	return &s.keys
}

func del(s *Server, _ *Session, a []string) any {
	n := 0
	for _, key := range a[1:] {
		if s.lookup(key) != nil {
			s.keys.delete(key)
			n++
		}
	}
	return n
}

func exists(s *Server, _ *Session, a []string) any {
	n := 0
	for _, key := range a[1:] {
		if s.lookup(key) != nil {
			n++
		}
	}
	return n
}

func typeOf(s *Server, _ *Session, a []string) any {
	if e := s.lookup(a[1]); e != nil {
		return status(e.value.kind())
	}
	return status("none")
}

func rename(s *Server, _ *Session, a []string) any {
	e := s.lookup(a[1])
	if e == nil {
		return noSuchKey
	}
	if a[1] != a[2] {
		s.keys.delete(a[1])
		s.put(a[2], e.value, e.expires)
	}
	return ok
}

// left is PTTL, or TTL if unit is 1000.
func left(unit int64) func(*Server, *Session, []string) any {
	return func(s *Server, _ *Session, a []string) any {
		e := s.lookup(a[1])
		switch {
		case e == nil:
			return -2
		case e.expires == 0:
			return -1
		case unit == 1:
			return int(e.expires - s.ms())
		}
		return int((e.expires - s.ms() + 500) / 1000)
	}
}

// expiry is EXPIRE and its kin: unit is that of their number in ms; absolute: that counts from 1970.
func expiry(unit int64, absolute bool) func(*Server, *Session, []string) any {
	return func(s *Server, _ *Session, a []string) any {
		var nx, xx, gt, lt bool
		for _, opt := range a[3:] {
			switch strings.ToLower(opt) {
			case "nx":
				nx = true
			case "xx":
				xx = true
			case "gt":
				gt = true
			case "lt":
				lt = true
			default:
				return failure("ERR Unsupported option " + opt)
			}
		}
		if nx && (xx || gt || lt) {
			return failure("ERR NX and XX, GT or LT options at the same time are not compatible")
		}
		if gt && lt {
			return failure("ERR GT and LT options at the same time are not compatible")
		}
		n, is := integer(a[2])
		if !is {
			return notInteger
		}
		at, bad := s.end(int64(n), unit, absolute, a[0])
		if bad != nil {
			return bad
		}
		e := s.lookup(a[1])
		if e == nil || nx && e.expires != 0 || xx && e.expires == 0 || gt && (e.expires == 0 || at <= e.expires) ||
			lt && e.expires != 0 && at >= e.expires {
			return 0
		}
		if at <= s.ms() {
			s.keys.delete(a[1])
		} else {
			e.expires = at
		}
		return 1
	}
}

// end is a time in ms since 1970, of a number that a command has been given.
func (s *Server) end(n, unit int64, absolute bool, name string) (int64, any) {
	const most = 1<<63 - 1
	bad := failure("ERR invalid expire time in '" + strings.ToLower(name) + "' command")
	if n > most/unit || n < -most/unit {
		return 0, bad
	}
	n *= unit
	if absolute {
		return n, nil
	}
	if n > most-s.ms() {
		return 0, bad
	}
	return n + s.ms(), nil
}

func persist(s *Server, _ *Session, a []string) any {
	e := s.lookup(a[1])
	if e == nil || e.expires == 0 {
		return 0
	}
	e.expires = 0
	return 1
}

func keysLike(s *Server, _ *Session, a []string) any {
	all := []string{}
	for key := range s.living().all() {
		if a[1] == "*" || glob(a[1], key) {
			all = append(all, key)
		}
	}
	return all
}

func dbSize(s *Server, _ *Session, _ []string) any { return s.living().len() }

func flushAll(s *Server, _ *Session, a []string) any {
	if len(a) > 2 || len(a) == 2 && !strings.EqualFold(a[1], "async") && !strings.EqualFold(a[1], "sync") {
		return syntax
	}
	s.keys = dict[*entry]{}
	return ok
}
