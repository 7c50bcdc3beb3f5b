package element

import (
	"encoding/binary"
	"slices"
)

// Encode writes version 1, with the header that a bare payload lacks.
func (e *Element) Encode() []byte { return e.Append(make([]byte, 0, e.Size())) }

// Size is the length of what Encode writes.
func (e *Element) Size() int {
	r := e.rest.given()
	n := fixedBytes + len(r.unknown) + 1 + len(e.Payload)
	if r.failure != "" {
		n += 3 + len(r.failure)
	}
	if r.typeName != "" {
		n += 3 + len(r.typeName)
	}
	for k, v := range r.headers {
		n += 4 + len(k) + len(v)
	}
	if r.timeout != 0 {
		n += 11
	}
	if r.maxAttempts != 0 {
		n += 11
	}
	if r.due != 0 {
		n += 11
	}
	if x := e.Extra; x != nil {
		if x.Expires != 0 {
			n += 12
		}
		if x.ID != "" {
			n += 3 + len(x.ID)
		}
		for _, v := range [...]int64{x.Deadline, x.Retain, x.Unique} {
			if v != 0 {
				n += 11
			}
		}
	}
	return n
}

// Append is Encode behind what b holds.
func (e *Element) Append(b []byte) []byte {
	r := e.rest.given()
	b = append(b, magic, version1|e.flags, saturate(int(e.Recoveries)), saturate(int(e.Attempts)))
	b = append(b, e.Serial[:]...)
	if x := e.Extra; x != nil && x.Expires != 0 {
		b = append(binary.BigEndian.AppendUint64(appendField(b, tagExpires, 9), uint64(x.Expires)), 0)
		if x.ToDead {
			b[len(b)-1] = 1
		}
	}
	if r.failure != "" {
		b = append(appendField(b, tagFailure, len(r.failure)), r.failure...)
	}
	if r.typeName != "" {
		b = append(appendField(b, tagType, len(r.typeName)), r.typeName...)
	}
	if len(r.headers) > 0 {
		var few [8]string
		keys := few[:0]
		for k := range r.headers {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		for _, k := range keys {
			v := r.headers[k]
			b = append(appendField(b, tagHeader, 1+len(k)+len(v)), byte(len(k)))
			b = append(append(b, k...), v...)
		}
	}
	b = appendInt(b, tagTimeout, int64(r.timeout))
	b = appendInt(b, tagMaxAttempts, int64(r.maxAttempts))
	b = appendInt(b, tagDue, r.due)
	if x := e.Extra; x != nil {
		if x.ID != "" {
			b = append(appendField(b, tagID, len(x.ID)), x.ID...)
		}
		b = appendInt(b, tagDeadline, x.Deadline)
		b = appendInt(b, tagRetain, x.Retain)
		b = appendInt(b, tagUnique, x.Unique)
	}
	return append(append(append(b, r.unknown...), tagEnd), e.Payload...)
}

func appendField(b []byte, tag byte, length int) []byte {
	return binary.BigEndian.AppendUint16(append(b, tag), uint16(length))
}

// appendInt appends a field of a number, unless it is 0.
func appendInt(b []byte, tag byte, n int64) []byte {
	if n == 0 {
		return b
	}
	return binary.BigEndian.AppendUint64(appendField(b, tag, 8), uint64(n))
}

func saturate(n int) byte { return byte(min(max(n, 0), 255)) }
