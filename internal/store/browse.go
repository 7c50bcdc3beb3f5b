package store

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/link"
)

// The bounds of a Walk. Each of its steps is a script, and copies the elements that it looks at.
const (
	browseStep   = 64        // elements of a step
	browseBegins = 4         // of the first one, when nobody knows how large they are
	browseAtOnce = 256 << 10 // bytes of a step, if its elements are as large as those before
	browseBytes  = 512 << 10 // bytes of whole elements of a page, unless a single one is larger
	browseFar    = 1 << 50   // no list is as long
	browseNear   = 512       // elements on each side among which that one is looked for that was shown last
)

// Shown is an element of which a part is shown.
type Shown struct {
	Raw   []byte // the whole, or all but the rest of the payload
	Size  int    // of the whole
	Score string // as Redis prints it; empty in a list
	Sum   string // SHA-1 of a bare one that is cut; of one that is too large, or was, that of its ends, after a ~
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

// Whole is the SHA-1 in hex of a bare one that is cut, and empty where nobody knows it.
func (s *Shown) Whole() string {
	if strings.HasPrefix(s.Sum, "~") {
		return ""
	}
	return s.Sum
}

// identity is the serial, or of a bare one its sum.
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

	start, end place // where the last page began, and where it ended
	place      place // where the next one begins
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
	score, _ := strconv.ParseFloat(part[0], 64)
	if err1 != nil || err2 != nil || err3 != nil || n < 0 || w.place.from < 0 || max(n, w.place.from) > browseFar ||
		math.IsNaN(score) {
		return nil
	}
	return w
}

// PlaceAt is the place in a set before all that have a time as their score, or a later one.
func PlaceAt(t time.Time) string { return fmt.Sprintf("%d_0_", t.UnixMilli()) }

// Place is where the next page begins.
func (w *Walk) Place() string {
	if p := &w.place; w.set {
		return fmt.Sprintf("%s_%d_%x", p.score, p.shown, p.head)
	}
	return fmt.Sprintf("%d_%d_%x", w.place.from, w.place.length, w.place.identity)
}

// step looks at up to n elements from a place on, and at least at least. length is that of a list.
func (w *Walk) step(ctx context.Context, least, n int, from ...any) (length int, some []Shown, err error) {
	most := min(browseStep, n, browseBegins)
	if w.seen > 0 {
		most = min(browseStep, n, browseAtOnce/max(1, w.bytes/w.seen))
	}
	order, kind := 0, "list"
	if w.latest {
		order = 1
	}
	if w.set {
		kind = "set"
	}
	v, err := askOne(ctx, w.a, w.k.Name, func(c *link.Call) {
		c.AddScript(Browse, 1, append([]any{w.key, kind, order, max(least, most), w.cut}, from...)...)
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

// next gives up to n elements behind p, and moves it behind them.
func (w *Walk) next(ctx context.Context, p *place, n, page int) (some []Shown, err error) {
	if w.set {
		_, some, err = w.step(ctx, 1, n, p.score, p.head, p.shown)
		for i := range some {
			p.pass(&some[i])
		}
		return some, err
	}
	for found, tries := p.from > 0 && p.identity != "", 0; ; tries++ {
		if !found || tries == 10 {
			p.length, some, err = w.step(ctx, 1, n, p.from)
			break
		}
		// It begins with the one that was shown last, if nothing has moved; after a search, which has taken its time,
		// with some before that.
		before := 1
		if tries > 0 {
			before = min(p.from, 1+browseAtOnce/max(browseAtOnce/8, w.bytes/max(1, w.seen)))
		}
		length, among, err := w.step(ctx, 1+before, n+before, p.from-before)
		if err != nil {
			return nil, err
		}
		at := slices.IndexFunc(among, func(s Shown) bool { return s.identity() == p.identity })
		if at >= 0 && (at+1 < len(among) || p.from-before+len(among) >= length) {
			p.from, p.length, some = p.from-before+at+1, length, among[at+1:]
			break
		}
		if p.from, found, err = w.find(ctx, p, length, page); err != nil {
			return nil, err
		}
		p.length = length
	}
	p.from += len(some)
	if len(some) > 0 {
		p.identity = some[len(some)-1].identity()
	}
	return some, err
}

// Page shows up to n elements, and some less where they are large, and goes on behind them. more: there are others.
func (w *Walk) Page(ctx context.Context, n int) (all []Shown, more bool, err error) {
	w.start, w.end = w.place, w.place
	for size := 0; ; {
		some, err := w.next(ctx, &w.end, n+1-len(all), n) // one more, to know whether there is one
		if err != nil {
			return nil, false, err
		}
		for i := range some {
			if more = len(all) == n || len(all) > 0 && size+some[i].Size > browseBytes; more {
				w.end.from -= len(some) - i
				break
			}
			all, size = append(all, some[i]), size+some[i].Size
		}
		if more || len(some) == 0 {
			w.Behind(all, len(all), nil)
			return all, more, nil
		}
	}
}

// Behind stands behind the first n elements of the last page, from which those have left that do not stay; nil: all
// stay.
func (w *Walk) Behind(page []Shown, n int, stays func(i int) bool) {
	p := w.start
	p.length = w.end.length
	p.from = max(0, w.end.from-(len(page)-n)) // what has left meanwhile has moved the others
	for i := range page[:n] {
		stay := stays == nil || stays(i)
		switch {
		case w.set:
			if p.pass(&page[i]); !stay {
				p.shown--
			}
		case stay:
			p.identity = page[i].identity()
		default:
			p.from, p.length = max(0, p.from-1), p.length-1
		}
	}
	w.place = p
}

// Depth is how many elements of a list lie before the place where the next page begins, and how many behind it.
func (w *Walk) Depth() (before, behind int) {
	return w.place.from, max(0, w.place.length-w.place.from)
}

// pass goes behind an element of a set.
func (p *place) pass(s *Shown) {
	if s.Score != p.score || !bytes.Equal(s.Head, p.head) {
		p.score, p.head, p.shown = s.Score, s.Head, 0
	}
	p.shown++
}

// find gives the place behind the element of a list that was shown last. Elements have come and gone at both ends
// meanwhile: the list has length now. Where that one is not found near its place, find goes back: to the beginning, as
// it was most likely taken, or in the other order by a page. So some may be shown again, and none is missed.
func (w *Walk) find(ctx context.Context, p *place, length, n int) (from int, found bool, err error) {
	cut := w.cut
	defer func() { w.cut = cut }()
	w.cut = 0
	grown := length - p.length
	at := p.from - 1 + min(0, grown)
	if w.latest {
		at = p.from - 1 + max(0, grown)
	}
	at = max(0, min(at, length-1))
	for low, high := at, at; p.identity != "" && high-low < 2*browseNear && (low > 0 || high < length); {
		if high < length {
			_, some, err := w.step(ctx, 1, browseStep, high)
			if err != nil {
				return 0, false, err
			}
			for i := range some {
				if some[i].identity() == p.identity {
					return high + i + 1, true, nil
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
				_, some, err := w.step(ctx, 1, low-first-len(all), first+len(all))
				if err != nil {
					return 0, false, err
				}
				if len(some) == 0 {
					break
				}
				all = append(all, some...)
			}
			for i := len(all) - 1; i >= 0; i-- {
				if all[i].identity() == p.identity {
					return first + i + 1, true, nil
				}
			}
			low = first
		}
	}
	if w.latest {
		return max(0, at+1-n), false, nil
	}
	return 0, false, nil
}
