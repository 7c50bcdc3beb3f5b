package store

import (
	"context"
	"fmt"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/link"
)

// The bounds of one look of Browse.
const browseBytes = 512 << 10 // of whole elements

// Shown is an element of which a part is shown.
type Shown struct {
	Raw  []byte // the whole, or all but the rest of the payload
	Size int    // of the whole
	At   time.Time
	Sum  string // SHA-1 of a bare one that is cut; else empty
}

// ListPlace is how far a look through a list has come: to so many elements from where it began, and after which one.
type ListPlace struct {
	From     int
	Identity string // empty: none
}

// BrowseList shows up to n elements of a list, and some less where they are large, from a place on: the one that is
// taken next first, or last. Of each payload up to cut bytes are shown; negative: all. first is the place of the first.
func BrowseList(
	ctx context.Context, a Asker, k *Keys, list string, latest bool, n, cut int, p ListPlace,
) (first int, all []Shown, err error) {
	return browse(ctx, a, k, list, "list", latest, n, cut, p.From, []byte(p.Identity))
}

// BrowseSet is BrowseList for a set: the lowest score first, or the highest, from a score on; zero is the first. skip
// elements of that score are passed over.
func BrowseSet(
	ctx context.Context, a Asker, k *Keys, set string, latest bool, n, cut int, from time.Time, skip int,
) (all []Shown, err error) {
	low := "-inf"
	if latest {
		low = "+inf"
	}
	if !from.IsZero() {
		low = fmt.Sprint(from.UnixMilli())
	}
	_, all, err = browse(ctx, a, k, set, "set", latest, n, cut, low, skip)
	return all, err
}

func browse(
	ctx context.Context, a Asker, k *Keys, key, kind string, latest bool, n, cut int, from ...any,
) (first int, all []Shown, err error) {
	order := 0
	if latest {
		order = 1
	}
	v, err := askOne(ctx, a, k.Name, func(c *link.Call) {
		c.AddScript(Browse, 1, append([]any{key, kind, order, n, browseBytes, cut}, from...)...)
	})
	vs, err := redis.Values(v, err)
	if err != nil || len(vs) == 0 {
		return 0, nil, err
	}
	first, _ = redis.Int(vs[0], nil)
	for i := 1; i+3 < len(vs); i += 4 {
		s := Shown{Raw: bytesOf(vs[i]), Sum: string(bytesOf(vs[i+3]))}
		s.Size, _ = redis.Int(vs[i+1], nil)
		if ms, err := redis.Float64(vs[i+2], nil); err == nil {
			s.At = time.UnixMilli(int64(ms))
		}
		all = append(all, s)
	}
	return first, all, nil
}
