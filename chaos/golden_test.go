package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
	"github.com/shuntmq/shunt/internal/trial"
)

// Everything that any version ever wrote is handled with its payload as it was. What only a newer version can read goes
// to dead untouched. An operator who has upgraded gets it back as it was.
func TestGoldenElementsAreHandled(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "internal", "element", "testdata", "elements-v1.txt"))
	if err != nil {
		t.Fatal(err)
	}
	var raws, newer [][]byte
	want := make(map[string]int)
	for block := range strings.SplitSeq(string(text), "\n\n") {
		var raw, payload []byte
		is, isNewer, isOver := false, false, false
		for line := range strings.SplitSeq(block, "\n") {
			word, rest, _ := strings.Cut(line, " ")
			switch word {
			case "element":
				if raw, err = hex.DecodeString(rest); err != nil {
					t.Fatal(err)
				}
				is = true
			case "newer":
				isNewer = true
			case "expires":
				isOver = true
			case "payload":
				s, err := strconv.Unquote(rest)
				if err != nil {
					t.Fatal(err)
				}
				payload = []byte(s)
			}
		}
		switch {
		case !is, isOver:
		case isNewer:
			newer = append(newer, raw)
		default:
			raws = append(raws, raw)
			want[string(payload)]++
		}
	}
	if len(raws) < 40 || len(newer) < 3 {
		t.Fatalf("%d golden elements, %d of a newer version", len(raws), len(newer))
	}
	s := redistest.Shared(t)
	w := newWorld(t, s, "")
	k := store.KeysOf(w.channels[0])
	for _, raw := range append(raws, newer...) {
		s.Do("LPUSH", k.Prepare, raw)
	}
	var mu sync.Mutex
	got := make(map[string]int)
	q := w.queue("golden", s.URL(), trial.Orders{})
	shutdown, err := q.Receive(context.Background(), &collector{channel: w.channels[0], take: func(p []byte) {
		mu.Lock()
		got[string(p)]++
		mu.Unlock()
	}}, 4)
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	if !w.drained(10 * time.Second) {
		t.Fatal(w.state())
	}
	if err := shutdown(ctx); err != nil {
		t.Error(err)
	}
	for p, n := range want {
		if got[p] != n {
			t.Errorf("payload %q handled %d times, want %d", p, got[p], n)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d payloads, want %d", len(got), len(want))
	}
	es, err := q.List(ctx, w.channels[0], shunt.StateDead, 0, 0)
	if err != nil || len(es) != len(newer) {
		t.Fatalf("%d are dead, want %d: %v", len(es), len(newer), err)
	}
	if n, err := q.RetryDead(ctx, w.channels[0], es...); err != nil || n != len(newer) {
		t.Fatal(n, err)
	}
	back, err := redis.ByteSlices(s.Do("LRANGE", k.Prepare, 0, -1), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, raw := range newer {
		there := false
		for _, b := range back {
			there = there || bytes.Equal(b, raw)
		}
		if !there {
			t.Errorf("%x did not come back", raw)
		}
	}
}

// collector handles any payload.
type collector struct {
	channel string
	payload []byte
	take    func([]byte)
}

func (c *collector) Channel() string          { return c.channel }
func (c *collector) Marshal() ([]byte, error) { return c.payload, nil }
func (c *collector) Unmarshal(p []byte) (shunt.IMessage, error) {
	return &collector{c.channel, p, c.take}, nil
}
func (c *collector) Resolve(context.Context) error { c.take(c.payload); return nil }
