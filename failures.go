package shunt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/shuntmq/shunt/internal/store"
)

// FailureGroup is what messages with failures of one kind have in common.
type FailureGroup struct {
	// Failure is the failure's text. In it each word of four or more letters and digits, of which one is a digit, is #:
	// so what differs by an id or an address is one group. Filter.FailureLike finds its messages. "(none)" are those
	// without a text, and "(others)", which FailureLike does not find, those beyond 1,000 groups.
	Failure string    `json:"failure"`
	Count   int       `json:"count"`
	First   time.Time `json:"first"` // when the first of them died, or is due
	Last    time.Time `json:"last"`
	Example Ref       `json:"example"` // the last one
}

// Failures are groups of failures, the largest first.
type Failures struct {
	Groups []FailureGroup `json:"groups"`
	Looked int            `json:"looked"` // messages that were looked at
	More   bool           `json:"more"`   // there are others, which were not
}

const (
	failuresLooked = 100_000
	failuresMost   = 1000 // groups
	failureLength  = 500  // bytes of a group's text
	otherFailures  = "(others)"
	noFailure      = "(none)"
)

// Failures groups the last failures of the messages of StateDead, or of those of StateDelay that are tried again, which
// fit a Filter. It looks at up to 100,000 messages, the latest first, or at Filter.Limit of them, as Browse does, and
// not at payloads.
func (q *Queue) Failures(ctx context.Context, channel string, state State, f Filter) (fs Failures, err error) {
	failed := func(err error) (Failures, error) {
		return fs, fmt.Errorf("shunt: failures of %q: %w", channel, err)
	}
	if err := store.CheckChannel(channel); err != nil {
		return failed(err)
	}
	if state != StateDead && state != StateDelay {
		return failed(fmt.Errorf("messages of state %q have none: want %s or %s", state, StateDead, StateDelay))
	}
	if err := f.check(); err != nil || f.From != "" {
		return failed(cmp.Or(err, errors.New("the Filter has a From: want none")))
	}
	w := q.walk(store.KeysOf(channel), state, true, 0, "")
	looks := cmp.Or(f.Limit, failuresLooked)
	groups := make(map[string]*FailureGroup)
	for more := true; more && fs.Looked < looks; fs.More = more {
		var shown []store.Shown
		if shown, more, err = w.Page(ctx, min(1000, looks-fs.Looked)); err != nil {
			return failed(err)
		}
		fs.Looked += len(shown)
		for i := range shown {
			e := shownEntry(channel, state, &shown[i])
			if !f.fits(&e) || state == StateDelay && e.Failure == "" {
				continue
			}
			text := likeness(e.Failure)
			g := groups[text]
			if g == nil && len(groups) >= failuresMost {
				text = otherFailures
				g = groups[text]
			}
			if g == nil {
				g = &FailureGroup{Failure: text, Last: e.at(), Example: e.Ref()}
				groups[text] = g
			}
			g.Count++
			g.First = e.at()
		}
	}
	for _, g := range groups {
		fs.Groups = append(fs.Groups, *g)
	}
	slices.SortFunc(fs.Groups, func(a, b FailureGroup) int {
		return cmp.Or(b.Count-a.Count, b.Last.Compare(a.Last), strings.Compare(a.Failure, b.Failure))
	})
	return fs, nil
}

// address is that of a host, in four numbers.
var address = regexp.MustCompile(`^\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}\b`)

// oneEnd writes the end of each line in one way: browsers and others that carry a text may change it.
var oneEnd = strings.NewReplacer("\r\n", "\n", "\r", "\n")

// likeness is a failure's text as FailureGroup has it.
func likeness(failure string) string {
	if failure == "" {
		return noFailure
	}
	failure = oneEnd.Replace(failure)
	var b strings.Builder
	b.Grow(len(failure))
	for rest := failure; rest != "" && b.Len() < failureLength; {
		if n := len(address.FindString(rest)); n > 0 {
			b.WriteByte('#')
			rest = rest[n:]
			continue
		}
		n, digit := 0, false
		for n < len(rest) && isWord(rest[n]) {
			digit = digit || rest[n] <= '9'
			n++
		}
		switch {
		case n >= 4 && digit:
			b.WriteByte('#')
		case n > 0:
			b.WriteString(rest[:n])
		default:
			n = 1
			b.WriteByte(rest[0])
		}
		rest = rest[n:]
	}
	return cmp.Or(strings.ToValidUTF8(b.String()[:min(b.Len(), failureLength)], ""), noFailure)
}

// isWord says whether a byte is an ASCII letter or digit.
func isWord(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}
