package shunt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"pgregory.net/rapid"

	"github.com/shuntmq/shunt/internal/custody"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
	"github.com/shuntmq/shunt/internal/worker"
)

// letter is a message with a dependency.
type letter struct {
	To   string            `json:"to"`
	Body []byte            `json:"body,omitempty"`
	Tags map[string]string `json:"tags,omitempty"`

	post  *strings.Builder // not exported: no part of the payload
	Limit int              `json:"-"`
}

func (l *letter) Channel() string                      { return "letters" }
func (l *letter) Marshal() ([]byte, error)             { return ToJSON(l) }
func (l *letter) Unmarshal(p []byte) (IMessage, error) { return FromJSON(l, p) }
func (l *letter) Resolve(context.Context) error        { _, err := l.post.WriteString(l.To); return err }

func TestJSON(t *testing.T) {
	t.Parallel()
	sent := &letter{To: "a <b> & \u2028", Body: []byte{0, 0xff}, Tags: map[string]string{"z": "1", "a": "2"}, Limit: 9}
	payload, err := sent.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if want := "{\"to\":\"a <b> & \u2028\",\"body\":\"AP8=\",\"tags\":{\"a\":\"2\",\"z\":\"1\"}}"; string(
		payload,
	) != want &&
		string(payload) != strings.Replace(want, "\u2028", `\u2028`, 1) {
		t.Errorf("payload %s, want %s", payload, want)
	}
	prototype := &letter{post: new(strings.Builder), Limit: 3}
	m, err := prototype.Unmarshal(payload)
	if err != nil {
		t.Fatal(err)
	}
	got := m.(*letter)
	if got == prototype || got.To != sent.To || string(got.Body) != string(sent.Body) || len(got.Tags) != 2 ||
		got.Tags["z"] != "1" {
		t.Errorf("got %+v", got)
	}
	if got.post != prototype.post || got.Limit != 3 {
		t.Errorf("the dependencies were not copied: %+v", got)
	}
	if prototype.To != "" || prototype.Body != nil || prototype.Tags != nil || prototype.Limit != 3 {
		t.Errorf("the prototype was written to: %+v", prototype)
	}
	for _, bad := range []string{"", "{", "7", `{"to":7}`, `{"to":"a"} trailing`, "\xc1"} {
		if m, err := prototype.Unmarshal([]byte(bad)); err == nil || m != nil {
			t.Errorf("%q: %v, %v", bad, m, err)
		}
	}
	if _, err := ToJSON(make(chan int)); err == nil {
		t.Error("a channel has become JSON")
	}
}

// All workers call Unmarshal on one prototype at once; the race detector judges.
func TestJSONConcurrently(t *testing.T) {
	t.Parallel()
	prototype := &letter{post: new(strings.Builder)}
	var all sync.WaitGroup
	for w := range 8 {
		all.Go(func() {
			for i := range 500 {
				to := fmt.Sprint(w, ".", i)
				m, err := prototype.Unmarshal(fmt.Appendf(nil, `{"to":%q,"tags":{"n":%q}}`, to, to))
				if err != nil || m.(*letter).To != to || m.(*letter).Tags["n"] != to {
					t.Errorf("%s: %+v, %v", to, m, err)
				}
			}
		})
	}
	all.Wait()
}

func TestDefine(t *testing.T) {
	t.Parallel()
	type welcome struct{ To string }
	sad := errors.New("sad")
	var handled []welcome
	k := Define("welcome", func(ctx context.Context, w welcome) error {
		handled = append(handled, w)
		if ctx.Err() != nil {
			return sad
		}
		return nil
	})
	var m IMessage = k.Message(welcome{"a"})
	if m.Channel() != "welcome" || k.Channel() != "welcome" || k.Value() != (welcome{}) ||
		k.Message(welcome{"b"}).Value().To != "b" {
		t.Error(m.Channel(), k.Value())
	}
	payload, err := m.Marshal()
	if err != nil || string(payload) != `{"To":"a"}` {
		t.Fatalf("%s, %v", payload, err)
	}
	got, err := k.Unmarshal(payload)
	if err != nil || got.Channel() != "welcome" || got.(*Kind[welcome]).Value().To != "a" || k.Value() != (welcome{}) {
		t.Fatalf("%+v, %v; the prototype has %+v", got, err, k.Value())
	}
	ended, end := context.WithCancel(context.Background())
	end()
	if err := got.Resolve(context.Background()); err != nil {
		t.Error(err)
	}
	if err := got.Resolve(ended); err != sad {
		t.Error(err)
	}
	if !slices.Equal(handled, []welcome{{"a"}, {"a"}}) {
		t.Errorf("handled %v", handled)
	}
	if _, err := k.Unmarshal([]byte("{")); err == nil {
		t.Error("half an object was read")
	}
	// Nothing of one message is left for the next.
	tags := Define("tags", func(context.Context, map[string]int) error { return nil })
	for _, p := range []string{`{"a":1}`, `{"b":2}`} {
		if m, err := tags.Unmarshal([]byte(p)); err != nil || len(m.(*Kind[map[string]int]).Value()) != 1 {
			t.Errorf("%s: %+v, %v", p, m, err)
		}
	}
}

func TestRaw(t *testing.T) {
	t.Parallel()
	for _, payload := range [][]byte{nil, {}, []byte("{}"), {0xc1, 0x10, 0}} {
		m := Raw("c", payload)
		got, err := m.Marshal()
		if m.Channel() != "c" || err != nil || string(got) != string(payload) {
			t.Errorf("%x: %s, %x, %v", payload, m.Channel(), got, err)
		}
		again, err := m.Unmarshal([]byte("other"))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := again.Marshal(); again.Channel() != "c" || err != nil || string(got) != "other" {
			t.Errorf("%s, %s, %v", again.Channel(), got, err)
		}
		if err := m.Resolve(context.Background()); !custody.Rejects(err) {
			t.Errorf("a Raw message is handled with %v", err)
		}
	}
}

func TestVerdictErrors(t *testing.T) {
	t.Parallel()
	inner := fmt.Errorf("read: %w", io.ErrUnexpectedEOF)
	own := &PanicError{What: "own"}
	for _, c := range []struct {
		err      error
		text     string
		rejects  bool
		after    time.Duration
		delays   bool
		wrapsEOF bool
	}{
		{Reject(inner), inner.Error(), true, 0, false, true},
		{Reject(nil), "rejected", true, 0, false, false},
		{RetryAfter(time.Minute, inner), inner.Error(), false, time.Minute, true, true},
		{RetryAfter(-time.Second, nil), "to be tried again", false, -time.Second, true, false},
		{fmt.Errorf("handler: %w", Reject(inner)), "handler: " + inner.Error(), true, 0, false, true},
		{errors.Join(io.EOF, RetryAfter(1, inner)), "EOF\n" + inner.Error(), false, 1, true, true},
		{RetryAfter(time.Hour, Reject(inner)), inner.Error(), true, time.Hour, true, true},
		{inner, inner.Error(), false, 0, false, true},
	} {
		if got := custody.Rejects(c.err); got != c.rejects {
			t.Errorf("%v: rejects %v", c.err, got)
		}
		if after, got := custody.Delays(c.err); got != c.delays || after != c.after {
			t.Errorf("%v: delays %v by %v", c.err, got, after)
		}
		if got := errors.Is(c.err, io.ErrUnexpectedEOF); got != c.wrapsEOF {
			t.Errorf("%v: wraps its cause: %v", c.err, got)
		}
		if c.err.Error() != c.text {
			t.Errorf("text %q, want %q", c.err, c.text)
		}
	}
	for _, err := range []error{Reject(own), RetryAfter(1, own)} {
		var p *PanicError
		if !errors.As(err, &p) || p != own {
			t.Errorf("%v does not lead to its cause", err)
		}
	}
}

func TestHeaderBounds(t *testing.T) {
	t.Parallel()
	key, value := strings.Repeat("k", 255), strings.Repeat("v", 16<<10)
	for _, c := range []struct {
		key, value string
		ok         bool
	}{
		{"k", "v", true}, {"k", "", true}, {key, value, true}, {"\x00\xff", "\xc1", true},
		{"", "v", false}, {key + "k", "v", false}, {"k", value + "v", false},
	} {
		var d draft
		err := Header(c.key, c.value)(&d)
		if (err == nil) != c.ok || c.ok && (len(d.Element.Headers()) != 1 || d.Element.Headers()[c.key] != c.value) ||
			!c.ok && len(d.Element.Headers()) != 0 {
			t.Errorf(
				"%d bytes of key, %d of value: %v, %d headers",
				len(c.key),
				len(c.value),
				err,
				len(d.Element.Headers()),
			)
		}
		if err != nil && !strings.HasPrefix(err.Error(), "shunt: header ") {
			t.Error(err)
		}
	}
	var d draft
	for _, o := range []Option{Header("a", "1"), Header("b", "2"), Header("a", "3")} {
		if err := o(&d); err != nil {
			t.Fatal(err)
		}
	}
	if h := d.Element.Headers(); len(h) != 2 || h["a"] != "3" || h["b"] != "2" {
		t.Errorf("%v", h)
	}
}

// The last of In and At counts, and what is not ahead is no delay.
func TestOptions(t *testing.T) {
	t.Parallel()
	then := time.UnixMilli(1763726400000)
	for _, c := range []struct {
		opts  []Option
		in    time.Duration
		at    time.Time
		later bool
	}{
		{nil, 0, time.Time{}, false},
		{[]Option{In(time.Second)}, time.Second, time.Time{}, true},
		{[]Option{In(1)}, 1, time.Time{}, true},
		{[]Option{In(0)}, 0, time.Time{}, false},
		{[]Option{In(-1)}, 0, time.Time{}, false},
		{[]Option{At(then)}, 0, then, true},
		{[]Option{At(time.Time{})}, 0, time.Time{}, false},
		{[]Option{In(time.Hour), In(time.Second)}, time.Second, time.Time{}, true},
	} {
		var d draft
		for _, o := range c.opts {
			if err := o(&d); err != nil {
				t.Fatal(err)
			}
		}
		if d.Due.In != c.in || !d.Due.At.Equal(c.at) || d.Due.Later() != c.later {
			t.Errorf("in %v, at %v, later %v; want %+v", d.Due.In, d.Due.At, d.Due.Later(), c)
		}
	}
	var d draft
	for _, o := range []Option{Timeout(time.Hour), MaxAttempts(5), Timeout(-1), MaxAttempts(-1)} {
		if err := o(&d); err != nil {
			t.Fatal(err)
		}
	}
	if d.Element.Timeout() != -1 || d.Element.MaxAttempts() != -1 {
		t.Errorf("%+v", d.Element)
	}
}

func TestFromContextOfNoHandler(t *testing.T) {
	t.Parallel()
	if i, ok := FromContext(context.WithValue(context.Background(), worker.Key{}, "foreign")); ok || i.Serial != "" {
		t.Errorf("%+v", i)
	}
}

func TestCeilMilli(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	ms := at.UnixMilli()
	for d, want := range map[time.Duration]int64{
		0: ms, 1: ms + 1, time.Millisecond - 1: ms + 1, time.Millisecond: ms + 1, time.Millisecond + 1: ms + 2,
		-1: ms, -time.Millisecond: ms - 1,
	} {
		if got := store.CeilMilli(at.Add(d)); got != want {
			t.Errorf("%v: %d, want %d", d, got-ms, want-ms)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		at := time.Unix(rapid.Int64Range(-1<<40, 1<<40).Draw(t, "s"), rapid.Int64Range(0, 999_999_999).Draw(t, "ns"))
		got := time.UnixMilli(store.CeilMilli(at))
		if got.Before(at) || got.Sub(at) >= time.Millisecond {
			t.Fatalf("%v became %v", at, got)
		}
	})
}

// Each draw is within its bounds, and no two waiters wait in step.
func TestJitter(t *testing.T) {
	t.Parallel()
	for _, d := range []time.Duration{20 * time.Millisecond, time.Second, 5 * time.Second, 10 * time.Minute} {
		draws := make(map[time.Duration]bool)
		least, most := d, time.Duration(0)
		for range 10000 {
			j := link.Jitter(d)
			if j < d-d/10 || j > d {
				t.Fatalf("%v became %v", d, j)
			}
			draws[j] = true
			least, most = min(least, j), max(most, j)
		}
		if len(draws) < 9000 {
			t.Errorf("%v: %d different waits of 10000", d, len(draws))
		}
		if least > d-d*9/100 || most < d-d/100 {
			t.Errorf("%v: only %v to %v", d, least, most)
		}
	}
	for _, d := range []time.Duration{0, 1, 9} {
		if j := link.Jitter(d); j != d {
			t.Errorf("%v became %v", d, j)
		}
	}
}

// sidekiqBackoff is attempt⁴ + 15 s and up to 10 s × attempt.
func TestSidekiqBackoff(t *testing.T) {
	t.Parallel()
	var total time.Duration
	for attempt := 1; attempt <= 300; attempt++ {
		n := time.Duration(min(attempt, 255))
		least := (n*n*n*n + 15) * time.Second
		most := least + n*10*time.Second
		draws := make(map[time.Duration]bool)
		low, high := time.Duration(math.MaxInt64), time.Duration(0)
		for range 1000 {
			d := sidekiqBackoff(attempt)
			if d < least || d > most {
				t.Fatalf("attempt %d: %v, want %v to %v", attempt, d, least, most)
			}
			draws[d] = true
			low, high = min(low, d), max(high, d)
		}
		if len(draws) < 990 || low > least+n*time.Second || high < most-n*time.Second {
			t.Errorf(
				"attempt %d: %d different waits, %v to %v of %v to %v",
				attempt,
				len(draws),
				low,
				high,
				least,
				most,
			)
		}
		if attempt < 25 {
			total += least
		}
	}
	if days := total.Hours() / 24; days < 19 || days > 23 {
		t.Errorf("25 attempts take %.1f days", days)
	}
	if sidekiqBackoff(math.MaxInt) > store.MaxWait*2 {
		t.Error("unbounded")
	}
}

// strict has the optional methods.
type strict struct {
	*Kind[int]
	timeout  time.Duration
	attempts int
}

func (s strict) Timeout() time.Duration { return s.timeout }
func (s strict) MaxAttempts() int       { return s.attempts }
func (s strict) Unmarshal(p []byte) (IMessage, error) {
	m, err := s.Kind.Unmarshal(p)
	if err != nil {
		return nil, err
	}
	s.Kind = m.(*Kind[int])
	return s, nil
}

// An option comes before the method, the method before the field; zero stands for what comes next.
func TestOptionMethodField(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		t.Parallel()
		for _, c := range []struct {
			name           string
			method, field  time.Duration
			attempts, most int
			opts           []Option
			timeout        time.Duration // 0: none
			rejectedAfter  int
		}{
			{"field", 0, time.Minute, 0, 3, nil, time.Minute, 3},
			{"method", time.Hour, time.Minute, 2, 3, nil, time.Hour, 2},
			{"option", time.Hour, time.Minute, 2, 3, []Option{Timeout(2 * time.Hour), MaxAttempts(1)}, 2 * time.Hour,
				1},
			{"none by field", 0, -1, 0, 1, nil, 0, 1},
			{"none by method", -1, time.Minute, 0, 1, nil, 0, 1},
			{"none by option", time.Hour, time.Minute, 0, 1, []Option{Timeout(-1)}, 0, 1},
		} {
			t.Run(c.name, func(t *testing.T) {
				q := newBench(t, b.URL(), func(q *Queue) {
					q.Timeout, q.MaxAttempts, q.Backoff = c.field, c.most, func(int) time.Duration { return 0 }
				})
				left := make(chan time.Duration, 10)
				k := strict{q.kind(func(ctx context.Context, _ int) error {
					end, ok := ctx.Deadline()
					if !ok {
						left <- 0
					} else {
						left <- time.Until(end)
					}
					return errors.New("no")
				}), c.method, c.attempts}
				if _, err := q.Receive(t.Context(), k, 1); err != nil {
					t.Fatal(err)
				}
				if err := q.Enqueue(t.Context(), q.kind(nil).Message(1), c.opts...); err != nil {
					t.Fatal(err)
				}
				q.wait(EventRejected, 1, 10*time.Second)
				if n := len(left); n != c.rejectedAfter {
					t.Errorf("handled %d times, want %d", n, c.rejectedAfter)
				}
				if got := <-left; got > c.timeout || got < c.timeout-10*time.Second {
					t.Errorf("%v left, want %v", got, c.timeout)
				}
			})
		}
	})
}

// A socket's URL, with a database.
func TestUnixURL(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	q := newBench(t, "unix://"+s.Socket()+"?db=3")
	q.enqueue(0, 1)
	if n, err := redis.Int(s.TryDo("DBSIZE")); err != nil || n != 0 {
		t.Errorf("%d keys in database 0, %v", n, err)
	}
	q.receive(1, func(context.Context, int) error { return nil })
	q.wait(EventAcked, 1, 5*time.Second)
}

// sealed decodes in place, as cipher.AEAD's Open(payload[:0], …) does.
type sealed struct {
	channel string
	text    string
	handle  func(text string) error
}

func (s sealed) Channel() string { return s.channel }

func (s sealed) Marshal() ([]byte, error) { return invert([]byte(s.text)), nil }

func (s sealed) Unmarshal(p []byte) (IMessage, error) {
	s.text = string(invert(p))
	return s, nil
}

func (s sealed) Resolve(context.Context) error { return s.handle(s.text) }

func invert(p []byte) []byte {
	for i := range p {
		p[i] ^= 0x55
	}
	return p
}

// An Unmarshal that decodes in place wrote into the element that was to be removed: the ack found nothing, and the
// element stayed.
func TestPayloadIsWritten(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		q := newBench(t, b.URL())
		var mu sync.Mutex
		handled := make(map[string]int)
		s := sealed{q.name, "", func(text string) error {
			mu.Lock()
			defer mu.Unlock()
			if handled[text]++; handled[text] == 1 {
				return RetryAfter(0, errors.New("once more"))
			}
			return nil
		}}
		var ms []IMessage
		for i := range 40 {
			ms = append(ms, sealed{q.name, strings.Repeat(fmt.Sprint(i, " "), 1+100*(i%5)), nil})
		}
		if err := q.EnqueueAll(t.Context(), ms); err != nil {
			t.Fatal(err)
		}
		if _, err := q.Receive(t.Context(), s, 2); err != nil {
			t.Fatal(err)
		}
		q.wait(EventAcked, len(ms), 10*time.Second)
		if _, n := q.leaves(q.name); n > 0 || q.count(EventLateVerdict) > 0 || len(handled) != len(ms) {
			t.Errorf("%d left, %d lost, %d texts of %d", n, q.count(EventLateVerdict), len(handled), len(ms))
		}
	})
}

// An empty payload that a worker took for itself was taken for none. It lay in the list of a living worker, which
// nobody looks after.
func TestEmptyPayloadIsTaken(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	q := newBench(t, s.URL())
	k := store.KeysOf(q.name)
	s.Do("LPUSH", k.Prepare, "", "", "")
	q.receive(1, func(context.Context, int) error { return nil })
	q.wait(EventUndecodable, 3, 5*time.Second)
}

// opaque is a message of bytes as they come.
type opaque struct {
	channel string
	payload []byte
	handle  func(context.Context, []byte) error
}

func (s *opaque) Channel() string { return s.channel }

func (s *opaque) Marshal() ([]byte, error) { return s.payload, nil }

func (s *opaque) Resolve(ctx context.Context) error { return s.handle(ctx, s.payload) }

func (s *opaque) Unmarshal(p []byte) (IMessage, error) {
	return &opaque{s.channel, bytes.Clone(p), s.handle}, nil
}

// parcel has every optional method; by value or by pointer.
type parcel struct{ N int }

func (parcel) MessageType() string                { return "parcel-v2" }
func (i parcel) MessageID() string                { return fmt.Sprint("parcel-", i.N) }
func (*parcel) MaxAttempts() int                  { return 2 }
func (parcel) Timeout() time.Duration             { return 50 * time.Millisecond }
func (*parcel) Backoff(attempt int) time.Duration { return time.Duration(attempt) }

// The T of Define may have the optional methods of a message's type.
func TestMethodsOfT(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	play := func(q *bench, enqueue func(n int, opts ...Option) error) {
		t.Helper()
		q.must(enqueue(7))
		if err := enqueue(7); !errors.Is(err, ErrDuplicate) {
			t.Errorf("a second one of its MessageID: %v", err)
		}
		var r Ref
		q.must(enqueue(8, ID("own"), RefTo(&r), In(time.Hour)))
		if st, err := q.Status(t.Context(), r); err != nil || r.ID != "own" || st.Serial != r.Serial {
			t.Errorf("%+v, %+v, %v", r, st, err)
		}
		q.wait(EventRejected, 1, 5*time.Second) // timed out, and again: each of its methods was asked
		if n := q.count(EventTimedOut); n != 2 {
			t.Errorf("%d timed out", n)
		}
		es, err := q.List(t.Context(), q.name, StateDead, 0, 0)
		if err != nil || len(es) != 1 || es[0].Type != "parcel-v2" || es[0].ID != "parcel-7" {
			t.Errorf("%+v, %v", es, err)
		}
	}
	hang := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	t.Run("value", func(t *testing.T) {
		q := newBench(t, s.URL())
		k := Define(q.name, func(ctx context.Context, _ parcel) error { return hang(ctx) })
		if _, err := q.Receive(t.Context(), k, 1); err != nil {
			t.Fatal(err)
		}
		play(q, func(n int, opts ...Option) error { return q.Enqueue(t.Context(), k.Message(parcel{n}), opts...) })
	})
	t.Run("pointer", func(t *testing.T) {
		q := newBench(t, s.URL())
		k := Define(q.name, func(ctx context.Context, _ *parcel) error { return hang(ctx) })
		if _, err := q.Receive(t.Context(), k, 1); err != nil {
			t.Fatal(err)
		}
		play(q, func(n int, opts ...Option) error { return q.Enqueue(t.Context(), k.Message(&parcel{n}), opts...) })
	})
}

// RefTo gives each message of an EnqueueAll its Ref, and that of a message without an ID finds it.
func TestRefTo(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	ctx := t.Context()
	q := newBench(t, s.URL())
	var a, b, twice Ref
	q.must(q.EnqueueAll(ctx, []IMessage{With(q.kind(nil).Message(1), RefTo(&a), RefTo(&twice)),
		With(q.kind(nil).Message(2), RefTo(&b))}, In(time.Hour)))
	if a.Serial == b.Serial || a != twice || a.Channel != q.name {
		t.Errorf("%+v, %+v, %+v", a, b, twice)
	}
	for i, r := range []Ref{a, b} {
		if e, err := q.Peek(ctx, r); err != nil || string(e.Payload) != fmt.Sprint(i+1) {
			t.Errorf("%+v, %v", e, err)
		}
	}
	if err := q.Enqueue(ctx, q.kind(nil).Message(3), RefTo(nil)); err == nil {
		t.Error("RefTo(nil) has no error")
	}
}
