package redis

import "strconv"

// A reply is nil, int, string (bulk), []string, []any, or one of these.
type (
	status    string // a simple string
	failure   string // an error, with its code
	several   []any  // replies one after the other
	mark      int
	lastReply struct{ v any } // after which the connection ends
)

const (
	noArray mark = iota // a nil array
	later               // the session is blocked: the reply comes later
)

const ok = status("OK")

const (
	wrongType  = failure("WRONGTYPE Operation against a key holding the wrong kind of value")
	notInteger = failure("ERR value is not an integer or out of range")
	notFloat   = failure("ERR value is not a valid float")
	syntax     = failure("ERR syntax error")
	outOfRange = failure("ERR value is out of range")
	noSuchKey  = failure("ERR no such key")
)

// appendReply appends a reply as RESP2.
func appendReply(b []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(b, "$-1\r\n"...)
	case int:
		return line(b, ':', v)
	case string:
		return appendBulk(b, v)
	case status:
		return append(append(append(b, '+'), v...), '\r', '\n')
	case failure:
		return append(append(append(b, '-'), v...), '\r', '\n')
	case []string:
		b = line(b, '*', len(v))
		for _, e := range v {
			b = appendBulk(b, e)
		}
	case []any:
		b = line(b, '*', len(v))
		for _, e := range v {
			b = appendReply(b, e)
		}
	case several:
		for _, e := range v {
			b = appendReply(b, e)
		}
	case lastReply:
		return appendReply(b, v.v)
	case mark: // noArray
		return append(b, "*-1\r\n"...)
	}
	return b
}

func line(b []byte, kind byte, n int) []byte {
	if 0 <= n && n < 10 {
		return append(b, kind, '0'+byte(n), '\r', '\n')
	}
	return append(strconv.AppendInt(append(b, kind), int64(n), 10), '\r', '\n')
}

func appendBulk(b []byte, s string) []byte {
	b = line(b, '$', len(s))
	return append(append(b, s...), '\r', '\n')
}
