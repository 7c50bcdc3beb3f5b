package shunt

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
)

// What was enqueued under a key is not enqueued again, whatever has become of it.
func TestEnqueueOnce(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		b := newBench(t, s.URL())
		ctx := context.Background()
		once := func(key, note string, ms ...IMessage) OnceResult {
			t.Helper()
			res, err := b.EnqueueOnce(ctx, Once{Channel: b.name, Key: key, Note: note}, ms...)
			b.must(err)
			return res
		}
		raw := Raw(b.name, []byte("x"))
		first := once("k", "n", raw, With(raw, ID("a")), With(raw, In(time.Hour)), With(raw, ID("b"), In(time.Hour)))
		if first.Before || len(first.Refs) != 4 || first.Refs[1].ID != "a" || errors.Join(first.Errs...) != nil {
			t.Fatalf("%+v", first)
		}
		again := once("k", "other", raw)
		if !again.Before || again.Note != "n" || len(again.Refs) != 4 || again.Refs[3].Serial != first.Refs[3].Serial {
			t.Fatalf("%+v", again)
		}
		stats, err := b.Stats(ctx, b.name)
		b.must(err)
		if stats[StatePrepare].Count != 2 || stats[StateDelay].Count != 2 {
			t.Fatalf("%+v", stats)
		}
		if st := b.status("b"); st.State != StateDelay || st.DueAt.Before(time.Now().Add(50*time.Minute)) {
			t.Fatalf("%+v", st)
		}
		mixed := once("mixed", "", With(raw, ID("a")), With(raw, ID("c"), Expire(time.Hour)))
		if !errors.Is(mixed.Errs[0], ErrDuplicate) || mixed.Refs[0] != (Ref{}) || mixed.Refs[1].Serial == "" {
			t.Fatalf("%+v", mixed)
		}
		if again := once("mixed", "", raw); again.Refs[0] != (Ref{}) || again.Refs[1].Serial != mixed.Refs[1].Serial {
			t.Fatalf("%+v", again)
		}
		if none := once("none", "", With(raw, ID("a"))); !errors.Is(none.Errs[0], ErrDuplicate) {
			t.Fatalf("%+v", none)
		}
		for _, id := range []string{"a", "b", "c"} {
			if _, err := b.Cancel(ctx, ByID(b.name, id)); err != nil {
				t.Fatal(err)
			}
		}
		if !once("k", "", raw).Before {
			t.Error("the key has gone with its messages")
		}
		if once("none", "", With(raw, ID("a"))).Before {
			t.Error("what came to nothing was noted")
		}
		always := Once{Channel: b.name, Key: "always", Note: "n", Always: true}
		for _, before := range []bool{false, true} {
			res, err := b.EnqueueOnce(ctx, always, With(raw, ID("a")))
			if b.must(err); res.Before != before || res.Refs[0] != (Ref{}) || res.Note != "n" {
				t.Errorf("all were refused: %+v, want Before %v", res, before)
			}
			if _, err := b.Cancel(ctx, ByID(b.name, "a")); (err == nil) == before {
				t.Error(err)
			}
		}
	})
}

// Of many at once one enqueues, and all are told the same.
func TestEnqueueOnceRace(t *testing.T) {
	t.Parallel()
	b := newBench(t, redistest.Shared(t).URL())
	var all sync.WaitGroup
	var mu sync.Mutex
	serials, did := make(map[string]bool), 0
	for range 20 {
		all.Go(func() {
			res, err := b.EnqueueOnce(context.Background(), Once{Channel: b.name, Key: "k"}, Raw(b.name, nil))
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
				return
			}
			if serials[res.Refs[0].Serial] = true; !res.Before {
				did++
			}
		})
	}
	all.Wait()
	if len(serials) != 1 || did != 1 {
		t.Errorf("%d did it, with %v", did, serials)
	}
}

// A lost reply doubles nothing: the call asks again, and finds its own row.
func TestEnqueueOnceLostReply(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	b := newBench(t, p.URL())
	b.must(b.one(1))
	p.On(redistest.Command("EVALSHA", ".once."), 1, redistest.CutAfter)
	p.On(redistest.Command("EVAL", ".once."), 1, redistest.CutAfter)
	res, err := b.EnqueueOnce(context.Background(), Once{Channel: b.name, Key: "k"}, Raw(b.name, nil))
	if err != nil || res.Before || res.Refs[0].Serial == "" {
		t.Fatalf("%+v %v", res, err)
	}
	if n, _ := redis.Int(s.Do("LLEN", store.KeysOf(b.name).Prepare), nil); n != 2 {
		t.Errorf("%d wait, want 2", n)
	}
}

// The key is kept for as long as was asked.
func TestEnqueueOnceEnds(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	b := newBench(t, s.URL())
	for _, c := range []struct{ ask, want time.Duration }{{0, 24 * time.Hour}, {time.Minute, time.Minute}} {
		o := Once{Channel: b.name, Key: c.ask.String(), For: c.ask}
		if _, err := b.EnqueueOnce(context.Background(), o, Raw(b.name, nil)); err != nil {
			t.Fatal(err)
		}
		ms, err := redis.Int64(s.Do("PTTL", store.KeysOf(b.name).OnceRow(o.Key)), nil)
		if left := time.Duration(ms) * time.Millisecond; err != nil || left > c.want || left < c.want-10*time.Second {
			t.Errorf("%v is kept for %v, %v", c.ask, left, err)
		}
	}
}

// What is wrong with a call enqueues nothing.
func TestEnqueueOnceRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t, redistest.Shared(t).URL())
	raw := Raw(b.name, nil)
	for _, c := range []struct {
		name string
		o    Once
		ms   []IMessage
		part string
	}{
		{"no key", Once{Channel: b.name}, []IMessage{raw}, "Key has 0 bytes"},
		{"long key", Once{Channel: b.name, Key: strings.Repeat("k", 256)}, []IMessage{raw}, "Key has 256 bytes"},
		{"long note", Once{Channel: b.name, Key: "k", Note: strings.Repeat("k", 256)}, []IMessage{raw}, "Note has 256"},
		{"negative", Once{Channel: b.name, Key: "k", For: -1}, []IMessage{raw}, "For is -1ns"},
		{"no message", Once{Channel: b.name, Key: "k"}, nil, "of 0 messages"},
		{"many", Once{Channel: b.name, Key: "k"}, make([]IMessage, 101), "of 101 messages"},
		{"no channel", Once{Key: "k"}, []IMessage{raw}, "channel"},
		{"another channel", Once{Channel: b.name, Key: "k"}, []IMessage{raw, Raw("x", nil)}, `for channel "x"`},
		{"nil", Once{Channel: b.name, Key: "k"}, []IMessage{raw, nil}, "the message is nil"},
		{"late", Once{Channel: b.name, Key: "k"}, []IMessage{raw, With(raw, At(time.Now().Add(time.Hour)),
			Expire(time.Second))},
			"Expire ends before At"},
	} {
		if _, err := b.EnqueueOnce(context.Background(), c.o, c.ms...); err == nil || !strings.Contains(err.Error(),
			c.part) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if stats, err := b.Stats(context.Background(), b.name); err != nil || stats[StatePrepare].Count != 0 {
		t.Errorf("%+v %v", stats, err)
	}
}
