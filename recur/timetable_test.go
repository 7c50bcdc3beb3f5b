package recur

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
)

func TestAdd(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		t.Parallel()
		redistest.Leaks(t)
		b := newBench(t, s.URL(), redistest.Name(t))
		ctx, key := context.Background(), store.KeysOf(b.channel).Recur
		raw := func() string { v, _ := redis.String(s.Do("HGET", key, "a"), nil); return v }

		b.add("a", Every(time.Hour), Missed(All(7)), With(shunt.Header("k", "v")))
		first := raw()
		b.add("a", Every(time.Hour), Missed(All(7)), With(shunt.Header("k", "v")))
		if raw() != first {
			t.Errorf("the same definition again made %q of %q", raw(), first)
		}
		e := b.entry("a")
		if e.Spec.String() != "@every 1h0m0s" || e.Missed != All(7) || e.Paused || e.Headers["k"] != "v" ||
			string(e.Payload) != `"a"` ||
			!e.Last.IsZero() || e.Count != 0 || e.Channel != b.channel || !e.Next.After(time.Now()) ||
			e.Next.After(time.Now().Add(time.Hour+time.Minute)) {
			t.Errorf("%+v", e)
		}

		past := time.Now().Add(-time.Minute).UnixMilli()
		b.set(s, "a", func(r *record) { r.next, r.last, r.count = past, past, 5 })
		b.add("a", Every(time.Hour), Missed(Skip))
		if e := b.entry("a"); e.Missed != Skip || e.Next.UnixMilli() != past || e.Last.UnixMilli() != past ||
			e.Count != 5 {
			t.Errorf("with another policy %+v", e)
		}
		b.add("a", Cron("@daily", "Europe/Berlin"), Missed(Skip))
		if e := b.entry("a"); !e.Next.After(time.Now()) || e.Next.Hour() != 0 ||
			e.Next.Location().String() != "Europe/Berlin" || e.Spec.String() != "@daily Europe/Berlin" {
			t.Errorf("with another Spec %+v", e)
		}

		if err := b.Pause(ctx, b.channel, "a"); err != nil {
			t.Fatal(err)
		}
		b.add("a", Every(time.Minute))
		if e := b.entry("a"); !e.Paused || !e.Next.IsZero() {
			t.Errorf("a paused one with another Spec %+v", e)
		}
	})
}

// Enqueue says when nothing was enqueued, because the message before it still has its ID, and where a lost reply may
// have said so.
func TestEnqueueDuplicate(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	b := newBench(t, p.URL(), redistest.Name(t))
	ctx := context.Background()
	b.add("a", Every(time.Hour), With(shunt.ID("one")))
	for n, want := range []error{nil, shunt.ErrDuplicate, shunt.ErrUnknown} {
		if n == 2 {
			p.On(fires, 1, redistest.CutAfter)
		}
		if err := b.Timetable.Enqueue(ctx, b.channel, "a"); !errors.Is(err, want) {
			t.Errorf("%d: %v, want %v", n, err, want)
		}
	}
	if n := s.Do("LLEN", store.KeysOf(b.channel).Prepare); n != int64(1) {
		t.Errorf("%v in prepare", n)
	}
}

func TestAddRefuses(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := redistest.Shared(t)
	b := newBench(t, s.URL(), redistest.Name(t))
	m := b.kind.Message("x")
	for _, c := range []struct {
		name, problem string
		spec          Spec
		message       shunt.IMessage
		opts          []Option
	}{
		{"", "0 bytes", Every(time.Minute), m, nil},
		{strings.Repeat("x", 201), "201 bytes", Every(time.Minute), m, nil},
		{"a\nb", `'\n'`, Every(time.Minute), m, nil},
		{"a\xff", "UTF-8", Every(time.Minute), m, nil},
		{"a", "column 3", Cron("0 61 * * *", ""), m, nil},
		{"a", "Berlni", Cron("0 1 * * *", "Europe/Berlni"), m, nil},
		{"a", "empty", Spec{}, m, nil},
		{"a", "All(1001)", Every(time.Minute), m, []Option{Missed(All(1001))}},
		{"a", "All(-1)", Every(time.Minute), m, []Option{Missed(All(-1))}},
		{"a", "In, At", Every(time.Minute), m, []Option{With(shunt.In(time.Minute))}},
		{"a", "In, At", Every(time.Minute), m, []Option{With(shunt.At(time.Now().Add(time.Minute)))}},
		{"a", "Deadline", Every(time.Minute), m, []Option{With(shunt.Deadline(time.Now().Add(time.Minute)))}},
		{"a", "header", Every(time.Minute), m, []Option{With(shunt.Header("", "v"))}},
		{"a", "nil", Every(time.Minute), nil, nil},
	} {
		err := b.Add(context.Background(), c.name, c.spec, c.message, c.opts...)
		if err == nil || !strings.Contains(err.Error(), c.problem) {
			t.Errorf("%q %s: %v, want a word on %q", c.name, c.spec, err, c.problem)
		}
	}
	if n := s.Do("EXISTS", store.KeysOf(b.channel).Recur); n != int64(0) {
		t.Error("something was written")
	}
	if err := new(Timetable).Add(context.Background(), "a", Every(time.Minute), m); err == nil {
		t.Error("a Timetable without a Queue is no error")
	}
}

func TestChanges(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		t.Parallel()
		redistest.Leaks(t)
		b := newBench(t, s.URL(), redistest.Name(t))
		ctx, k := context.Background(), store.KeysOf(b.channel)
		for what, f := range map[string]func(context.Context, string, string) error{"pause": b.Pause,
			"resume": b.Resume, "remove": b.Remove, "enqueue": b.Timetable.Enqueue} {
			if err := f(ctx, b.channel, "none"); !errors.Is(err, ErrNotFound) {
				t.Errorf("%s what is not there: %v", what, err)
			}
		}
		b.add("b", Every(time.Hour), With(shunt.Header("k", "v")))
		b.add("a", Every(time.Hour))
		do := func(f func(context.Context, string, string) error, name string) {
			t.Helper()
			if err := f(ctx, b.channel, name); err != nil {
				t.Fatal(err)
			}
		}
		do(b.Pause, "b")
		do(b.Pause, "b")
		if e := b.entry("b"); !e.Paused || !e.Next.IsZero() {
			t.Errorf("paused: %+v", e)
		}
		do(b.Timetable.Enqueue, "b")
		if e := b.entry("b"); e.Count != 1 || !e.Last.IsZero() || !e.Paused {
			t.Errorf("enqueued at once: %+v", e)
		}
		raws, _ := redis.ByteSlices(s.Do("LRANGE", k.Prepare, 0, -1), nil)
		if len(raws) != 1 {
			t.Fatalf("%d messages", len(raws))
		}
		if e, err := element.Decode(raws[0]); err != nil || e.Bare || e.Serial.IsZero() ||
			string(e.Payload) != `"b"` || len(e.Headers()) != 1 || e.Headers()["k"] != "v" {
			t.Errorf("%+v, %v", e, err)
		}
		b.set(s, "b", func(r *record) { r.next = 1 })
		do(b.Resume, "b")
		do(b.Resume, "b")
		if e := b.entry("b"); e.Paused || !e.Next.After(time.Now()) {
			t.Errorf("resumed: %+v", e)
		}

		s.Do("HSET", k.Recur, "newer", "2 what ever\n", "foreign", "what ever")
		es, err := b.Timetable.List(ctx, b.channel)
		if len(es) != 2 || es[0].Name != "a" || es[1].Name != "b" || err == nil || !strings.Contains(err.Error(),
			"newer version") || !strings.Contains(err.Error(), "no record of shunt's") {
			t.Errorf("%v, %v", es, err)
		}
		if err := b.Pause(ctx, b.channel, "newer"); err == nil || !strings.Contains(err.Error(), "newer version") {
			t.Errorf("pause a newer one: %v", err)
		}
		do(b.Remove, "newer")
		do(b.Remove, "foreign")
		do(b.Remove, "a")
		do(b.Remove, "b")
		if n := s.Do("EXISTS", k.Recur); n != int64(0) {
			t.Errorf("the key outlives the last: %v", s.Do("HGETALL", k.Recur))
		}
	})
}

// sends matches a script, by its digest or its text.
func sends(text string, digest string) redistest.Match {
	byText, byDigest := redistest.Command("EVAL", text), redistest.Command("EVALSHA", digest)
	return func(args [][]byte) bool { return byText(args) || byDigest(args) }
}

var (
	sets  = sends("Recur set:", store.RecurSet.Digest())
	fires = sends("Recur fire:", store.RecurFire.Digest())
)

// TestLostReplies of what an operator does: it was done, once, and says so.
func TestLostReplies(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	b := newBench(t, p.URL(), redistest.Name(t))
	ctx := context.Background()
	for _, c := range []struct {
		name  string
		match redistest.Match
		do    func() error
	}{
		{"add", sets, func() error { return b.Add(ctx, "a", Cron("0 0 1 1 *", "UTC"), b.kind.Message("a")) }},
		{"pause", sets, func() error { return b.Pause(ctx, b.channel, "a") }},
		{"resume", sets, func() error { return b.Resume(ctx, b.channel, "a") }},
		{"enqueue", fires, func() error { return b.Timetable.Enqueue(ctx, b.channel, "a") }},
		{"remove", sets, func() error { return b.Remove(ctx, b.channel, "a") }},
	} {
		rule := p.On(c.match, 1, redistest.CutAfter)
		if err := c.do(); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if rule.Struck() == 0 {
			t.Errorf("%s: not struck", c.name)
		}
		rule.Remove()
	}
	n, _ := redis.Int(s.Do("LLEN", store.KeysOf(b.channel).Prepare), nil)
	if n != 1 || b.sum(shunt.EventEnqueued) != 1 {
		t.Errorf("one enqueue made %d messages, %d told", n, b.sum(shunt.EventEnqueued))
	}
	if n := s.Do("EXISTS", store.KeysOf(b.channel).Recur); n != int64(0) {
		t.Error("not removed")
	}
}

// On a full Redis a recurring message can be paused, resumed and removed, and a new one is refused with what to do.
func TestFullRedisIsTidied(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "maxmemory 30mb", "maxmemory-policy noeviction")
	pool, err := shunt.NewPool(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	q := &shunt.Queue{Pool: pool}
	defer q.Close()
	timetable := &Timetable{Queue: q}
	ctx := context.Background()
	kind := shunt.Define("c", func(context.Context, int) error { return nil })
	for _, name := range []string{"a", "b"} {
		if err := timetable.Add(ctx, name, Every(time.Second), kind.Message(1)); err != nil {
			t.Fatal(err)
		}
	}
	for range 25 {
		_, _ = s.TryDo("RPUSH", "fill", strings.Repeat("x", 1<<20))
	}
	s.Do("CONFIG", "SET", "maxmemory", 20<<20)
	if err := timetable.Add(ctx, "new", Every(time.Second), kind.Message(1)); !errors.Is(err, shunt.ErrFull) {
		t.Errorf("a new one: %v", err)
	}
	for what, err := range map[string]error{
		"pause": timetable.Pause(ctx, "c", "a"), "remove": timetable.Remove(ctx, "c", "b"),
	} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := timetable.Resume(ctx, "c", "a"); err != nil {
		t.Errorf("resume: %v", err)
	}
}

// A payload that is encoded is that of all ticks, and the same definition changes nothing, though it is never encoded
// twice to the same bytes.
func TestAddEncoded(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		b := newBench(t, s.URL(), redistest.Name(t))
		n, encoding := 0, "x"
		b.Queue.Payloads = shunt.Payloads{
			Encode: func(_ context.Context, p shunt.Payload) (string, []byte, error) {
				if p.Serial != "" {
					return "", nil, errors.New("the serial of a tick is not known yet")
				}
				n++
				return encoding, append([]byte(strings.Repeat("x", n)), p.Bytes...), nil
			},
			Decode: func(_ context.Context, p shunt.Payload) ([]byte, error) {
				return bytes.TrimLeft(p.Bytes, "x"), nil
			},
		}
		head := func() string {
			raw, _ := redis.String(s.Do("HGET", store.KeysOf(b.channel).Recur, "a"), nil)
			line, _, _ := strings.Cut(raw, "\n")
			return line
		}
		add := func(text string) string {
			t.Helper()
			m := b.kind.Message(text)
			if err := b.Add(t.Context(), "a", Cron("0 0 1 1 *", "UTC"), m, Missed(Skip)); err != nil {
				t.Fatal(err)
			}
			return head()
		}
		first := add("one")
		if second := add("one"); first == "" || second != first || n != 2 {
			t.Errorf("the same definition changed %q to %q; encoded %d times", first, second, n)
		}
		encoding = "x,y"
		joined := add("one")
		if joined == first {
			t.Error("another encoding changed nothing: what it keeps secret stays as it was")
		}
		if other := add("two"); other == joined {
			t.Error("another payload changed nothing")
		}
		if err := b.Timetable.Enqueue(t.Context(), b.channel, "a"); err != nil {
			t.Fatal(err)
		}
		es, err := b.Queue.List(t.Context(), b.channel, shunt.StatePrepare, 0, 0)
		if err != nil || len(es) != 1 || !bytes.HasPrefix(es[0].Payload, []byte("xxxx")) ||
			es[0].Headers[shunt.EncodingHeader] != "x,y" {
			t.Fatalf("enqueued %v, %v", es, err)
		}
		if plain, err := b.PayloadOf(t.Context(), es[0]); err != nil || string(plain) != `"two"` {
			t.Errorf("the payload is %s, %v", plain, err)
		}
	})
}

// What is nil is an error that says so.
func TestNil(t *testing.T) {
	t.Parallel()
	b := newBench(t, redistest.Shared(t).URL(), redistest.Name(t))
	err := b.Add(t.Context(), "a", Every(time.Hour), shunt.Raw(b.channel, nil), nil)
	if err == nil || !strings.Contains(err.Error(), "option 1 of 1 is nil") {
		t.Error(err)
	}
	var none context.Context
	if _, err := b.Run(none, b.channel); err == nil || !strings.Contains(err.Error(), "context is nil") {
		t.Error(err)
	}
}
