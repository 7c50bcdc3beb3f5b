package sandbox

import (
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/shuntmq/shunt"
)

// request is a message as a Lines child gets it: a line of JSON.
type request struct {
	N          int64             `json:"n"`
	Channel    string            `json:"channel"`
	Serial     string            `json:"serial"`
	ID         string            `json:"id"`
	Type       string            `json:"type"`
	Attempt    int               `json:"attempt"`
	Recoveries int               `json:"recoveries"`
	EnqueuedAt string            `json:"enqueued_at"`
	Failure    string            `json:"failure"`
	Headers    map[string]string `json:"headers"`
	Text       *string           `json:"text,omitempty"`
	Payload    []byte            `json:"payload"`
}

// encodeRequest makes the line of a child's message n.
func encodeRequest(n int64, i *shunt.Info, payload []byte) ([]byte, error) {
	r := request{
		N: n, Channel: i.Channel, Serial: i.Serial, ID: i.ID, Type: i.Type, Attempt: i.Attempt,
		Recoveries: i.Recoveries, EnqueuedAt: enqueuedAt(i), Failure: i.Failure, Headers: i.Headers,
		Payload: payload,
	}
	if r.Headers == nil {
		r.Headers = map[string]string{}
	}
	if r.Payload == nil {
		r.Payload = []byte{} // "", and not null
	}
	if utf8.Valid(payload) {
		text := string(payload)
		r.Text = &text
	}
	line, err := shunt.ToJSON(&r)
	return append(line, '\n'), err
}

// environment is what an Exec child learns of its message.
func environment(i *shunt.Info) []string {
	headers := []byte("{}")
	if len(i.Headers) > 0 {
		headers, _ = json.Marshal(i.Headers) // strings have no error
	}
	env := []string{
		"SHUNT_CHANNEL=" + i.Channel,
		"SHUNT_SERIAL=" + i.Serial,
		"SHUNT_ID=" + i.ID,
		"SHUNT_TYPE=" + i.Type,
		"SHUNT_ATTEMPT=" + strconv.Itoa(i.Attempt),
		"SHUNT_RECOVERIES=" + strconv.Itoa(i.Recoveries),
		"SHUNT_ENQUEUED_AT=" + enqueuedAt(i),
		"SHUNT_FAILURE=" + i.Failure,
		"SHUNT_HEADERS=" + string(headers),
	}
	for n, e := range env {
		env[n] = strings.ReplaceAll(e, "\x00", "\uFFFD") // an environment has no NUL
	}
	return env
}

// enqueuedAt is the producer's time in RFC 3339, to the millisecond; empty where it is not known.
func enqueuedAt(i *shunt.Info) string {
	if i.EnqueuedAt.IsZero() {
		return ""
	}
	return i.EnqueuedAt.UTC().Format("2006-01-02T15:04:05.000Z07:00")
}
