package shunt

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/redistest"
)

// Failures that differ by ids and addresses are one group, which a Filter finds again.
func TestFailures(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		t.Parallel()
		ctx := t.Context()
		b := newBench(t, s.URL())
		const n = 1200
		b.buries(s, n, 10, func(i int, e *element.Element) {
			switch {
			case i%3 == 0:
				e.SetFailure(fmt.Sprintf("dial 10.0.0.%d:%d: refused", i%7, 40_000+i))
			case i%3 == 1:
				e.SetFailure(fmt.Sprintf("order 4f9a%04d: status 500", i))
			default:
				e.SetFailure("status 404")
			}
		})
		fs, err := b.Failures(ctx, b.name, StateDead, Filter{})
		b.must(err)
		if len(fs.Groups) != 3 || fs.Looked != n || fs.More {
			t.Fatalf("%+v", fs)
		}
		g := fs.Groups[2] // all have as many, and died as late: so they are in the order of their texts
		if g.Failure != "status 404" || g.Count != n/3 || !g.Last.Equal(time.UnixMilli(1000+(n-1)/10)) ||
			!g.First.Equal(time.UnixMilli(1000)) {
			t.Errorf("%+v", g)
		}
		if e, err := b.Peek(ctx, g.Example); err != nil || e.Failure != "status 404" {
			t.Errorf("%+v, %v", e, err)
		}
		if g := fs.Groups[1]; g.Failure != "order #: status 500" || g.Count != n/3 {
			t.Errorf("%+v", g)
		}
		page, err := b.Browse(ctx, BrowseOptions{Channel: b.name, State: StateDead, Limit: 3,
			Filter: Filter{FailureLike: "dial #:#: refused"}})
		b.must(err)
		if len(page.Entries) != 3 || page.Next == "" || !strings.HasPrefix(page.Entries[0].Failure, "dial 10.0.0.") {
			t.Errorf("%+v", page)
		}
		all, err := b.RetryAllDead(ctx, b.name, Filter{FailureLike: g.Failure})
		if err != nil || all.Changed != n/3 {
			t.Errorf("%+v, %v", all, err)
		}
		some, err := b.Failures(ctx, b.name, StateDead, Filter{Limit: 10})
		if err != nil || some.Looked != 10 || !some.More {
			t.Errorf("%+v, %v", some, err)
		}
	})
}

// There are a bounded number of groups, and each has a bounded text.
func TestFailuresBounded(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	b := newBench(t, s.URL())
	name := func(i int) string {
		return strings.Map(func(r rune) rune { return 'a' + r - '0' }, fmt.Sprint(i)) + strings.Repeat("é", 400)
	}
	b.buries(s, failuresMost+50, 10, func(i int, e *element.Element) { e.SetFailure(name(i)) })
	fs, err := b.Failures(t.Context(), b.name, StateDead, Filter{})
	b.must(err)
	if len(fs.Groups) != failuresMost+1 || fs.Groups[0].Failure != otherFailures || fs.Groups[0].Count != 50 {
		t.Errorf("%d groups, the first is %+v", len(fs.Groups), fs.Groups[0])
	}
	for _, g := range fs.Groups {
		if len(g.Failure) > failureLength || strings.ToValidUTF8(g.Failure, "?") != g.Failure {
			t.Errorf("a text of %d bytes: %q", len(g.Failure), g.Failure)
		}
	}
}

func TestLikeness(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"":                  "(none)",
		"\xff":              "(none)",
		"status 500":        "status 500",
		"status 5000":       "status #",
		"no user 12345, ab": "no user #, ab",
		"a1b2-c3d4e5f6-x":   "#-#-x",
		"key a1é99999":      "key a1é#",
		"sha256sum of 1e10": "# of #",
		"\xff12345":         "#",
		"to 10.0.3.7:80":    "to #:80",
		"v1.2.3 of 1.2.3":   "v1.2.3 of 1.2.3",
	} {
		if got := likeness(in); got != want {
			t.Errorf("%q is %q, want %q", in, got, want)
		}
	}
}

// A group of failures without a text is one of its own, too.
func TestFailuresEmpty(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	b := newBench(t, s.URL())
	b.buries(s, 4, 1, func(i int, e *element.Element) {
		if i > 0 {
			e.SetFailure("declined")
		}
	})
	fs, err := b.Failures(t.Context(), b.name, StateDead, Filter{})
	b.must(err)
	if len(fs.Groups) != 2 || fs.Groups[1].Count != 1 {
		t.Fatalf("%+v", fs)
	}
	all, err := b.DeleteAllDead(t.Context(), b.name, Filter{FailureLike: fs.Groups[1].Failure})
	if err != nil || all.Changed != 1 {
		t.Errorf("%+v, %v", all, err)
	}
}
