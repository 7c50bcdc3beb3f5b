// Package element is the wire form of a message in Redis, and of the record that an id has there.
package element

import (
	"cmp"
	"crypto/sha1"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"
)

// An element is the bytes of a message in Redis. Version 1:
//
//	 0      1         2            3          4                20                          end
//	┌──────┬─────────┬────────────┬──────────┬────────────────┬──────────────┬──────┬──────────┐
//	│ 0xC1 │ version │ recoveries │ attempts │ serial         │ fields       │ 0x00 │ payload  │
//	│      │ · flags │            │          │ ULID, 16 bytes │ tag len val… │      │ as given │
//	└──────┴─────────┴────────────┴──────────┴────────────────┴──────────────┴──────┴──────────┘
//
// The high half of byte 1 is the version, the low half flags (kept as they are; 1: a handler had it, although that
// counts as no attempt). Counts saturate at 255. A
// field is a tag byte from 1, a length of two bytes (big-endian), and the value; unknown ones are kept in their order.
//
// 0xC1 begins no UTF-8, no JSON and no MessagePack, so what begins otherwise is a bare payload. So is 0xC1 0x00 and
// what follows, which stands for a payload that itself might begin with 0xC1; and so, as a whole, is anything else that
// begins with 0xC1 and is no valid version 1 header, unless its version is from 2 to 15: that is undecodable here.
// lua/header.lua has the same rules; a fuzz test holds the two together.
const (
	magic       = 0xC1
	version1    = 0x10
	fixedBytes  = 20
	flagHandled = 1
)

// Tags of fields. 3 (trace context) is reserved.
const (
	tagEnd = 0
	// ms since 1970, and a byte that says what then; first of the fields, because the script that enqueues sets the ms
	tagExpires     = 1
	tagFailure     = 2  // text of the last failure
	tagHeader      = 4  // key length (1 byte), key, value
	tagTimeout     = 5  // ns as int64, negative: none
	tagMaxAttempts = 6  // int64, negative: no bound
	tagID          = 11 // as given
	tagDeadline    = 8  // ms since 1970
	tagRetain      = 9  // ms
	tagUnique      = 10 // ms
	tagType        = 12 // name of the message's type
	tagDue         = 13 // ms since 1970, by the producer's clock, of what was enqueued to come later
)

const (
	MaxID          = 255
	MaxType        = 255
	maxFailure     = 2048 // bytes of failure text that travel in an element
	maxHeaderKey   = 255
	maxHeaderValue = 16 << 10
)

var ErrNewerVersion = errors.New("shunt: the element was written by a newer version of shunt: upgrade this receiver")

// Element is a decoded element. Its slices share memory with the bytes that it was decoded from. It is small, for a
// receiver makes one of every message: what few messages have is behind pointers.
type Element struct {
	Serial     ulid.ULID
	Payload    []byte
	Extra      *Extra // nil for a plain message
	rest       *rest  // shared by copies: written to where there are none, or after Detach
	Recoveries int16
	Attempts   int16
	Bare       bool // no header yet: no serial, no counts
	flags      byte
}

// rest is what few elements have.
type rest struct {
	failure     string
	typeName    string
	headers     map[string]string
	timeout     time.Duration // 0: not given
	maxAttempts int           // 0: not given
	due         int64         // ms; 0: at once
	unknown     []byte        // fields of other tags, as they came
}

var none rest

// given is r to be read: an element without a rest is given nothing.
func (r *rest) given() *rest {
	if r == nil {
		return &none
	}
	return r
}

// Detach gives e a rest of its own: what is set then is not set in those that e was copied from.
func (e *Element) Detach() {
	own := *e.rest.given()
	own.headers, own.unknown = maps.Clone(own.headers), slices.Clip(own.unknown)
	e.rest = &own
}

// Like gives e, which is being made, what o has beside its serial, its payload and its due time, and e has not.
func (e *Element) Like(o *Element) {
	e.Attempts, e.Recoveries, e.flags = o.Attempts, o.Recoveries, o.flags
	own, from := e.own(), o.rest.given()
	own.failure, own.unknown = from.failure, slices.Clone(from.unknown)
	own.typeName = cmp.Or(own.typeName, from.typeName)
	own.timeout = cmp.Or(own.timeout, from.timeout)
	own.maxAttempts = cmp.Or(own.maxAttempts, from.maxAttempts)
	headers := maps.Clone(from.headers)
	if headers == nil {
		headers = own.headers
	} else {
		maps.Copy(headers, own.headers)
	}
	own.headers = headers
	if o.Extra != nil {
		x := e.extra()
		x.ID = cmp.Or(x.ID, strings.Clone(o.Extra.ID))
		if x.Expires == 0 {
			x.Expires, x.ToDead = o.Extra.Expires, o.Extra.ToDead
		}
		x.Deadline = cmp.Or(x.Deadline, o.Extra.Deadline)
		x.Retain = cmp.Or(x.Retain, o.Extra.Retain)
		x.Unique = cmp.Or(x.Unique, o.Extra.Unique)
	}
}

// own is the rest of an element that is being made, or is detached: no other shares it.
func (e *Element) own() *rest {
	if e.rest == nil {
		e.rest = new(rest)
	}
	return e.rest
}

// Failure is the text of the last failure.
func (e *Element) Failure() string { return e.rest.given().failure }

// Headers are not to be written to.
func (e *Element) Headers() map[string]string { return e.rest.given().headers }

// Type is the name of the message's type, empty where none was given.
func (e *Element) Type() string { return e.rest.given().typeName }

// Timeout is 0 where none was given, negative for none.
func (e *Element) Timeout() time.Duration { return e.rest.given().timeout }

// MaxAttempts is 0 where none was given, negative for no bound.
func (e *Element) MaxAttempts() int { return e.rest.given().maxAttempts }

// SetFailure detaches e.
func (e *Element) SetFailure(text string) {
	if text != e.Failure() {
		e.Detach()
		e.rest.failure = text
	}
}

// SetType is for an element that is being made, or is detached.
func (e *Element) SetType(name string) { e.own().typeName = name }

// SetTimeout is for an element that is being made, or is detached.
func (e *Element) SetTimeout(d time.Duration) { e.own().timeout = d }

// SetMaxAttempts is for an element that is being made, or is detached.
func (e *Element) SetMaxAttempts(n int) { e.own().maxAttempts = n }

// Extra is the part of a message that has an id or a time of its own. Its times are ms of the server's clock, 0 where
// not given.
type Extra struct {
	ID       string
	bytes    []byte // of ID, where it was decoded
	Expires  int64  // it is dropped if it was not taken by then
	ToDead   bool   // in dead
	Late     bool   // of one that is being made: it may be due when it has expired
	Deadline int64
	Retain   int64 // for so long its outcome is kept
	Unique   int64 // for so long its id stays taken after success
}

// TTL is Expires for the scripts that enqueue an element; negative: it may be due later.
func (x *Extra) TTL() int64 {
	if x.Late {
		return -x.Expires
	}
	return x.Expires
}

// extra is where a field of Extra goes.
func (e *Element) extra() *Extra {
	if e.Extra == nil {
		e.Extra = new(Extra)
	}
	return e.Extra
}

// IDBytes is ID as it is sent; not to be written to.
func (x *Extra) IDBytes() []byte {
	if x.bytes != nil {
		return x.bytes
	}
	return []byte(x.ID)
}

// ID is its id, empty where it has none.
func (e *Element) ID() string {
	if e.Extra == nil {
		return ""
	}
	return e.Extra.ID
}

// NewSerial makes a serial of now and 80 random bits, so that no two agree by chance. The bits are of the runtime's
// generator, which the system's random source seeds for each process. The system's source itself would cost a system
// call a message.
func NewSerial() ulid.ULID { return NewSerialAt(time.Now()) }

// NewSerialAt is NewSerial for one who makes many and has asked the clock.
func NewSerialAt(now time.Time) (u ulid.ULID) {
	if err := u.SetTime(ulid.Timestamp(now)); err != nil {
		panic(err) // in the year 10889
	}
	binary.BigEndian.PutUint16(u[6:], uint16(rand.Uint32()))
	binary.BigEndian.PutUint64(u[8:], rand.Uint64())
	return u
}

// EnqueuedAt is the time in a serial, by the clock of the process that enqueued.
func EnqueuedAt(serial ulid.ULID) time.Time { return ulid.Time(serial.Time()) }

// EnqueuedIn is EnqueuedAt of an element of which only the beginning is there. ok: it has a serial.
func EnqueuedIn(head []byte) (at time.Time, ok bool) {
	if len(head) < fixedBytes || head[0] != magic || head[1]&0xf0 != version1 {
		return at, false
	}
	return EnqueuedAt(ulid.ULID(head[4:fixedBytes])), true
}

// Waited is how long the element has waited by then: since it was enqueued or, if it came to be due later, since then.
func (e *Element) Waited(at time.Time) time.Duration {
	since := max(int64(e.Serial.Time()), e.rest.given().due)
	return max(0, time.Duration(at.UnixMilli()-since)*time.Millisecond)
}

// IsFirst says that no handler had it yet.
func (e *Element) IsFirst() bool {
	return e.Attempts == 0 && e.Recoveries == 0 && e.flags&flagHandled == 0
}

// SetDue notes when the element is due, if that is later than its enqueue, by the producer's clock. It is for an
// element that is being made, or is detached.
func (e *Element) SetDue(at time.Time) { e.own().due = at.UnixMilli() }

// Renew has the element begin anew, without its counts, as if it were enqueued now.
func (e *Element) Renew(now time.Time) {
	e.Detach()
	e.Attempts, e.Recoveries, e.flags = 0, 0, e.flags&^flagHandled
	e.rest.due = now.UnixMilli()
}

// FailureField is a failure as the field that a script inserts behind the fixed bytes.
func FailureField(text string) string {
	return string(appendField(nil, tagFailure, len(text))) + text
}

// Identity is how scripts recognise an element in a list: its serial, or a bare one's SHA-1.
func (e *Element) Identity(raw []byte) string {
	if !e.Bare {
		return string(e.Serial[:])
	}
	sum := sha1.Sum(raw)
	return hex.EncodeToString(sum[:])
}

// Attempt is the number, from 1, of the attempt that it is now about.
func (e *Element) Attempt() int { return int(e.Attempts) + 1 }

// SerialString is the serial as people read it, empty for a bare payload.
func (e *Element) SerialString() string {
	if e.Bare {
		return ""
	}
	return e.Serial.String()
}

// DropHeader is for an element that is being made, or is detached.
func (e *Element) DropHeader(key string) {
	if r := e.own(); r.headers != nil {
		if delete(r.headers, key); len(r.headers) == 0 {
			r.headers = nil
		}
	}
}

// SetHeader is for an element that is being made, or is detached.
func (e *Element) SetHeader(key, value string) error {
	if len(key) == 0 || len(key) > maxHeaderKey || len(value) > maxHeaderValue {
		return fmt.Errorf("shunt: header %.40q: a key has 1 to %d bytes and a value at most %d", key, maxHeaderKey,
			maxHeaderValue)
	}
	r := e.own()
	if r.headers == nil {
		r.headers = make(map[string]string)
	}
	r.headers[key] = value
	return nil
}
