package shunt

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"golang.org/x/sync/errgroup"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
)

// EnqueueAll uses the memory of chunks again: what it enqueued must not change while others are made, whatever their
// sizes.
func TestEnqueueAllReuses(t *testing.T) {
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
					if err := q.EnqueueAll(t.Context(), ms); err != nil {
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
			elements, err := redis.ByteSlices(
				back.Do("LRANGE", store.KeysOf(fmt.Sprint(q.name, i)).Prepare, 0, -1),
				nil,
			)
			if err != nil {
				t.Fatal(err)
			}
			for _, raw := range elements {
				e, err := element.Decode(raw)
				text, _, _ := bytes.Cut(e.Payload, []byte(" "))
				if err != nil || e.Bare || seen[string(text)] ||
					!bytes.Equal(bytes.Repeat(append(text, ' '), len(e.Payload)/(len(text)+1)), e.Payload) {
					t.Fatalf("%q is there twice or not as it was enqueued: %q, %v", text, raw, err)
				}
				seen[string(text)] = true
			}
		}
		q.until(
			5*time.Second,
			fmt.Sprintf("%d Enqueued", len(seen)),
			func() bool { return q.sum(EventEnqueued) == len(seen) },
		)
	})
}

// A chunk whose reply is lost is unknown, message by message; the others are there.
func TestEnqueueAllTellsEach(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	q := newBench(t, p.URL())
	var ms []IMessage
	var odd []int
	for i := range 10 {
		ms = append(ms, Raw(fmt.Sprint(q.name, i%2), []byte{byte(i)}))
		if i%2 == 1 {
			odd = append(odd, i)
		}
	}
	ms[4] = Raw("no channel", nil)
	lost := p.On(redistest.ByName("LPUSH", ".prepare")(q.name+"1"), 1, redistest.CutAfter)
	err := q.EnqueueAll(t.Context(), ms)
	strikes(t, lost, 1)
	var told *EnqueueError
	if !errors.As(err, &told) || !errors.Is(told.Unknown[1], ErrUnknown) {
		t.Fatal(err)
	}
	// What was on its way on the same connection may be unknown too.
	for _, i := range odd {
		if told.Unknown[i] == nil {
			t.Errorf("message %d is not unknown: %v", i, err)
		}
	}
	if failed := slices.Collect(maps.Keys(told.Failed)); !slices.Equal(failed, []int{4}) {
		t.Errorf("failed: %v", failed)
	}
	for i, want := range []int64{4, 5} {
		got := s.Do("LLEN", store.KeysOf(fmt.Sprint(q.name, i)).Prepare)
		if got != want &&
			(i == 1 || got != int64(0) || told.Unknown[0] == nil) { // a chunk is there as a whole or not at all
			t.Errorf("%v in channel %d, want %d", got, i, want)
		}
	}
}

// Chunks have at most 1,000 elements or 1 MB, and keep the order.
func TestEnqueueAllChunks(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	q := newBench(t, p.URL())
	enqueue := func(n, size int) {
		t.Helper()
		var ms []IMessage
		for i := range n {
			ms = append(ms, Raw(q.name, fmt.Appendf(bytes.Repeat([]byte("."), size), "%04d", i)))
		}
		if err := q.EnqueueAll(t.Context(), ms); err != nil {
			t.Fatal(err)
		}
	}
	pushes := redistest.ByName("LPUSH", ".prepare")(q.name)
	enqueue(2500, 0)
	if n := p.Count(pushes); n != 3 {
		t.Errorf("2,500 messages went in %d commands, want 3", n)
	}
	elements, err := redis.ByteSlices(s.Do("LRANGE", store.KeysOf(q.name).Prepare, 0, -1), nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, raw := range slices.Backward(elements) {
		e, _ := element.Decode(raw)
		if want := fmt.Sprintf("%04d", len(elements)-1-i); string(e.Payload) != want {
			t.Fatalf("%q at the place of %s", e.Payload, want)
		}
	}
	p.ResetCounts()
	enqueue(5, 400<<10)
	if n := p.Count(pushes); n != 3 {
		t.Errorf("5 messages of 400 KB went in %d commands, want 3", n)
	}
}
