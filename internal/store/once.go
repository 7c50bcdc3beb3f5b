package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/oklog/ulid/v2"

	"github.com/shuntmq/shunt/internal/link"
)

// Once is the script of EnqueueOnce.
var Once = script("ids", "stamp", "once")

// OnceMost bounds the messages of one Once, as its script unpacks them.
const OnceMost = 100

// OnceMessage is one message of a Once.
type OnceMessage struct {
	Mode    Mode
	MS      int64
	ID      string
	Expires int64 // ms after the enqueue; 0: never; negative: it may be due later
	Raw     []byte
}

// OnceAnswer is what a Once has done, or another one before it.
type OnceAnswer struct {
	Before  bool        // the row was there, and nothing was enqueued
	Note    string      // of the row
	Serials []ulid.ULID // of the row: those enqueued, zero for one that was refused
	Refused []Refusal   // not Before: for each message
}

// OnceRow is the row of a key, which may be any text.
func (k *Keys) OnceRow(key string) string {
	sum := sha256.Sum256([]byte(key))
	return "{" + k.Name + "}.once." + hex.EncodeToString(sum[:])
}

// RunOnce enqueues messages unless the key has a row, which is kept for some time. always: the row is written also
// where all were refused.
func RunOnce(
	ctx context.Context, a Asker, k *Keys, key string, keep time.Duration, note string, always bool,
	ms []OnceMessage,
) (o OnceAnswer, err error) {
	replies, _, err := a.Ask(ctx, k.Name, func(c *link.Call) {
		args := make([]any, 0, 8+5*len(ms))
		args = append(args, k.OnceRow(key), k.Prepare, k.Delay, k.IDs, k.Running, max(1, keep.Milliseconds()), note, "")
		if always {
			args[7] = "always"
		}
		for _, m := range ms {
			args = append(args, string(m.Mode), m.MS, m.ID, m.Expires, m.Raw)
		}
		c.AddScript(Once, 5, args...)
	})
	if err != nil {
		return o, err
	}
	vs, err := redis.Values(replies[0].Any(), replies[0].Err)
	if err != nil {
		return o, err
	}
	wrong := func() (OnceAnswer, error) { return OnceAnswer{}, fmt.Errorf("shunt: once answered %v", vs) }
	if len(vs) == 0 {
		return wrong()
	}
	if vs[0] == int64(1) {
		o.Refused, err = refusals(vs[1:], len(ms))
		return o, err
	}
	if len(vs) < 2 {
		return wrong()
	}
	row := bytesOf(vs[1])
	if len(row) == 0 || len(row) < 1+int(row[0]) || (len(row)-1-int(row[0]))%16 != 0 {
		return wrong()
	}
	o.Before, o.Note = true, string(row[1:1+row[0]])
	for rest := row[1+row[0]:]; len(rest) > 0; rest = rest[16:] {
		o.Serials = append(o.Serials, ulid.ULID(rest[:16]))
	}
	return o, nil
}
