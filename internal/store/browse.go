package store

import (
	"bytes"
	"context"
	"math"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/link"
)

// The bounds of Browse. Each of its steps is a script, and copies the elements that it looks at.
const (
	browseStep   = 32        // elements of a step
	browseBegins = 4         // of the first one, when nobody knows how large they are
	browseAtOnce = 256 << 10 // bytes of a step, if its elements are as large as those before
	browseBytes  = 512 << 10 // bytes of whole elements of a page, unless a single one is larger
	browseNear   = 512       // elements on each side among which that one is looked for that was shown last
)

// Shown is an element of which a part is shown.
type Shown struct {
	Raw   []byte // the whole, or all but the rest of the payload
	Size  int    // of the whole
	Score string // as Redis prints it; empty in a list
	Sum   string // SHA-1 of a bare one that is cut and not too large; else empty
	Head  []byte // the first 32 bytes
}

// At is the score as a time, zero where it is none.
func (s *Shown) At() time.Time {
	ms, err := redis.Float64([]byte(s.Score), nil)
	if err != nil || math.Abs(ms) > 1e15 {
		return time.Time{}
	}
	return time.UnixMilli(int64(ms))
}

// identity is the serial or, of a bare one, the SHA-1 in hex; empty where nobody knows.
func (s *Shown) identity() string {
	if s.Sum != "" {
		return s.Sum
	}
	e, err := element.Decode(s.Raw)
	if err == nil && !e.Bare {
		return string(e.Serial[:])
	}
	if len(s.Raw) == s.Size {
		return e.Identity(s.Raw)
	}
	return ""
}

// browser makes the steps.
type browser struct {
	ctx    context.Context
	a      Asker
	k      *Keys
	key    string
	kind   string
	latest bool
	cut    int

	seen, bytes int
}

// step looks at up to n elements from a place on. length is that of a list.
func (b *browser) step(n int, place ...any) (length int, some []Shown, err error) {
	most := min(browseStep, n, browseBegins)
	if b.seen > 0 {
		most = max(1, min(browseStep, n, browseAtOnce/max(1, b.bytes/b.seen)))
	}
	order := 0
	if b.latest {
		order = 1
	}
	v, err := askOne(b.ctx, b.a, b.k.Name, func(c *link.Call) {
		c.AddScript(Browse, 1, append([]any{b.key, b.kind, order, most, b.cut}, place...)...)
	})
	vs, err := redis.Values(v, err)
	if err != nil || len(vs) == 0 {
		return 0, nil, err
	}
	length, _ = redis.Int(vs[0], nil)
	for i := 1; i+4 < len(vs); i += 5 {
		s := Shown{Raw: bytesOf(vs[i]), Score: string(bytesOf(vs[i+2])), Sum: string(bytesOf(vs[i+3])),
			Head: bytesOf(vs[i+4])}
		s.Size, _ = redis.Int(vs[i+1], nil)
		b.seen, b.bytes = b.seen+1, b.bytes+s.Size
		some = append(some, s)
	}
	return length, some, nil
}

// page gathers up to n elements, and says whether there are more. step gives some behind all that it gave before.
func (b *browser) page(n int, step func(n int) ([]Shown, error)) (all []Shown, more bool, err error) {
	size := 0
	for {
		some, err := step(n + 1 - len(all)) // one more, to know whether there is one
		if err != nil || len(some) == 0 {
			return all, false, err
		}
		for _, s := range some {
			if len(all) == n || len(all) > 0 && size+s.Size > browseBytes {
				return all, true, nil
			}
			all, size = append(all, s), size+s.Size
		}
	}
}

// ListPlace is how far a look through a list has come: to so many elements from where it began, after which one, and
// how many there were.
type ListPlace struct {
	From     int
	Identity string // empty: nobody knows
	Length   int
}

// BrowseList shows up to n elements of a list, and some less where they are large, from a place on: the one that is
// taken next first, or last. Of each payload up to cut bytes are shown; negative: all.
func BrowseList(
	ctx context.Context, a Asker, k *Keys, list string, latest bool, n, cut int, p ListPlace,
) (all []Shown, next ListPlace, more bool, err error) {
	b := &browser{ctx: ctx, a: a, k: k, key: list, kind: "list", latest: latest, cut: cut}
	if p.From > 0 {
		if p.From, err = b.find(p, n); err != nil {
			return nil, p, false, err
		}
	}
	next = p
	all, more, err = b.page(n, func(n int) (some []Shown, err error) {
		next.Length, some, err = b.step(n, p.From)
		p.From += len(some)
		return some, err
	})
	if len(all) > 0 {
		next.From += len(all)
		next.Identity = all[len(all)-1].identity()
	}
	return all, next, more, err
}

// find gives the place behind the element that was shown last. Elements have come and gone at both ends meanwhile.
// Where it is not near the place where it should be, find goes back: to the beginning, as it was most likely taken, or
// in the other order by a page. So some may be shown again, and none is missed.
func (b *browser) find(p ListPlace, n int) (from int, err error) {
	cut := b.cut
	defer func() { b.cut = cut }()
	b.cut = 0
	length, some, err := b.step(1, p.From-1)
	if err != nil || len(some) > 0 && p.Identity != "" && some[0].identity() == p.Identity {
		return p.From, err
	}
	grown := length - p.Length
	at := p.From - 1 + min(0, grown)
	if b.latest {
		at = p.From - 1 + max(0, grown)
	}
	at = max(0, min(at, length-1))
	for low, high := at, at; p.Identity != "" && high-low < 2*browseNear && (low > 0 || high < length); {
		if high < length {
			_, some, err := b.step(browseStep, high)
			if err != nil {
				return 0, err
			}
			for i := range some {
				if some[i].identity() == p.Identity {
					return high + i + 1, nil
				}
			}
			if high += len(some); len(some) == 0 {
				high = length
			}
		}
		if low > 0 {
			first := max(0, low-browseStep)
			var all []Shown
			for first+len(all) < low {
				_, some, err := b.step(low-first-len(all), first+len(all))
				if err != nil {
					return 0, err
				}
				if len(some) == 0 {
					break
				}
				all = append(all, some...)
			}
			for i := len(all) - 1; i >= 0; i-- {
				if all[i].identity() == p.Identity {
					return first + i + 1, nil
				}
			}
			low = first
		}
	}
	if b.latest {
		return max(0, at+1-n), nil
	}
	return 0, nil
}

// SetPlace is how far a look through a set has come: behind an element of a score that begins so. Its zero value is the
// beginning.
type SetPlace struct {
	Score string
	Head  []byte
	Shown int // of those that have both, how many
}

// pass takes in that some were shown.
func (p *SetPlace) pass(some []Shown) {
	for i := range some {
		if s := &some[i]; p.Shown == 0 || s.Score != p.Score || !bytes.Equal(s.Head, p.Head) {
			*p = SetPlace{s.Score, s.Head, 0}
		}
		p.Shown++
	}
}

// BrowseSet is BrowseList for a set: the lowest score first, or the highest. What comes and goes meanwhile moves none
// of the others.
func BrowseSet(
	ctx context.Context, a Asker, k *Keys, set string, latest bool, n, cut int, p SetPlace,
) (all []Shown, next SetPlace, more bool, err error) {
	b := &browser{ctx: ctx, a: a, k: k, key: set, kind: "set", latest: latest, cut: cut}
	next = p
	all, more, err = b.page(n, func(n int) (some []Shown, err error) {
		_, some, err = b.step(n, p.Score, p.Head, p.Shown)
		p.pass(some)
		return some, err
	})
	next.pass(all)
	return all, next, more, err
}
