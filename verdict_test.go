package shunt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
)

// A message that fails does not grow beyond what MaxSize let in: what Redis takes at the enqueue it takes at the
// verdict too.
func TestFailureFitsMaxSize(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	const most = 4096
	b := newBench(t, s.URL(), func(q *Queue) { q.MaxSize = most; q.MaxAttempts = 1 })
	k := Define(b.name, func(context.Context, string) error { return errors.New(strings.Repeat("é", 1000)) })
	if _, err := b.Receive(context.Background(), k, 1); err != nil {
		t.Fatal(err)
	}
	for _, room := range []int{0, 2, 3, 4, 100, 3000} {
		if err := b.Enqueue(context.Background(), k.Message(strings.Repeat("x", most-21-2-room))); err != nil {
			t.Fatal(room, err)
		}
	}
	b.wait(EventRejected, 6, 5*time.Second)
	all, _ := s.Do("ZRANGE", store.KeysOf(b.name).Dead, 0, -1).([]any)
	if len(all) != 6 {
		t.Errorf("%d are dead", len(all))
	}
	for _, e := range all {
		if n := len(e.([]byte)); n > most {
			t.Errorf("a dead one has %d bytes", n)
		}
	}
}

// As many orphans as workers: the verdict of the one that left its slot empty waited there for a worker.
func TestVerdictInVacantSlot(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	q := newBench(t, s.URL(), func(q *Queue) {
		q.Grace = 50 * time.Millisecond
		q.Backoff = func(int) time.Duration { return 0 }
	})
	block := make(chan struct{})
	defer close(block)
	q.receive(1, func(context.Context, int) error { <-block; return nil })
	q.enqueue(0, 2, Timeout(50*time.Millisecond))
	q.wait(EventWorkersMissing, 1, 5*time.Second)
	seen := newTally()
	other := newBench(t, s.URL())
	other.name = q.name
	other.receive(2, func(_ context.Context, i int) error { seen.add(i); return nil })
	q.until(5*time.Second, "another handles both", func() bool { return seen.distinct() == 2 })
}

// A verdict that was refused did not keep its worker from taking more and more.
func TestRefusedVerdictStopsTakes(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	q := newBench(t, p.URL(), func(q *Queue) { q.Prefetch = 16 })
	acks := redistest.Either(redistest.ByName("LREM", ".doing"), redistest.ByScript(store.Ack))
	r := p.On(acks(q.name), 0, redistest.ReplyError("NOREPLICAS Not enough good replicas to write."))
	seen := newTally()
	q.enqueue(0, 500)
	q.receive(1, func(_ context.Context, i int) error { seen.add(i); return nil })
	strikes(t, r, 5)
	if n := seen.distinct(); n > 16 {
		t.Errorf("one worker with Prefetch 16 has handled %d, of which none could be acked", n)
	}
	r.Remove()
	q.until(
		10*time.Second,
		"all is handled and acked",
		func() bool { _, n := q.leaves(q.name); return seen.distinct() == 500 && n == 0 },
	)
}

// nilError's nil pointer is an error whose Unwrap panics.
type nilError struct{ inner error }

func (e *nilError) Error() string { return "nil" }

func (e *nilError) Unwrap() error { return e.inner }

// An error whose methods panic took the process down.
func TestErrorThatPanics(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	q := newBench(t, s.URL())
	q.receive(1, func(context.Context, int) error { var e *nilError; return e })
	q.enqueue(0, 1)
	q.wait(EventRetried, 1, 5*time.Second)
	q.wait(EventReceiverError, 1, 5*time.Second)
}

// What was acked beside a retry that is refused, in the same batch, stayed in hand for as long as that was held off.
func TestAcksLeaveBesideRefusedRetry(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	q := newBench(t, p.URL(), func(q *Queue) { q.Backoff = func(int) time.Duration { return 0 } })
	var once atomic.Bool
	refused := p.On(
		redistest.ByScript(store.Retry)(q.name),
		0,
		redistest.ReplyError("WRONGTYPE Operation against a key holding the wrong kind of value"),
	)
	const n = 400
	q.enqueue(0, n)
	held := func() (n int) {
		for _, key := range s.Do("KEYS", "{"+q.name+"}.doing.*").([]any) {
			n += int(s.Do("LLEN", key).(int64))
		}
		return n
	}
	q.receive(1, func(_ context.Context, i int) error {
		// A worker begins with few, and takes fewer after a handling that took long, as one that looks does.
		if i >= 100 && i%10 == 0 && !once.Load() && held() >= 4 {
			once.Store(true)
			return errors.New("again")
		}
		return nil
	})
	strikes(t, refused, 1)
	q.until(3*time.Second, "only that is held", func() bool { return held() == 1 })
	refused.Remove()
	q.until(link.MaxTrouble+5*time.Second, "all are handled", func() bool { return q.count(EventAcked) == n })
}

// Scripts that Redis has forgotten held up all acks of a receiver, and each worker's refusal did so longer. For acks
// had been plain commands before: now these are what they fall back to.
func TestForgottenScriptHoldsUpNoAcks(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	q := newBench(t, p.URL())
	forgotten := p.On(
		redistest.ByScript(store.Ack)(q.name),
		0,
		redistest.ReplyError("NOSCRIPT No matching script. Please use EVAL."),
	)
	q.enqueue(0, 3000)
	q.receive(16, func(context.Context, int) error { return nil })
	q.wait(EventAcked, 3000, 30*time.Second)
	if n := forgotten.Struck(); n < 10 || q.count(EventReceiverError) > 0 ||
		q.count(EventLateVerdict)+q.count(EventUnconfirmedVerdict) > 0 {
		t.Errorf(
			"forgotten %d times: %d times trouble, %d lost",
			n,
			q.count(EventReceiverError),
			q.count(EventLateVerdict)+q.count(EventUnconfirmedVerdict),
		)
	}
}

// Where each script is forgotten, as a server in between may do it, a worker that finds nothing parks all the same. Its
// answer came by the script's text, ended the refusals, and so woke the worker itself: it asked 180 times a second.
func TestForgottenScriptKeepsNoWorkerBusy(t *testing.T) {
	t.Parallel()
	p := redistest.NewProxy(t, redistest.Shared(t).Addr())
	q := newBench(t, p.URL())
	full := redistest.ReplyError("OOM command not allowed when used memory > 'maxmemory'.")
	p.On(redistest.Command("RPOPLPUSH", q.name), 0, full) // so it is asked by script
	p.On(redistest.Command("BRPOPLPUSH", q.name), 0, full)
	take := redistest.ByScript(store.Take)(q.name)
	forgotten := p.On(
		func(args [][]byte) bool { return bytes.EqualFold(args[0], []byte("EVALSHA")) && take(args) },
		0,
		redistest.ReplyError("NOSCRIPT No matching script. Please use EVAL."),
	)
	q.receive(1, func(context.Context, int) error { return nil })
	redistest.Until(t, 5*time.Second, "takes by script", func() bool { return forgotten.Struck() > 0 })
	time.Sleep(2 * time.Second)
	if n := forgotten.Struck(); n > 20 {
		t.Errorf("a worker with nothing to do has asked %d times in 2 s", n)
	}
	q.enqueue(0, 10)
	q.wait(EventAcked, 10, 10*time.Second)
}

// Outcome.Ended of one that was cancelled when its retry came.
func TestCancelledRetryEnds(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	ctx := context.Background()
	p := redistest.NewProxy(t, s.Addr())
	b := newBench(t, p.URL(), func(q *Queue) { q.Backoff = func(int) time.Duration { return time.Hour } })
	o := newBench(t, s.URL())
	o.name = b.name
	b.must(b.one(1, ID("a")))
	done := make(chan Outcome, 1)
	go func() { oc, _ := o.Wait(ctx, ByID(b.name, "a")); done <- oc }()
	b.waited(s, 1)
	p.On(redistest.ByScript(store.Retry)(b.name), 1, redistest.Call(func() { o.Cancel(ctx, ByID(b.name, "a")) }))
	b.receive(1, func(context.Context, int) error { return errors.New("no") })
	oc := <-done
	if d := time.Until(oc.EndedAt); d > time.Second {
		t.Errorf("%v ended in %v", oc.Kind, d)
	}
}

// What is over of a take leaves its list together, whatever else lies there, and whatever of other messages is to be
// told or dropped.
func TestOverTogether(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		disturb disturbance
		left    string // in the doing list
	}{
		{"in order", func(func(string, ...any) any, *store.Keys, string) bool { return true }, ""},
		{"in another order", func(do func(string, ...any) any, _ *store.Keys, doing string) bool {
			do("RPOPLPUSH", doing, doing)
			return true
		}, ""},
		{"behind another", func(do func(string, ...any) any, _ *store.Keys, doing string) bool {
			do("RPUSH", doing, "another")
			return true
		}, "another"},
		{"in another order, while another was cancelled", func(do func(string, ...any) any, k *store.Keys,
			doing string) bool {
			do("SADD", k.Cancelled, "another")
			return do("EVAL", "local a, b = redis.call('LINDEX', KEYS[1], 1), redis.call('LINDEX', KEYS[1], 2) "+
				"if not b then return 0 end "+ // acks have come meanwhile
				"redis.call('LSET', KEYS[1], 1, b) redis.call('LSET', KEYS[1], 2, a) return 1", 1, doing) == int64(1)
		}, ""},
		{"while another was cancelled", func(do func(string, ...any) any, k *store.Keys, _ string) bool {
			do("SADD", k.Cancelled, "another")
			return true
		}, ""},
	} {
		for _, named := range []bool{true, false} {
			t.Run(
				c.name+map[bool]string{false: ", without ids"}[named],
				func(t *testing.T) { overTogether(t, named, c.disturb, c.left) },
			)
		}
	}
}

// disturbance changes what lies beside a message that is handled, and says whether it has.
type disturbance func(do func(string, ...any) any, k *store.Keys, doing string) bool

func overTogether(t *testing.T, named bool, disturb disturbance, stays string) {
	t.Parallel()
	const n = 200
	s := redistest.Start(t)
	b := newBench(t, s.URL())
	k := store.KeysOf(b.name)
	for i := range n {
		var opts []Option
		if named {
			opts = append(opts, ID(fmt.Sprint(i)))
		}
		b.must(b.one(i, opts...))
	}
	doings := func() (keys []string) {
		for _, key := range s.Do("KEYS", "{"+b.name+"}.doing.*").([]any) {
			keys = append(keys, string(key.([]byte)))
		}
		return keys
	}
	disturbed := false
	b.receive(1, func(ctx context.Context, i int) error {
		if disturbed || i < 40 { // a worker begins with few
			return nil
		}
		if doing := doings()[0]; s.Do("LLEN", doing).(int64) >= 3 { // which a handling that took long makes fewer
			disturbed = disturb(s.Do, k, doing)
		}
		return nil
	})
	b.wait(EventAcked, n, 10*time.Second)
	if !disturbed {
		t.Error("no three were held")
	}
	for _, key := range []any{k.IDs, k.Running} {
		if left := s.Do("HLEN", key).(int64); left > 0 {
			t.Errorf("%d left in %s", left, key)
		}
	}
	left := ""
	for _, doing := range doings() {
		for _, e := range s.Do("LRANGE", doing, 0, -1).([]any) {
			left += string(e.([]byte))
		}
	}
	if left != stays {
		t.Errorf("left in hand: %q", left)
	}
	if stats := string(s.Do("INFO", "commandstats").([]byte)); !strings.Contains(stats, "cmdstat_ltrim") {
		t.Error("none left together")
	}
}

// A message that failed because its time was over says so, whatever its handler returned.
func TestFailureNamesTheCause(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	for name, opt := range map[string]func() Option{
		"timeout":  func() Option { return Timeout(20 * time.Millisecond) },
		"deadline": func() Option { return Deadline(time.Now().Add(1500 * time.Millisecond)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := newBench(t, s.URL(), func(q *Queue) { q.MaxAttempts = 1 })
			q.receive(1, func(ctx context.Context, _ int) error { <-ctx.Done(); return ctx.Err() })
			q.must(q.one(1, opt()))
			q.wait(EventRejected, 1, 5*time.Second)
			es, err := q.List(t.Context(), q.name, StateDead, 0, 0)
			if err != nil || len(es) != 1 || !strings.Contains(es[0].Failure, "the ") ||
				!strings.Contains(es[0].Failure, name+" has passed: context ") {
				t.Errorf("%+v, %v", es, err)
			}
		})
	}
}
