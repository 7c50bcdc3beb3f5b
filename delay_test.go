package shunt

import (
	"context"
	"errors"
	"math"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
)

// A receiver shut down before it heard that it had been made keeper, and the place stayed taken.
func TestUnheardKeeperYields(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	p := redistest.NewProxy(t, s.Addr())
	q := newBench(t, p.URL())
	sweep, keeper := redistest.ByScript(store.Sweep)(q.name), store.KeysOf(q.name).Keeper
	p.On(asksToKeep(sweep), 1, redistest.Delay(400*time.Millisecond))
	shutdown := q.receive(1, func(context.Context, int) error { return nil })
	redistest.Until(t, 5*time.Second, "it is keeper", func() bool { return s.Do("EXISTS", keeper).(int64) == 1 })
	if err := shutdown(context.Background()); err != nil {
		t.Error(err)
	}
	redistest.Until(t, 5*time.Second, "nothing is left", func() bool { return len(keysLeft(t, s, q.name)) == 0 })
}

// A sweep asked to be keeper in the name of an incarnation, and Redis ran it when a handover had ended that one. So
// nobody kept the channel's time for 15 s.
func TestKeeperOfAnEndedIncarnation(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	p := redistest.NewProxy(t, s.Addr())
	b := newBench(t, p.URL())
	at := b.keepsTime(s)
	keys, over := store.KeysOf(b.name), make(chan struct{})
	keeper := func() string {
		name, _ := redis.String(s.TryDo("HGET", keys.Keeper, "name"))
		return name
	}
	before := keeper()
	held := p.On(asksToKeep(redistest.ByScript(store.Sweep)(b.name)), 1, redistest.Call(func() { <-over }))
	s.Do("PUBLISH", keys.Delay, "vacant")
	b.until(5*time.Second, "it asks to be keeper", func() bool { return held.Struck() > 0 })
	p.On(redistest.ByName("LREM", "")(b.name), 1, redistest.CutAfter)
	b.enqueue(1, 2)
	b.comes(at, 1)
	b.wait(EventHandedOver, 1, 5*time.Second)
	b.until(5*time.Second, "the place is free", func() bool { return keeper() == "" })
	close(over)
	b.until(3*time.Second, "the next incarnation is keeper", func() bool {
		name := keeper()
		return name != "" && name != before
	})
}

// asksToKeep narrows the sweeps down to those that ask to be keeper.
func asksToKeep(sweep redistest.Match) redistest.Match {
	return func(args [][]byte) bool {
		if !sweep(args) {
			return false
		}
		keys, err := strconv.Atoi(string(args[2]))
		return err == nil && len(args) > keys+6 && len(args[keys+6]) > 0
	}
}

// The hint of a new earliest message came after the sweep had read delay and made its caller the keeper, and before the
// answer.
func TestHintBeforeKeeperKnows(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	p := redistest.NewProxy(t, s.Addr())
	q := newBench(t, p.URL())
	p.On(asksToKeep(redistest.ByScript(store.Sweep)(q.name)), 1, redistest.Delay(400*time.Millisecond))
	at := make(chan time.Time, 1)
	q.receive(1, func(context.Context, int) error { at <- time.Now(); return nil })
	redistest.Until(
		t,
		5*time.Second,
		"it is keeper",
		func() bool { return s.Do("EXISTS", store.KeysOf(q.name).Keeper).(int64) == 1 },
	)
	other := newBench(t, s.URL())
	due := time.Now().Add(500 * time.Millisecond)
	if err := other.Enqueue(context.Background(), q.kind(nil).Message(1), At(due)); err != nil {
		t.Fatal(err)
	}
	select {
	case a := <-at:
		if late := a.Sub(due); late > 2*time.Second {
			t.Errorf("late by %v", late)
		}
	case <-time.After(10 * time.Second):
		t.Error("not handled")
	}
}

// The server's clock was cut to the millisecond before the wait was added: a message was due up to 1 ms early.
func TestDueIsNeverEarly(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	q := newBench(t, s.URL())
	now := func() int64 { // µs
		at, err := redis.Int64s(s.TryDo("TIME"))
		if err != nil {
			t.Error(err)
			return 0
		}
		return at[0]*1_000_000 + at[1]
	}
	const wait = time.Hour
	dues := func() []int64 { // ms
		var vs []int64
		raw, _ := redis.Strings(s.Do("ZRANGE", store.KeysOf(q.name).Delay, 0, -1, "WITHSCORES"), nil)
		for i := 1; i < len(raw); i += 2 {
			due, err := strconv.ParseInt(raw[i], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			vs = append(vs, due)
		}
		return vs
	}
	check := func(what string, said []int64) {
		t.Helper()
		got := dues()
		slices.Sort(said)
		if len(got) != len(said) {
			t.Fatalf("%s: %d in delay, want %d", what, len(got), len(said))
		}
		for i, due := range got {
			if early := time.Duration(said[i]+wait.Microseconds()-due*1000) * time.Microsecond; early > 0 {
				t.Errorf("%s: due %v early", what, early)
			}
		}
	}
	var mu sync.Mutex
	var said []int64
	for i := range 100 {
		said = append(said, now())
		q.enqueue(i, i+1, In(wait))
	}
	check("In", said)
	s.Do("DEL", store.KeysOf(q.name).Delay)
	said = nil
	q.receive(1, func(context.Context, int) error {
		mu.Lock()
		defer mu.Unlock()
		said = append(said, now())
		return RetryAfter(wait, errors.New("later"))
	})
	for i := range 100 {
		q.enqueue(i, i+1)
		q.wait(EventRetried, i+1, 5*time.Second)
	}
	mu.Lock()
	defer mu.Unlock()
	check("RetryAfter", said)
}

// A sweep's reply was lost with whom it had claimed. A hint in between swept at once, found the claim, and put the next
// sweep off by 5 s.
func TestHintBesideFailedSweep(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	p := redistest.NewProxy(t, s.Addr())
	q := newBench(t, p.URL(), func(q *Queue) { q.Lease = 4 * time.Second }) // a claim lasts half of it
	k, gone := store.KeysOf(q.name), store.NewIncarnation(1, time.Second)
	s.Do("LPUSH", k.Doing(gone, 0), "1")
	s.Do("ZADD", k.DeadReceivers, 1, gone.Name+" 1 s")
	claimed := redistest.ByScript(store.Sweep)(q.name)
	lost, sweeps := p.On(claimed, 1, redistest.CutAfter), p.On(claimed, 0, redistest.Pass)
	q.receive(1, func(context.Context, int) error { return nil })
	strikes(t, lost, 1)
	began := time.Now()
	before := sweeps.Struck()
	redistest.Until(t, 3*time.Second, "it sweeps on the hint", func() bool {
		s.Do("PUBLISH", k.Delay, "vacant")
		return sweeps.Struck() > before
	})
	q.wait(EventRecovered, 1, 10*time.Second)
	if took := time.Since(began); took > 4*time.Second {
		t.Errorf("recovered after %v, which is not when the claim was over", took)
	}
	q.wait(EventAcked, 1, 5*time.Second)
}

// keepsTime starts a receiver and waits until it keeps its channel's time. It tries the number 2 again after a second.
// at reports the handlings that succeed.
func (b *bench) keepsTime(s redistest.Backend) (at chan int) {
	b.t.Helper()
	at = make(chan int, 10)
	b.receive(1, func(ctx context.Context, i int) error {
		if info, _ := FromContext(ctx); i == 2 && info.Attempt == 1 {
			return RetryAfter(time.Second, errors.New("once"))
		}
		at <- i
		return nil
	})
	redistest.Until(
		b.t,
		5*time.Second,
		"it keeps",
		func() bool { return s.Do("EXISTS", store.KeysOf(b.name).Keeper).(int64) == 1 },
	)
	b.enqueue(0, 1, In(200*time.Millisecond)) // the answer that makes it keeper comes before
	b.comes(at, 0)
	return at
}

// comes waits for the handling of a number: for less than a sweep, which would find it too.
func (b *bench) comes(at <-chan int, i int) {
	b.t.Helper()
	select {
	case got := <-at:
		if got != i {
			b.t.Fatalf("%d is handled, want %d", got, i)
		}
	case <-time.After(3 * time.Second):
		b.t.Fatalf("%d is not handled", i)
	}
}

// The FILETIME zero as a due time put the keeper's timer to the year 2186, and all of the channel's delays with it. The
// ms of the other wrap to a time that is ahead.
func TestAtLongPast(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		for name, past := range map[string]time.Time{"FILETIME": time.Date(1601, 1, 1, 0, 0, 0, 0, time.UTC),
			"wraps": time.Unix(-18_436_744_073_709_552, 0)} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				redistest.Leaks(t)
				b := newBench(t, s.URL())
				at := b.keepsTime(s)
				b.enqueue(1, 2, At(past))
				b.comes(at, 1)
				b.enqueue(5, 6, At(past), ID("a"))
				b.comes(at, 5)
				b.enqueue(6, 7, In(time.Hour), ID("b"))
				b.must(b.Postpone(context.Background(), ByID(b.name, "b"), At(past)))
				b.comes(at, 6)
				b.enqueue(2, 3)
				b.comes(at, 2)
				b.enqueue(3, 4, In(time.Second))
				b.comes(at, 3)
			})
		}
	})
}

// Whatever lies in delay, by another's hand: the timer is not put beyond the channel's own messages.
func TestForeignScore(t *testing.T) {
	t.Parallel()
	for _, score := range []string{"-11644473600000", "-9000000000000000", "-1e300", "-inf"} {
		t.Run(score, func(t *testing.T) {
			t.Parallel()
			s := redistest.Shared(t)
			redistest.Leaks(t)
			b := newBench(t, s.URL())
			at, delay := b.keepsTime(s), store.KeysOf(b.name).Delay
			s.Do("ZADD", delay, score, "1")
			s.Do("PUBLISH", delay, "vacant") // so it looks
			b.comes(at, 1)
			s.Do("PUBLISH", delay, score) // as an older shunt's hint
			b.enqueue(2, 3)
			b.comes(at, 2)
			b.enqueue(3, 4, In(time.Second))
			b.comes(at, 3)
		})
	}
}

// One that is due after all that an integer holds was asked for without a pause, as if it were overdue.
func TestForeignScoreFarAhead(t *testing.T) {
	t.Parallel()
	for _, score := range []string{"+inf", "1e300", "1e17"} {
		t.Run(score, func(t *testing.T) {
			t.Parallel()
			s := redistest.Shared(t)
			redistest.Leaks(t)
			p := redistest.NewProxy(t, s.Addr())
			b := newBench(t, p.URL())
			at, promote := b.keepsTime(s), redistest.ByScript(store.Promote)(b.name)
			s.Do("ZADD", store.KeysOf(b.name).Delay, score, "1")
			b.enqueue(3, 4, In(100*time.Millisecond))
			b.comes(at, 3)
			asked := p.On(promote, 0, redistest.Pass)
			time.Sleep(300 * time.Millisecond) // nothing else is in delay now
			if n := asked.Struck(); n > 10 {
				t.Errorf("%d promotions where nothing is due", n)
			}
			b.enqueue(4, 5, In(100*time.Millisecond))
			b.comes(at, 4)
		})
	}
}

// At the first ms of 1970, which a script's reply has another meaning for, what was enqueued was told as unknown.
func TestAtEpoch(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		for _, past := range []time.Time{time.Unix(0, 0), time.Unix(0, -1), time.Unix(0, 1)} {
			b := newBench(t, s.URL())
			m, ctx := b.kind(nil).Message(1), context.Background()
			for what, err := range map[string]error{"Enqueue": b.Enqueue(ctx, m, At(past)),
				"EnqueueAll": b.EnqueueAll(ctx, []IMessage{m}, At(past))} {
				if err != nil {
					t.Errorf("%s at %v: %v", what, past.UnixNano(), err)
				}
			}
			if left, n := b.leaves(b.name); left[StateDelay].Count != 2 || n != 2 {
				t.Errorf("at %v: %v, want 2 in delay", past.UnixNano(), left)
			}
		}
	})
}

// A deadline whose ms wrap became none.
func TestDeadlineFar(t *testing.T) {
	t.Parallel()
	for _, at := range []time.Time{time.Unix(1<<60, 0), time.Date(300_000_000, 1, 1, 0, 0, 0, 0, time.UTC)} {
		var d draft
		if err := Deadline(at)(&d); err != nil {
			t.Error(err)
		} else if left := time.Until(time.UnixMilli(d.extra().Deadline)); (left - store.MaxWait).Abs() > time.Minute {
			t.Errorf("Deadline(%d s) is in %v, want %v", at.Unix(), left, store.MaxWait)
		}
	}
	for _, at := range []time.Time{time.Unix(-18_436_744_073_709_552, 0), time.Date(1601, 1, 1, 0, 0, 0, 0, time.UTC),
		{}} {
		var d draft
		if err := Deadline(at)(&d); err == nil || d.Element.Extra != nil {
			t.Errorf("Deadline(%d s): %v", at.Unix(), err)
		}
	}
}

// With the longest durations that there may be a handler that ignores its ended context is not given up, and nothing
// fires early.
func TestLongestDurations(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	const year = 365 * 24 * time.Hour
	b := newBench(t, s.URL(), func(q *Queue) {
		q.Timeout, q.Grace, q.ReplyTimeout, q.EnqueueTimeout, q.DeadFor = 50*time.Millisecond, year, year,
			math.MaxInt64, math.MaxInt64
	})
	at := make(chan error, 3)
	b.receive(1, func(ctx context.Context, i int) error {
		switch i {
		case 0:
			<-ctx.Done()
			time.Sleep(100 * time.Millisecond) // the watcher would give it up now
		case 1:
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
		at <- context.Cause(ctx)
		return Reject(errors.New("never"))
	})
	b.enqueue(0, 1)
	b.enqueue(1, 2, Timeout(math.MaxInt64))
	for i, want := range []error{ErrTimeout, nil} {
		select {
		case cause := <-at:
			if cause != want {
				t.Errorf("%d ended for %v, want %v", i, cause, want)
			}
		case <-time.After(5 * time.Second):
			t.Fatalf("%d is not handled", i)
		}
	}
	b.wait(EventRejected, 2, 5*time.Second)
	if n := b.count(EventOrphaned) + b.count(EventReceiverError) + b.count(EventTrimmed); n > 0 {
		t.Errorf("%d events of what should not happen", n)
	}
	if left, _ := b.leaves(b.name); left[StateDead].Count != 2 {
		t.Errorf("%v, want 2 in dead", left)
	}
}
