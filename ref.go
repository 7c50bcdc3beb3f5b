package shunt

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/store"
)

// Ref names one message of a channel, by its ID or by its serial, for every method that looks at one message or moves
// it. ByID and BySerial make one, and Entry.Ref gives that of a listed message. Its text survives JSON, a file or,
// escaped, a URL: another process may parse it and act on it.
type Ref struct {
	Channel string
	// ID names the living message that has it, else the one that had it last.
	ID string
	// Serial names this very message, with or without an ID: the serial, or of a bare payload, which has none, the
	// SHA-1 of its bytes in hex. Bare payloads that are the same have the same Ref, and it stands for any one of them.
	Serial string
	// State and At say where the message was seen, and may be empty. A message is looked for there first, and then
	// everywhere. At is its DueAt or DiedAt.
	State State
	At    time.Time
}

// ByID names the message that has an ID: finding it is one look, however many messages wait.
func ByID(channel, id string) Ref { return Ref{Channel: channel, ID: id} }

// BySerial names a message by its serial, as Event, Info, Status and Entry have it. It is looked for among all messages
// of the channel, a thousand at a time: a million take about a second, and Redis serves others meanwhile.
func BySerial(channel, serial string) Ref { return Ref{Channel: channel, Serial: serial} }

// Text of a Ref where State or Serial is empty.
const (
	anyState = "any"
	noSerial = "-"
)

// String is {channel}.state.serial@at.id, as the keys in Redis are named. at is in ms since 1970; it and the id may be
// missing. ParseRef reads it.
func (r Ref) String() string {
	state, serial := string(r.State), r.Serial
	if state == "" {
		state = anyState
	}
	if serial == "" {
		serial = noSerial
	}
	s := "{" + r.Channel + "}." + state + "." + serial
	if !r.At.IsZero() {
		s += "@" + strconv.FormatInt(r.At.UnixMilli(), 10)
	}
	if r.ID != "" {
		s += "." + url.QueryEscape(r.ID)
	}
	return s
}

// ParseRef reads what String has written.
func ParseRef(text string) (r Ref, err error) {
	bad := func(why string) (Ref, error) {
		return Ref{}, fmt.Errorf("shunt: %.80q names no message: %s: want {channel}.state.serial, as Ref.String "+
			"gives it", text, why)
	}
	channel, rest, ok := strings.Cut(strings.TrimPrefix(text, "{"), "}.")
	part := strings.SplitN(rest, ".", 3)
	if !ok || !strings.HasPrefix(text, "{") || len(part) < 2 {
		return bad("it is no such text")
	}
	r = Ref{Channel: channel, State: State(part[0]), Serial: part[1]}
	if r.State == anyState {
		r.State = ""
	}
	if serial, at, has := strings.Cut(r.Serial, "@"); has {
		ms, err := strconv.ParseInt(at, 10, 64)
		if err != nil {
			return bad("what follows @ is no time in ms")
		}
		r.Serial, r.At = serial, time.UnixMilli(ms)
	}
	if r.Serial == noSerial {
		r.Serial = ""
	}
	if len(part) == 3 {
		if r.ID, err = url.QueryUnescape(part[2]); err != nil {
			return bad("its id is not escaped as in a URL")
		}
	}
	return r, r.check()
}

// MarshalText is String, as bytes.
func (r Ref) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText is ParseRef.
func (r *Ref) UnmarshalText(text []byte) (err error) {
	*r, err = ParseRef(string(text))
	return err
}

// check says what is wrong with the Ref.
func (r *Ref) check() error {
	if err := store.CheckChannel(r.Channel); err != nil {
		return err
	}
	if r.State != "" && !slices.Contains(States, r.State) {
		return fmt.Errorf("shunt: a Ref with state %q: want one of %v, or none", r.State, States)
	}
	if r.Serial == "" {
		if r.ID == "" {
			return fmt.Errorf("shunt: a Ref to channel %q with neither ID nor Serial: want one", r.Channel)
		}
		return checkID(r.ID)
	}
	if _, err := r.identity(); err != nil {
		return err
	}
	if r.ID != "" {
		return checkID(r.ID)
	}
	return nil
}

// identity is how scripts recognise the message of Serial.
func (r *Ref) identity() (string, error) {
	if serial, err := ulid.ParseStrict(r.Serial); err == nil {
		return string(serial[:]), nil
	}
	if sum, err := hex.DecodeString(r.Serial); err == nil && len(sum) == 20 {
		return strings.ToLower(r.Serial), nil
	}
	return "", fmt.Errorf("shunt: serial %.60q: want the 26 characters of a ULID, or of a bare payload its SHA-1 "+
		"in hex", r.Serial)
}

// ulid is the serial, zero where the Ref has none or names a bare payload.
func (r *Ref) ulid() ulid.ULID {
	serial, _ := ulid.ParseStrict(r.Serial)
	return serial
}

// Ref names the entry's message, and says where it was seen.
func (e Entry) Ref() Ref {
	r := Ref{Channel: e.Channel, ID: e.ID, Serial: e.Serial, State: e.State, At: e.at()}
	if e.Serial == "" && e.sum != "" {
		r.Serial = e.sum
	} else if e.Serial == "" && e.State != StateDone {
		raw := e.raw
		if raw == nil && (e.PayloadSize == 0 || e.PayloadSize == len(e.Payload)) { // a part is another message's whole
			raw = e.Payload
		}
		if raw != nil {
			bare := element.Element{Bare: true}
			r.Serial = bare.Identity(raw)
		}
	}
	return r
}

// holds says what holds messages of a state that wait or are dead: a list or a set.
func holds(k *store.Keys, s State) (key string, set bool) {
	switch s {
	case StatePrepare:
		return k.Prepare, false
	case StateSuspect:
		return k.Suspect, false
	case StateDelay:
		return k.Delay, true
	case StateDead:
		return k.Dead, true
	}
	return "", false
}

// seek looks for a message in one state. found is false where it is not there.
func (q *Queue) seek(ctx context.Context, k *store.Keys, s State, what store.Sought) (e Entry, found bool, err error) {
	if s == StateDoing || s == StateLeased {
		es, err := q.List(ctx, k.Name, s, 0, 0)
		for _, e := range es {
			if r := e.Ref(); what.Identity == "" && e.ID == what.ID {
				return e, true, nil
			} else if identity, _ := r.identity(); what.Identity != "" && identity == what.Identity {
				return e, true, nil
			}
		}
		return e, false, err
	}
	key, set := holds(k, s)
	raw, err := store.RunSeek(ctx, asker{q: q}, k, key, set, what)
	if err != nil || raw == nil {
		return e, false, err
	}
	return entryOf(k.Name, s, raw.Raw).scored(raw.At), true, nil
}

// seekIn is the order in which a message is looked for: that in which it moves.
var seekIn = []State{StatePrepare, StateDoing, StateLeased, StateDelay, StateSuspect, StateDead}

// locate finds the message of r's Serial wherever it lies in Redis. It looks twice, for the message may move meanwhile.
// The error is ErrNotFound where it is not there, or was cancelled.
func (q *Queue) locate(ctx context.Context, k *store.Keys, r Ref) (Entry, error) {
	identity, err := r.identity()
	if err != nil {
		return Entry{}, err
	}
	what := store.Sought{Identity: identity}
	look := func(s State, what store.Sought) (Entry, bool, error) {
		e, found, err := q.seek(ctx, k, s, what)
		if !found || err != nil || s == StateDead || s == StateDoing || s == StateLeased {
			return e, found, err
		}
		left, err := q.uncancelled(ctx, k, []Entry{e})
		if err == nil && len(left) == 0 {
			err = ErrNotFound
		}
		return e, true, err
	}
	if key, _ := holds(k, r.State); key != "" {
		at := what
		at.At = r.At
		if e, found, err := look(r.State, at); found || err != nil {
			return e, err
		}
	}
	for range 2 {
		for _, s := range seekIn {
			if e, found, err := look(s, what); found || err != nil {
				return e, err
			}
		}
	}
	return Entry{}, ErrNotFound
}

// deadByID finds the latest dead letter that had an id.
func (q *Queue) deadByID(ctx context.Context, k *store.Keys, id string) (Entry, error) {
	e, found, err := q.seek(ctx, k, StateDead, store.Sought{ID: id})
	if err == nil && !found {
		err = ErrNotFound
	}
	return e, err
}

// find is the message that r names, wherever it lies, or what is kept of it.
func (q *Queue) find(ctx context.Context, k *store.Keys, r Ref) (e Entry, err error) {
	var kept *Entry
	if r.ID != "" {
		s, err := q.statusByID(ctx, k, r.ID)
		switch {
		case errors.Is(err, ErrNotFound):
		case err != nil:
			return e, err
		case r.Serial != "" && r.Serial != s.Serial: // it has lost its id
		case s.State != StateDone:
			r.Serial, r.State, r.At = s.Serial, s.State, s.DueAt
		default:
			done := doneEntry(r.Channel, s)
			kept = &done
			if s.Outcome.Kind != EventRejected {
				return done, nil
			}
			r.Serial, r.State, r.At = s.Serial, StateDead, s.Outcome.EndedAt
		}
	}
	if r.Serial != "" {
		e, err = q.locate(ctx, k, r)
	} else {
		e, err = q.deadByID(ctx, k, r.ID)
	}
	if errors.Is(err, ErrNotFound) && kept != nil {
		return *kept, nil
	}
	return e, err
}
