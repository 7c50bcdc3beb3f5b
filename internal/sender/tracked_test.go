package sender

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
)

// A tracked message is there once, however often it is sent.
func TestTrackedIsResent(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	for name, c := range map[string]struct {
		script  interface{ Digest() string }
		id      string
		expires time.Duration
		due     store.Due
		want    [2]int64
	}{
		"id":          {store.Enter, "a", 0, store.Due{}, [2]int64{1, 0}},
		"id, expires": {store.Enter, "a", time.Hour, store.Due{}, [2]int64{1, 0}},
		"id, later":   {store.Enqueue, "a", 0, store.Due{In: time.Hour}, [2]int64{0, 1}},
		"expires":     {store.Enqueue, "", time.Hour, store.Due{}, [2]int64{1, 0}},
		"id, at":      {store.Enqueue, "a", 0, store.Due{At: time.Now().Add(time.Hour)}, [2]int64{0, 1}},
		"id, at now":  {store.Enqueue, "a", 0, store.Due{At: time.Now().Add(-time.Hour)}, [2]int64{1, 0}},
	} {
		for action, cut := range map[string]redistest.Action{"after": redistest.CutAfter,
			"before": redistest.CutBefore} {
			t.Run(name+", cut "+action, func(t *testing.T) {
				t.Parallel()
				p := redistest.NewProxy(t, s.Addr())
				b := newBench(t, p.Addr(), 10*time.Second)
				lost := p.On(redistest.ByScript(c.script)(b.keys.Name), 1, cut)
				due := b.send(b.message("a", c.id, c.expires, c.due))
				if due.IsZero() == c.due.Later() {
					t.Errorf("due %v", due)
				}
				if got := b.lengths(s); got != c.want || lost.Struck() != 1 {
					t.Errorf("%d in prepare and in delay, want %d; %d replies were lost", got, c.want, lost.Struck())
				}
			})
		}
	}
}

// Where Redis is full by the time of the second sending, the receipts say whether the first was executed.
func TestTrackedOnAFullRedis(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cut   redistest.Action
		there bool
	}{"executed": {redistest.CutAfter, true}, "not executed": {redistest.CutBefore, false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			p := redistest.NewProxy(t, s.Addr())
			b := newBench(t, p.Addr(), time.Second)
			p.On(redistest.ByScript(store.Enter)(b.keys.Name), 1, c.cut)
			p.On(
				redistest.ByScript(store.Enqueue)(b.keys.Name),
				1,
				redistest.Call(func() { s.TryDo("CONFIG", "SET", "maxmemory", "1") }),
			)
			_, _, err := b.Send(context.Background(), b.message("a", "id", 0, store.Due{}))
			if c.there && err != nil || !c.there && link.Classify(err) != link.Unknown {
				t.Error(err)
			}
		})
	}
}

// endedAsker is one whose caller's time ends while it asks.
type endedAsker struct {
	end   context.CancelFunc
	asked int
}

func (a *endedAsker) Ask(ctx context.Context, _ string, _ func(*link.Call)) ([]link.Reply, bool, error) {
	a.end()
	a.asked++
	return nil, false, ctx.Err()
}

// An enqueue in doubt that a full Redis refuses the second time says so, also where its time ends while the receipts
// are asked.
func TestTimeEndsOnAFullRedis(t *testing.T) {
	t.Parallel()
	p := redistest.NewProxy(t, redistest.Shared(t).Addr())
	b := newBench(t, p.Addr(), time.Second)
	p.On(redistest.ByScript(store.Enter)(b.keys.Name), 1, redistest.CutBefore)
	p.On(redistest.ByScript(store.Enqueue)(b.keys.Name), 1, redistest.ReplyError("OOM command not allowed"))
	ctx, cancel := context.WithCancel(context.Background())
	asker := &endedAsker{end: cancel}
	b.asker = asker
	_, _, err := b.Send(ctx, b.message("a", "id", 0, store.Due{}))
	if link.Classify(err) != link.Unknown || link.Code(err) != "OOM" || asker.asked != 1 {
		t.Errorf("%v, asked %d times", err, asker.asked)
	}
}

// A message that went in beside one whose id may be free by now may be there, whatever becomes of the second script.
func TestTrackedBesideStale(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := redistest.NewProxy(t, s.Addr())
	b := newBench(t, p.Addr(), time.Second)
	b.send(b.message("old", "x", time.Millisecond, store.Due{}))
	time.Sleep(5 * time.Millisecond)
	full := p.On(
		redistest.ByScript(store.Enqueue)(b.keys.Name),
		1,
		redistest.Call(func() { s.TryDo("CONFIG", "SET", "maxmemory", "1") }),
	)
	all := b.Batch()
	all.Add(0, b.message("new", "a", 0, store.Due{}))
	all.Add(1, b.message("again", "x", 0, store.Due{}))
	all.Send(context.Background(), func(_ *Chunk, _ time.Time, refused []Refused, err error) {
		if link.Classify(err) != link.Unknown {
			t.Errorf("refused %v, error: %v", refused, err)
		}
	})
	if got := b.lengths(s); got != [2]int64{2, 0} || full.Struck() != 1 {
		t.Errorf("%d in prepare and in delay", got)
	}
}

// A refusal has the record of the message that has the id, and the worker that has it in hand.
func TestRefused(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	b := newBench(t, s.Addr(), 5*time.Second)
	first := b.message("a", "id", 0, store.Due{})
	b.send(first)
	for _, holder := range []string{"", "incarnation/3 1 1700000000000"} {
		if holder != "" {
			s.Do("HSET", b.keys.Running, first.Element.Serial[:], holder)
		}
		for _, due := range []store.Due{{}, {In: time.Hour}} {
			_, refused, err := b.Send(context.Background(), b.message("b", "id", 0, due))
			r, ok := element.ParseRecord(refused.Record)
			if err != nil || !ok || r.Serial != first.Element.Serial ||
				refused.Holder != store.ParseMark([]byte(holder)) {
				t.Errorf("refused by %q, held by %+v: %v", refused.Record, refused.Holder, err)
			}
		}
	}
	if got := b.lengths(s); got != [2]int64{1, 0} {
		t.Errorf("%d in prepare and in delay", got)
	}
}

// A record that no shunt can read takes no id.
func TestUnreadableRecord(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	for i, due := range []store.Due{{}, {In: time.Hour}} {
		b := newBench(t, s.Addr(), 5*time.Second)
		s.Do("HSET", b.keys.IDs, "id", "what is this")
		b.send(b.message("a", "id", 0, due))
		if got := b.lengths(s); got[i] != 1 {
			t.Errorf("%d in prepare and in delay", got)
		}
	}
}

// Only the server can compare At with Expire: it refuses what would expire before it is due, and all that goes with it.
func TestExpiresBeforeDue(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	b := newBench(t, s.Addr(), 5*time.Second)
	at := store.Due{At: time.Now().Add(time.Hour)}
	_, _, err := b.Send(context.Background(), b.message("a", "id", time.Minute, at))
	if link.Code(err) != store.ExpiresCode {
		t.Error(err)
	}
	if n := s.Do("EXISTS", b.keys.IDs, b.keys.Receipts, b.keys.Delay); n != int64(0) {
		t.Errorf("%d keys are left", n)
	}
	b.send(b.message("a", "id", 2*time.Hour, at))
}

// Receipts go with later enqueues, and with Close; those of an enqueue that was in doubt stay.
func TestReceipts(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	b := newBench(t, p.Addr(), 5*time.Second)
	for i := range 5 * fewReceipts {
		b.send(b.message("a", fmt.Sprint(i), 0, store.Due{}))
		if n := s.Do("SCARD", b.keys.Receipts).(int64); n > fewReceipts+1 {
			t.Fatalf("%d receipts after %d enqueues", n, i+1)
		}
	}
	p.On(redistest.ByScript(store.Enter)(b.keys.Name), 1, redistest.CutAfter)
	doubtful := b.message("a", "doubtful", 0, store.Due{})
	b.send(doubtful)
	b.Sender.Close(t.Context())
	if n := s.Do("SCARD", b.keys.Receipts); n != int64(1) ||
		s.Do("SISMEMBER", b.keys.Receipts, doubtful.Element.Serial[:]) != int64(1) {
		t.Errorf("%d receipts are left", n)
	}
}

// An enqueue under way does not wait for the receipts that a Close has Redis drop.
func TestReceiptsBesideClose(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	b := newBench(t, p.Addr(), 5*time.Second)
	b.send(b.message("a", "1", 0, store.Due{}))
	dropped, free := redistest.Command("SREM", b.keys.Receipts), make(chan bool, 1)
	p.On(func(args [][]byte) bool {
		if dropped(args) {
			is := b.Sender.ledger.mu.TryLock()
			if is {
				b.Sender.ledger.mu.Unlock()
			}
			free <- is
		}
		return false
	}, 1, redistest.CutBefore)
	b.Sender.Close(t.Context())
	if !<-free {
		t.Error("the ledger is locked while Redis is asked")
	}
}

// What a channel keeps of receipts is bounded.
func TestReceiptsAreBounded(t *testing.T) {
	var l receiptLedger
	for range mostReceipts + 10 {
		l.put("c", store.Receipt("r"))
	}
	if n := len(l.had["c"]); n != mostReceipts {
		t.Errorf("%d receipts", n)
	}
	if n := len(l.take("c")); n != someReceipts {
		t.Errorf("%d receipts at once", n)
	}
	if l.take("other") != nil {
		t.Error("receipts of another channel")
	}
}

// Concurrent enqueues of the same ids: one of each comes in.
func TestGroupDuplicates(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	b := newBench(t, s.Addr(), 10*time.Second)
	const n = 200
	var wg sync.WaitGroup
	var mu sync.Mutex
	in, refusals := make(map[string]int), 0
	for i := range 2 * n {
		wg.Go(func() {
			id := fmt.Sprint(i % n)
			_, refused, err := b.Send(context.Background(), b.message("a", id, 0, store.Due{}))
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				t.Error(err)
			case refused.Record == nil:
				in[id]++
			default:
				refusals++
			}
		})
	}
	wg.Wait()
	if len(in) != n || refusals != n || b.lengths(s) != [2]int64{n, 0} {
		t.Errorf("%d ids, %d refusals, %d in prepare and in delay", len(in), refusals, b.lengths(s))
	}
}

// occupied has all enqueues by id wait for others, until release: two are under way, which are ended by it.
func (b *bench) occupied() (release func()) {
	b.t.Helper()
	send, begun, hold := b.crowd.Send, make(chan struct{}, 100), make(chan struct{})
	b.crowd.Send = func(ctx context.Context, k *store.Keys, some []*outgoing) {
		begun <- struct{}{}
		<-hold
		send(ctx, k, some)
	}
	var wg sync.WaitGroup
	for i := range 2 {
		wg.Go(func() {
			m := b.message("", fmt.Sprint("first", i), 0, store.Due{})
			if _, _, err := b.Send(context.Background(), m); err != nil {
				b.t.Error(err)
			}
		})
		<-begun
	}
	return func() { close(hold); wg.Wait() }
}

// An enqueue that waits for others leaves when its context or the Sender's timeout ends, and is not enqueued then. Its
// error says first what kept it.
func TestGroupLeave(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	b := newBench(t, s.Addr(), 3*time.Second)
	release := b.occupied()
	ctx, cancel := context.WithCancel(context.Background())
	errs := make(chan error, 10)
	send := func(ctx context.Context, i int) {
		_, _, err := b.Send(ctx, b.message("a", fmt.Sprint(i), 0, store.Due{}))
		errs <- err
	}
	for i := range cap(errs) / 2 {
		go send(ctx, i)
	}
	for i := range cap(errs) / 2 {
		go send(context.Background(), cap(errs)/2+i) // which leaves with the Sender's timeout
	}
	cancel()
	for range cap(errs) {
		err := <-errs
		if link.Classify(err) != link.NotExecuted || !strings.HasPrefix(err.Error(), errBehind.Error()) ||
			!errors.Is(err, errBehind) ||
			!errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	}
	release()
	for i := range cap(errs) {
		if s.Do("HEXISTS", b.keys.IDs, fmt.Sprint(i)) != int64(0) {
			t.Errorf("%d, which left, is there", i)
		}
	}
}

// One script carries at most 1 MB; what is larger goes alone.
func TestGroupBounds(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	b := newBench(t, p.Addr(), 10*time.Second)
	const size, n = chunkBytes * 3 / 10, 20
	var mu sync.Mutex
	var sizes []int
	enter := redistest.ByScript(store.Enter)(b.keys.Name)
	p.On(func(args [][]byte) bool {
		if enter(args) {
			sum := 0
			for _, a := range args {
				sum += len(a)
			}
			mu.Lock()
			sizes = append(sizes, sum)
			mu.Unlock()
		}
		return false
	}, 0, redistest.Pass)
	release := b.occupied()
	var wg sync.WaitGroup
	put := func(i, size int) {
		wg.Go(func() {
			if _, _, err := b.Send(context.Background(), b.message(string(make([]byte, size)), fmt.Sprint(i), 0,
				store.Due{})); err != nil {
				t.Error(err)
			}
		})
	}
	put(0, 2*chunkBytes)
	for i := range n {
		put(1+i, size)
	}
	release()
	wg.Wait()
	alone, together := 0, 0
	for _, sum := range sizes {
		switch {
		case sum > 2*chunkBytes && sum < 2*chunkBytes+size:
			alone++
		case sum > chunkBytes+2000:
			t.Errorf("a script has %d bytes", sum)
		case sum > 2*size:
			together++
		}
	}
	if alone != 1 || together == 0 {
		t.Errorf("scripts of %v bytes", sizes)
	}
}
