package redis

type members struct {
	dict[struct{}]
	bytes int
}

func (m *members) kind() string { return "set" }
func (m *members) size() int    { return 64 + m.bytes + 48*m.len() }

func (m *members) copied() value { return &members{m.clone(same), m.bytes} }

func sAdd(s *Server, _ *Session, a []string) any {
	m, bad := of[*members](s, a[1])
	if bad != nil {
		return bad
	}
	if m == nil {
		m = &members{}
		s.put(a[1], m, 0)
	}
	n := 0
	for _, e := range a[2:] {
		if m.set(e, struct{}{}) {
			m.bytes += len(e)
			n++
		}
	}
	return n
}

func sRem(s *Server, _ *Session, a []string) any {
	m, bad := of[*members](s, a[1])
	if m == nil || bad != nil {
		return or(bad, 0)
	}
	n := 0
	for _, e := range a[2:] {
		if m.delete(e) {
			m.bytes -= len(e)
			n++
		}
	}
	if m.len() == 0 {
		s.keys.delete(a[1])
	}
	return n
}

func sIsMember(s *Server, _ *Session, a []string) any {
	m, bad := of[*members](s, a[1])
	if m == nil || bad != nil {
		return or(bad, 0)
	}
	return bit(m.has(a[2]))
}

func sMIsMember(s *Server, _ *Session, a []string) any {
	m, bad := of[*members](s, a[1])
	if bad != nil {
		return bad
	}
	all := make([]any, len(a)-2)
	for i, e := range a[2:] {
		all[i] = bit(m != nil && m.has(e))
	}
	return all
}

func sMembers(s *Server, _ *Session, a []string) any {
	m, bad := of[*members](s, a[1])
	if m == nil || bad != nil {
		return or(bad, []string{})
	}
	all := make([]string, 0, m.len())
	for e := range m.all() {
		all = append(all, e)
	}
	return all
}

func sCard(s *Server, _ *Session, a []string) any {
	m, bad := of[*members](s, a[1])
	if m == nil || bad != nil {
		return or(bad, 0)
	}
	return m.len()
}

func sScan(s *Server, _ *Session, a []string) any {
	var d *dict[struct{}]
	m, bad := of[*members](s, a[1])
	if m != nil {
		d = &m.dict
	}
	return scan(d, bad, a[2:], func(all []string, e string, _ struct{}, _ string) []string {
		return append(all, e)
	})
}
