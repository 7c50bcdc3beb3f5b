package shunt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
)

// The test binary is also the worker process that tests kill: see startWorker below.
func init() {
	if os.Getenv("SHUNT_TEST_WORKER") != "" {
		workerMain()
		os.Exit(0)
	}
}

// orders are what a worker process is told.
type orders struct {
	URL     string
	Channel string
	Log     string // each handling is a line there, written before the handler returns
	Workers int
	Lease   time.Duration
	Takes   time.Duration // of a handler
	Killer  int           // the message that kills the process; -1: none
}

func workerMain() {
	var o orders
	if err := json.Unmarshal([]byte(os.Getenv("SHUNT_TEST_WORKER")), &o); err != nil {
		panic(err)
	}
	pool, err := NewPool(o.URL)
	if err != nil {
		panic(err)
	}
	log, err := os.OpenFile(o.Log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		panic(err)
	}
	q := &Queue{Pool: pool, Lease: o.Lease}
	kind := Define(o.Channel, func(ctx context.Context, i int) error {
		if i == o.Killer {
			self, _ := os.FindProcess(os.Getpid())
			self.Kill()
			select {}
		}
		time.Sleep(o.Takes)
		_, err := fmt.Fprintf(log, "%d\n", i)
		return err
	})
	for tries := 1; ; tries++ {
		if _, err = q.Receive(context.Background(), kind, o.Workers); err == nil {
			break
		}
		if tries == 3 || !timedOut(err) {
			panic(err)
		}
	}
	os.Stdin.Read(make([]byte, 1)) // ends with the parent
}

// startWorker starts a worker process, with more environment than the test's own.
func startWorker(t *testing.T, o orders, env ...string) *redistest.Child {
	t.Helper()
	b, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	c := redistest.Run(t, append(env, "SHUNT_TEST_WORKER="+string(b)), os.Args[0])
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the worker process said: %s", c.Said())
		}
	})
	return c
}

// handled reads the log of worker processes.
func handled(t *testing.T, path string) *tally {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	c := newTally()
	for _, line := range strings.Fields(string(b)) {
		if i, err := strconv.Atoi(line); err == nil {
			c.add(i)
		}
	}
	return c
}

// What a killed process held is handled by a survivor with a free worker.
func TestKilledProcess(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ lease, limit time.Duration }{{2 * time.Second, 3 * time.Second}, {10 * time.Second,
		15 * time.Second}} {
		t.Run(c.lease.String(), func(t *testing.T) {
			t.Parallel()
			var took time.Duration
			for range 3 { // the machine may have stood still
				if took = recovers(t, c.lease); took <= c.limit {
					return
				}
			}
			t.Errorf("recovered after %v, not %v", took, c.limit)
		})
	}
}

// recovers kills a process with 64 messages in hand and says after what time another has handled them, each once.
func recovers(t *testing.T, lease time.Duration) time.Duration {
	s := redistest.Shared(t)
	q := newBench(t, s.URL(), func(q *Queue) { q.Lease = lease })
	log := filepath.Join(t.TempDir(), "log")
	o := orders{URL: s.URL(), Channel: q.name, Log: log, Workers: 64, Lease: lease, Takes: time.Hour, Killer: -1}
	dying := startWorker(t, o)
	q.enqueue(0, 64)
	redistest.Until(t, 10*time.Second, "64 in hand", func() bool {
		st, err := q.Stats(context.Background(), q.name)
		return err == nil && st[StateDoing].Count == 64
	})
	seen := newTally()
	q.receive(64, func(_ context.Context, i int) error { seen.add(i); return nil })
	dying.Kill()
	took := redistest.Until(t, 3*lease, "all handled", func() bool { return seen.distinct() == 64 })
	t.Logf("recovered after %v", took)
	if seen.extra() > 0 {
		t.Errorf("%d duplicates", seen.extra())
	}
	return took
}

// A process that was frozen together with Redis found, with its first beat, that all leases had run out. That beat
// followed a good one. So the process called others dead that had had no time yet to come back.
func TestFrozenJudgesNobody(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	redistest.Leaks(t)
	p := redistest.NewProxy(t, s.Addr())
	q := newBench(t, p.URL(), func(q *Queue) { q.Lease = time.Second })
	k := store.KeysOf(q.name)
	pj := redistest.NewProxy(t, s.Addr())
	beats, sweeps := pj.On(
		redistest.ByScript(store.Beat)(q.name),
		0,
		redistest.Pass,
	), pj.On(
		redistest.ByScript(store.Sweep)(q.name),
		0,
		redistest.Pass,
	)
	judge := startWorker(
		t,
		orders{
			URL:     pj.URL(),
			Channel: q.name,
			Log:     filepath.Join(t.TempDir(), "log"),
			Workers: 1,
			Lease:   3 * time.Second,
			Killer:  -1,
		},
	)
	q.receive(1, func(context.Context, int) error { return nil })
	redistest.Until(t, 5*time.Second, "both are there", func() bool { return len(members(t, s, k.Receivers)) == 2 })
	strikes(t, beats, beats.Struck()+2)
	time.Sleep(200 * time.Millisecond) // the reply is there, which nothing tells; the next beat comes a second after it
	p.Hole(true)
	if err := judge.Stop(); err != nil {
		t.Fatal(err)
	}
	s.Stop()
	time.Sleep(1600 * time.Millisecond) // more than a term of the shorter lease
	s.Cont()
	n := sweeps.Struck()
	if err := judge.Cont(); err != nil {
		t.Fatal(err)
	}
	strikes(t, sweeps, n+1)
	time.Sleep(100 * time.Millisecond) // the owner is back a little later, in less than a quarter of its lease
	p.Hole(false)
	q.wait(EventHandedOver, 1, 10*time.Second)
	for _, dead := range members(t, s, k.DeadReceivers) {
		if strings.HasSuffix(dead, " r") {
			t.Errorf("called dead: %s", dead)
		}
	}
}

// A message that kills its process each time ends in dead, and takes no innocent with it.
func TestPoison(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	q := newBench(t, s.URL(), func(q *Queue) { q.Lease = time.Second })
	log := filepath.Join(t.TempDir(), "log")
	const innocents = 1000
	q.enqueue(0, innocents/2)
	q.enqueue(innocents, innocents+1)
	q.enqueue(innocents/2, innocents)
	o := orders{
		URL:     s.URL(),
		Channel: q.name,
		Log:     log,
		Workers: 64,
		Lease:   time.Second,
		Takes:   10 * time.Millisecond,
		Killer:  innocents,
	}
	deaths, began := 0, time.Now()
	current := startWorker(t, o)
	t.Cleanup(func() {
		st, err := q.Stats(context.Background(), q.name)
		rs, _ := q.Receivers(context.Background(), q.name)
		t.Log(st, err, rs, handled(t, log).distinct())
	})
	redistest.Until(t, 60*time.Second, "the killer is dead and the innocents are handled", func() bool {
		if current.Gone() {
			deaths++
			t.Logf("death %d after %v", deaths, time.Since(began))
			current = startWorker(t, o)
		}
		st, err := q.Stats(context.Background(), q.name)
		return err == nil && st[StateDead].Count > 0 && handled(t, log).distinct() == innocents &&
			st[StateDoing].Count == 0
	})
	es, err := q.List(context.Background(), q.name, StateDead, 0, 0)
	if err != nil || len(es) != 1 || string(es[0].Payload) != strconv.Itoa(innocents) || es[0].Recoveries != 4 ||
		!strings.Contains(es[0].Failure, "dying process") {
		t.Errorf("dead: %+v %v", es, err)
	}
	if deaths != 4 {
		t.Errorf("%d processes died", deaths)
	}
	t.Logf("%d deaths, %d duplicates", deaths, handled(t, log).extra())
}

// A server at maxmemory takes nothing new and drains.
func TestFullRedis(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "maxmemory 8mb", "maxmemory-policy noeviction")
	redistest.Leaks(t)
	q := newBench(t, s.URL())
	ctx := context.Background()
	n := 0
	var err error
	for ; err == nil; n++ {
		err = q.Enqueue(ctx, Raw(q.name, []byte(fmt.Sprintf(`"%0*d"`, 4096, n))))
	}
	n--
	if !errors.Is(err, ErrFull) {
		t.Fatalf("%d enqueued, then %v", n, err)
	}
	t.Logf("%d enqueued, then %v", n, err)
	s.Do("CONFIG", "SET", "maxmemory", "4mb") // far beyond it, so that takes too are refused until half is drained
	if err := q.Enqueue(ctx, Raw(q.name, []byte("1")), In(time.Second)); !errors.Is(err, ErrFull) {
		t.Errorf("later: %v", err)
	}
	var done atomic.Int64
	began := time.Now()
	shutdown, err := q.Receive(
		ctx,
		Define(q.name, func(_ context.Context, s string) error { done.Add(1); return nil }),
		4,
	)
	if err != nil {
		t.Fatal(err)
	}
	redistest.Until(t, 20*time.Second, "drained", func() bool { return int(done.Load()) == n })
	t.Logf("drained after %v", time.Since(began))
	if err := q.Enqueue(ctx, Raw(q.name, []byte(`"x"`))); err != nil {
		t.Error(err)
	}
	redistest.Until(t, 5*time.Second, "the next is handled", func() bool { return int(done.Load()) == n+1 })
	if err := shutdown(ctx); err != nil {
		t.Error(err)
	}
}

// A keeper that is killed leaves nothing behind, and its successor keeps the time.
func TestKilledKeeper(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	q := newBench(t, s.URL(), func(q *Queue) { q.Lease = time.Second })
	o := orders{
		URL:     s.URL(),
		Channel: q.name,
		Log:     filepath.Join(t.TempDir(), "log"),
		Workers: 1,
		Lease:   time.Second,
		Killer:  -1,
	}
	dying := startWorker(t, o)
	keeper := "{" + q.name + "}.keeper"
	redistest.Until(t, 10*time.Second, "it keeps", func() bool { return s.Do("EXISTS", keeper).(int64) == 1 })
	dying.Kill()
	seen := newTally()
	shutdown := q.receive(2, func(_ context.Context, i int) error { seen.add(i); return nil })
	q.wait(EventReceiversDied, 1, 15*time.Second)
	redistest.Until(t, 10*time.Second, "it is succeeded", func() bool {
		vs := s.Do("HGET", keeper, "name")
		b, _ := vs.([]byte)
		rs, err := q.Receivers(context.Background(), q.name)
		return err == nil && len(rs) == 2 && string(b) == rs[0].Name &&
			rs[0].Alive && time.Until(rs[0].LeaseEndsAt) > 0 && rs[0].NextSweepAt.IsZero() &&
			!rs[1].Alive && rs[1].LeaseEndsAt.IsZero() && !rs[1].NextSweepAt.IsZero()
	})
	began := time.Now()
	q.enqueue(0, 1, In(200*time.Millisecond))
	redistest.Until(t, 5*time.Second, "handled", func() bool { return seen.distinct() == 1 })
	if took := time.Since(began); took < 200*time.Millisecond || took > 2*time.Second {
		t.Errorf("handled after %v", took)
	}
	if err := shutdown(context.Background()); err != nil {
		t.Error(err)
	}
	for _, key := range keysLeft(t, s, q.name) {
		if !strings.HasSuffix(key, "}.receivers.dead") && s.Do("PTTL", key).(int64) == -1 {
			t.Errorf("left for ever: %s", key)
		}
	}
}

// Where more is due than a call moves, two go together, and what the first has moved is told although the second is
// refused.
func TestPromoteBehind(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	b := newBench(t, p.URL())
	const n = 5 * promoteMost
	at := time.Now().Add(100 * time.Millisecond)
	b.enqueue(0, n, At(at))
	b.until(time.Second, "all are due", func() bool { return time.Now().After(at) })
	refused := p.On(
		redistest.ByScript(store.Promote)(b.name),
		3,
		redistest.ReplyError("BUSY Redis is busy running a script."),
	)
	seen := newTally()
	b.receive(2, func(_ context.Context, i int) error { seen.add(i); return nil })
	b.until(10*time.Second, "all are handled, and their Events have come", func() bool {
		return b.count(EventAcked) == n && b.sum(EventPromoted) >= n
	})
	strikes(t, refused, 1)
	if got := b.sum(EventPromoted); got != n || seen.distinct() != n {
		t.Errorf("promoted %d, handled %d of %d", got, seen.distinct(), n)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var moved []int
	for _, e := range b.events {
		if e.Kind == EventPromoted {
			moved = append(moved, e.N)
		}
	}
	if want := []int{promoteMost, promoteMost, promoteMost, 2 * promoteMost}; !slices.Equal(moved, want) {
		t.Errorf("moved %v, want %v", moved, want)
	}
}
