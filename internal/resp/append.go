// Package resp speaks RESP2, the protocol of Redis: it appends commands, parses replies and requests, and carries
// both on a connection. It knows nothing of what a command means; package link decides that. Errors that a server
// replies with are redigo's redis.Error, so that callers treat replies that came by redigo alike.
package resp

import (
	"fmt"
	"strconv"
)

// AppendCommand appends a command: its name, its arguments, and the announcement of further arguments, which
// AppendBytes or AppendString append. Arguments of other types than string, []byte, int and int64 are formatted as
// fmt.Sprint does.
func AppendCommand(b []byte, name string, args []any, further int) []byte {
	b = appendHead(b, '*', 1+len(args)+further)
	b = AppendString(b, name)
	for _, a := range args {
		switch a := a.(type) {
		case string:
			b = AppendString(b, a)
		case []byte:
			b = AppendBytes(b, a)
		case int:
			b = appendInt(b, int64(a))
		case int64:
			b = appendInt(b, a)
		default:
			b = AppendString(b, fmt.Sprint(a))
		}
	}
	return b
}

// AppendString appends a string as an argument.
func AppendString(b []byte, s string) []byte {
	b = appendHead(b, '$', len(s))
	return append(append(b, s...), '\r', '\n')
}

// AppendBytes appends bytes as an argument.
func AppendBytes(b, a []byte) []byte {
	b = appendHead(b, '$', len(a))
	return append(append(b, a...), '\r', '\n')
}

func appendInt(b []byte, n int64) []byte {
	var digits [20]byte
	d := strconv.AppendInt(digits[:0], n, 10)
	b = appendHead(b, '$', len(d))
	return append(append(b, d...), '\r', '\n')
}

// appendHead appends a line of a type and a number. Most numbers have one digit.
func appendHead(b []byte, kind byte, n int) []byte {
	if n < 10 {
		return append(b, kind, '0'+byte(n), '\r', '\n')
	}
	b = strconv.AppendInt(append(b, kind), int64(n), 10)
	return append(b, '\r', '\n')
}
