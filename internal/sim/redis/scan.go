package redis

import (
	"strconv"
	"strings"
)

// scan reads SCAN's arguments from the cursor on, and shows what matches. d is nil where there is nothing.
func scan[V any](d *dict[V], bad any, a []string, show func(all []string, key string, v V,
	kind string) []string) any {
	cursor, err := strconv.ParseUint(a[0], 10, 63)
	if err != nil {
		return failure("ERR invalid cursor")
	}
	if bad != nil {
		return bad
	}
	if d == nil {
		return []any{"0", []string{}}
	}
	count, pattern, kind := 10, "*", ""
	for i := 1; i < len(a); i += 2 {
		if i+1 == len(a) {
			return syntax
		}
		switch strings.ToLower(a[i]) {
		case "count":
			n, is := integer(a[i+1])
			if !is {
				return notInteger
			}
			if n < 1 {
				return syntax
			}
			count = n
		case "match":
			pattern = a[i+1]
		case "type":
			kind = a[i+1]
		default:
			return syntax
		}
	}
	found, next := d.scan(int(cursor), count)
	all := []string{}
	for _, it := range found {
		if pattern == "*" || glob(pattern, it.key) {
			all = show(all, it.key, it.value, kind)
		}
	}
	return []any{strconv.Itoa(next), all}
}

func scanKeys(s *Server, _ *Session, a []string) any {
	return scan(s.living(), nil, a[1:], func(all []string, key string, e *entry, kind string) []string {
		if kind != "" && !strings.EqualFold(kind, e.value.kind()) {
			return all
		}
		return append(all, key)
	})
}

// glob is Redis' match of a text with a pattern.
func glob(p, s string) bool {
	for len(p) > 0 {
		switch p[0] {
		case '*':
			for len(p) > 1 && p[1] == '*' {
				p = p[1:]
			}
			if len(p) == 1 {
				return true
			}
			for i := 0; i <= len(s); i++ {
				if glob(p[1:], s[i:]) {
					return true
				}
			}
			return false
		case '?':
			if s == "" {
				return false
			}
			p, s = p[1:], s[1:]
		case '[':
			if s == "" {
				return false
			}
			in, rest := class(p[1:], s[0])
			if !in {
				return false
			}
			p, s = rest, s[1:]
		default:
			if p[0] == '\\' && len(p) > 1 {
				p = p[1:]
			}
			if s == "" || s[0] != p[0] {
				return false
			}
			p, s = p[1:], s[1:]
		}
	}
	return s == ""
}

// class says whether a pattern's class, whose bracket is open, has a byte; rest is the pattern behind it.
func class(p string, b byte) (in bool, rest string) {
	not := len(p) > 0 && p[0] == '^'
	if not {
		p = p[1:]
	}
	for len(p) > 0 && p[0] != ']' {
		switch {
		case p[0] == '\\' && len(p) > 1:
			in = in || p[1] == b
			p = p[2:]
		case len(p) > 2 && p[1] == '-':
			low, high := min(p[0], p[2]), max(p[0], p[2])
			in = in || low <= b && b <= high
			p = p[3:]
		default:
			in = in || p[0] == b
			p = p[1:]
		}
	}
	if len(p) > 0 {
		p = p[1:]
	}
	return in != not, p
}
