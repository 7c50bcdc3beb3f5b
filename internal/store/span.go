package store

import (
	"context"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/link"
)

// Span is what a look through several lists, one behind the other, has still to pass over and to give.
type Span struct {
	Skip, Left int  // Left < 0: all
	Bytes      int  // it ends behind the step that gives so many; 0: no bound
	Cut        bool // it has ended there, and more may follow
}

// spanStep is how many elements a Span with a bound of bytes asks for in one step.
const spanStep = 16

// of gives what lies within the span of some lists, in the order in which it was moved there, and goes on behind it.
func (s *Span) of(ctx context.Context, a Asker, k *Keys, lists []string) ([][][]byte, error) {
	type part struct{ list, from, to int } // as LRANGE has them
	var parts []part
	if s.Skip == 0 && s.Left < 0 && s.Bytes == 0 {
		for i := range lists {
			parts = append(parts, part{i, 0, -1})
		}
	} else {
		ns, err := lengths(ctx, a, k, lists)
		if err != nil {
			return nil, err
		}
		for i, n := range ns {
			past := min(s.Skip, n)
			s.Skip -= past
			n -= past
			if s.Left >= 0 {
				n = min(n, s.Left)
				s.Left -= n
			}
			for n > 0 {
				some := n
				if s.Bytes > 0 {
					some = min(n, spanStep)
				}
				parts = append(parts, part{i, -past - some, -1 - past})
				past, n = past+some, n-some
			}
		}
	}
	all := make([][][]byte, len(lists))
	for len(parts) > 0 {
		end, asked := 0, 0
		for ; end < len(parts); end++ {
			if asked += parts[end].to - parts[end].from + 1; s.Bytes > 0 && end > 0 && asked > spanStep {
				break
			}
		}
		vs, err := askAll(ctx, a, k.Name, func(c *link.Call) {
			for _, p := range parts[:end] {
				c.Add("LRANGE", lists[p.list], p.from, p.to)
			}
		})
		if err != nil {
			return nil, err
		}
		size := 0
		for i, v := range vs {
			raws := reversed(v)
			for _, raw := range raws {
				size += len(raw)
			}
			all[parts[i].list] = append(all[parts[i].list], raws...)
		}
		parts = parts[end:]
		if s.Bytes > 0 {
			if s.Bytes -= size; s.Bytes <= 0 {
				s.Left, s.Cut = 0, true
				break
			}
		}
	}
	return all, nil
}

// lengths are those of some lists.
func lengths(ctx context.Context, a Asker, k *Keys, lists []string) ([]int, error) {
	vs, err := askAll(ctx, a, k.Name, func(c *link.Call) {
		for _, l := range lists {
			c.Add("LLEN", l)
		}
	})
	ns := make([]int, len(vs))
	for i, v := range vs {
		ns[i], _ = redis.Int(v, nil)
	}
	return ns, err
}
