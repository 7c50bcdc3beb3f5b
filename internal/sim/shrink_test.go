package sim

import (
	"slices"
	"testing"
)

// plays is how often a smaller plot is tried before it is taken to hold.
const plays = 4

// shrink leaves out of a plot that fails what it does not take: blows, posts and processes.
func shrink(t *testing.T, p *Plot) *Plot {
	t.Helper()
	broke := failsBy(t, "", p, nil)
	if len(broke) == 0 {
		t.Logf("seed %d held in %d plays, and cannot be shrunk", p.Seed, plays)
		return p
	}
	fails := func(q *Plot) bool { return len(failsBy(t, "", q, broke)) > 0 }
	for _, c := range p.channels() { // most have nothing to do with it, and few messages are played soon
		q := *p
		q.Posts = slices.DeleteFunc(slices.Clone(p.Posts), func(post Post) bool { return post.Channel == c })
		if fails(&q) {
			p = &q
		}
	}
	for again := true; again; {
		before := len(p.Blows) + len(p.Posts) + len(p.Crew)
		p = without(p, func(q *Plot) *[]Blow { return &q.Blows }, fails)
		p = without(p, func(q *Plot) *[]Post { return &q.Posts }, fails)
		if p.Names != nil {
			q := *p
			if q.Names = nil; fails(&q) {
				p = &q
			}
		}
		p = without(p, func(q *Plot) *[]Recurring { return &q.Recurs }, fails)
		p = without(p, func(q *Plot) *[]Call { return &q.Calls }, fails)
		p = without(p, func(q *Plot) *[]Booking { return &q.Bookings }, fails)
		p = without(p, func(q *Plot) *[]Waiting { return &q.Waits }, fails)
		again = len(p.Blows)+len(p.Posts)+len(p.Crew) < before
		t.Logf("%d blows, %d messages", len(p.Blows), len(p.Posts))
	}
	return p
}

// without drops parts of a list, first halves of it and then ever less, as long as the plot fails.
func without[T any](p *Plot, list func(*Plot) *[]T, fails func(*Plot) bool) *Plot {
	for size := len(*list(p)); size > 0; size /= 2 {
		for at := 0; at < len(*list(p)); {
			q := *p
			all := slices.Clone(*list(p))
			*list(&q) = slices.Delete(all, at, min(at+size, len(all)))
			if fails(&q) {
				p = &q
			} else {
				at += size
			}
		}
	}
	return p
}

// failsBy has a player's program play a plot some times, and gives what broke that is one of those wanted; none wanted:
// anything.
func failsBy(t *testing.T, bin string, p *Plot, wanted []string) (broke []string) {
	n := 0
	playBy(t, bin, func() *Plot {
		if n == plays || len(broke) > 0 {
			return nil
		}
		n++
		return p
	}, func(_ *Plot, o outcome) {
		for _, b := range o.Broke {
			if wanted == nil || slices.Contains(wanted, b) {
				broke = append(broke, b)
			}
		}
	})
	return broke
}
