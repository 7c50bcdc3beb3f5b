package redis

import "strconv"

type hash struct {
	dict[string]
	bytes int
}

func (h *hash) kind() string { return "hash" }
func (h *hash) size() int    { return 64 + h.bytes + 64*h.len() }

func (h *hash) copied() value { return &hash{h.clone(same), h.bytes} }

func (h *hash) put(field, v string) bool {
	old, _ := h.get(field)
	h.bytes += len(v) - len(old)
	if !h.set(field, v) {
		return false
	}
	h.bytes += len(field)
	return true
}

func (h *hash) drop(field string) bool {
	old, _ := h.get(field)
	if !h.delete(field) {
		return false
	}
	h.bytes -= len(field) + len(old)
	return true
}

// openHash is the key's hash, made if there is none.
func (s *Server) openHash(key string) (h *hash, bad any) {
	h, bad = of[*hash](s, key)
	if h == nil && bad == nil {
		h = &hash{}
		s.put(key, h, 0)
	}
	return h, bad
}

func hSet(s *Server, _ *Session, a []string) any {
	if len(a)%2 == 1 {
		return wrongNumber("hset")
	}
	h, bad := s.openHash(a[1])
	if bad != nil {
		return bad
	}
	n := 0
	for i := 2; i < len(a); i += 2 {
		if h.put(a[i], a[i+1]) {
			n++
		}
	}
	return n
}

func hMSet(s *Server, c *Session, a []string) any {
	if len(a)%2 == 1 {
		return wrongNumber("hmset")
	}
	if v := hSet(s, c, a); v == any(wrongType) {
		return v
	}
	return ok
}

func hSetNX(s *Server, _ *Session, a []string) any {
	h, bad := of[*hash](s, a[1])
	if bad != nil {
		return bad
	}
	if h != nil && h.has(a[2]) {
		return 0
	}
	h, _ = s.openHash(a[1])
	h.put(a[2], a[3])
	return 1
}

func hGet(s *Server, _ *Session, a []string) any {
	h, bad := of[*hash](s, a[1])
	if h == nil || bad != nil {
		return bad
	}
	if v, is := h.get(a[2]); is {
		return v
	}
	return nil
}

func hMGet(s *Server, _ *Session, a []string) any {
	h, bad := of[*hash](s, a[1])
	if bad != nil {
		return bad
	}
	all := make([]any, len(a)-2)
	if h != nil {
		for i, field := range a[2:] {
			if v, is := h.get(field); is {
				all[i] = v
			}
		}
	}
	return all
}

func hDel(s *Server, _ *Session, a []string) any {
	h, bad := of[*hash](s, a[1])
	if h == nil || bad != nil {
		return or(bad, 0)
	}
	n := 0
	for _, field := range a[2:] {
		if h.drop(field) {
			n++
		}
	}
	if h.len() == 0 {
		s.keys.delete(a[1])
	}
	return n
}

func hLen(s *Server, _ *Session, a []string) any {
	h, bad := of[*hash](s, a[1])
	if h == nil || bad != nil {
		return or(bad, 0)
	}
	return h.len()
}

func hExists(s *Server, _ *Session, a []string) any {
	h, bad := of[*hash](s, a[1])
	if h == nil || bad != nil {
		return or(bad, 0)
	}
	return bit(h.has(a[2]))
}

func bit(is bool) int {
	if is {
		return 1
	}
	return 0
}

func hStrLen(s *Server, _ *Session, a []string) any {
	h, bad := of[*hash](s, a[1])
	if h == nil || bad != nil {
		return or(bad, 0)
	}
	v, _ := h.get(a[2])
	return len(v)
}

// hAll is HKEYS, HVALS and HGETALL.
func hAll(fields, values bool) func(*Server, *Session, []string) any {
	return func(s *Server, _ *Session, a []string) any {
		h, bad := of[*hash](s, a[1])
		if h == nil || bad != nil {
			return or(bad, []string{})
		}
		all := make([]string, 0, 2*h.len())
		for field, v := range h.all() {
			if fields {
				all = append(all, field)
			}
			if values {
				all = append(all, v)
			}
		}
		return all
	}
}

func hIncrBy(s *Server, _ *Session, a []string) any {
	d, is := integer(a[3])
	if !is {
		return notInteger
	}
	h, bad := of[*hash](s, a[1])
	if bad != nil {
		return bad
	}
	n := 0
	if h != nil {
		if v, has := h.get(a[2]); has {
			if n, is = integer(v); !is {
				return failure("ERR hash value is not an integer")
			}
		}
	}
	sum, fits := plus(n, d)
	if !fits {
		return failure("ERR increment or decrement would overflow")
	}
	h, _ = s.openHash(a[1])
	h.put(a[2], strconv.Itoa(sum))
	return sum
}

func hScan(s *Server, _ *Session, a []string) any {
	var d *dict[string]
	h, bad := of[*hash](s, a[1])
	if h != nil {
		d = &h.dict
	}
	return scan(d, bad, a[2:], func(all []string, field, v, _ string) []string { return append(all, field, v) })
}
