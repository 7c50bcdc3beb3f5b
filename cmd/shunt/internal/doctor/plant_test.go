package doctor

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/redistest"
)

// bench is a server of a test's own, and a Queue on it.
type bench struct {
	t    *testing.T
	s    *redistest.Server
	q    *shunt.Queue
	pool *redis.Pool
	o    Options
}

func start(t *testing.T, conf ...string) *bench {
	t.Helper()
	// On a busy machine each command may be a slow one, which is not what a test is about.
	conf = append([]string{"appendonly yes", "slowlog-log-slower-than -1"}, conf...)
	b := &bench{t: t, s: redistest.Start(t, conf...)}
	b.connect(b.s.URL())
	b.o = Options{Apart: 120 * time.Millisecond, Pause: -1}
	return b
}

func (b *bench) connect(url string) {
	pool, err := shunt.NewPool(url)
	if err != nil {
		b.t.Fatal(err)
	}
	q := &shunt.Queue{Pool: pool, Quiet: true}
	b.pool, b.q = pool, q
	b.t.Cleanup(func() { _ = q.Close(); _ = pool.Close() })
}

func (b *bench) do(cmd string, args ...any) any { b.t.Helper(); return b.s.Do(cmd, args...) }

func (b *bench) set(name, value string) { b.t.Helper(); b.do("CONFIG", "SET", name, value) }

// now is the clock of Redis in ms, and by how much later.
func (b *bench) now(d time.Duration) int64 { return time.Now().Add(d).UnixMilli() }

// list lists a channel as the programs do that enqueue.
func (b *bench) list(channel string) { b.do("SADD", channelsKey, channel) }

var serials atomic.Uint64 // tests run at the same time

// element is a message of some age.
func element(age time.Duration, payload string) string {
	var serial [16]byte
	binary.BigEndian.PutUint64(serial[:], uint64(time.Now().Add(-age).UnixMilli())<<16)
	binary.BigEndian.PutUint64(serial[8:], serials.Add(1))
	return "\xc1\x10\x00\x00" + string(serial[:]) + "\x00" + payload
}

const somebody = "01KAV9ZZZZZZZZZZZZZZZZZZZZ-2-1000" // a receiver of two workers

const someLease = "ABCDEFGHIJKLMNOPQRSTUVWXYZ-25-1000"

func (b *bench) enqueue(channel string, opts ...shunt.Option) {
	b.t.Helper()
	if err := b.q.Enqueue(context.Background(), shunt.Raw(channel, []byte("hello")), opts...); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) examine() Report {
	b.t.Helper()
	r, err := Examine(context.Background(), b.q, b.pool, b.o)
	if err != nil {
		b.t.Fatal(err)
	}
	return r
}

// find is the finding of a kind; nil: there is none.
func find(r Report, kind Kind) *Finding {
	for i := range r.Findings {
		if r.Findings[i].Kind == kind {
			return &r.Findings[i]
		}
	}
	return nil
}

func kinds(r Report) string {
	var all []string
	for _, f := range r.Findings {
		all = append(all, fmt.Sprintf("%s %s: %s", f.Kind, f.Channel, f.Text))
	}
	return strings.Join(all, "\n")
}
