package link

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gomodule/redigo/redis"
)

// counted counts the writes to a socket.
type counted struct {
	net.Conn
	writes *atomic.Int64
}

func (c counted) Write(b []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(b)
}

// counting is a link in use, and the number of its writes so far.
func counting(t *testing.T) (b *bed, l *Link, writes *atomic.Int64) {
	t.Helper()
	b, writes = shared(t), new(atomic.Int64)
	dial := b.pool.DialContext
	b.pool.DialContext = func(ctx context.Context) (redis.Conn, error) {
		c, err := dial(ctx)
		if socket, ok := ctx.Value(socketKey{}).(*net.Conn); ok && err == nil {
			*socket = counted{*socket, writes}
		}
		return c, err
	}
	l = b.link(patience)
	b.want(Done, outcome(b.within(patience), l, b.push("first")))
	return b, l, writes
}

// What is queued goes in as many writes as it takes for Redis to begin before all of it is sent.
func TestWrites(t *testing.T) {
	b, l, writes := counting(t)
	for n, want := range map[int]int64{1: 1, maxCallsPerWrite: 1, maxCallsPerWrite + 1: 2, 2*maxCallsPerWrite + 1: 3} {
		before := writes.Load()
		calls := make([]*Call, n)
		l.sending.Lock() // so that all are queued before one is sent
		for i := range calls {
			calls[i] = b.push("one of many")
			l.Post(calls[i])
		}
		l.sending.Unlock()
		l.wakeWriter()
		for _, c := range calls {
			<-c.done
			b.want(Done, c.Replies[0].Err)
		}
		if got := writes.Load() - before; got != want {
			t.Errorf("%d calls in %d writes, want %d", n, got, want)
		}
	}
}

// Callers whose replies came together are written for together when they come again.
func TestWritesOfThoseAnsweredTogether(t *testing.T) {
	b, l, writes := counting(t)
	ctx := b.within(patience)
	const callers, rounds = 2 * maxCallsPerWrite, 100
	before := writes.Load()
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			c := patientCall()
			for range rounds {
				c.Reset()
				c.Add("PING")
				if err := outcome(ctx, l, c); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	if got := writes.Load() - before; got > callers*rounds/4 {
		t.Errorf("%d calls in %d writes", callers*rounds, got)
	}
}
