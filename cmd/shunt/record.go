package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/shuntmq/shunt"
)

// record is a line of an export: a message, a place to go on from, or the end.
type record struct {
	V          int         `json:"v"` // 1
	Channel    string      `json:"channel,omitempty"`
	State      shunt.State `json:"state,omitempty"`
	Serial     string      `json:"serial,omitempty"`
	ID         octets      `json:"id,omitempty"`
	Type       octets      `json:"type,omitempty"`
	Headers    []header    `json:"headers,omitempty"`
	Attempts   int         `json:"attempts,omitempty"`
	Recoveries int         `json:"recoveries,omitempty"`
	Failure    octets      `json:"failure,omitempty"`
	EnqueuedAt time.Time   `json:"enqueued_at,omitzero"`
	DueAt      time.Time   `json:"due_at,omitzero"`
	DiedAt     time.Time   `json:"died_at,omitzero"`
	Payload    *octets     `json:"payload,omitempty"`
	// Head is what stands before the payload in Redis: all of the above, and what the options of the enqueue have said.
	Head []byte `json:"head,omitempty"`

	Next string `json:"next,omitempty"` // all before was written: export goes on from there
	End  *int   `json:"end,omitempty"`  // how many messages the export has
}

type header struct {
	Key   octets `json:"key"`
	Value octets `json:"value"`
}

// octets are any bytes: in JSON a text where they are UTF-8, else {"base64": …}.
type octets []byte

func (o octets) MarshalJSON() ([]byte, error) {
	if !utf8.Valid(o) {
		return json.Marshal(map[string][]byte{"base64": o})
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(string(o))
	return bytes.TrimRight(b.Bytes(), "\n"), err
}

func (o *octets) UnmarshalJSON(text []byte) error {
	if len(text) > 0 && text[0] == '{' {
		var of struct{ Base64 *[]byte }
		if err := json.Unmarshal(text, &of); err != nil || of.Base64 == nil {
			return errors.New(`want a text or {"base64": …}`)
		}
		*o = *of.Base64
		return nil
	}
	var s string
	err := json.Unmarshal(text, &s)
	*o = octets(s)
	return err
}

func recordOf(e *shunt.Entry) record {
	payload := octets(e.Payload)
	r := record{V: 1, Channel: e.Channel, State: e.State, Serial: e.Serial, ID: octets(e.ID), Type: octets(e.Type),
		Attempts: e.Attempts, Recoveries: e.Recoveries, Failure: octets(e.Failure), EnqueuedAt: e.EnqueuedAt,
		DueAt: e.DueAt, DiedAt: e.DiedAt, Payload: &payload}
	if whole := e.Element(); len(whole) > len(payload) {
		r.Head = whole[:len(whole)-len(payload)]
	}
	for key, value := range e.Headers {
		r.Headers = append(r.Headers, header{octets(key), octets(value)})
	}
	return r
}

// parseRecord reads a line of an export.
func parseRecord(line []byte) (r record, err error) {
	if err = json.Unmarshal(line, &r); err != nil {
		return r, fmt.Errorf("the line is none of an export: %w", err)
	}
	switch {
	case r.V != 1:
		return r, fmt.Errorf("the line is none of an export that this version reads: v is %d: want 1", r.V)
	case r.Next == "" && r.End == nil && (r.Payload == nil || r.Channel == "" || r.State == ""):
		return r, errors.New("the line is none of an export: want channel, state and payload")
	}
	return r, nil
}

// entry is the message as it lay in Redis, in another channel perhaps.
func (r *record) entry(channel string) (shunt.Entry, error) {
	at := r.DueAt
	if r.State == shunt.StateDead {
		if at = r.DiedAt; at.IsZero() {
			at = time.Now()
		}
	}
	e, err := shunt.ParseElement(r.Channel, r.State, append(bytes.Clone(r.Head), *r.Payload...), at)
	e.Channel = channel
	return e, err
}

// unreadable says why the message's payload could not be decoded as a message of a channel. anew: with another serial.
func (r *record) unreadable(channel string, anew bool) error {
	encoding := ""
	for _, h := range r.Headers {
		if string(h.Key) == shunt.EncodingHeader {
			encoding = string(h.Value)
		}
	}
	for layer := range strings.SplitSeq(encoding, ",") { // as package codec writes them
		name, param, _ := strings.Cut(layer, "=")
		switch {
		case name != "aes" && name != "claim":
		case channel != r.Channel:
			return fmt.Errorf("the payload is encoded as %.80q for channel %q, and could not be decoded in %q: "+
				"import it there, or use --force", encoding, r.Channel, channel)
		case name == "aes" && anew && !strings.HasSuffix(param, ":any"):
			return fmt.Errorf("the payload is encoded as %.80q for its serial, and could not be decoded with another: "+
				"encrypt with AnySerial what is to be exported, or use --force", encoding)
		}
	}
	return nil
}

// message restores what can be restored, of a line that was made by hand, too. With mark the rest stands in headers.
func (r *record) message(channel string, mark bool) (shunt.IMessage, error) {
	opts := r.marks(mark)
	if len(r.Head) > 0 {
		e, err := r.entry(channel)
		if r.State == shunt.StateDead { // it is to begin anew
			e = e.Renewed()
		}
		return shunt.With(e.Copy(), opts...), err
	}
	if len(r.ID) > 0 {
		opts = append(opts, shunt.ID(string(r.ID)))
	}
	if len(r.Type) > 0 {
		opts = append(opts, shunt.Type(string(r.Type)))
	}
	for _, h := range r.Headers {
		opts = append(opts, shunt.Header(string(h.Key), string(h.Value)))
	}
	if r.State == shunt.StateDelay {
		opts = append(opts, shunt.At(r.DueAt))
	}
	return shunt.With(shunt.Raw(channel, *r.Payload), opts...), nil
}

// marks are headers with what an import does not restore.
func (r *record) marks(mark bool) (opts []shunt.Option) {
	add := func(key, value string) {
		if value != "" {
			opts = append(opts, shunt.Header("shunt-import-"+key, value))
		}
	}
	if mark {
		add("serial", r.Serial)
		add("state", string(r.State))
		add("attempts", strconv.Itoa(r.Attempts))
		add("failure", string(r.Failure[:min(len(r.Failure), 4<<10)]))
		if !r.EnqueuedAt.IsZero() {
			add("enqueued-at", r.EnqueuedAt.UTC().Format(time.RFC3339Nano))
		}
	}
	return opts
}
