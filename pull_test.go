package shunt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
)

// pull pulls from the bench's channel, and must get so many messages.
func (b *bench) pull(n int, o PullOptions) []*Leased {
	b.t.Helper()
	o.Channels = []string{b.name}
	ms, err := b.Pull(context.Background(), o)
	if err != nil || len(ms) != n {
		b.t.Fatalf("%d pulled, %v: want %d", len(ms), err, n)
	}
	return ms
}

// state counts the messages in a state.
func (b *bench) state(s State) int {
	b.t.Helper()
	all, err := b.Stats(context.Background(), b.name)
	b.must(err)
	return all[s].Count
}

// What is pulled is in order, and is settled by each verdict, by its holder or by another process; what comes late
// changes nothing.
func TestPull(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		t.Parallel()
		ctx := context.Background()
		b, o := newBench(t, s.URL()), newBench(t, s.URL())
		o.name = b.name
		b.pull(0, PullOptions{})
		b.enqueue(0, 9, Header("a", "b"))
		ms := b.pull(8, PullOptions{Max: 8, Lease: time.Minute})
		for i, m := range ms {
			if string(m.Payload) != strconv.Itoa(i) || m.Channel != b.name || m.Attempt != 1 || m.Headers["a"] != "b" ||
				m.EnqueuedAt.IsZero() || m.Receipt.Channel() != b.name || time.Until(m.EndsAt) > time.Minute {
				t.Errorf("message %d is %+v", i, m)
			}
		}
		if b.state(StateLeased) != 8 || b.state(StatePrepare) != 1 {
			t.Errorf("%d leased", b.state(StateLeased))
		}
		b.must(ms[0].Ack(ctx))
		b.must(o.Ack(ctx, ms[1].Receipt, ms[2].Receipt, ms[3].Receipt))
		b.must(ms[4].Fail(ctx, RetryAfter(time.Hour, errors.New("oops"))))
		b.must(ms[5].Fail(ctx, Reject(errors.New("never"))))
		b.must(o.Release(ctx, ms[6].Receipt))
		found, err := o.Leased(ctx, ms[7].Receipt)
		b.must(err)
		if string(found.Payload) != "7" || found.Receipt != ms[7].Receipt || found.Serial != ms[7].Serial {
			t.Errorf("found %+v", found)
		}
		b.must(found.Extend(ctx, 2*time.Minute))
		b.must(found.Fail(ctx, Snooze(time.Hour)))
		for i, m := range ms {
			_, found := b.Leased(ctx, m.Receipt)
			for _, err := range []error{m.Ack(ctx), m.Fail(ctx, errors.New("oops")), o.Ack(ctx, m.Receipt),
				o.Extend(ctx, time.Hour, m.Receipt), found} {
				var of *ReceiptError
				if !errors.Is(err, ErrLeaseLost) || strings.Contains(err.Error(), string(m.Receipt)[:26]) ||
					errors.As(err, &of) && of.Receipt != m.Receipt {
					t.Errorf("message %d, settled again: %v", i, err)
				}
			}
		}
		b.wait(EventLateVerdict, 16, 5*time.Second)
		next := b.pull(2, PullOptions{Max: 5})
		if string(next[0].Payload) != "6" || string(next[1].Payload) != "8" || next[0].Attempt != 1 {
			t.Errorf("next come %+v, %+v", next[0], next[1])
		}
		b.must(b.Ack(ctx, next[0].Receipt, next[1].Receipt))
		delayed, err := b.List(ctx, b.name, StateDelay, 0, 0)
		if err != nil || len(delayed) != 2 || delayed[0].Attempts+delayed[1].Attempts != 1 {
			t.Errorf("delayed are %+v, %v", delayed, err)
		}
		dead, err := b.List(ctx, b.name, StateDead, 0, 0)
		if err != nil || len(dead) != 1 || dead[0].Failure != "never" {
			t.Errorf("dead are %+v, %v", dead, err)
		}
		b.must(b.Close()) // with the keeper's place
		left := keysLeft(t, s, b.name)
		slices.Sort(left)
		if k := b.keys(); !slices.Equal(left, []string{k.Dead, k.Delay}) {
			t.Errorf("left are %q", left)
		}
	})
}

// Bad options and receipts are errors that name the fault.
func TestPullRefuses(t *testing.T) {
	t.Parallel()
	b := newBench(t, redistest.Shared(t).URL())
	ctx := context.Background()
	many := make([]string, 65)
	for i := range many {
		many[i] = fmt.Sprint("c", i)
	}
	for want, o := range map[string]PullOptions{
		"Channels has 0":       {},
		"Channels has 65":      {Channels: many},
		`has "a" twice`:        {Channels: []string{"a", "b", "a"}},
		"contains '{'":         {Channels: []string{"{a"}},
		"Max is 1001":          {Channels: []string{"a"}, Max: 1001},
		"Max is -1":            {Channels: []string{"a"}, Max: -1},
		"Lease is 9ms":         {Channels: []string{"a"}, Lease: 9 * time.Millisecond},
		"Lease is 168h0m0.01s": {Channels: []string{"a"}, Lease: 7*24*time.Hour + 10*time.Millisecond},
		"Wait is -1ns":         {Channels: []string{"a"}, Wait: -1},
		"Wait is 25h":          {Channels: []string{"a"}, Wait: 25 * time.Hour},
	} {
		if _, err := b.Pull(ctx, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	b.enqueue(0, 1)
	good := b.pull(1, PullOptions{})[0].Receipt
	for _, r := range []Receipt{"", "x", good[1:], good + "{", Receipt(strings.Replace(string(good), ".", "", 1)),
		Receipt(strings.ToLower(string(good)))} {
		if err := b.Ack(ctx, r); !errors.Is(err, errReceipt) || r.Channel() != "" {
			t.Errorf("%q: %v", r, err)
		}
	}
	if err := b.Extend(ctx, time.Millisecond, good); err == nil {
		t.Error("extended by a millisecond")
	}
	var one *ReceiptError
	if err := b.Ack(ctx, "x", good); !errors.As(err, &one) || one.Receipt != "x" || b.state(StateLeased) != 0 {
		t.Errorf("one of two: %v", err)
	}
}

// A lease that ends gives its message to another, an attempt later and at the far end; with the last attempt it goes to
// dead.
func TestLeaseEnds(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		t.Parallel()
		ctx := context.Background()
		b := newBench(t, s.URL(), func(q *Queue) { q.MaxAttempts = 2 })
		b.enqueue(0, 3)
		first := b.pull(2, PullOptions{Max: 2, Lease: time.Second})
		b.must(first[0].Ack(ctx))
		b.wait(EventLapsed, 1, 5*time.Second)
		if late := time.Since(first[1].EndsAt); late < 0 {
			t.Errorf("ended %v early", -late)
		}
		again := b.pull(2, PullOptions{Max: 5, Lease: 300 * time.Millisecond})
		if string(again[0].Payload) != "2" || string(again[1].Payload) != "1" || again[1].Attempt != 2 ||
			again[0].Attempt != 1 {
			t.Errorf("then come %+v, %+v", again[0], again[1])
		}
		if err := first[1].Ack(ctx); !errors.Is(err, ErrLeaseLost) {
			t.Errorf("a late ack: %v", err)
		}
		b.wait(EventLapsed, 3, 5*time.Second)
		dead, err := b.List(ctx, b.name, StateDead, 0, 0)
		if err != nil || len(dead) != 1 || dead[0].Attempts != 2 || !strings.Contains(dead[0].Failure, "lease ended") {
			t.Errorf("dead are %+v, %v", dead, err)
		}
		b.must(b.Ack(ctx, b.pull(1, PullOptions{})[0].Receipt))
	})
}

// Who waits is woken at once, in the order in which they came, and by whatever channel has something. Who leaves takes
// nothing.
func TestPullWaits(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		t.Parallel()
		b := newBench(t, s.URL())
		got := make(chan string, 10)
		wait := func(ctx context.Context, name string, channels ...string) {
			ready := b.callers()
			go func() {
				ms, err := b.Pull(ctx, PullOptions{Channels: channels, Wait: time.Minute})
				for _, m := range ms {
					got <- name + " " + string(m.Payload)
				}
				if err != nil {
					got <- name + " " + err.Error()
				}
			}()
			b.until(5*time.Second, "it waits", func() bool { return b.callers() > ready })
		}
		gone, leave := context.WithCancelCause(context.Background())
		wait(gone, "gone", b.name)
		wait(context.Background(), "first", b.name)
		wait(context.Background(), "second", b.name+"other", b.name)
		leave(errors.New("it leaves"))
		if text := <-got; !strings.Contains(text, "it leaves") {
			t.Error(text)
		}
		for i, want := range []string{"first 0", "second 1"} {
			b.enqueue(i, i+1)
			if text := <-got; text != want {
				t.Errorf("%q, want %q", text, want)
			}
		}
		began := time.Now()
		b.pull(0, PullOptions{Wait: 200 * time.Millisecond})
		if took := time.Since(began); took < 200*time.Millisecond {
			t.Errorf("it waited for %v", took)
		}
		wait(context.Background(), "closed", b.name)
		b.must(b.Close())
		if text := <-got; !strings.Contains(text, ErrClosed.Error()) {
			t.Error(text)
		}
	})
}

// callers counts those who wait for a bell of the bench's Queue.
func (b *bench) callers() (n int) {
	b.Queue.mu.Lock()
	defer b.Queue.mu.Unlock()
	for _, at := range b.stations {
		n += at.bells.Waiting()
	}
	return n
}

// A pull is one command, whatever its messages have.
func TestPullIsOneCommand(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	b := newBench(t, s.URL())
	o := b.through(p)
	const n = 5
	for i := range n {
		b.must(b.one(i, ID(fmt.Sprint("id", i)), Expire(time.Hour), Deadline(time.Now().Add(time.Hour))))
	}
	takes := p.On(redistest.ByScript(store.TakeLease)(b.name), 0, redistest.Pass)
	var others []*redistest.Rule
	for _, of := range []func(string) redistest.Match{
		redistest.ByName("HSET", ".running"), redistest.ByName("EXISTS", ".cancelled"),
		redistest.ByName("HMGET", ".ids"), redistest.ByName("LRANGE", ".leased"), redistest.ByScript(store.Start),
	} {
		others = append(others, p.On(of(b.name), 0, redistest.Pass))
	}
	for range n {
		o.pull(1, PullOptions{Lease: time.Minute})
	}
	if takes.Struck() != n {
		t.Errorf("%d takes for %d pulls", takes.Struck(), n)
	}
	for i, r := range others {
		if r.Struck() != 0 {
			t.Errorf("command %d was sent %d times", i, r.Struck())
		}
	}
}

// Where what is not given out cannot be settled, an Event says why; the others are given out.
func TestPullRefusesInVain(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		t.Parallel()
		b := newBench(t, s.URL())
		s.Do("SET", store.KeysOf(b.name).Dead, "no sorted set")
		b.must(b.one(0, ID("late"), Deadline(time.Now().Add(200*time.Millisecond))))
		b.must(b.one(1))
		b.passes(s, 210*time.Millisecond)
		if ms := b.pull(1, PullOptions{Max: 10, Lease: time.Minute}); string(ms[0].Payload) != "1" {
			t.Errorf("pulled is %q", ms[0].Payload)
		}
		b.wait(EventReceiverError, 1, 5*time.Second)
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, e := range b.events {
			if e.Kind == EventReceiverError && (e.ID != "late" || e.Channel != b.name || e.Err == nil) {
				t.Errorf("%+v", e)
			}
		}
	})
}

// What is cancelled, has expired or is late is not given out, and frees its id as with a receiver; a leased message
// with an id has a status, is found and cannot be moved.
func TestPullByID(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		t.Parallel()
		ctx := context.Background()
		b := newBench(t, s.URL())
		b.must(b.one(0, ID("cancelled")))
		b.must(b.one(1, ID("expired"), Expire(time.Millisecond)))
		b.must(b.one(2, Expire(time.Millisecond)))
		b.must(b.one(3, Deadline(time.Now().Add(200*time.Millisecond))))
		b.must(b.one(4, ID("a"), Retain(time.Hour)))
		b.must(b.one(5, ID("b"), Expire(time.Hour)))
		_, err := b.Cancel(ctx, ByID(b.name, "cancelled"))
		b.must(err)
		b.passes(s, 210*time.Millisecond)
		ms := b.pull(2, PullOptions{Max: 10, Lease: time.Minute})
		if ms[0].ID != "a" || ms[1].ID != "b" {
			t.Errorf("pulled are %q and %q", ms[0].ID, ms[1].ID)
		}
		b.wait(EventCancelled, 1, 5*time.Second)
		b.wait(EventExpired, 2, 5*time.Second)
		b.wait(EventRejected, 1, 5*time.Second)
		st, err := b.Status(ctx, ByID(b.name, "a"))
		if err != nil || st.State != StateLeased || st.Attempt != 1 || st.Serial != ms[0].Serial || st.Receiver != "" {
			t.Errorf("%+v, %v", st, err)
		}
		e, err := b.Peek(ctx, ByID(b.name, "b"))
		if err != nil || e.State != StateLeased || string(e.Payload) != "5" ||
			time.Until(e.LeaseEndsAt) < 50*time.Second {
			t.Errorf("%+v, %v", e, err)
		}
		if err := b.Postpone(ctx, ByID(b.name, "a"), In(time.Hour)); !errors.Is(err, ErrRunning) {
			t.Errorf("postponed: %v", err)
		}
		if err := b.one(9, ID("b")); !errors.Is(err, ErrDuplicate) {
			t.Errorf("another takes the id: %v", err)
		}
		for _, r := range []Ref{ByID(b.name, "b"), BySerial(b.name, ms[1].Serial), {Channel: b.name, ID: "b",
			Serial: ms[1].Serial}} {
			if by, err := b.LeasedBy(ctx, r); err != nil || by.Receipt != ms[1].Receipt {
				t.Errorf("%v is %+v, %v", r, by, err)
			}
		}
		for _, r := range []Ref{ByID(b.name, "cancelled"), BySerial(b.name, element.NewSerial().String()),
			{Channel: b.name, ID: "b",
				Serial: ms[0].Serial}} {
			if by, err := b.LeasedBy(ctx, r); !errors.Is(err, ErrNotFound) {
				t.Errorf("%v is %+v, %v", r, by, err)
			}
		}
		ms[0].Result = []byte("42")
		b.must(ms[0].Then(ctx, b.kind(nil).Message(7)))
		b.must(ms[0].Ack(ctx))
		st, err = b.Status(ctx, ByID(b.name, "a"))
		if err != nil || st.State != StateDone || string(st.Outcome.Result) != "42" {
			t.Errorf("%+v, %v", st, err)
		}
		_, err = b.Cancel(ctx, ByID(b.name, "b"))
		b.must(err)
		var of *ReceiptError
		if err := b.Extend(ctx, time.Hour, ms[1].Receipt); !errors.Is(err, ErrCancelled) || !errors.As(err, &of) {
			t.Errorf("extended although cancelled: %v", err)
		}
		b.must(ms[1].Fail(ctx, errors.New("oops"))) // it ends as cancelled
		b.wait(EventCancelled, 2, 5*time.Second)
		b.must(b.one(9, ID("b"))) // its id is free
		if text := string(b.pull(2, PullOptions{Max: 2})[0].Payload); text != "7" {
			t.Errorf("what follows is %s", text)
		}
	})
}

// A receipt is looked up until Redis answers, however often the line breaks, and one that could not be looked up was
// not settled.
func TestReceiptIsLookedUpAgain(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	b := newBench(t, p.URL())
	b.enqueue(0, 2)
	ms := b.pull(2, PullOptions{Max: 2, Lease: time.Minute})
	for nth := range 3 {
		p.On(redistest.ByName("LRANGE", ".leased")(b.name), nth+1, redistest.CutAfter)
	}
	b.must(b.Ack(ctx, ms[0].Receipt))
	for nth := range 3 {
		p.On(redistest.ByScript(store.Extend)(b.name), nth+1, redistest.CutAfter)
	}
	b.must(b.Extend(ctx, time.Hour, ms[1].Receipt))
	p.On(redistest.ByName("LRANGE", ".leased")(b.name), 0, redistest.CutAfter)
	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	if err := b.Ack(short, ms[1].Receipt); err == nil || errors.Is(err, ErrUnknown) || errors.Is(err, ErrLeaseLost) {
		t.Errorf("an ack whose receipt cannot be looked up: %v", err)
	}
	if n := b.state(StateLeased); n != 1 {
		t.Errorf("%d leased", n)
	}
}

// A take that nobody waits for any more is given back, however often the line breaks meanwhile.
func TestTakeIsGivenBack(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	b := newBench(t, p.URL())
	b.pull(0, PullOptions{})
	b.enqueue(0, 1)
	ctx, cancel := context.WithCancel(context.Background())
	p.On(redistest.ByScript(store.TakeLease)(b.name), 1, redistest.Call(cancel))
	for nth := range 3 {
		p.On(redistest.ByScript(store.Handover)(b.name), nth+1, redistest.CutBefore)
	}
	slow := p.On(redistest.ByScript(store.TakeLease)(b.name), 1, redistest.Delay(time.Second)) // the caller has left
	if ms, err := b.Pull(ctx, PullOptions{Channels: []string{b.name}, Lease: time.Hour}); len(ms) > 0 || err == nil {
		t.Fatalf("%d pulled, %v", len(ms), err)
	}
	strikes(t, slow, 1)
	redistest.Until(t, 5*time.Second, "it is back", func() bool { return b.state(StatePrepare) == 1 })
	if m := b.pull(1, PullOptions{})[0]; m.Attempt != 1 {
		t.Errorf("an attempt was counted: %+v", m)
	}
}

// cancelledAndGood enqueues a message that a Pull settles by itself, and one that it returns.
func (b *bench) cancelledAndGood() {
	b.t.Helper()
	b.must(b.one(1, ID("cancelled")))
	b.must(b.one(2, ID("good")))
	_, err := b.Cancel(b.t.Context(), ByID(b.name, "cancelled"))
	b.must(err)
}

// What a Pull settles by itself may take its time, as while Redis is away. Nothing is handed out whose lease is over by
// then: others may have it.
func TestPullSettlesBeyondItsLease(t *testing.T) {
	t.Parallel()
	p := redistest.NewProxy(t, redistest.Shared(t).Addr())
	b := newBench(t, p.URL())
	b.cancelledAndGood()
	away := p.On(redistest.ByScript(store.Settle)(b.name), 1, redistest.Call(func() {
		p.Refuse(true)
		p.CutAll()
		time.AfterFunc(1500*time.Millisecond, func() { p.Refuse(false) })
	}))
	o := PullOptions{Channels: []string{b.name}, Max: 2, Lease: time.Second, Wait: time.Minute}
	ms, err := b.Pull(t.Context(), o)
	b.must(err)
	strikes(t, away, 1)
	if len(ms) != 1 || ms[0].ID != "good" || time.Now().After(ms[0].EndsAt) {
		t.Fatalf("%+v: its lease is over", ms)
	}
	b.must(ms[0].Ack(t.Context()))
}

// A lease that is renewed may be over again by the time of the answer. Pull hands out nothing whose EndsAt is past.
// What it gives back has cost no attempt, unless somebody has ended the lease before.
func TestPullRenewsTooLate(t *testing.T) {
	t.Parallel()
	for name, attempt := range map[string]int{"nobody ends the lease": 1, "the upkeep ends the lease": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := redistest.NewProxy(t, redistest.Shared(t).Addr())
			b := newBench(t, p.URL())
			b.pull(0, PullOptions{}) // begins the upkeep
			tidied := redistest.Command("EXISTS", "")
			redistest.Until(t, 5*time.Second, "the upkeep rests", func() bool { return p.Count(tidied) > 0 })
			b.cancelledAndGood()
			slow := redistest.Delay(1300 * time.Millisecond)
			settled := p.On(redistest.ByScript(store.Settle)(b.name), 1, slow)
			renewed := p.On(redistest.ByScript(store.Extend)(b.name), 1, slow)
			if lapses := redistest.ByScript(store.Lapse)(b.name); attempt == 1 {
				p.On(lapses, 0, redistest.ReplyError("TRYAGAIN not now"))
			}
			o := PullOptions{Channels: []string{b.name}, Max: 2, Lease: time.Second, Wait: time.Minute}
			ms, err := b.Pull(t.Context(), o)
			b.must(err)
			strikes(t, settled, 1)
			strikes(t, renewed, 1)
			if len(ms) != 1 || ms[0].ID != "good" || ms[0].Attempt != attempt || time.Now().After(ms[0].EndsAt) {
				t.Fatalf("%+v: its lease is over, or its attempt is not %d", ms, attempt)
			}
			b.must(ms[0].Ack(t.Context()))
		})
	}
}

// No text makes reading a receipt panic, and what is read is the receipt that Pull would have given.
func FuzzReceipt(f *testing.F) {
	f.Add("2DJMYXESFG6RGKDQXOFSP2B62S-25-60000.01M88BPNJ4YEY654CSNQBGS4QF.ns%2Fq")
	f.Add("2DJMYXESFG6RGKDQXOFSP2B62S-0-10.356a192b7913b04c54574d18c28d46e6395428ab.c")
	f.Add("..")
	f.Fuzz(func(t *testing.T, text string) {
		r := Receipt(text)
		n, err := r.parse()
		if (err == nil) != (r.Channel() != "") {
			t.Fatalf("%q is of channel %q: %v", text, r.Channel(), err)
		}
		if err != nil {
			if !errors.Is(err, errReceipt) {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		if store.CheckChannel(n.channel) != nil || len(n.identity) != 16 && len(n.identity) != 40 ||
			n.lease.Length <= 0 {
			t.Fatalf("%q is %+v", text, n)
		}
	})
}

// Where the context of a Pull ends, its error says what had kept it from Redis, as that of an enqueue does.
func TestPullSaysWhatKeptIt(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "cluster-enabled yes") // none of its slots is served
	redistest.Leaks(t)
	b := newBench(t, s.URL())
	says := func(word string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		_, err := b.Pull(ctx, PullOptions{Channels: []string{b.name}, Wait: time.Minute})
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), word) {
			t.Errorf("%v: want the end of the context, and %q", err, word)
		}
	}
	says("CLUSTERDOWN")
	s.Kill()
	says("connect")
}
