package v1

import (
	"encoding/base64"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/shuntmq/shunt"
)

// payload is bytes in an answer: text where they are valid UTF-8, else base64. One of the fields is set.
type payload struct {
	Text   *string `json:"payload,omitempty"`
	Base64 *string `json:"payload_base64,omitempty"`
}

func payloadOf(b []byte) payload {
	text, code := textOrBase64(b)
	return payload{text, code}
}

func textOrBase64(b []byte) (text, code *string) {
	if utf8.Valid(b) {
		s := string(b)
		return &s, nil
	}
	s := base64.StdEncoding.EncodeToString(b)
	return nil, &s
}

// leasedJSON is a message that was pulled.
type leasedJSON struct {
	Receipt     shunt.Receipt     `json:"receipt"`
	Queue       string            `json:"queue"`
	Serial      string            `json:"serial,omitempty"`
	ID          string            `json:"id,omitempty"`
	Type        string            `json:"type,omitempty"`
	Attempt     int               `json:"attempt"`
	Recoveries  int               `json:"recoveries,omitempty"`
	Headers     map[string]string `json:"headers,omitempty"`
	Failure     string            `json:"failure,omitempty"`
	EnqueuedAt  *time.Time        `json:"enqueued_at,omitempty"`
	LeaseEndsAt *time.Time        `json:"lease_ends_at,omitempty"`
	payload
}

func leasedOf(l *shunt.Leased) leasedJSON {
	return leasedJSON{Receipt: l.Receipt, Queue: queueOf(l.Channel), Serial: l.Serial, ID: l.ID, Type: l.Type,
		Attempt: l.Attempt, Recoveries: l.Recoveries, Headers: l.Headers, Failure: l.Failure,
		EnqueuedAt: instant(l.EnqueuedAt), LeaseEndsAt: instant(l.EndsAt), payload: payloadOf(l.Payload)}
}

func queueOf(channel string) string {
	_, queue, _ := strings.Cut(channel, "/")
	return queue
}

// instant is a time in an answer: in UTC, to the ms; nil where it is zero.
func instant(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC().Truncate(time.Millisecond)
	return &t
}

// outcomeJSON is how a message ended.
type outcomeJSON struct {
	Kind         shunt.EventKind `json:"kind"`
	EndedAt      *time.Time      `json:"ended_at,omitempty"`
	KeptUntil    *time.Time      `json:"kept_until,omitempty"`
	Attempt      int             `json:"attempt"`
	Failure      string          `json:"failure,omitempty"`
	Result       *string         `json:"result,omitempty"`
	ResultBase64 *string         `json:"result_base64,omitempty"`
}

// outcomeOf is nil where how it ended is not known.
func outcomeOf(o shunt.Outcome) *outcomeJSON {
	if o.Kind == "" {
		return nil
	}
	j := &outcomeJSON{Kind: o.Kind, EndedAt: instant(o.EndedAt), KeptUntil: instant(o.KeptUntil), Attempt: o.Attempt,
		Failure: o.Failure}
	if len(o.Result) > 0 {
		j.Result, j.ResultBase64 = textOrBase64(o.Result)
	}
	return j
}

// statusJSON is what is known of a message.
type statusJSON struct {
	Queue       string       `json:"queue"`
	ID          string       `json:"id,omitempty"`
	Serial      string       `json:"serial,omitempty"`
	State       shunt.State  `json:"state,omitempty"`
	Attempt     int          `json:"attempt"`
	EnqueuedAt  *time.Time   `json:"enqueued_at,omitempty"`
	DueAt       *time.Time   `json:"due_at,omitempty"`
	StartedAt   *time.Time   `json:"started_at,omitempty"`
	Cancelled   bool         `json:"cancelled,omitempty"`
	Failure     string       `json:"failure,omitempty"`
	UniqueUntil *time.Time   `json:"unique_until,omitempty"`
	Outcome     *outcomeJSON `json:"outcome,omitempty"`
}

func statusOf(channel string, s shunt.Status) *statusJSON {
	return &statusJSON{Queue: queueOf(channel), ID: s.ID, Serial: s.Serial, State: s.State, Attempt: s.Attempt,
		EnqueuedAt: instant(s.EnqueuedAt), DueAt: instant(s.DueAt), StartedAt: instant(s.StartedAt),
		Cancelled: s.Cancelled, Failure: s.Failure, UniqueUntil: instant(s.UniqueUntil), Outcome: outcomeOf(s.Outcome)}
}

// entryJSON is a message as it lies in Redis. Of one that is over there is no payload.
type entryJSON struct {
	Ref         string            `json:"ref"`
	Queue       string            `json:"queue"`
	State       shunt.State       `json:"state"`
	Serial      string            `json:"serial,omitempty"`
	ID          string            `json:"id,omitempty"`
	Type        string            `json:"type,omitempty"`
	Headers     map[string]string `json:"headers,omitempty"`
	Attempts    int               `json:"attempts"`
	Recoveries  int               `json:"recoveries,omitempty"`
	Failure     string            `json:"failure,omitempty"`
	EnqueuedAt  *time.Time        `json:"enqueued_at,omitempty"`
	DueAt       *time.Time        `json:"due_at,omitempty"`
	DiedAt      *time.Time        `json:"died_at,omitempty"`
	EndedAt     *time.Time        `json:"ended_at,omitempty"`
	LeaseEndsAt *time.Time        `json:"lease_ends_at,omitempty"`
	Outcome     *outcomeJSON      `json:"outcome,omitempty"`
	payload
}

func entryOf(e shunt.Entry) entryJSON {
	j := entryJSON{Ref: e.Ref().String(), Queue: queueOf(e.Channel), State: e.State, Serial: e.Serial, ID: e.ID,
		Type: e.Type, Headers: e.Headers, Attempts: e.Attempts, Recoveries: e.Recoveries, Failure: e.Failure,
		EnqueuedAt: instant(e.EnqueuedAt), DueAt: instant(e.DueAt), DiedAt: instant(e.DiedAt),
		EndedAt: instant(e.EndedAt), LeaseEndsAt: instant(e.LeaseEndsAt), Outcome: outcomeOf(e.Outcome)}
	if e.State != shunt.StateDone {
		j.payload = payloadOf(e.Payload)
	}
	return j
}
