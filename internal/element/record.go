package element

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/oklog/ulid/v2"
)

// Record is what a channel's hash of ids has of one; lua/ids.lua has its form.
type Record struct {
	Serial   ulid.ULID
	State    byte // p, d or u
	Attempts int  // that are over
	At       int64
	Expires  int64
	Failure  string
}

// ParseRecord reads a record; false: it is none.
func ParseRecord(raw []byte) (r Record, ok bool) {
	if len(raw) < 18 {
		return r, false
	}
	copy(r.Serial[:], raw)
	if string(raw[16:]) == "p 0 0 0 \n" { // most, by far
		r.State = 'p'
		return r, true
	}
	r.State = raw[16]
	head, failure, ok := bytes.Cut(raw[17:], []byte(" \n"))
	r.Failure = string(failure)
	f := strings.Fields(string(head))
	if !ok || len(f) != 3 {
		return r, false
	}
	r.Attempts, _ = strconv.Atoi(f[0])
	r.At, _ = strconv.ParseInt(f[1], 10, 64)
	r.Expires, _ = strconv.ParseInt(f[2], 10, 64)
	return r, true
}
