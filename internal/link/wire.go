package link

import (
	"context"
	"net"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/resp"
)

// wire is how a link speaks on its connection. One goroutine sends, one receives, as redigo requires.
type wire interface {
	Send(name string, args []any, elements [][]byte) error // redigo's may write before Flush
	sendReady(c *Command, elements [][]byte) error
	Flush() error
	Pending() int // bytes to be flushed, as far as known
	// Receive calls waits before it may have to wait for the reply. A redis.Error is a reply, any other error the connection's end.
	// A bulk lies in into, if that is not nil and the bulk is small.
	Receive(timeout time.Duration, waits func(), into *Memory) (value any, bulk []byte, err error)
}

// direct is the wire on a connection whose socket is known.
type direct struct{ *resp.Conn }

func (d direct) sendReady(c *Command, elements [][]byte) error {
	return d.SendRendered(c.wire, elements)
}

// foreign is the wire on a connection of a pool that is not NewPool's: redigo's own.
type foreign struct{ conn redis.Conn }

func (f foreign) Send(name string, args []any, elements [][]byte) error {
	args = args[:len(args):len(args)]
	for _, e := range elements {
		args = append(args, e)
	}
	return f.conn.Send(name, args...)
}

func (f foreign) sendReady(c *Command, elements [][]byte) error {
	return f.Send(c.name, c.args, elements)
}

func (f foreign) Flush() error { return f.conn.Flush() }
func (f foreign) Pending() int { return 0 } // redigo has at most 4 KB

func (f foreign) Receive(timeout time.Duration, waits func(), _ *Memory) (any, []byte, error) {
	waits() // redigo does not say what is in its buffer
	v, err := redis.ReceiveWithTimeout(f.conn, timeout)
	if b, ok := v.([]byte); ok {
		return nil, b, err
	}
	return v, nil, err
}

// socketKey is the context key of a *net.Conn in which NewPool's dialer leaves the connection that it has dialled.
type socketKey struct{}

// askForSocket asks the dialer of a pool for the connection under redigo's.
func askForSocket(ctx context.Context, to *net.Conn) context.Context {
	return context.WithValue(ctx, socketKey{}, to)
}
