package store

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/link"
)

// The bounds of a Walk. Each of its steps is a script, and copies the elements that it looks at.
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

// Walk goes through a list or a set a page at a time, from either end. It holds nothing between two pages but its
// place, and that survives as text.
type Walk struct {
	a      Asker
	k      *Keys
	key    string
	set    bool
	latest bool
	cut    int

	seen, bytes int

	start, place place // where the last page began, and where the next one does
}

// place is how far a walk has come. Its zero value is the beginning.
type place struct {
	// In a list: to so many elements from where it began, after which one, and how many there were.
	from     int
	identity string // empty: nobody knows
	length   int

	// In a set: behind so many elements of a score that begin so.
	score string
	shown int
	head  []byte
}

// NewWalk goes through the elements of a channel's list, the one that is taken next first, or of a set, the lowest
// score first; latest begins at the other end. Of each payload up to cut bytes are shown; negative: all. from is
// another walk's Place, or empty; nil: it is none.
func NewWalk(a Asker, k *Keys, key string, set, latest bool, cut int, from string) *Walk {
	w := &Walk{a: a, k: k, key: key, set: set, latest: latest, cut: cut}
	if from == "" {
		return w
	}
	part := strings.Split(from, "_")
	if len(part) != 3 {
		return nil
	}
	n, err1 := strconv.Atoi(part[1])
	what, err2 := hex.DecodeString(part[2])
	var err3 error
	if set {
		w.place = place{score: part[0], shown: n, head: what}
		_, err3 = strconv.ParseFloat(part[0], 64)
	} else {
		w.place = place{length: n, identity: string(what)}
		w.place.from, err3 = strconv.Atoi(part[0])
	}
	if err1 != nil || err2 != nil || err3 != nil || n < 0 || w.place.from < 0 {
		return nil
	}
	return w
}

// Place is where the next page begins.
func (w *Walk) Place() string {
	if p := &w.place; w.set {
		return fmt.Sprintf("%s_%d_%x", p.score, p.shown, p.head)
	}
	return fmt.Sprintf("%d_%d_%x", w.place.from, w.place.length, w.place.identity)
}

// step looks at up to n elements from a place on. length is that of a list.
func (w *Walk) step(ctx context.Context, n int, from ...any) (length int, some []Shown, err error) {
	most := min(browseStep, n, browseBegins)
	if w.seen > 0 {
		most = max(1, min(browseStep, n, browseAtOnce/max(1, w.bytes/w.seen)))
	}
	order, kind := 0, "list"
	if w.latest {
		order = 1
	}
	if w.set {
		kind = "set"
	}
	v, err := askOne(ctx, w.a, w.k.Name, func(c *link.Call) {
		c.AddScript(Browse, 1, append([]any{w.key, kind, order, most, w.cut}, from...)...)
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
		w.seen, w.bytes = w.seen+1, w.bytes+s.Size
		some = append(some, s)
	}
	return length, some, nil
}

// Page shows up to n elements, and some less where they are large, and goes on behind them. more: there are others.
func (w *Walk) Page(ctx context.Context, n int) (all []Shown, more bool, err error) {
	if !w.set && w.place.from > 0 {
		from, err := w.find(ctx, n)
		if err != nil {
			return nil, false, err
		}
		w.place.from = from
	}
	w.start = w.place
	p := w.start
	for size := 0; ; {
		most := n + 1 - len(all) // one more, to know whether there is one
		var some []Shown
		if w.set {
			_, some, err = w.step(ctx, most, p.score, p.head, p.shown)
			for i := range some {
				p.pass(&some[i])
			}
		} else {
			w.start.length, some, err = w.step(ctx, most, p.from)
			p.from += len(some)
		}
		if err != nil {
			return nil, false, err
		}
		for i := range some {
			if more = len(all) == n || len(all) > 0 && size+some[i].Size > browseBytes; more {
				break
			}
			all, size = append(all, some[i]), size+some[i].Size
		}
		if more || len(some) == 0 {
			w.Behind(all, nil)
			return all, more, nil
		}
	}
}

// Behind stands behind some of the first elements of the last page, from which those have left that do not stay; nil:
// all stay.
func (w *Walk) Behind(some []Shown, stays func(i int) bool) {
	p := w.start
	for i := range some {
		stay := stays == nil || stays(i)
		switch {
		case w.set:
			if p.pass(&some[i]); !stay {
				p.shown--
			}
		case stay:
			p.from++
			p.identity = some[i].identity()
		default:
			p.length--
		}
	}
	w.place = p
}

// pass goes behind an element of a set.
func (p *place) pass(s *Shown) {
	if s.Score != p.score || !bytes.Equal(s.Head, p.head) {
		p.score, p.head, p.shown = s.Score, s.Head, 0
	}
	p.shown++
}

// find gives the place behind the element of a list that was shown last. Elements have come and gone at both ends
// meanwhile. Where it is not near the place where it should be, find goes back: to the beginning, as it was most likely
// taken, or in the other order by a page. So some may be shown again, and none is missed.
func (w *Walk) find(ctx context.Context, n int) (from int, err error) {
	cut, p := w.cut, &w.place
	defer func() { w.cut = cut }()
	w.cut = 0
	length, some, err := w.step(ctx, 1, p.from-1)
	if err != nil || len(some) > 0 && p.identity != "" && some[0].identity() == p.identity {
		return p.from, err
	}
	grown := length - p.length
	at := p.from - 1 + min(0, grown)
	if w.latest {
		at = p.from - 1 + max(0, grown)
	}
	at = max(0, min(at, length-1))
	for low, high := at, at; p.identity != "" && high-low < 2*browseNear && (low > 0 || high < length); {
		if high < length {
			_, some, err := w.step(ctx, browseStep, high)
			if err != nil {
				return 0, err
			}
			for i := range some {
				if some[i].identity() == p.identity {
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
				_, some, err := w.step(ctx, low-first-len(all), first+len(all))
				if err != nil {
					return 0, err
				}
				if len(some) == 0 {
					break
				}
				all = append(all, some...)
			}
			for i := len(all) - 1; i >= 0; i-- {
				if all[i].identity() == p.identity {
					return first + i + 1, nil
				}
			}
			low = first
		}
	}
	if w.latest {
		return max(0, at+1-n), nil
	}
	return 0, nil
}
