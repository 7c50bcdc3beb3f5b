package shunt

import (
	"crypto/rand"
	"crypto/sha1"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
	"unicode/utf8"

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
// The high half of byte 1 is the version, the low half flags (none yet; kept as they are). Counts saturate at 255. A field is
// a tag byte from 1, a length of two bytes (big-endian), and the value; unknown ones are kept in their order.
//
// 0xC1 begins no UTF-8, no JSON and no MessagePack, so what begins otherwise is a bare payload. So is 0xC1 0x00 and what
// follows, which stands for a payload that itself might begin with 0xC1; and so, as a whole, is anything else that begins
// with 0xC1 and is no valid version 1 header, unless its version is from 2 to 15: that is undecodable here.
// lua/header.lua has the same rules; a fuzz test holds the two together.
const (
	magic      = 0xC1
	version1   = 0x10
	fixedBytes = 20
)

// Tags of fields. 1 (expiry) and 3 (trace context) are reserved.
const (
	tagEnd         = 0
	tagFailure     = 2 // text of the last failure
	tagHeader      = 4 // key length (1 byte), key, value
	tagTimeout     = 5 // ns as int64, negative: none
	tagMaxAttempts = 6 // int64, negative: no bound
)

const (
	maxFailure     = 2048 // bytes of failure text that travel in an element
	maxHeaderKey   = 255
	maxHeaderValue = 16 << 10
)

var errNewerVersion = errors.New("shunt: the element was written by a newer version of shunt: upgrade this receiver")

// element is a decoded element. Its slices share memory with the bytes that it was decoded from.
type element struct {
	bare        bool // no header yet: no serial, no counts
	flags       byte
	recoveries  int
	attempts    int
	serial      ulid.ULID
	failure     string
	headers     map[string]string
	timeout     time.Duration // 0: not given
	maxAttempts int           // 0: not given
	unknown     []byte        // fields of other tags, as they came
	payload     []byte
}

// newSerial makes a serial from the system's random source, so that no two processes can agree on one by chance.
func newSerial() ulid.ULID { return ulid.MustNew(ulid.Now(), rand.Reader) }

// decode reads the bytes of an element. It fails only on a version that it does not know; no bytes make it panic.
func decode(b []byte) (element, error) {
	if len(b) < 2 || b[0] != magic {
		return element{bare: true, payload: b}, nil
	}
	switch b[1] >> 4 {
	case 0:
		if b[1] == 0 {
			return element{bare: true, payload: b[2:]}, nil
		}
	case version1 >> 4:
		if e, ok := decode1(b); ok {
			return e, nil
		}
	default:
		if len(b) > fixedBytes {
			return element{bare: true, payload: b}, errNewerVersion
		}
	}
	return element{bare: true, payload: b}, nil
}

func decode1(b []byte) (element, bool) {
	if len(b) <= fixedBytes {
		return element{}, false
	}
	e := element{flags: b[1] & 0x0f, recoveries: int(b[2]), attempts: int(b[3])}
	copy(e.serial[:], b[4:fixedBytes])
	for p := b[fixedBytes:]; ; {
		if p[0] == tagEnd {
			e.payload = p[1:]
			return e, true
		}
		if len(p) < 3 {
			return element{}, false
		}
		end := 3 + int(binary.BigEndian.Uint16(p[1:]))
		if len(p) <= end { // at least the end mark must follow
			return element{}, false
		}
		e.field(p[0], p[3:end], p[:end])
		p = p[end:]
	}
}

// field takes in one field; of a repeated one the first counts, because a script can only put its own before the others.
func (e *element) field(tag byte, value, whole []byte) {
	switch {
	case tag == tagFailure:
		if e.failure == "" {
			e.failure = string(value)
		}
		return
	case tag == tagHeader && len(value) > 0 && int(value[0]) < len(value):
		k := string(value[1 : 1+value[0]])
		if _, given := e.headers[k]; !given {
			if e.headers == nil {
				e.headers = make(map[string]string)
			}
			e.headers[k] = string(value[1+value[0]:])
		}
		return
	case tag == tagTimeout && len(value) == 8:
		e.timeout = time.Duration(binary.BigEndian.Uint64(value))
		return
	case tag == tagMaxAttempts && len(value) == 8:
		e.maxAttempts = int(int64(binary.BigEndian.Uint64(value)))
		return
	}
	e.unknown = append(e.unknown, whole...)
}

// encode writes version 1, with the header that a bare payload lacks.
func (e *element) encode() []byte {
	n := fixedBytes + 1 + len(e.payload) + len(e.unknown)
	if e.failure != "" {
		n += 3 + len(e.failure)
	}
	b := make([]byte, fixedBytes, n+64*len(e.headers)+22)
	b[0], b[1], b[2], b[3] = magic, version1|e.flags, saturate(e.recoveries), saturate(e.attempts)
	copy(b[4:], e.serial[:])
	if e.failure != "" {
		b = append(appendField(b, tagFailure, len(e.failure)), e.failure...)
	}
	for _, k := range slices.Sorted(maps.Keys(e.headers)) {
		v := e.headers[k]
		b = append(appendField(b, tagHeader, 1+len(k)+len(v)), byte(len(k)))
		b = append(append(b, k...), v...)
	}
	if e.timeout != 0 {
		b = binary.BigEndian.AppendUint64(appendField(b, tagTimeout, 8), uint64(e.timeout))
	}
	if e.maxAttempts != 0 {
		b = binary.BigEndian.AppendUint64(appendField(b, tagMaxAttempts, 8), uint64(e.maxAttempts))
	}
	return append(append(append(b, e.unknown...), tagEnd), e.payload...)
}

func appendField(b []byte, tag byte, length int) []byte {
	return binary.BigEndian.AppendUint16(append(b, tag), uint16(length))
}

func saturate(n int) byte { return byte(min(max(n, 0), 255)) }

// next is the element as it is written back after a handling: one attempt more, cleared of its recoveries, with its failure.
func (e element) next(failure error) element {
	if e.bare {
		e.bare, e.serial = false, newSerial()
	}
	e.attempts++
	e.recoveries = 0
	e.failure = ""
	if failure != nil {
		e.failure = failureText(failure)
	}
	return e
}

// failureText cuts an error's text to what may travel, at a whole character.
func failureText(err error) string {
	s := err.Error()
	if len(s) <= maxFailure {
		return s
	}
	s = s[:maxFailure]
	for i := 0; i < utf8.UTFMax-1 && len(s) > 0 && !utf8.ValidString(s[max(0, len(s)-utf8.UTFMax):]); i++ {
		s = s[:len(s)-1]
	}
	return s
}

// failureField is a failure as the field that a script inserts behind the fixed bytes.
func failureField(text string) string {
	return string(appendField(nil, tagFailure, len(text))) + text
}

// identity is how scripts recognise an element in a list: its serial, or a bare one's SHA-1.
func (e *element) identity(raw []byte) string {
	if !e.bare {
		return string(e.serial[:])
	}
	sum := sha1.Sum(raw)
	return hex.EncodeToString(sum[:])
}

// name is the serial as people read it, empty for a bare payload.
func (e *element) name() string {
	if e.bare {
		return ""
	}
	return e.serial.String()
}

func (e *element) setHeader(key, value string) error {
	if len(key) == 0 || len(key) > maxHeaderKey || len(value) > maxHeaderValue {
		return fmt.Errorf("shunt: header %.40q: a key has 1 to %d bytes and a value at most %d", key, maxHeaderKey, maxHeaderValue)
	}
	if e.headers == nil {
		e.headers = make(map[string]string)
	}
	e.headers[key] = value
	return nil
}
