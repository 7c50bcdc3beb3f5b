package store

import (
	"strconv"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"
)

// HintKind says what a hint is about.
type HintKind uint8

const (
	// HintLook asks for a sweep: the keeper's place is vacant, or the kind is one that this version does not know.
	HintLook HintKind = iota
	// HintDue tells of a new earliest due time.
	HintDue
	// HintCancelled tells of a message that was cancelled while a worker may hold it.
	HintCancelled
)

// Hint is a message that is published on a channel's delay key. Hints are for speed alone: a sweep finds whatever a
// missed hint would have told.
type Hint struct {
	Kind   HintKind
	In     time.Duration // HintDue: from now, negative if overdue
	Serial ulid.ULID     // HintCancelled
}

// cancelWord begins a hint of HintCancelled, here and in lua/cancel.lua.
const cancelWord = "cancel"

// ParseHint reads what was published: the ms until a due time, or a word and what it is about.
func ParseHint(payload string) Hint {
	word, rest, _ := strings.Cut(payload, " ")
	if word == cancelWord && len(rest) == len(ulid.ULID{}) {
		return Hint{Kind: HintCancelled, Serial: ulid.ULID([]byte(rest))}
	}
	if ms, err := strconv.ParseInt(payload, 10, 64); err == nil {
		return Hint{Kind: HintDue, In: bounded(ms, time.Millisecond)}
	}
	return Hint{}
}

// maxAhead bounds times that come from Redis, where others may have put any score.
const maxAhead = 100 * 365 * 24 * time.Hour

// bounded is n units, within 100 years either way.
func bounded(n int64, unit time.Duration) time.Duration {
	most := int64(maxAhead / unit)
	return time.Duration(min(max(n, -most), most)) * unit
}
