package resp

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/gomodule/redigo/redis"
)

// said is a connection on which the server has said all it ever will.
type said struct {
	net.Conn
	io.Reader
	heard bytes.Buffer
}

func (s *said) Read(b []byte) (int, error)       { return s.Reader.Read(b) }
func (s *said) Write(b []byte) (int, error)      { return s.heard.Write(b) }
func (s *said) Close() error                     { return nil }
func (s *said) SetReadDeadline(time.Time) error  { return nil }
func (s *said) SetWriteDeadline(time.Time) error { return nil }

// outcome is how a reader's next reply came out.
type outcome struct {
	value any
	err   string // of the server; any other error is only "the end"
}

func read(v any, bulk []byte, err error) outcome {
	if bulk != nil {
		v = bulk
	}
	var server redis.Error
	switch {
	case errors.As(err, &server):
		return outcome{err: string(server)}
	case err != nil:
		return outcome{err: "the end"}
	}
	return outcome{value: v}
}

// receive is a Conn's next reply.
func receive(c *Conn) outcome { return read(c.Receive(time.Second, func() {}, new(Memory))) }

// receiveByRedigo is the next reply of redigo's.
func receiveByRedigo(c redis.Conn) outcome {
	v, err := redis.ReceiveWithTimeout(c, time.Second)
	if b, ok := v.([]byte); ok {
		return read(nil, b, err)
	}
	return read(v, nil, err)
}

// Replies from a server, whole, cut and wrong.
var spoken = []string{
	"+OK\r\n", "+\r\n", "-ERR no\r\n", ":0\r\n", ":-12\r\n", ":9223372036854775807\r\n", ":-9223372036854775808\r\n",
	"$0\r\n\r\n", "$3\r\na\r\n\r\n", "$-1\r\n", "*-1\r\n", "*0\r\n",
	"*2\r\n$1\r\na\r\n$-1\r\n", "*3\r\n:1\r\n-OOM full\r\n*1\r\n+x\r\n", "$12\r\n0123456789ab\r\n:1\r\n",
	"", "\r\n", "+", "+OK", "+OK\n", ":x\r\n", ":\r\n", ":--1\r\n",
	"$-2\r\n", "$3\r\nabc", "$3\r\nabcd\r\n", "$3\r\nabc\r", "$3\r\nabcxx", "*1\r\n", "*-2\r\n", "!3\r\nabc\r\n",
	"*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n",
}

// The three readers agree. A Conn reads what redigo reads, however the bytes come; where redigo is lenient the Conn may
// only end the connection. ReadReply finds the same boundaries as the Conn, and Peek the same text.
func FuzzReaders(f *testing.F) {
	for _, s := range spoken {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, received []byte) {
		if bytes.ContainsAny(received, "$*") && bytes.Contains(received, []byte("00000")) {
			return // all would make room for what never comes
		}
		for _, r := range []io.Reader{bytes.NewReader(received), iotest.OneByteReader(bytes.NewReader(received))} {
			conn := NewConn(&said{Reader: r}, time.Second)
			redigo := redis.NewConn(&said{Reader: bytes.NewReader(received)}, time.Second, time.Second)
			raw := bufio.NewReader(bytes.NewReader(received))
			for range 100 {
				got := receive(conn)
				if got.err == "the end" {
					break
				}
				if want := receiveByRedigo(redigo); !reflect.DeepEqual(got, want) {
					t.Fatalf("%q: %+v, redigo has %+v", received, got, want)
				}
				reply, err := ReadReply(raw)
				if err != nil {
					t.Fatalf("%q: %+v, the proxy's reader has %v", received, got, err)
				}
				again := NewReader(bytes.NewReader(reply), BufferSize)
				if same := read(again.Next(nil)); !reflect.DeepEqual(got, same) || again.Buffered() != 0 {
					t.Fatalf("%q: %+v, of the bytes %q that the proxy's reader has: %+v", received, got, reply, same)
				}
				peekSame(t, reply, got)
			}
		}
	})
}

// peekSame compares Peek with what Next made of a reply.
func peekSame(t *testing.T, reply []byte, next outcome) {
	t.Helper()
	if reply[0] == '*' || len(reply) > BufferSize/2 {
		return
	}
	r := NewReader(bytes.NewReader(append(reply[:len(reply):len(reply)], "+next\r\n"...)), BufferSize)
	kind, body, err := r.Peek()
	if err != nil || kind != reply[0] {
		t.Fatalf("%q: Peek has %c, %v", reply, kind, err)
	}
	switch want := next.value.(type) {
	case nil:
		if string(body) != next.err {
			t.Fatalf("%q: Peek has %q", reply, body)
		}
	case []byte:
		if body == nil || !bytes.Equal(body, want) {
			t.Fatalf("%q: Peek has %q", reply, body)
		}
	default:
		if kind == '+' && string(body) != want {
			t.Fatalf("%q: Peek has %q", reply, body)
		}
	}
	if kind, body, err := r.Peek(); kind != '+' || string(body) != "next" || err != nil {
		t.Fatalf("%q: what follows it is %c, %q, %v", reply, kind, body, err)
	}
}

// A Conn ends the connection on what is no reply, at once.
func TestConnRefuses(t *testing.T) {
	t.Parallel()
	const good = 15
	for i, s := range spoken {
		got := receive(NewConn(&said{Reader: strings.NewReader(s)}, time.Second))
		if (got.err == "the end") != (i >= good) {
			t.Errorf("%q: %+v", s, got)
		}
	}
}

// A Conn sends what redigo sends.
func TestConnSends(t *testing.T) {
	t.Parallel()
	large := bytes.Repeat([]byte("x"), 300<<10)
	for _, elements := range [][][]byte{nil, {{}}, {[]byte("element\r\n\x00"), nil, []byte("another")}, {large}} {
		args := []any{"key", []byte{0xff, '\r'}, 7, int64(-12345678901), "", nil, 1.5}
		a, b := &said{}, &said{}
		conn, redigo := NewConn(a, time.Second), redis.NewConn(b, time.Second, time.Second)
		for _, args := range [][]any{args[:5], nil} {
			all := args[:len(args):len(args)]
			for _, e := range elements {
				all = append(all, e)
			}
			err := errors.Join(
				conn.Send("LPUSH", args, elements),
				conn.Flush(),
				redigo.Send("LPUSH", all...),
				redigo.Flush(),
			)
			if err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(a.heard.Bytes(), b.heard.Bytes()) {
			t.Errorf("%.300q\nredigo: %.300q", a.heard.Bytes(), b.heard.Bytes())
		}
		if cap(conn.out) > 8*BufferSize {
			t.Errorf("keeps %d bytes", cap(conn.out))
		}
	}
}

// A request that was appended is read back, and its bytes are the same.
func TestReadCommand(t *testing.T) {
	t.Parallel()
	want := AppendBytes(AppendCommand(nil, "LPUSH", []any{"key", 12, int64(-3), []byte("\r\n")}, 1), nil)
	raw, args, err := ReadCommand(bufio.NewReader(iotest.OneByteReader(bytes.NewReader(want))), nil)
	if err != nil || !bytes.Equal(raw, want) || fmt.Sprintf("%q", args) != `["LPUSH" "key" "12" "-3" "\r\n" ""]` {
		t.Errorf("%q, %q, %v", raw, args, err)
	}
	for _, s := range []string{"PING\r\n", "*0\r\n", "*-1\r\n", "*1\r\n+a\r\n", "*1\r\n$-1\r\n", "*1\r\n$x\r\n",
		"*1048577\r\n"} {
		if _, _, err := ReadCommand(bufio.NewReader(strings.NewReader(s)), nil); !errors.Is(err, ErrProtocol) {
			t.Errorf("%q: %v", s, err)
		}
	}
}

// BenchmarkConn is a command sent and its reply received, a hundred at a time.
func BenchmarkConn(b *testing.B) {
	element := bytes.Repeat([]byte("e"), 149)
	elements, args := [][]byte{element}, []any{"{bench}.doing.01KAJ8M0ABCDEFGHJKMNPQRSTV-64-10000.12", -1}
	answer := append(append([]byte("$149\r\n"), element...), '\r', '\n')
	answers := bytes.Repeat(answer, 100)
	b.ReportAllocs()
	r := bytes.NewReader(answers)
	server := &said{Reader: bufio.NewReader(r)}
	c := NewConn(server, time.Second)
	for i := 0; b.Loop(); i++ {
		if i%100 == 0 {
			r.Reset(answers)
			server.heard.Reset()
			c.Flush()
		}
		c.Send("LREM", args, elements)
		if _, bulk, err := c.Receive(time.Second, func() {}, nil); bulk == nil || err != nil {
			b.Fatal(err)
		}
	}
}
