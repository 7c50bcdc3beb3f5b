package shunt

import (
	"context"
	"errors"
	"math"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
)

// broken is a message type whose methods misbehave.
type broken struct {
	channel   string
	marshal   func() ([]byte, error)
	unmarshal func([]byte) (IMessage, error)
}

func (b *broken) Channel() string                      { return b.channel }
func (b *broken) Marshal() ([]byte, error)             { return b.marshal() }
func (b *broken) Unmarshal(p []byte) (IMessage, error) { return b.unmarshal(p) }
func (b *broken) Resolve(context.Context) error        { return nil }

// Bad input gets an error that names what is wrong and what to do.
func TestBadInput(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	ctx := context.Background()
	q := newBench(t, s.URL(), func(q *Queue) { q.MaxSize = 1000 })
	good := q.kind(nil).Message(1)
	says := func(what string, err error, words ...string) {
		t.Helper()
		if err == nil {
			t.Errorf("%s: no error", what)
			return
		}
		for _, w := range words {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %q does not say %q", what, err, w)
			}
		}
	}
	handled := q.kind(func(context.Context, int) error { return nil })
	receive := func(workers int, p ...IMessage) error {
		_, err := q.ReceiveOrdered(ctx, workers, p...)
		return err
	}
	var typed *broken
	says("nil message", q.Enqueue(ctx, nil), "message is nil")
	says("typed nil", q.Enqueue(ctx, typed), "message is nil")
	for _, name := range []string{"", "a b", "a{b", "a}", "tab\t", strings.Repeat("x", 201), "\xff"} {
		says("channel "+name, q.Enqueue(ctx, Raw(name, nil)), "channel's name")
		says(
			"receive "+name,
			receive(1, Define(name, func(context.Context, int) error { return nil })),
			"channel's name",
		)
	}
	says(
		"too large",
		q.Enqueue(ctx, Raw(q.name, make([]byte, 1000))),
		"larger than Queue.MaxSize",
		"1021 bytes, 1000 are allowed",
	)
	if err := q.Enqueue(ctx, Raw(q.name, make([]byte, 1000))); !errors.Is(err, ErrTooLarge) {
		t.Error(err)
	}
	says(
		"marshal fails",
		q.Enqueue(ctx, &broken{channel: q.name, marshal: func() ([]byte, error) { return nil, errors.New("no ink") }}),
		"marshal",
		"no ink",
	)
	says(
		"marshal panics",
		q.Enqueue(ctx, &broken{channel: q.name, marshal: func() ([]byte, error) { panic("no pen") }}),
		"Marshal panicked",
		"no pen",
	)
	says("header", q.Enqueue(ctx, good, Header("", "x")), "header")
	says("no workers", receive(0, good), "0 workers", "want 1 to")
	says("negative workers", receive(-1, good), "-1 workers")
	says("no prototype", receive(1), "want 1 to 64 prototypes")
	says("nil prototype", receive(1, nil), "prototype 0 is nil")
	says("raw prototype", receive(1, Raw(q.name, nil)), "no prototype")
	says("twice", receive(1, handled, handled), "two prototypes")
	says("no func", receive(1, good), "no func", "give one to Define")
	says("no value", q.Enqueue(ctx, handled), "carries no value", "Message(v)")
	says("nil option", q.Enqueue(ctx, good, In(1), nil), "option 1", "is nil")
	says("nil option of With", q.Enqueue(ctx, With(good, nil)), "option 0", "is nil")
	says("two due times", q.Enqueue(ctx, good, In(1), At(time.Now())), "In and At")
	says("two ends", q.Enqueue(ctx, good, ExpireToDead(time.Hour), Expire(time.Hour)), "Expire and ExpireToDead")
	says("attempts", q.Enqueue(ctx, good, MaxAttempts(300)), "MaxAttempts(300)", "1 to 255")
	if err := q.Enqueue(ctx, With(good, At(time.Now().Add(time.Hour))), In(time.Minute)); err != nil {
		t.Errorf("an option of With is no rival of the enqueue's: %v", err)
	}
	for what, err := range withoutContext(q.Queue, handled, good) {
		says(what+" without a context", err, "context is nil")
	}
	_, err := q.ReceiveWeighted(ctx, 1, Share{good, 0})
	says("weight", err, "weight 0")
	_, err = q.List(ctx, q.name, "nowhere", 0, 0)
	says("state", err, "nowhere")
	_, err = q.Purge(ctx, q.name, StateDoing)
	says("purge doing", err, "cannot be purged")
	_, err = q.RetryDead(ctx, q.name, Entry{})
	says("foreign entry", err, "the entry is of channel")

	var all *EnqueueError
	err = q.EnqueueAll(ctx, []IMessage{good, nil, Raw("a b", nil), good})
	if !errors.As(err, &all) || len(all.Failed) != 2 || all.Failed[1] == nil || all.Failed[2] == nil ||
		len(all.Unknown) != 0 {
		t.Errorf("%+v", err)
	}
	says("some", err, "2 messages not enqueued")

	for bad, why := range map[string]string{
		"localhost:6379": "scheme", "http://x": "scheme", "redis://x/y": "path", "://": "missing protocol scheme",
		"redis:x": "path", "redis://x/4/5": "path", "redis://x?timeout=3s": `no option "timeout"`,
		"rediss://x/?skip_verify=1": `no option "skip_verify"`, "redis://x/1?db=2": "named twice",
		"redis://x?db=": "is no number", "redis://x/99999999999": "is no number", "unix:///s?db=x": "is no number",
		"unix://s": "three slashes", "unix:///s?dv=1": `no option "dv"`, "redis://u:secret@ x": "cannot be read",
		"redis://u:secr/secret@x": "to be escaped",
	} {
		_, err := NewPool(bad)
		says("URL "+bad, err, "shunt: redis URL", why)
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%v shows the password", err)
		}
	}
	says("no pool", (&Queue{}).Validate(), "Pool is nil", "NewPool")
	says("no dial", (&Queue{Pool: &redis.Pool{}}).Validate(), "neither Dial nor DialContext", "NewPool")
	says(
		"all at once",
		(&Queue{Pool: q.Pool, Lease: 1, Grace: -1, Prefetch: -1}).Validate(),
		"Lease",
		"Grace",
		"Prefetch",
	)
	says("no pool used", (&Queue{}).Enqueue(ctx, good), "Pool is nil")
}

// withoutContext are the errors of methods that were given nil for their context.
func withoutContext(q *Queue, handled, message IMessage) map[string]error {
	var none context.Context
	_, receive := q.Receive(none, handled, 1)
	ignore := func(context.Context, []IMessage) []error { return nil }
	_, batch := q.ReceiveBatch(none, handled, 1, Batch{Handle: ignore})
	_, stats := q.Stats(none, handled.Channel())
	_, status := q.Status(none, ByID(handled.Channel(), "a"))
	_, wait := q.Wait(none, ByID(handled.Channel(), "a"))
	shutdown, err := q.Receive(context.Background(), handled, 1)
	if err == nil {
		defer shutdown(context.Background())
		err = shutdown(none)
	}
	return map[string]error{
		"Enqueue": q.Enqueue(none, message), "EnqueueAll": q.EnqueueAll(none, []IMessage{message}), "Receive": receive,
		"ReceiveBatch": batch, "Stats": stats, "Status": status, "Wait": wait, "shutdown": err,
	}
}

// A server that is not there, or not ours, is told soon, and nothing is left running.
func TestBadServer(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	ctx := context.Background()
	try := func(url string, words ...string) {
		t.Helper()
		q := newBench(t, url, func(q *Queue) { q.EnqueueTimeout = time.Second })
		began := time.Now()
		_, err := q.Receive(ctx, q.kind(func(context.Context, int) error { return nil }), 1)
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("Receive took %v", took)
		}
		err2 := q.Enqueue(ctx, q.kind(nil).Message(1))
		for _, err := range []error{err, err2} {
			for _, w := range words {
				if err == nil || !strings.Contains(err.Error(), w) {
					t.Errorf("%v does not say %q", err, w)
				}
			}
		}
	}
	absent := redistest.Start(t)
	url := absent.URL()
	absent.Kill()
	try(url, "connect to redis", "refused")
	locked := redistest.Start(t, "requirepass secret")
	try(locked.URL(), "NOAUTH")
	try(strings.Replace(locked.URL(), "redis://", "redis://:wrong@", 1), "WRONGPASS")
}

// The database of a URL is the one that is used, in whichever place it is named.
func TestDatabaseOfURL(t *testing.T) {
	if _, err := NewPool("redis://h:1/0#w"); err == nil || !strings.Contains(err.Error(), "%23") {
		t.Errorf("a URL with # in it: %v", err)
	}
	if _, err := new(Queue).Purge(t.Context(), "c"); err == nil || !strings.Contains(err.Error(), "no states") {
		t.Errorf("Purge of no states: %v", err)
	}
	t.Parallel()
	s := redistest.Start(t)
	for db, suffix := range map[string]string{"0": "", "4": "/4", "5": "?db=5", "6": "/?db=6"} {
		url := "redis://" + s.Addr()
		pool, err := NewPool(url + suffix)
		if err != nil {
			t.Fatal(err)
		}
		c := pool.Get()
		if _, err := c.Do("SET", "database", db); err != nil {
			t.Fatal(err)
		}
		c.Close()
		pool.Close()
		seen, err := NewPool(url + "/" + db)
		if err != nil {
			t.Fatal(err)
		}
		c = seen.Get()
		if got, err := redis.String(c.Do("GET", "database")); got != db || err != nil {
			t.Errorf("%s: database %s has %q, %v", suffix, db, got, err)
		}
		c.Close()
		seen.Close()
	}
}

// What only a person can mend fails every call at once, and none of them dials: the Queue does so after its wait. The
// Queue works as soon as it is mended.
func TestFatalIsAtOnce(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	locked := redistest.Start(t, "requirepass secret")
	secret := strings.Replace(locked.URL(), "redis://", "redis://:secret@", 1)
	owner, err := NewPool(secret)
	if err != nil {
		t.Fatal(err)
	}
	defer owner.Close()
	do := func(name string, args ...any) {
		t.Helper()
		c := owner.Get()
		defer c.Close()
		if _, err := c.Do(name, args...); err != nil {
			t.Fatal(err)
		}
	}
	do("ACL", "SETUSER", "reader", "on", ">reader", "~*", "+ping", "+lrange")
	http := httptest.NewServer(nil)
	defer http.Close()
	absent := redistest.Start(t)
	gone := absent.URL()
	absent.Kill()
	for url, why := range map[string]string{
		locked.URL(): "NOAUTH",
		strings.Replace(locked.URL(), "redis://", "redis://:wrong@", 1):        "WRONGPASS",
		strings.Replace(locked.URL(), "redis://", "redis://reader:reader@", 1): "NOPERM",
		strings.TrimSuffix(secret, "/0") + "/99":                               "DB index is out of range",
		strings.Replace(http.URL, "http://", "redis://", 1):                    "unexpected response line",
		gone:                           "connection refused",
		"redis://no-such-host.invalid": "no such host",
		"unix:///no/such/file.sock":    "no such file",
	} {
		t.Run(why, func(t *testing.T) {
			q := newBench(t, url)
			k := q.kind(nil)
			for name, enqueue := range map[string]func() error{
				"plain": func() error { return q.Enqueue(t.Context(), k.Message(1)) },
				"later": func() error { return q.Enqueue(t.Context(), k.Message(1), In(time.Hour)) },
				"by id": func() error { return q.Enqueue(t.Context(), k.Message(1), ID("a")) },
				"many":  func() error { return q.EnqueueAll(t.Context(), []IMessage{k.Message(1), k.Message(2)}) },
				"stats": func() error { _, err := q.Stats(t.Context(), q.name); return err },
			} {
				began := time.Now()
				err := enqueue()
				if err == nil || !strings.Contains(err.Error(), why) || errors.Is(err, ErrUnknown) {
					t.Errorf("%s: %v", name, err)
				}
				if took := time.Since(began); took > time.Second {
					t.Errorf("%s took %v", name, took)
				}
			}
		})
	}
	q := newBench(t, locked.URL())
	if err := q.Enqueue(t.Context(), q.kind(nil).Message(1)); err == nil {
		t.Error("enqueued without a password")
	}
	do("CONFIG", "SET", "requirepass", "")
	redistest.Until(t, 5*time.Second, "mended", func() bool {
		return q.Enqueue(t.Context(), q.kind(nil).Message(1)) == nil
	})
}

// Whoever meets a foreign key has it named, and it is searched for once a second.
func TestForeignKeyIsRemembered(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	q := newBench(t, p.URL())
	k := store.KeysOf(q.name)
	fails := func(key string) bool {
		err := q.one(0)
		return err != nil && strings.Contains(err.Error(), "the key "+key+" holds")
	}
	s.Do("SET", k.Prepare, "not shunt's")
	began := time.Now()
	for range 50 {
		if !fails(k.Prepare) {
			t.Fatal("no error names the key")
		}
	}
	if n := p.Count(redistest.Command("HLEN", k.Counts)); n > 2+int(time.Since(began)/time.Second) {
		t.Errorf("it was searched for %d times in %v", n, time.Since(began))
	}
	s.Do("DEL", k.Prepare)
	s.Do("SET", k.IDs, "not shunt's")
	q.until(5*time.Second, "the other key is named", func() bool {
		err := q.one(0, ID("a"))
		return err != nil && strings.Contains(err.Error(), "the key "+k.IDs+" holds")
	})
}

// Keys of the wrong type lose nothing, and the errors say what is in the way.
func TestWrongType(t *testing.T) {
	t.Parallel()
	for _, suffix := range []string{"prepare", "delay", "dead", "suspect", "receivers", "receivers.dead", "keeper"} {
		t.Run(suffix, func(t *testing.T) {
			t.Parallel()
			s := redistest.Shared(t)
			redistest.Leaks(t)
			q := newBench(t, s.URL(), func(q *Queue) {
				q.Lease = time.Second
				q.Backoff = func(int) time.Duration { return 0 }
			})
			ctx := context.Background()
			key := "{" + q.name + "}." + suffix
			s.Do("SET", key, "not shunt's")
			seen := newTally()
			handle := func(_ context.Context, i int) error {
				switch n := seen.add(i); {
				case i == 1 && n == 1:
					return errors.New("once")
				case i == 2:
					return Reject(errors.New("never"))
				}
				return nil
			}
			named := "the key " + key + " holds something that is not shunt's"
			if suffix == "prepare" || suffix == "receivers" { // a receiver does without the others
				_, err := q.Receive(ctx, q.kind(handle), 2)
				for tries := 1; tries < 10 && timedOut(err); tries++ {
					_, err = q.Receive(ctx, q.kind(handle), 2)
				}
				if err == nil || !strings.Contains(err.Error(), named) {
					t.Errorf("Receive: %v", err)
				}
			}
			s.Do("DEL", key)
			shutdown := q.starts(func() (Shutdown, error) { return q.Receive(ctx, q.kind(handle), 2) })
			if suffix != "receivers" {
				s.Do("SET", key, "not shunt's")
			}
			want := 0
			for i := range 4 {
				err := q.Enqueue(ctx, q.kind(nil).Message(i))
				if suffix == "prepare" {
					if err == nil || !strings.Contains(err.Error(), named) {
						t.Errorf("Enqueue: %v", err)
					}
				} else if err != nil {
					t.Error(err)
				} else {
					want++
				}
			}
			if suffix != "receivers" && suffix != "dead" && suffix != "delay" && suffix != "keeper" {
				q.until(10*time.Second, "it is told", func() bool { return q.count(EventReceiverError) > 0 })
			}
			q.until(10*time.Second, "what can be is handled", func() bool { return seen.distinct() == want })
			s.Do("DEL", key)
			for i := want; i < 4; i++ {
				q.enqueue(i, i+1)
			}
			q.until(20*time.Second, "all is handled", func() bool {
				st, err := q.Stats(ctx, q.name)
				return err == nil && seen.distinct() == 4 && st[StateDead].Count == 1 &&
					st[StatePrepare].Count+st[StateDoing].Count+st[StateDelay].Count == 0 &&
					q.count(EventAcked) >= 3
			})
			if err := shutdown(ctx); err != nil {
				t.Error(err)
			}
		})
	}
}

// A pull takes nothing where a key that it asks for is not shunt's. Its error names that key once, whichever of the
// pull's channels has it. Others it does without.
func TestPullWrongType(t *testing.T) {
	t.Parallel()
	for _, suffix := range []string{"suspect", "leased", "delay", "dead", "receivers", "receivers.dead", "keeper"} {
		t.Run(suffix, func(t *testing.T) {
			t.Parallel()
			s := redistest.Shared(t)
			redistest.Leaks(t)
			b := newBench(t, s.URL())
			key := "{" + b.name + "}." + suffix
			s.Do("SET", key, "not shunt's")
			b.enqueue(0, 1)
			if suffix == "suspect" || suffix == "leased" {
				for _, channels := range [][]string{{b.name}, {redistest.Name(t), b.name}} {
					ms, err := b.Pull(context.Background(), PullOptions{Channels: channels, Wait: time.Minute})
					if len(ms) > 0 || err == nil || strings.Count(err.Error(), "that is not shunt's") != 1 ||
						!strings.Contains(err.Error(), "the key "+key+" holds") {
						t.Errorf("%d pulled, %v", len(ms), err)
					}
				}
				s.Do("DEL", key)
			}
			b.must(b.pull(1, PullOptions{})[0].Ack(context.Background()))
			s.Do("DEL", key)
		})
	}
}

// Too small a pool is refused before it can stall anything.
func TestSmallPool(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	q := newBench(t, s.URL(), func(q *Queue) { q.Pool.MaxActive = 5 })
	ctx := context.Background()
	a, b := q.ranks(
		2,
		func(context.Context, int, int) error { return nil },
	), q.kind(
		func(context.Context, int) error { return nil },
	)
	if _, err := q.ReceiveOrdered(ctx, 1, a[0], a[1]); err == nil ||
		!strings.Contains(err.Error(), "needs 6 connections") {
		t.Error(err)
	}
	if _, err := q.Receive(ctx, b, 1); err != nil {
		t.Error(err)
	}
	if _, err := q.Receive(ctx, a[0], 1); err == nil || !strings.Contains(err.Error(), "MaxActive is 5") {
		t.Error(err)
	}
	q.enqueue(0, 10)
	q.wait(EventAcked, 10, 5*time.Second)
}

// A payload that cannot be decoded goes to dead with the reason, once.
func TestUndecodable(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		t.Parallel()
		redistest.Leaks(t)
		q := newBench(t, b.URL())
		ctx := context.Background()
		p := &broken{channel: q.name}
		p.unmarshal = func(b []byte) (IMessage, error) {
			switch string(b) {
			case "panic":
				panic("what is this")
			case "nil":
				return nil, nil
			case "ok":
				return p, nil
			}
			return nil, errors.New("not mine")
		}
		if _, err := q.Receive(ctx, p, 2); err != nil {
			t.Fatal(err)
		}
		newer := append([]byte{0xC1, 0x20}, make([]byte, 30)...)
		for _, payload := range []string{"panic", "nil", "other", string(newer)} {
			b.Do("LPUSH", "{"+q.name+"}.prepare", payload)
		}
		if err := q.Enqueue(ctx, Raw(q.name, []byte("ok"))); err != nil {
			t.Fatal(err)
		}
		q.wait(EventUndecodable, 4, 10*time.Second)
		q.wait(EventAcked, 1, 10*time.Second)
		es, err := q.List(ctx, q.name, StateDead, 0, 0)
		if err != nil || len(es) != 4 {
			t.Fatal(es, err)
		}
		reasons := ""
		for _, e := range es {
			reasons += string(e.Payload) + ": " + e.Failure + "\n"
		}
		for _, want := range []string{"panic: Unmarshal panicked: what is this", "nil: shunt: Unmarshal returned no " +
			"message", "other: not mine", "newer version"} {
			if !strings.Contains(reasons, want) {
				t.Errorf("%q lacks %q", reasons, want)
			}
		}
		// What a newer shunt wrote is put back as it was.
		if n, err := q.RetryDead(ctx, q.name, es...); n != 4 || err != nil {
			t.Error(n, err)
		}
		q.wait(EventUndecodable, 8, 10*time.Second)
	})
}

// A wait beyond all bounds is a long one, not none.
func TestFarFuture(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		t.Parallel()
		q := newBench(t, b.URL())
		ctx := context.Background()
		for _, o := range []Option{In(math.MaxInt64), At(time.Unix(1<<60, 0))} {
			if err := q.Enqueue(ctx, q.kind(nil).Message(1), o); err != nil {
				t.Error(err)
			}
		}
		q.enqueue(1, 2)
		q.receive(1, func(context.Context, int) error { return RetryAfter(math.MaxInt64, nil) })
		q.wait(EventRetried, 1, 5*time.Second)
		es, err := q.List(ctx, q.name, StateDelay, 0, 0)
		if err != nil || len(es) != 3 {
			t.Fatal(es, err)
		}
		for _, e := range es {
			if time.Until(e.DueAt) < 50*365*24*time.Hour {
				t.Errorf("due %v", e.DueAt)
			}
		}
	})
}

// A server that is not what the URL says is named so: a cluster, one without TLS, one that does not answer.
func TestOtherServers(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		p := redistest.NewProxy(t, s.Addr())
		q := newBench(t, p.URL())
		p.On(redistest.ByName("LPUSH", ".prepare")(q.name), 0, redistest.ReplyError("MOVED 1 127.0.0.1:1"))
		began := time.Now()
		err := q.one(1)
		if err == nil || !strings.Contains(err.Error(), "Redis Cluster") || time.Since(began) > time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
	t.Run("without TLS", func(t *testing.T) {
		t.Parallel()
		q := newBench(t, strings.Replace(s.URL(), "redis://", "rediss://", 1))
		began := time.Now()
		err := q.one(1)
		if err == nil || !strings.Contains(err.Error(), "plain redis:// port") || time.Since(began) > 3*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
	t.Run("mute", func(t *testing.T) {
		t.Parallel()
		p := redistest.NewProxy(t, s.Addr())
		p.Hole(true)
		defer p.Hole(false)
		q := newBench(t, p.URL())
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		err := q.Enqueue(ctx, q.kind(nil).Message(1))
		if err == nil || strings.Contains(err.Error(), "closed network") {
			t.Errorf("%v", err)
		}
	})
}
