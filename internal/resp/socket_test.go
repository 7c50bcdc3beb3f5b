package resp

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// Direct system calls write and read what the net package would, and return the same errors.
func TestDirect(t *testing.T) {
	t.Parallel()
	for _, network := range []string{"tcp", "unix"} {
		plain := converse(t, network, func(c net.Conn) net.Conn { return c })
		own := converse(t, network, Direct)
		if !slices.Equal(plain, own) {
			t.Errorf(
				"%s: direct calls tell\n%s\nand net's\n%s",
				network,
				strings.Join(own, "\n"),
				strings.Join(plain, "\n"),
			)
		}
	}
}

// converse uses a connection in all the ways that a link does, and worse, and tells what comes of it.
func converse(t *testing.T, network string, wrap func(net.Conn) net.Conn) (told []string) {
	t.Helper()
	address := "127.0.0.1:0"
	if network == "unix" {
		address = filepath.Join(t.TempDir(), "s")
	}
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	raw, err := net.Dial(network, l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c := wrap(raw)
	defer c.Close()
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	names := strings.NewReplacer(raw.LocalAddr().String()+"-", "here-", raw.RemoteAddr().String(), "there")
	tell := func(n int, err error) {
		var op *net.OpError
		told = append(
			told,
			fmt.Sprint(
				n,
				" ",
				names.Replace(fmt.Sprint(err)),
				" ",
				errors.As(err, &op),
				errors.Is(err, os.ErrDeadlineExceeded),
				errors.Is(err, net.ErrClosed),
				err == io.EOF,
			),
		)
	}

	// More than the socket has room for, read late; then so much that the deadline comes first.
	many := bytes.Repeat([]byte("0123456789"), 1<<20)
	written := make(chan error)
	go func() { _, err := c.Write(many); written <- err }()
	time.Sleep(20 * time.Millisecond)
	got := make([]byte, len(many))
	if _, err := io.ReadFull(server, got); err != nil || !bytes.Equal(got, many) {
		t.Fatalf("%s: what came is not what was sent: %v", network, err)
	}
	tell(0, <-written)
	c.SetWriteDeadline(time.Now().Add(20 * time.Millisecond))
	n, err := c.Write(many)
	tell(0, err)
	if n == 0 || n == len(many) {
		t.Errorf("%s: %d bytes were written in time", network, n)
	}
	c.SetWriteDeadline(time.Time{})

	b := make([]byte, 10)
	server.Write([]byte("abc"))
	tell(c.Read(b))
	c.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	tell(c.Read(b))
	tell(c.Read(b))
	c.SetReadDeadline(time.Time{})
	time.AfterFunc(10*time.Millisecond, func() { server.Write([]byte("defghijklmnop")) })
	tell(c.Read(b)) // waits
	tell(c.Read(b))
	tell(c.Read(nil))
	if _, err := io.ReadFull(server, make([]byte, n)); err != nil { // so that the end is no reset
		t.Fatal(err)
	}
	server.Close()
	tell(c.Read(b))
	for err = nil; err == nil; time.Sleep(time.Millisecond) {
		_, err = c.Write(b)
	}
	tell(0, err)
	c.Close()
	tell(c.Read(b))
	tell(c.Write(b))
	return told
}
