package shunt

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"golang.org/x/sync/errgroup"

	"github.com/shuntmq/shunt/internal/lists"
	"github.com/shuntmq/shunt/internal/redistest"
)

// DeliverAll uses the memory of chunks again: what it delivered must not change while others are made, whatever their sizes.
func TestDeliverAllReuses(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, back redistest.Backend) {
		q := newBench(t, back.URL())
		const callers, calls = 8, 15
		var g errgroup.Group
		for caller := range callers {
			g.Go(func() error {
				random := rand.New(rand.NewPCG(1, uint64(caller)))
				for call := range calls {
					var ms []IMessage
					for i := range 1 + random.IntN(120) {
						text := fmt.Sprintf("%d-%d-%d ", caller, call, i)
						ms = append(ms, Raw(fmt.Sprint(q.name, i%2), bytes.Repeat([]byte(text), 1+random.IntN(40))))
					}
					if err := q.DeliverAll(t.Context(), ms); err != nil {
						return err
					}
				}
				return nil
			})
		}
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
		seen := make(map[string]bool)
		for i := range 2 {
			elements, err := redis.ByteSlices(back.Do("LRANGE", lists.KeysOf(fmt.Sprint(q.name, i)).Prepare, 0, -1), nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, raw := range elements {
				e, err := lists.Decode(raw)
				text, _, _ := bytes.Cut(e.Payload, []byte(" "))
				if err != nil || e.Bare || seen[string(text)] || !bytes.Equal(bytes.Repeat(append(text, ' '), len(e.Payload)/(len(text)+1)), e.Payload) {
					t.Fatalf("%q is there twice or not as it was delivered: %q, %v", text, raw, err)
				}
				seen[string(text)] = true
			}
		}
		q.until(5*time.Second, fmt.Sprintf("%d Delivered", len(seen)), func() bool { return q.sum(Delivered) == len(seen) })
	})
}
