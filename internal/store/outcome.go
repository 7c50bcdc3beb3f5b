package store

import (
	"strconv"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"
)

// OutcomeKind says how a message ended, as lua/ending.lua writes it; 0: that cannot be read.
type OutcomeKind byte

// The kinds of outcomes.
const (
	OutcomeAcked     OutcomeKind = 'a'
	OutcomeRejected  OutcomeKind = 'd'
	OutcomeCancelled OutcomeKind = 'c'
	OutcomeExpired   OutcomeKind = 'x'
)

// Outcome is how a message with an id ended.
type Outcome struct {
	Serial    ulid.ULID // zero: there is none
	Kind      OutcomeKind
	Attempt   int
	EndedAt   time.Time
	KeptUntil time.Time
	Failure   string
	Result    []byte
}

// ParseOutcome reads what is kept of a message that is over. What cannot be read of it is zero.
func ParseOutcome(raw []byte) (o Outcome) {
	if len(raw) < len(o.Serial) {
		return o
	}
	o.Serial = ulid.ULID(raw[:len(o.Serial)])
	text := string(raw[len(o.Serial):])
	head, rest, _ := strings.Cut(text, "\n")
	f := strings.Fields(head)
	if len(f) < 5 || len(f[0]) != 1 {
		return o
	}
	number := func(i int) int64 { n, _ := strconv.ParseInt(f[i], 10, 64); return n }
	switch kind := OutcomeKind(f[0][0]); kind {
	case OutcomeAcked, OutcomeRejected, OutcomeCancelled, OutcomeExpired:
		o.Kind = kind
	}
	o.Attempt, o.EndedAt, o.KeptUntil = int(number(1)), time.UnixMilli(number(2)), time.UnixMilli(number(3))
	if n := number(4); n >= 0 && n <= int64(len(rest)) {
		o.Failure = rest[:n]
		if int(n) < len(rest) {
			o.Result = []byte(rest[n:])
		}
	}
	return o
}

// ParseEnd reads the message that announces an end on the channel done: the number of bytes of the id, the id, and the
// outcome. It is false for the end of another id.
func ParseEnd(payload, id string) (Outcome, bool) {
	n, rest, _ := strings.Cut(payload, " ")
	length, err := strconv.Atoi(n)
	if err != nil || length != len(id) || !strings.HasPrefix(rest, id) {
		return Outcome{}, false
	}
	return ParseOutcome([]byte(rest[length:])), true
}
