package link

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"reflect"
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

// reply is what a wire makes of its next reply.
type reply struct {
	value any
	err   string // a server's; any other only says that there was one
}

func read(w wire) reply {
	v, b, err := w.receive(time.Second, func() {}, new(Memory))
	if b != nil {
		v = b
	}
	var server redis.Error
	switch {
	case errors.As(err, &server):
		return reply{err: string(server)}
	case err != nil:
		return reply{err: "the end"}
	}
	return reply{value: v}
}

// replies from a server, whole, cut and wrong.
var spoken = []string{
	"+OK\r\n", "+\r\n", "-ERR no\r\n", ":0\r\n", ":-12\r\n", ":9223372036854775807\r\n", ":-9223372036854775808\r\n", "$0\r\n\r\n", "$3\r\na\r\n\r\n", "$-1\r\n", "*-1\r\n", "*0\r\n",
	"*2\r\n$1\r\na\r\n$-1\r\n", "*3\r\n:1\r\n-OOM full\r\n*1\r\n+x\r\n", "$12\r\n0123456789ab\r\n:1\r\n",
	"", "\r\n", "+", "+OK", "+OK\n", ":x\r\n", ":\r\n", ":--1\r\n", "$-2\r\n", "$3\r\nabc", "$3\r\nabcd\r\n", "$3\r\nabc\r", "$3\r\nabcxx", "*1\r\n", "*-2\r\n", "!3\r\nabc\r\n",
	"*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n",
}

// What a stream reads is what redigo reads, however the bytes come; where redigo is lenient the stream may only end the connection.
func FuzzStream(f *testing.F) {
	for _, s := range spoken {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, bytesOf []byte) {
		if bytes.ContainsAny(bytesOf, "$*") && bytes.Contains(bytesOf, []byte("00000")) {
			return // both would make room for what never comes
		}
		for _, r := range []io.Reader{bytes.NewReader(bytesOf), iotest.OneByteReader(bytes.NewReader(bytesOf))} {
			s := newStream(&said{Reader: r}, time.Second)
			other := foreign{redis.NewConn(&said{Reader: bytes.NewReader(bytesOf)}, time.Second, time.Second)}
			for range 100 {
				got := read(s)
				if got.err == "the end" {
					break
				}
				if want := read(other); !reflect.DeepEqual(got, want) {
					t.Fatalf("%q: %+v, redigo has %+v", bytesOf, got, want)
				}
			}
		}
	})
}

// A stream ends the connection on what is no reply, at once.
func TestStreamRefuses(t *testing.T) {
	t.Parallel()
	for _, s := range spoken[15:] {
		w := newStream(&said{Reader: bytes.NewReader([]byte(s))}, time.Second)
		if got := read(w); got.err != "the end" {
			t.Errorf("%q: %+v", s, got)
		}
	}
	for _, s := range spoken[:15] {
		w := newStream(&said{Reader: bytes.NewReader([]byte(s))}, time.Second)
		if got := read(w); got.err == "the end" {
			t.Errorf("%q: %+v", s, got)
		}
	}
}

// What a stream sends is what redigo sends.
func TestStreamSends(t *testing.T) {
	t.Parallel()
	for _, elements := range [][][]byte{nil, {{}}, {[]byte("element\r\n\x00"), nil, []byte("another")}, {bytes.Repeat([]byte("x"), 300<<10)}} {
		args := []any{"key", []byte{0xff, '\r'}, 7, int64(-12345678901), "", nil, 1.5}
		a, b := &said{}, &said{}
		s := newStream(a, time.Second)
		other := foreign{redis.NewConn(b, time.Second, time.Second)}
		for _, w := range []wire{s, other} {
			for _, args := range [][]any{args[:5], nil} {
				if err := errors.Join(w.send("LPUSH", args, elements), w.flush()); err != nil {
					t.Fatal(err)
				}
			}
		}
		if !bytes.Equal(a.heard.Bytes(), b.heard.Bytes()) {
			t.Errorf("%.300q\nredigo: %.300q", a.heard.Bytes(), b.heard.Bytes())
		}
		if cap(s.out) > 8*streamBuffer {
			t.Errorf("keeps %d bytes", cap(s.out))
		}
	}
}

// A link on a pool that is not NewPool's speaks by redigo, and is as good.
func TestForeignPool(t *testing.T) {
	for name, test := range map[string]func(*testing.T){
		"Pipelining": TestPipelining, "MoreThanInflight": TestMoreThanInflight, "Cut": TestCut, "Refusals": TestRefusals, "Scripts": TestScripts,
		"BlackHole": TestBlackHole, "Close": TestCloseWithCallsInFlight, "Old": TestOldConnectionsOfThePool,
	} {
		t.Run(name, test)
	}
}

// An old connection of NewPool's pool, whose socket is not known any more, is not what a link gets.
func TestLinkGetsItsSocket(t *testing.T) {
	b := shared(t)
	old := b.pool.Get()
	if _, err := old.Do("PING"); err != nil {
		t.Fatal(err)
	}
	old.Close()
	c, socket, err := b.node.DialOwn(b.within(patience))
	if err != nil || socket == nil {
		t.Fatalf("socket %v, %v", socket, err)
	}
	discard(c)
}

// BenchmarkWire is a command sent and its reply received, a hundred at a time.
func BenchmarkWire(b *testing.B) {
	element := bytes.Repeat([]byte("e"), 149)
	elements := [][]byte{element}
	answer := append(append([]byte("$149\r\n"), element...), '\r', '\n')
	answers := bytes.Repeat(answer, 100)
	for _, c := range []struct {
		name string
		wire func(net.Conn) wire
	}{
		{"stream", func(c net.Conn) wire { return newStream(c, time.Second) }},
		{"redigo", func(c net.Conn) wire { return foreign{redis.NewConn(c, time.Second, time.Second)} }},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			r := bytes.NewReader(answers)
			server := &said{Reader: bufio.NewReader(r)}
			w := c.wire(server)
			for i := 0; i < b.N; i++ {
				if i%100 == 0 {
					r.Reset(answers)
					server.heard.Reset()
				}
				w.send("LREM", []any{"{bench}.doing.01KAJ8M0ABCDEFGHJKMNPQRSTV-64-10000.12", -1}, elements)
				if _, bulk, err := w.receive(time.Second, func() {}, nil); bulk == nil || err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
