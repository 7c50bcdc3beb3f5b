package sender

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// bench is a Sender before a server, on a channel of its own.
type bench struct {
	*Sender
	t    testing.TB
	keys *store.Keys
	data *link.Link
}

// asker is a link that sends once.
type asker struct{ l *link.Link }

func (a asker) Ask(ctx context.Context, _ string, fill func(*link.Call)) ([]link.Reply, bool, error) {
	c := link.NewCall()
	fill(c)
	err := a.l.Run(ctx, c)
	return c.Replies, false, err
}

// newBench makes a Sender whose enqueues without a deadline take up to timeout.
func newBench(t testing.TB, addr string, timeout time.Duration) *bench {
	pool := redistest.Pool(t, addr)
	node := link.NewNode(pool, link.Settings{DialTimeout: time.Second, MaxBackoff: 50 * time.Millisecond})
	data := link.New(node, 10*time.Second, true)
	router := link.NewRouter(&link.Server{Node: node, Data: data})
	b := &bench{Sender: New(router, asker{data}, timeout), t: t, keys: store.KeysOf(redistest.Name(t)), data: data}
	t.Cleanup(data.Close)
	return b
}

// message makes a message; id and expires may be empty.
func (b *bench) message(payload, id string, expires time.Duration, due store.Due) *Message {
	m := &Message{
		Keys:    b.keys,
		Due:     due,
		Element: element.Element{Serial: element.NewSerialAt(time.Now()), Payload: []byte(payload)},
	}
	if id != "" || expires > 0 {
		m.Element.Extra = &element.Extra{ID: id, Expires: expires.Milliseconds()}
	}
	return m
}

// send sends one message that is not refused.
func (b *bench) send(m *Message) time.Time {
	b.t.Helper()
	due, refused, err := b.Send(context.Background(), m)
	if err != nil || refused.Record != nil {
		b.t.Fatalf("refused: %q, error: %v", refused.Record, err)
	}
	return due
}

// lengths are those of prepare and delay.
func (b *bench) lengths(s *redistest.Server) [2]int64 {
	return [2]int64{s.Do("LLEN", b.keys.Prepare).(int64), s.Do("ZCARD", b.keys.Delay).(int64)}
}
