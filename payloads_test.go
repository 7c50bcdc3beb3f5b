package shunt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
)

// turner is what the tests encode with: the payload and its message's names behind a number that is never the same, all
// turned round. It notes what it is told of.
type turner struct {
	mu      sync.Mutex
	n       int
	decoded []string
	over    []string
	fail    func(Payload) error // of Decode; nil: none
}

func (s *turner) payloads() Payloads {
	return Payloads{
		Encode: func(_ context.Context, p Payload) (string, []byte, error) {
			if bytes.Contains(p.Bytes, []byte("refused")) {
				return "", nil, errOops
			}
			if bytes.Contains(p.Bytes, []byte("plain")) {
				return "", []byte("never"), nil
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			s.n++
			b := fmt.Appendf(nil, "%d %s %s|%s", s.n, p.Channel, p.Serial, p.Bytes)
			slices.Reverse(b)
			return fmt.Sprintf("turned=%d", s.n), b, nil
		},
		Decode: func(_ context.Context, p Payload) ([]byte, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.decoded = append(s.decoded, p.Encoding)
			if s.fail != nil {
				if err := s.fail(p); err != nil {
					return nil, err
				}
			}
			n, turned := strings.CutPrefix(p.Encoding, "turned=")
			if !turned {
				return p.Bytes, nil
			}
			b := slices.Clone(p.Bytes)
			slices.Reverse(b)
			head, payload, _ := bytes.Cut(b, []byte("|"))
			if want := n + " " + p.Channel + " " + p.Serial; string(head) != want {
				return nil, Reject(fmt.Errorf("it is that of %q, not of %q", head, want))
			}
			return payload, nil
		},
		Over: func(_ context.Context, p Payload) error {
			<-time.After(20 * time.Millisecond) // as a store takes, so that Close has something to wait for
			s.mu.Lock()
			defer s.mu.Unlock()
			s.over = append(s.over, p.Serial)
			if p.Bytes != nil {
				return errors.New("Over has got bytes")
			}
			return nil
		},
	}
}

func (s *turner) told(serial string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.over, serial)
}

// Whatever enqueues encodes, whatever hands a payload out decodes it, and what lies in Redis is encoded.
func TestPayloadsEveryWay(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		redistest.Leaks(t)
		var seal turner
		q := newBench(t, s.URL(), func(q *Queue) { q.Payloads = seal.payloads() })
		ctx := t.Context()
		k := Define[string](q.name, nil)
		if err := q.Enqueue(ctx, k.Message("one"), Header(EncodingHeader, "the user's"), Header("a", "b")); err != nil {
			t.Fatal(err)
		}
		if err := q.EnqueueAll(ctx, []IMessage{k.Message("two"), k.Message("plain")}, In(time.Hour),
			Header(EncodingHeader, "the user's")); err != nil {
			t.Fatal(err)
		}
		once := Once{Channel: q.name, Key: "key"}
		if _, err := q.EnqueueOnce(ctx, once, With(k.Message("three"), ID("id"))); err != nil {
			t.Fatal(err)
		}
		if err := q.Enqueue(ctx, k.Message("refused")); !errors.Is(err, errOops) {
			t.Errorf("what Encode refuses: %v", err)
		}
		got := map[string]bool{}
		for _, state := range []State{StatePrepare, StateDelay} {
			page, err := q.Browse(ctx, BrowseOptions{Channel: q.name, State: state, Payload: -1})
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range page.Entries {
				plain, err := q.PayloadOf(ctx, e)
				if err != nil {
					t.Errorf("%s: %v", e.Payload, err)
				}
				encoding, has := e.Headers[EncodingHeader]
				if isPlain := string(plain) == `"plain"`; isPlain == bytes.Contains(e.Payload, []byte("|")) ||
					isPlain == has || encoding == "the user's" {
					t.Errorf("%s lies in Redis as %q, with headers %v", plain, e.Payload, e.Headers)
				}
				got[string(plain)] = true
			}
		}
		if len(got) != 4 || !got[`"one"`] || !got[`"two"`] || !got[`"plain"`] || !got[`"three"`] {
			t.Errorf("the payloads are %v", got)
		}
		page, err := q.Browse(ctx, BrowseOptions{Channel: q.name, State: StatePrepare, Payload: 1, Limit: 1})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := q.PayloadOf(ctx, page.Entries[0]); err == nil || !strings.Contains(err.Error(), "1 of ") {
			t.Errorf("the payload of a part: %v", err)
		}

		ms, err := q.Pull(ctx, PullOptions{Channels: []string{q.name}})
		if err != nil || len(ms) != 1 || string(ms[0].Payload) != `"one"` {
			t.Fatalf("pulled %v, %v", ms, err)
		}
		again, err := q.Leased(ctx, ms[0].Receipt)
		if err != nil || string(again.Payload) != `"one"` {
			t.Errorf("Leased: %v, %v", again, err)
		}
		again, err = q.LeasedBy(ctx, BySerial(q.name, ms[0].Serial))
		if err != nil || string(again.Payload) != `"one"` {
			t.Errorf("LeasedBy: %v, %v", again, err)
		}
		if err := ms[0].Then(ctx, k.Message("four")); err != nil {
			t.Fatal(err)
		}
		if err := ms[0].Ack(ctx); err != nil {
			t.Fatal(err)
		}
		handled := make(chan string, 10)
		var kind *Kind[string]
		kind = Define(q.name, func(ctx context.Context, text string) error {
			handled <- text
			if text == "four" {
				return Then(ctx, kind.Message("five"))
			}
			return nil
		})
		if _, err := q.PromoteAll(ctx, q.name, Filter{}); err != nil {
			t.Fatal(err)
		}
		shutdown, err := q.Receive(ctx, Mux(kind), 2)
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for range 5 {
			select {
			case text := <-handled:
				all = append(all, text)
			case <-time.After(5 * time.Second):
				t.Fatalf("handled %v", all)
			}
		}
		slices.Sort(all)
		if want := []string{"five", "four", "plain", "three", "two"}; !slices.Equal(all, want) {
			t.Errorf("handled %v, want %v", all, want)
		}
		if err := shutdown(ctx); err != nil {
			t.Error(err)
		}
	})
}

// A failed Decode is a failed attempt, a rejected one ends in dead with its reason: for a receiver and for Pull.
func TestPayloadsThatCannotBeDecoded(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		for _, pulls := range []bool{false, true} {
			t.Run(fmt.Sprintf("pulls=%v", pulls), func(t *testing.T) {
				redistest.Leaks(t)
				var seal turner
				tries := map[string]int{}
				seal.fail = func(p Payload) error {
					tries[p.Serial]++
					switch plain := fmt.Sprint(p.Headers["fault"]); {
					case plain == "reject":
						return Reject(errors.New("the key k9 is unknown"))
					case plain == "panic" && tries[p.Serial] == 1:
						panic("no pen")
					case plain == "retry" && tries[p.Serial] < 3:
						return errOops
					case plain == "last":
						return errOops
					}
					return nil
				}
				q := newBench(t, s.URL(), func(q *Queue) {
					q.Payloads, q.Backoff = seal.payloads(), func(int) time.Duration { return 0 }
				})
				ctx := t.Context()
				for _, fault := range []string{"reject", "panic", "retry", "last", ""} {
					if err := q.Enqueue(ctx, Define[string](q.name, nil).Message(fault), Header("fault", fault),
						MaxAttempts(3)); err != nil {
						t.Fatal(err)
					}
				}
				handled := make(chan string, 10)
				if pulls {
					for n := 0; n < 3; {
						ms, err := q.Pull(ctx, PullOptions{Channels: []string{q.name}, Max: 5, Wait: 10 * time.Second})
						if err != nil || len(ms) == 0 {
							t.Fatalf("pulled %v, %v", ms, err)
						}
						for _, m := range ms {
							handled <- strings.Trim(string(m.Payload), `"`)
							n++
							if err := m.Ack(ctx); err != nil {
								t.Error(err)
							}
						}
					}
				} else {
					k := Define(q.name, func(_ context.Context, text string) error { handled <- text; return nil })
					if _, err := q.Receive(ctx, k, 1); err != nil {
						t.Fatal(err)
					}
				}
				if pulls { // what has failed until its last attempt is none of those three
					ms, err := q.Pull(ctx, PullOptions{Channels: []string{q.name}, Wait: 100 * time.Millisecond})
					if err != nil || len(ms) > 0 {
						t.Errorf("pulled %v, %v", ms, err)
					}
				}
				q.wait(EventAcked, 3, 10*time.Second)
				q.wait(EventUndecodable, 1, 10*time.Second)
				q.wait(EventRejected, 1, 10*time.Second)
				got := []string{<-handled, <-handled, <-handled}
				if slices.Sort(got); !slices.Equal(got, []string{"", "panic", "retry"}) {
					t.Errorf("handled %q", got)
				}
				dead, err := q.List(ctx, q.name, StateDead, 0, 0)
				if err != nil || len(dead) != 2 {
					t.Fatalf("dead are %v, %v", dead, err)
				}
				for _, e := range dead {
					want, attempts := "shunt: decode the payload: the key k9 is unknown", 1
					if e.Headers["fault"] == "last" {
						want, attempts = "shunt: decode the payload: oops", 3
					}
					if e.Failure != want || e.Attempts != attempts || seal.told(e.Serial) {
						t.Errorf("%v: %q after %d attempts; Over was told: %v", e.Headers, e.Failure, e.Attempts,
							seal.told(e.Serial))
					}
				}
			})
		}
	})
}

// Over is told of each encoded message that is gone for good, and of no other.
func TestPayloadsOver(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		redistest.Leaks(t)
		var seal turner
		q := newBench(t, s.URL(), func(q *Queue) {
			q.Payloads, q.MaxSize = seal.payloads(), 1000
			q.Backoff = func(int) time.Duration { return time.Hour }
		})
		ctx := t.Context()
		refs := map[string]*Ref{}
		k := Define(q.name, func(_ context.Context, text string) error {
			switch text {
			case "dies", "dead":
				return Reject(errOops)
			case "fails":
				return errOops
			}
			return nil
		})
		enqueue := func(text string, opts ...Option) error {
			refs[text] = new(Ref)
			return q.Enqueue(ctx, k.Message(text), append(opts, RefTo(refs[text]))...)
		}
		gone := []string{"acked", "named", "plain", "pulled", "cancelled", "bulk", "dies"}
		for _, text := range append(gone, "dead", "fails") {
			if text == "pulled" || text == "cancelled" || text == "bulk" {
				continue
			}
			var opts []Option
			if text == "named" {
				opts = append(opts, ID("named"), UniqueFor(time.Hour))
			}
			if err := enqueue(text, opts...); err != nil {
				t.Fatal(err)
			}
		}
		shutdown, err := q.Receive(ctx, k, 2)
		if err != nil {
			t.Fatal(err)
		}
		q.wait(EventAcked, 3, 5*time.Second)
		q.wait(EventRejected, 2, 5*time.Second)
		q.wait(EventRetried, 1, 5*time.Second)
		if err := shutdown(ctx); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(enqueue("pulled"), enqueue("cancelled", In(time.Hour)),
			enqueue("bulk", In(time.Hour), ID("bulk"))); err != nil {
			t.Fatal(err)
		}
		ms, err := q.Pull(ctx, PullOptions{Channels: []string{q.name}})
		if err != nil || len(ms) != 1 {
			t.Fatal(ms, err)
		}
		if err := q.Ack(ctx, ms[0].Receipt); err != nil {
			t.Fatal(err)
		}
		if r, err := q.CancelAll(ctx, q.name, StateDelay, Filter{IDPrefix: "bulk"}); err != nil || r.Changed != 1 {
			t.Fatal(r, err)
		}
		if _, err := q.Cancel(ctx, *refs["cancelled"]); err != nil {
			t.Fatal(err)
		}
		if seal.told(refs["dies"].Serial) {
			t.Error("Over was told of a dead letter")
		}
		if err := q.Delete(ctx, *refs["dies"]); err != nil {
			t.Fatal(err)
		}
		before := seal.n
		if err := enqueue("again", ID("named")); !errors.Is(err, ErrDuplicate) {
			t.Fatal(err)
		}
		if err := enqueue(strings.Repeat("large", 300)); !errors.Is(err, ErrTooLarge) || seal.n != before+2 {
			t.Fatal(err, seal.n)
		}
		if err := q.Close(); err != nil { // waits for Over
			t.Fatal(err)
		}
		for _, text := range append(gone, "dead", "fails") {
			want := slices.Contains(gone, text) && text != "plain"
			if seal.told(refs[text].Serial) != want {
				t.Errorf("%s: Over was told: %v", text, !want)
			}
		}
		if n := 8; len(seal.over) != n { // with the two that were not enqueued
			t.Errorf("Over was told of %d messages, want %d", len(seal.over), n)
		}
	})
}

// What decodes nothing may not encode, and the header of one payload is not carried to another.
func TestValidatePayloads(t *testing.T) {
	t.Parallel()
	pool, err := NewPool("redis://localhost:1")
	if err != nil {
		t.Fatal(err)
	}
	var seal turner
	all := seal.payloads()
	for _, c := range []struct {
		q   *Queue
		bad bool
	}{
		{&Queue{Payloads: Payloads{Encode: all.Encode}}, true},
		{&Queue{Payloads: Payloads{Over: all.Over}}, true},
		{&Queue{Payloads: Payloads{Decode: all.Decode}}, false},
		{&Queue{Payloads: all}, false},
		{&Queue{CarryHeaders: []string{EncodingHeader}}, true},
	} {
		c.q.Pool = pool
		if err := c.q.Validate(); (err != nil) != c.bad {
			t.Errorf("%v", err)
		}
	}
}

// A copy is decoded as its original and encoded anew; a program that decodes nothing copies what lies there.
func TestPayloadsOfCopies(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		var seal turner
		ctx := t.Context()
		q := newBench(t, s.URL(), func(q *Queue) { q.Payloads = seal.payloads() })
		reader := newBench(t, s.URL(), func(q *Queue) { q.Payloads.Decode = seal.payloads().Decode })
		none := newBench(t, s.URL())
		k := Define[string](q.name, nil)
		q.must(q.EnqueueAll(ctx, []IMessage{k.Message("one"), k.Message("plain")}))
		es, err := q.List(ctx, q.name, StatePrepare, 0, 0)
		q.must(err)
		for _, c := range []struct {
			name    string
			by      *bench
			encoded bool // payload "one" lies encoded there
		}{{"same", q, true}, {"decodes", reader, false}, {"none", none, true}} {
			for i, e := range es {
				e.Channel = q.name + "." + c.name
				q.must(c.by.Enqueue(ctx, e.Copy()))
				copies, err := c.by.List(ctx, e.Channel, StatePrepare, i, 1)
				q.must(err)
				if encoding := copies[0].Headers[EncodingHeader]; (encoding != "") != (c.encoded && i == 0) ||
					c.name == "none" && (encoding != e.Headers[EncodingHeader] ||
						!bytes.Equal(copies[0].Payload, e.Payload)) {
					t.Errorf("%s %d: it lies as %q, %v", c.name, i, copies[0].Payload, copies[0].Headers)
				}
				if c.name == "none" {
					continue
				}
				plain, err := c.by.PayloadOf(ctx, copies[0])
				if want := []string{`"one"`, `"plain"`}[i]; err != nil || string(plain) != want {
					t.Errorf("%s: %q, %v: want %s", c.name, plain, err, want)
				}
			}
		}
		q.must(reader.Enqueue(ctx, With(Raw(reader.name, []byte("x")), Header(EncodingHeader, "the user's"))))
		if e, err := reader.List(ctx, reader.name, StatePrepare, 0, 0); err != nil || len(e[0].Headers) != 0 {
			t.Errorf("a Queue that decodes enqueues the user's header: %+v, %v", e, err)
		}
		seal.fail = func(Payload) error { return errOops }
		if err := q.Enqueue(ctx, es[0].Copy()); !errors.Is(err, errOops) {
			t.Errorf("a copy of what cannot be decoded: %v", err)
		}
	})
}

// Close does not wait for an Over that ignores its context.
func TestPayloadsOverThatHangs(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	began, release, ended := make(chan bool), make(chan bool), make(chan bool)
	q := newBench(t, s.URL(), func(q *Queue) {
		var seal turner
		q.Payloads, q.EnqueueTimeout = seal.payloads(), time.Second
		q.Payloads.Over = func(context.Context, Payload) error {
			defer close(ended)
			close(began)
			<-release
			return errOops
		}
	})
	q.must(q.Enqueue(t.Context(), Raw(q.name, []byte("x"))))
	es, err := q.List(t.Context(), q.name, StatePrepare, 0, 0)
	q.must(err)
	_, err = q.Cancel(t.Context(), es[0].Ref())
	q.must(err)
	<-began
	closed := make(chan error)
	go func() { closed <- q.Close() }()
	select {
	case err := <-closed:
		q.must(err)
	case <-time.After(5 * time.Second):
		t.Error("Close waits for Over")
	}
	close(release)
	<-ended
}

// An Over that ends its goroutine ends no other call of it.
func TestPayloadsOverThatExits(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	const n = 3 * oversAtOnce
	told := make(chan string, n)
	q := &Queue{}
	q.conf = q.config()
	q.conf.Payloads.Over = func(_ context.Context, p Payload) error {
		told <- p.Serial
		runtime.Goexit()
		return nil
	}
	o := newOvers(q)
	e := element.Element{Serial: element.NewSerial()}
	if err := e.SetHeader(EncodingHeader, "x"); err != nil {
		t.Fatal(err)
	}
	for range n {
		o.add("c", &e)
	}
	for i := range n {
		select {
		case <-told:
		case <-time.After(5 * time.Second):
			t.Fatalf("told of %d, and then no more", i)
		}
	}
	o.close(t.Context())
}

// A Decode that ends its goroutine is a failed attempt, and hands out no empty payload.
func TestPayloadsDecodeThatExits(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	q := newBench(t, s.URL(), func(q *Queue) {
		q.Payloads.Decode = func(context.Context, Payload) ([]byte, error) { runtime.Goexit(); return nil, nil }
	})
	q.must(q.Enqueue(t.Context(), Raw(q.name, []byte("x")), MaxAttempts(1)))
	ms, err := q.Pull(t.Context(), PullOptions{Channels: []string{q.name}})
	if err != nil || len(ms) != 0 {
		t.Errorf("pulled %v, %v", ms, err)
	}
	q.wait(EventRejected, 1, 5*time.Second)
	dead, err := q.List(t.Context(), q.name, StateDead, 0, 0)
	if err != nil || len(dead) != 1 || !strings.Contains(dead[0].Failure, "Payloads.Decode called runtime.Goexit") {
		t.Errorf("dead are %v, %v", dead, err)
	}
}

// What comes when the goroutines have ended already is told before Close returns.
func TestPayloadsOverWhileClosing(t *testing.T) {
	t.Parallel()
	told := 0
	q := &Queue{}
	q.conf = q.config()
	q.conf.Payloads.Over = func(context.Context, Payload) error { told++; return nil }
	e := element.Element{Serial: element.NewSerial()}
	if err := e.SetHeader(EncodingHeader, "x"); err != nil {
		t.Fatal(err)
	}
	o := &overs{q: q, waiting: make(chan Payload, 2), stop: make(chan struct{})}
	o.ctx, o.cancel = context.WithCancel(t.Context())
	o.add("c", &e)
	o.add("c", &e)
	if o.close(t.Context()); told != 2 {
		t.Errorf("told of %d", told)
	}
}

// A receiver without Payloads does not take encoded bytes for plain ones. Pull hands them out as they lie.
func TestPayloadsWithoutDecode(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		ctx := t.Context()
		q := newBench(t, s.URL(), func(q *Queue) { q.Backoff = func(int) time.Duration { return 0 } })
		for range 2 {
			q.must(q.Enqueue(ctx, Raw(q.name, []byte(`"x"`)), Header(EncodingHeader, "aes=k1"), MaxAttempts(2)))
		}
		ms, err := q.Pull(ctx, PullOptions{Channels: []string{q.name}})
		if err != nil || len(ms) != 1 || string(ms[0].Payload) != `"x"` || ms[0].Headers[EncodingHeader] != "aes=k1" {
			t.Fatalf("pulled %v, %v", ms, err)
		}
		q.must(ms[0].Ack(ctx))
		k := Define(q.name, func(context.Context, string) error { t.Error("it is handled"); return nil })
		if _, err := q.Receive(ctx, k, 1); err != nil {
			t.Fatal(err)
		}
		q.wait(EventRejected, 1, 5*time.Second)
		dead, err := q.List(ctx, q.name, StateDead, 0, 0)
		if want := `encoded as "aes=k1"`; err != nil || dead[0].Attempts != 2 ||
			!strings.Contains(dead[0].Failure, want) {
			t.Errorf("%+v, %v: want %s", dead, err, want)
		}
	})
}

// What a Decode is at work on while its Pull's context ends is given back: nothing stays taken, and no attempt counts.
func TestPayloadsDecodeThatIsLeft(t *testing.T) {
	t.Parallel()
	ctx, leave := context.WithCancel(t.Context())
	b := newBench(t, redistest.Shared(t).URL(), func(q *Queue) {
		q.Payloads.Decode = func(ctx context.Context, p Payload) ([]byte, error) {
			if bytes.Equal(p.Bytes, []byte("0")) {
				leave()
				<-ctx.Done()
			}
			return p.Bytes, ctx.Err()
		}
	})
	b.enqueue(0, 1)
	ms, err := b.Pull(ctx, PullOptions{Channels: []string{b.name}, Lease: time.Hour})
	if len(ms) > 0 || err == nil {
		t.Fatalf("%d pulled, %v", len(ms), err)
	}
	b.until(5*time.Second, "it is back", func() bool { return b.state(StatePrepare) == 1 })
	if b.count(EventReceiverError) > 0 {
		t.Error("an error was reported")
	}
}

// A Decode that takes its time holds up no other caller that waits for the channel.
func TestPayloadsDecodeHoldsUpNobody(t *testing.T) {
	t.Parallel()
	decoding, end := make(chan bool, 1), make(chan bool)
	b := newBench(t, redistest.Shared(t).URL(), func(q *Queue) {
		q.Payloads.Decode = func(_ context.Context, p Payload) ([]byte, error) {
			if bytes.Equal(p.Bytes, []byte("0")) {
				decoding <- true
				<-end
			}
			return p.Bytes, nil
		}
	})
	defer close(end)
	got := make(chan string, 2)
	for i := range 2 {
		go func() {
			ms, err := b.Pull(context.Background(), PullOptions{Channels: []string{b.name}, Wait: time.Minute})
			for _, m := range ms {
				got <- string(m.Payload)
			}
			if err != nil {
				got <- err.Error()
			}
		}()
		b.until(5*time.Second, "it waits", func() bool { return b.callers() > i })
	}
	b.enqueue(0, 1)
	<-decoding
	b.enqueue(1, 2)
	select {
	case text := <-got:
		if text != "1" {
			t.Errorf("pulled %q", text)
		}
	case <-time.After(5 * time.Second):
		t.Error("message 1 waits for the other caller's Decode")
	}
}

// What a Decode took too long for is not handed out when its lease is over: others may have it.
func TestPayloadsDecodeBeyondItsLease(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	b := newBench(t, redistest.Shared(t).URL(), func(q *Queue) {
		q.Payloads.Decode = func(_ context.Context, p Payload) ([]byte, error) {
			if calls.Add(1) == 1 {
				time.Sleep(1500 * time.Millisecond)
			}
			return p.Bytes, nil
		}
	})
	b.enqueue(0, 1)
	ms, err := b.Pull(t.Context(), PullOptions{Channels: []string{b.name}, Lease: time.Second, Wait: time.Minute})
	b.must(err)
	if len(ms) != 1 || time.Now().After(ms[0].EndsAt) {
		t.Fatalf("%+v: its lease is over", ms)
	}
	b.must(ms[0].Ack(t.Context()))
}

// A Pull of more than it can decode within its lease hands out what it could, and gives the rest back at once: also
// where much of the lease is over when its reply comes.
func TestPullDecodesForHalfItsLease(t *testing.T) {
	for name, late := range map[string]time.Duration{"at once": 0, "late reply": 2 * time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			p := redistest.NewProxy(t, s.Addr())
			b := newBench(t, p.URL(), func(q *Queue) {
				q.Payloads.Decode = func(_ context.Context, p Payload) ([]byte, error) {
					time.Sleep(200 * time.Millisecond)
					return p.Bytes, nil
				}
			})
			const all = 56 // 1.4 s of decodes
			b.enqueue(0, all)
			b.must(newBench(t, s.URL()).Upkeep(t.Context()))
			p.On(redistest.ByScript(store.TakeLease)(b.name), 1, redistest.Delay(late))
			o := PullOptions{Channels: []string{b.name}, Max: all, Lease: time.Second + late}
			for n, pulls := 0, 0; n < all; pulls++ {
				began := time.Now()
				ms, err := b.Pull(t.Context(), o)
				b.must(err)
				if took := time.Since(began); len(ms) == 0 || took > o.Lease+time.Second || pulls == 7 {
					t.Fatalf("pull %d has brought %d in %v, after %d", pulls, len(ms), took, n)
				}
				for _, m := range ms {
					if n++; m.Attempt != 1 {
						t.Fatalf("attempt %d of %s", m.Attempt, m.Payload)
					}
					b.must(m.Ack(t.Context()))
				}
			}
		})
	}
}

// Over is told of each dead letter that is deleted, also beside one that is not there any more.
func TestPayloadsOverOfSomeDead(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	var seal turner
	q := newBench(t, s.URL(), func(q *Queue) { q.Payloads = seal.payloads() })
	q.enqueue(0, 3)
	q.receive(1, func(context.Context, int) error { return Reject(errOops) })
	q.wait(EventRejected, 3, 5*time.Second)
	es, err := q.List(t.Context(), q.name, StateDead, 0, 0)
	if err != nil || len(es) != 3 {
		t.Fatal(es, err)
	}
	s.Do("ZREM", store.KeysOf(q.name).Dead, es[1].raw) // as a channel does that has too many
	if n, err := q.DeleteDead(t.Context(), q.name, es...); n != 2 || err != nil {
		t.Error(n, err)
	}
	if err := q.Close(); err != nil { // waits for Over
		t.Fatal(err)
	}
	for i, e := range es {
		if told := seal.told(e.Serial); told != (i != 1) {
			t.Errorf("%d: Over was told: %v", i, told)
		}
	}
}
