package main

import (
	"fmt"
	"io"
	"slices"
)

// This is what a change must come to, however alike the rounds are. It also holds where one round cannot say how alike
// they would be.
const least, leastOfOne = 0.05, 0.2

// compare says what has changed by more than the rounds of either run differ among themselves.
func compare(w io.Writer, old, now *report) {
	fmt.Fprintf(w, "\nAgainst %s of %s:\n", old.Versions["shunt"], old.Date)
	if old.Machine != now.Machine || old.Load != now.Load {
		fmt.Fprintf(w, "  not alike: then %s, on %v; now %s, on %v\n", old.Load, old.Machine, now.Load, now.Machine)
	}
	same := 0
	for _, r := range now.Rows {
		o := old.find(r.System, r.Measure)
		if o == nil {
			continue
		}
		verdict, ok := change(o, r)
		if !ok {
			same++
			continue
		}
		fmt.Fprintf(w, "  %-6s  %-12s %-22s %s -> %s %s\n", verdict, r.System, r.Measure, short(o.Value),
			short(r.Value), r.Unit)
	}
	fmt.Fprintf(w, "  %d figures are the same, as far as their rounds can tell\n", same)
}

// change is true if all rounds of one run are beyond all of the other, and the medians differ by more than the least.
func change(old, now *row) (verdict string, ok bool) {
	bar := least
	if len(old.Rounds) == 1 || len(now.Rounds) == 1 {
		bar = leastOfOne
	}
	apart := slices.Min(now.Rounds) > slices.Max(old.Rounds) || slices.Max(now.Rounds) < slices.Min(old.Rounds)
	if by := now.Value/old.Value - 1; !apart || by > -bar && by < bar {
		return "", false
	}
	if now.Value > old.Value == now.Lower {
		return "worse", true
	}
	return "better", true
}
