package element

import (
	"encoding/binary"
	"time"
)

// Decode reads the bytes of an element. It fails only on a version that it does not know; no bytes make it panic.
func Decode(b []byte) (e Element, err error) {
	err = e.Read(b)
	return e, err
}

// Read is Decode into an Element that is zero yet.
func (e *Element) Read(b []byte) error {
	payload := b
	if len(b) >= 2 && b[0] == magic {
		switch b[1] >> 4 {
		case 0:
			if b[1] == 0 {
				payload = b[2:]
			}
		case version1 >> 4:
			if e.read1(b) {
				return nil
			}
			*e = Element{}
		default:
			if len(b) > fixedBytes {
				e.Bare, e.Payload = true, b
				return ErrNewerVersion
			}
		}
	}
	e.Bare, e.Payload = true, payload
	return nil
}

func (e *Element) read1(b []byte) bool {
	if len(b) <= fixedBytes {
		return false
	}
	e.flags, e.Recoveries, e.Attempts = b[1]&0x0f, int16(b[2]), int16(b[3])
	copy(e.Serial[:], b[4:fixedBytes])
	for p := b[fixedBytes:]; ; {
		if p[0] == tagEnd {
			e.Payload = p[1:]
			return true
		}
		if len(p) < 3 {
			return false
		}
		end := 3 + int(binary.BigEndian.Uint16(p[1:]))
		if len(p) <= end { // at least the end mark must follow
			return false
		}
		e.field(p[0], p[3:end], p[:end])
		p = p[end:]
	}
}

// field takes in one field; of a repeated one the first counts, because a script can only put its own before the
// others.
func (e *Element) field(tag byte, value, whole []byte) {
	switch {
	case tag == tagExpires && len(value) == 9:
		e.extra().Expires, e.extra().ToDead = int64(binary.BigEndian.Uint64(value)), value[8] == 1
		return
	case tag == tagID && len(value) > 0 && len(value) <= MaxID:
		if x := e.extra(); x.ID == "" {
			x.ID, x.bytes = string(value), value
		}
		return
	case tag == tagDeadline && len(value) == 8:
		e.extra().Deadline = int64(binary.BigEndian.Uint64(value))
		return
	case tag == tagRetain && len(value) == 8:
		e.extra().Retain = int64(binary.BigEndian.Uint64(value))
		return
	case tag == tagUnique && len(value) == 8:
		e.extra().Unique = int64(binary.BigEndian.Uint64(value))
		return
	}
	if e.rest == nil {
		e.rest = new(rest)
	}
	r := e.rest
	switch {
	case tag == tagFailure:
		if r.failure == "" {
			r.failure = string(value)
		}
	case tag == tagType && len(value) > 0 && len(value) <= MaxType:
		if r.typeName == "" {
			r.typeName = string(value)
		}
	case tag == tagHeader && len(value) > 0 && int(value[0]) < len(value):
		end := 1 + int(value[0])
		k := string(value[1:end])
		if _, given := r.headers[k]; !given {
			if r.headers == nil {
				r.headers = make(map[string]string)
			}
			r.headers[k] = string(value[end:])
		}
	case tag == tagTimeout && len(value) == 8:
		r.timeout = time.Duration(binary.BigEndian.Uint64(value))
	case tag == tagMaxAttempts && len(value) == 8:
		r.maxAttempts = int(int64(binary.BigEndian.Uint64(value)))
	case tag == tagDue && len(value) == 8:
		r.due = int64(binary.BigEndian.Uint64(value))
	default:
		r.unknown = append(r.unknown, whole...)
	}
}
