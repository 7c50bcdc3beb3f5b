package sender

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
)

// A plain message is never sent again once it may have been executed, so it is there once or not at all.
func TestPlainIsSentOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		action redistest.Action
		there  int64
	}{"cut after": {redistest.CutAfter, 1}, "cut before": {redistest.CutBefore, 0}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Shared(t)
			p := redistest.NewProxy(t, s.Addr())
			b := newBench(t, p.Addr(), 5*time.Second)
			lost := p.On(redistest.Command("LPUSH", b.keys.Prepare), 1, c.action)
			_, _, err := b.Send(context.Background(), b.message("a", "", 0, store.Due{}))
			if link.Classify(err) != link.Unknown || lost.Struck() != 1 {
				t.Errorf("the error is %v, and %d replies were lost", err, lost.Struck())
			}
			if got := b.lengths(s); got != [2]int64{c.there, 0} {
				t.Errorf("%d in prepare and in delay", got)
			}
		})
	}
}

// A message that Redis has surely not executed is sent until it is, or until its time is over.
func TestPlainWaitsForRedis(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	b := newBench(t, p.Addr(), time.Second) // most of it is a pause between two tries
	loading := p.On(
		redistest.Command("LPUSH", b.keys.Prepare),
		0,
		redistest.ReplyError("LOADING Redis is loading the dataset in memory"),
	)
	_, _, err := b.Send(context.Background(), b.message("a", "", 0, store.Due{}))
	if link.Classify(err) != link.NotExecuted || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("after the Sender's timeout: %v", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	got := make(chan error, 1)
	go func() { _, _, err := b.Send(ctx, b.message("b", "", 0, store.Due{})); got <- err }()
	if err := loading.Wait(ctx, loading.Struck()+2); err != nil {
		t.Fatal(err)
	}
	loading.Remove()
	if err := <-got; err != nil {
		t.Error(err)
	}
	if got := b.lengths(s); got != [2]int64{1, 0} {
		t.Errorf("%d in prepare and in delay", got)
	}
}

// An enqueue whose time ends in a pause between two tries sends nothing more, and its error says first what kept it.
func TestTimeEndsInAPause(t *testing.T) {
	t.Parallel()
	p := redistest.NewProxy(t, redistest.Shared(t).Addr())
	const tries = 6 // with pauses of 50 ms to 800, each up to a tenth shorter, and then for the rest
	b := newBench(t, p.Addr(), 2100*time.Millisecond)
	push := redistest.Command("LPUSH", b.keys.Prepare)
	for n := range tries {
		p.On(push, n+1, redistest.ReplyError("TRYAGAIN not now"))
	}
	p.On(push, tries+1, redistest.DropReply)
	_, _, err := b.Send(context.Background(), b.message("a", "", 0, store.Due{}))
	if link.Classify(err) != link.NotExecuted || !errors.Is(err, context.DeadlineExceeded) ||
		!strings.HasPrefix(err.Error(), "TRYAGAIN") {
		t.Error(err)
	}
}

// Close ends the pause between two tries of a plain enqueue.
func TestPauseEndsWithClose(t *testing.T) {
	t.Parallel()
	const rounds = 3 // a busy machine may be late, but hardly each time
	for range rounds {
		p := redistest.NewProxy(t, redistest.Shared(t).Addr())
		b := newBench(t, p.Addr(), time.Minute)
		refused := p.On(redistest.Command("LPUSH", b.keys.Prepare), 0, redistest.ReplyError("TRYAGAIN not now"))
		got := make(chan error, 1)
		go func() {
			_, _, err := b.Send(context.Background(), b.message("a", "", 0, store.Due{}))
			got <- err
		}()
		redistest.Until(t, 20*time.Second, "the pause is a second", func() bool { return refused.Struck() >= 6 })
		b.data.Close()
		began := time.Now()
		if err := <-got; link.Classify(err) != link.NotExecuted || !errors.Is(err, link.ErrClosed) {
			t.Error(err)
		}
		if time.Since(began) < 400*time.Millisecond {
			return
		}
	}
	t.Error("it goes on until the pause is over")
}

// What a person has to mend, and a full Redis, end an enqueue at once.
func TestRefusedAtOnce(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	for _, text := range []string{"WRONGTYPE Operation against a key", "OOM command not allowed",
		"NOPERM this user has no permissions"} {
		p := redistest.NewProxy(t, s.Addr())
		b := newBench(t, p.Addr(), 10*time.Second)
		p.On(redistest.Command("", b.keys.Prepare), 0, redistest.ReplyError(text))
		for _, m := range []*Message{b.message("a", "", 0, store.Due{}), b.message("a", "id", 0, store.Due{})} {
			began := time.Now()
			_, _, err := b.Send(context.Background(), m)
			if err == nil || link.Classify(err) == link.Unknown || time.Since(began) > 2*time.Second {
				t.Errorf("%s: after %v: %v", text, time.Since(began), err)
			}
		}
	}
}

// A delayed message is added once, however often it is sent. Its due time is that of the first sending, or earlier by
// what has passed since.
func TestLaterIsResent(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	at := time.Now().Add(time.Hour).Truncate(time.Millisecond)
	for name, due := range map[string]store.Due{"in": {In: time.Hour}, "at": {At: at}} {
		for action, cut := range map[string]redistest.Action{"after": redistest.CutAfter,
			"before": redistest.CutBefore} {
			t.Run(name+" cut "+action, func(t *testing.T) {
				t.Parallel()
				p := redistest.NewProxy(t, s.Addr())
				b := newBench(t, p.Addr(), 10*time.Second)
				lost := p.On(redistest.ByScript(store.Later)(b.keys.Name), 1, cut)
				got := b.send(b.message("a", "", 0, due))
				if d := got.Sub(at).Abs(); d > 5*time.Second || name == "at" && d != 0 {
					t.Errorf("due at %v, want %v", got, at)
				}
				if n := b.lengths(s); n != [2]int64{0, 1} || lost.Struck() != 1 {
					t.Errorf("%d in prepare and in delay; %d replies were lost", n, lost.Struck())
				}
			})
		}
	}
}

// A delayed message is not sent again when it may have been promoted.
func TestLaterIsNotResentWhenDue(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	t.Run("in", func(t *testing.T) {
		t.Parallel()
		p := redistest.NewProxy(t, s.Addr())
		b := newBench(t, p.Addr(), 10*time.Second)
		p.On(redistest.ByScript(store.Later)(b.keys.Name), 1, redistest.CutAfter)
		_, _, err := b.Send(context.Background(), b.message("a", "", 0, store.Due{In: resendMargin / 2}))
		if link.Classify(err) != link.Unknown {
			t.Error(err)
		}
	})
	t.Run("at", func(t *testing.T) {
		t.Parallel()
		p := redistest.NewProxy(t, s.Addr())
		b := newBench(t, p.Addr(), 10*time.Second)
		at := time.Now().Add(300 * time.Millisecond)
		p.On(redistest.ByScript(store.Later)(b.keys.Name), 1, redistest.CutAfter)
		p.On(
			redistest.ByScript(store.Later)(b.keys.Name),
			2,
			redistest.Call(func() { <-time.After(time.Until(at) + 2*time.Millisecond) }),
		)
		_, _, err := b.Send(context.Background(), b.message("a", "", 0, store.Due{At: at}))
		if !errors.Is(err, errDue) || link.Classify(err) != link.Unknown {
			t.Error(err)
		}
	})
}

// A second sending asked for whole milliseconds of what was left, so the message was due up to one too early.
func TestResentIsNeverEarly(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	b := newBench(t, p.Addr(), time.Minute)
	const in = 10 * time.Second
	for range 20 {
		cut := p.On(redistest.ByScript(store.Later)(b.keys.Name), 1, redistest.CutBefore)
		now, err := redis.Int64s(s.Do("TIME"), nil) // µs
		if err != nil {
			t.Fatal(err)
		}
		due, _, err := b.Send(context.Background(), b.message("a", "", 0, store.Due{In: in}))
		if err != nil || cut.Struck() != 1 {
			t.Fatal(err, cut.Struck())
		}
		promised := time.UnixMicro(now[0]*1_000_000 + now[1]).Add(in)
		if early := promised.Sub(due); early > 0 {
			t.Errorf("due %v early", early)
		}
	}
}

// An enqueue that is sent again ends with the link.
func TestResendingEndsWithClose(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	for name, c := range map[string]struct {
		script interface{ Digest() string }
		id     string
		due    store.Due
	}{"later": {store.Later, "", store.Due{In: time.Hour}}, "by id": {store.Enter, "id", store.Due{}}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := redistest.NewProxy(t, s.Addr())
			b := newBench(t, p.Addr(), time.Minute)
			b.send(b.message("first", "", 0, store.Due{}))
			p.On(redistest.ByScript(c.script)(b.keys.Name), 1, redistest.Call(func() { p.Refuse(true); p.CutAll() }))
			got := make(chan error, 1)
			go func() {
				_, _, err := b.Send(context.Background(), b.message("a", c.id, 0, c.due))
				got <- err
			}()
			redistest.Until(t, 5*time.Second, "it is away", func() bool { return b.router.For("").Why() != nil })
			b.data.Close()
			select {
			case err := <-got:
				if link.Classify(err) != link.Unknown {
					t.Error(err)
				}
			case <-time.After(5 * time.Second):
				t.Error("it goes on")
			}
		})
	}
}

// Messages of several channels, due at several times, go in chunks that keep their order; each has its own outcome.
func TestBatch(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	b := newBench(t, s.Addr(), 5*time.Second)
	other := store.KeysOf(b.keys.Name + ".other")
	b.send(b.message("taken", "id 7", 0, store.Due{}))
	all := b.Batch()
	const n = 2500
	for i := range n {
		m := b.message(fmt.Sprint(i), "", 0, store.Due{})
		switch i % 5 {
		case 1:
			m.Keys = other
		case 2:
			m = b.message(fmt.Sprint(i), fmt.Sprint("id ", i), 0, store.Due{})
		case 3:
			m.Due = store.Due{In: time.Hour}
		}
		all.Add(i, m)
	}
	done := make(chan int, n)
	refused := make(chan int, n)
	all.Send(context.Background(), func(c *Chunk, due time.Time, of []Refused, err error) {
		if err != nil || due.IsZero() == c.Due.Later() {
			t.Errorf("due %v: %v", due, err)
		}
		for i, index := range c.Indexes {
			if of != nil && of[i].Record != nil {
				refused <- index
				if c.ID(i) != "id 7" {
					t.Errorf("%q is refused", c.ID(i))
				}
			} else {
				done <- index
			}
		}
	})
	if len(done) != n-1 || len(refused) != 1 || <-refused != 7 {
		t.Errorf("%d done, %d refused", len(done), len(refused))
	}
	if got := b.lengths(s); got != [2]int64{3 * n / 5, n / 5} || s.Do("LLEN", other.Prepare).(int64) != n/5 {
		t.Errorf("%d in prepare and delay", got)
	}
	again := b.Batch()
	again.Add(0, b.message("again", "id 7", 0, store.Due{}))
	again.Add(1, b.message("new", "id new", 0, store.Due{}))
	again.Send(context.Background(), func(c *Chunk, _ time.Time, of []Refused, err error) {
		if err != nil || len(of) != 2 || of[0].Record == nil || of[1].Record != nil || !c.Tracked() ||
			c.ID(0) != "id 7" {
			t.Errorf("%+v: %v", of, err)
		}
	})
}

// A chunk has at most 1,000 elements, 100 by id, and 1 MB; one element alone may be larger.
func TestChunkBounds(t *testing.T) {
	t.Parallel()
	b := newBench(t, redistest.Shared(t).Addr(), 5*time.Second)
	for _, c := range []struct {
		n, bytes int
		id       bool
		chunks   int
	}{{1000, 1, false, 1}, {1001, 1, false, 2}, {100, 1, true, 1}, {101, 1, true, 2}, {8, 300 << 10, false, 3}, {2,
		3 << 20, false, 2}} {
		all := b.Batch()
		for i := range c.n {
			id := ""
			if c.id {
				id = fmt.Sprint(i)
			}
			all.Add(i, b.message(string(make([]byte, c.bytes)), id, 0, store.Due{}))
		}
		if got := len(all.chunks[b.keys.Name]); got != c.chunks {
			t.Errorf("%d elements of %d bytes, by id: %v, make %d chunks, want %d", c.n, c.bytes, c.id, got, c.chunks)
		}
	}
}
