package redistest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
)

// bed is a proxy before the shared server, with a client on it and a key of the test's own.
type bed struct {
	*Proxy
	s   *Server
	c   redis.Conn
	key string
}

func newBed(t *testing.T, more ...redis.DialOption) *bed {
	t.Helper()
	t.Parallel()
	Leaks(t)
	s := Shared(t)
	p := NewProxy(t, s.Addr())
	return &bed{Proxy: p, s: s, c: dial(t, "tcp", p.Addr(), more...), key: "{" + Name(t) + "}"}
}

// list returns what is in the bed's list, seen past the proxy.
func (b *bed) list(t *testing.T) string {
	t.Helper()
	v, err := redis.Strings(b.s.Do("LRANGE", b.key, 0, -1), nil)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(v, " ")
}

func wantStruck(t *testing.T, r *Rule, want int) {
	t.Helper()
	if n := r.Struck(); n != want {
		t.Errorf("struck %d times, want %d; commands:\n%s", n, want, strings.Join(r.p.Log(), "\n"))
	}
}

func do(t *testing.T, c redis.Conn, cmd string, args ...any) {
	t.Helper()
	if _, err := c.Do(cmd, args...); err != nil {
		t.Fatal(err)
	}
}

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// pipe sends commands in one go and returns the replies, an error's text for an error; it ends with the connection.
func pipe(t *testing.T, c redis.Conn, cmds ...[]any) (replies []string) {
	t.Helper()
	for _, cmd := range cmds {
		if err := c.Send(cmd[0].(string), cmd[1:]...); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	for range cmds {
		v, err := c.Receive()
		var answer redis.Error
		switch {
		case errors.As(err, &answer):
			replies = append(replies, err.Error())
		case err != nil:
			return append(replies, "cut")
		default:
			replies = append(replies, fmt.Sprintf("%s", v))
		}
	}
	return replies
}

func TestCuts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		act  Action
		list string // what the server holds afterwards
	}{
		{"before", CutBefore, "1"},
		{"unread", CutUnread, "1 2"},
		{"after", CutAfter, "1 2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBed(t)
			do(t, b.c, "RPUSH", b.key, "1")
			r := b.On(Command("rpush", b.key), 1, c.act)
			if v, err := b.c.Do("RPUSH", b.key, "2"); err == nil {
				t.Fatalf("got %v over a cut link", v)
			}
			wantStruck(t, r, 1)
			Until(t, 5*time.Second, "the list "+c.list, func() bool { return b.list(t) == c.list })
			Until(t, 5*time.Second, "no connection", func() bool { return b.Conns() == 0 })
			c2 := dial(t, "tcp", b.Addr())
			if _, err := c2.Do("LLEN", b.key); err != nil || b.Dials() != 2 {
				t.Errorf("a new connection: %v, %d dials", err, b.Dials())
			}
		})
	}
}

func TestCutsInPipeline(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		act  Action
		list string
	}{
		{"before", CutBefore, "1"},
		{"after", CutAfter, "1 2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBed(t)
			r := b.On(Command("RPUSH", b.key), 2, c.act)
			got := pipe(t, b.c, []any{"RPUSH", b.key, 1}, []any{"RPUSH", b.key, 2}, []any{"RPUSH", b.key, 3})
			if want := []string{"%!s(int64=1)", "cut"}; !slices.Equal(got, want) {
				t.Errorf("replies %q, want %q", got, want)
			}
			wantStruck(t, r, 1)
			if l := b.list(t); l != c.list {
				t.Errorf("list %q, want %q", l, c.list)
			}
		})
	}
}

func TestCutUnreadStrandsBlocked(t *testing.T) {
	b := newBed(t)
	r := b.On(Command("BRPOPLPUSH"), 1, CutUnread)
	if _, err := b.c.Do("BRPOPLPUSH", b.key, b.key+"to", 0); err == nil {
		t.Fatal("an answer over a cut link")
	}
	wantStruck(t, r, 1)
	b.s.Do("LPUSH", b.key, "x")
	Until(t, 5*time.Second, "the blocked take runs without its client", func() bool {
		return b.s.Do("LLEN", b.key+"to") == int64(1)
	})
}

func TestReplyErrorKeepsOrder(t *testing.T) {
	b := newBed(t)
	r := b.On(Command("ECHO", "3"), 1, ReplyError("OOM command not allowed"))
	first := b.On(Command("ECHO", "first"), 1, ReplyError("LOADING yet"))
	got := pipe(t, b.c, []any{"ECHO", "1"}, []any{"ECHO", "2"}, []any{"ECHO", "3"}, []any{"ECHO", "4"})
	if want := []string{"1", "2", "OOM command not allowed", "4"}; !slices.Equal(got, want) {
		t.Errorf("replies %q, want %q", got, want)
	}
	if got := pipe(t, b.c, []any{"ECHO", "first"}, []any{"ECHO", "x"}); !slices.Equal(
		got,
		[]string{"LOADING yet", "x"},
	) {
		t.Errorf("replies %q", got)
	}
	wantStruck(t, r, 1)
	wantStruck(t, first, 1)
}

func TestNthAndRemove(t *testing.T) {
	b := newBed(t)
	third := b.On(Command("ECHO", "x"), 3, ReplyError("ERR third"))
	all := b.On(Command("ECHO"), 0, Pass)
	var failed []int
	for i := range 6 {
		if _, err := b.c.Do("ECHO", "x"); err != nil {
			failed = append(failed, i)
		}
		do(t, b.c, "ECHO", "y")
	}
	if !slices.Equal(failed, []int{2}) {
		t.Errorf("failed %v, want the third only", failed)
	}
	wantStruck(t, third, 1)
	wantStruck(t, all, 12)
	every := b.On(Command(""), 0, ReplyError("ERR every"))
	for range 2 {
		if _, err := b.c.Do("ECHO", "x"); err == nil {
			t.Error("nth 0 missed one")
		}
	}
	every.Remove()
	do(t, b.c, "ECHO", "x")
	wantStruck(t, every, 2)
	if err := every.Wait(within(t, time.Millisecond), 3); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Wait for what never comes: %v", err)
	}
}

func TestDropReply(t *testing.T) {
	b := newBed(t, redis.DialReadTimeout(time.Second))
	r := b.On(Command("RPUSH", b.key), 1, DropReply)
	got := pipe(t, b.c, []any{"ECHO", "a"}, []any{"RPUSH", b.key, "x"}, []any{"ECHO", "b"})
	// Never b's reply for the push.
	if want := []string{"a", "cut"}; !slices.Equal(got, want) {
		t.Errorf("replies %q, want %q", got, want)
	}
	wantStruck(t, r, 1)
	if l := b.list(t); l != "x" {
		t.Errorf("list %q", l)
	}
}

func TestDropReplies(t *testing.T) {
	b := newBed(t, redis.DialReadTimeout(time.Second))
	other := dial(t, "tcp", b.Addr())
	do(t, other, "PING")
	raw, err := net.Dial("tcp", b.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	b.DropReplies(true)
	if _, err := raw.Write([]byte("*1\r\n$4\r\nPING\r\n")); err != nil {
		t.Fatal(err)
	}
	_ = raw.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if n, _ := raw.Read(make([]byte, 7)); n != 0 {
		t.Error("a reply came through")
	}
	if _, err := b.c.Do("RPUSH", b.key, "x"); err == nil {
		t.Error("a reply came through")
	}
	Until(t, 5*time.Second, "the request passed", func() bool { return b.list(t) == "x" })
	b.DropReplies(false)
	do(t, other, "PING") // it had lost none
	if _, err := raw.Write([]byte("*1\r\n$4\r\nPING\r\n")); err != nil {
		t.Fatal(err)
	}
	_ = raw.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if n, _ := raw.Read(make([]byte, 7)); n != 0 {
		t.Error("a later reply came in the place of a lost one")
	}
}

func TestDelayKeepsOrder(t *testing.T) {
	b := newBed(t)
	r := b.On(Command("ECHO", "slow"), 1, Delay(100*time.Millisecond))
	began := time.Now()
	got := pipe(t, b.c, []any{"ECHO", "slow"}, []any{"ECHO", "next"})
	if !slices.Equal(got, []string{"slow", "next"}) || time.Since(began) < 100*time.Millisecond {
		t.Errorf("%q after %v", got, time.Since(began))
	}
	wantStruck(t, r, 1)
}

func TestCallRunsBetween(t *testing.T) {
	b := newBed(t)
	var seen any
	r := b.On(Command("LLEN", b.key), 1, Call(func() {
		seen, _ = b.s.TryDo("LLEN", b.key) // the commands before it have run
		_, _ = b.s.TryDo("RPUSH", b.key, "hook")
	}))
	got := pipe(t, b.c, []any{"BLPOP", b.key, "0.05"}, []any{"RPUSH", b.key, "1"}, []any{"LLEN", b.key})
	if seen != int64(1) || got[2] != "%!s(int64=2)" {
		t.Errorf("the hook saw %v, the command %q", seen, got)
	}
	wantStruck(t, r, 1)
}

func TestHole(t *testing.T) {
	b := newBed(t)
	do(t, b.c, "PING")
	b.Hole(true)
	b.Hole(true)
	if err := b.c.Send("RPUSH", b.key, "x"); err != nil {
		t.Fatal(err)
	}
	if err := b.c.Flush(); err != nil {
		t.Fatal(err)
	}
	// A connection made in the hole opens, and stays silent.
	late := dial(t, "tcp", b.Addr(), redis.DialReadTimeout(50*time.Millisecond))
	if _, err := late.Do("RPUSH", b.key, "late"); err == nil {
		t.Error("an answer out of a hole")
	}
	if l := b.list(t); l != "" {
		t.Errorf("list %q within the hole", l)
	}
	b.Hole(false)
	if v, err := b.c.Receive(); v != int64(1) && v != int64(2) {
		t.Errorf("what was held back: %v, %v", v, err)
	}
	Until(
		t,
		5*time.Second,
		"the request of a client that gave up flows on",
		func() bool { return len(b.list(t)) == len("x late") },
	)
}

func TestHoleHidesTheEnd(t *testing.T) {
	t.Parallel()
	Leaks(t)
	s := Start(t)
	p := NewProxy(t, s.Addr())
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ping := func() error {
		if _, err := c.Write([]byte("*1\r\n$4\r\nPING\r\n")); err != nil {
			return err
		}
		_ = c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		_, err := c.Read(make([]byte, 7))
		return err
	}
	if err := ping(); err != nil {
		t.Fatal(err)
	}
	p.Hole(true)
	s.Kill()
	var slow net.Error
	if err := ping(); !errors.As(err, &slow) || !slow.Timeout() {
		t.Errorf("within the hole: %v, want a timeout", err)
	}
	p.Hole(false)
	_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
	if _, err := c.Read(make([]byte, 7)); err == nil || errors.As(err, &slow) && slow.Timeout() {
		t.Errorf("after the hole: %v, want the end", err)
	}
}

func TestSlow(t *testing.T) {
	b := newBed(t)
	do(t, b.c, "PING")
	b.Slow(0, 0, 1)
	var cmds [][]any
	var want []string
	for i := range 200 {
		w := fmt.Sprint("value ", i)
		cmds, want = append(cmds, []any{"ECHO", w}), append(want, w)
	}
	if got := pipe(t, b.c, cmds...); !slices.Equal(got, want) {
		t.Error("1-byte slices mixed up the replies")
	}
	b.Slow(30*time.Millisecond, 0, 0)
	began := time.Now()
	do(t, b.c, "PING")
	if d := time.Since(began); d < 60*time.Millisecond || d > 500*time.Millisecond {
		t.Errorf("30 ms each way took %v", d)
	}
	b.Slow(0, 10_000, 0)
	began = time.Now()
	do(t, b.c, "ECHO", strings.Repeat("x", 1000))
	if d := time.Since(began); d < 150*time.Millisecond || d > time.Second {
		t.Errorf("2 x 1,000 bytes at 10,000 bytes/s took %v, want about 200 ms", d)
	}
	b.Slow(0, 0, 0)
	do(t, b.c, "PING")
}

// segments notes the size of each write.
type segments struct {
	net.Conn
	sizes []int
}

func (s *segments) Write(b []byte) (int, error) {
	s.sizes = append(s.sizes, len(b))
	return len(b), nil
}

func TestSlowSlices(t *testing.T) {
	t.Parallel()
	p := &Proxy{}
	p.Slow(0, 0, 3)
	to := &segments{}
	n, err := (&paced{l: newLink(p, 1, nil), to: to}).Write(make([]byte, 7))
	if n != 7 || err != nil || !slices.Equal(to.sizes, []int{3, 3, 1}) {
		t.Errorf("%d bytes, %v, in segments %v", n, err, to.sizes)
	}
}

func TestRefuseAndCutAll(t *testing.T) {
	b := newBed(t)
	do(t, b.c, "PING")
	b.Refuse(true)
	refused, err := redis.Dial("tcp", b.Addr())
	if err == nil {
		_, err = refused.Do("PING")
		_ = refused.Close()
	}
	if err == nil {
		t.Error("a refused connection served")
	}
	do(t, b.c, "PING")
	b.Refuse(false)
	b.CutAll()
	if _, err := b.c.Do("PING"); err == nil {
		t.Error("a cut connection served")
	}
	if b.Conns() != 0 || b.Dials() != 2 {
		t.Errorf("%d connections, %d dials", b.Conns(), b.Dials())
	}
}

func TestBlockingCommand(t *testing.T) {
	b := newBed(t)
	r := b.On(Command("BRPOPLPUSH"), 1, CutAfter)
	got := make(chan error, 1)
	go func() {
		_, err := b.c.Do("BRPOPLPUSH", b.key, b.key+"to", 0)
		got <- err
	}()
	Until(t, 5*time.Second, "a blocked client", func() bool { return b.Commands() == 1 })
	b.s.Do("LPUSH", b.key, "x")
	if err := r.Wait(within(t, 5*time.Second), 1); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err == nil {
		t.Error("the reply came through")
	}
	c := dial(t, "tcp", b.Addr())
	b.s.Do("LPUSH", b.key, "y")
	if v, err := redis.String(c.Do("BRPOPLPUSH", b.key, b.key+"to", 0)); v != "y" {
		t.Errorf("%q, %v", v, err)
	}
	// A client that goes is forgotten, so a blocked take of its does not strand an element.
	gone := dial(t, "tcp", b.Addr())
	if err := gone.Send("BRPOPLPUSH", b.key+"none", b.key+"to", 0); err != nil {
		t.Fatal(err)
	}
	_ = gone.Flush()
	Until(t, 5*time.Second, "a blocked client", func() bool { return b.Count(Command("BRPOPLPUSH", "none")) == 1 })
	_ = gone.Close()
	Until(t, 5*time.Second, "one link", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.links) == 1
	})
	b.s.Do("LPUSH", b.key+"none", "z")
	if n := b.s.Do("LLEN", b.key+"none"); n != int64(1) {
		t.Error("a client that went took an element")
	}
}

func TestSubscribe(t *testing.T) {
	b := newBed(t)
	ps := redis.PubSubConn{Conn: b.c}
	if err := ps.Subscribe(b.key, b.key+"2"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, ok := ps.Receive().(redis.Subscription); !ok {
			t.Fatal("not subscribed")
		}
	}
	for i := range 10 {
		b.s.Do("PUBLISH", b.key, i)
		if m, ok := ps.Receive().(redis.Message); !ok || string(m.Data) != fmt.Sprint(i) {
			t.Fatalf("message %d: %v", i, m)
		}
	}
	// A message must not be taken for the reply to a command.
	unmatched := b.On(Command("PING"), 0, CutAfter)
	if err := ps.Ping("x"); err != nil {
		t.Fatal(err)
	}
	if pong, ok := ps.Receive().(redis.Pong); !ok || pong.Data != "x" {
		t.Errorf("got %v for a ping", pong)
	}
	wantStruck(t, unmatched, 0)
	r := b.On(Command("PING"), 1, CutBefore)
	_ = ps.Ping("")
	if err, ok := ps.Receive().(error); !ok {
		t.Errorf("got %v over a cut link", err)
	}
	wantStruck(t, r, 1)
}

func TestEvalshaAndMulti(t *testing.T) {
	b := newBed(t)
	script := redis.NewScript(1, `return {1, {KEYS[1], false, {}}, redis.status_reply('FINE'), ARGV[1]}`)
	if err := script.Load(b.c); err != nil {
		t.Fatal(err)
	}
	r := b.On(Command("EVALSHA", script.Hash(), b.key), 2, ReplyError("NOSCRIPT No matching script"))
	v, err := redis.Values(b.c.Do("EVALSHA", script.Hash(), 1, b.key, "arg"))
	if want := fmt.Sprintf("[1 [%s <nil> []] FINE arg]", b.key); err != nil || flat(v) != want {
		t.Errorf("%s, %v; want %s", flat(v), err, want)
	}
	if _, err := script.Do(b.c, b.key, "arg"); err != nil { // redigo loads the script again
		t.Error(err)
	}
	wantStruck(t, r, 1)
	if n := b.Count(Command("EVAL", b.key)); n != 1 {
		t.Errorf("%d EVAL", n)
	}
	// An error of the proxy's must not land within the array before it.
	b.On(Command("ECHO", "no"), 1, ReplyError("ERR no"))
	got := pipe(
		t,
		b.c,
		[]any{"MULTI"},
		[]any{"ECHO", "a"},
		[]any{"ECHO", "b"},
		[]any{"EXEC"},
		[]any{"ECHO", "no"},
		[]any{"ECHO", "z"},
	)
	if want := []string{"OK", "QUEUED", "QUEUED", "[a b]", "ERR no", "z"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

func flat(v any) string {
	switch v := v.(type) {
	case []any:
		var s []string
		for _, e := range v {
			s = append(s, flat(e))
		}
		return fmt.Sprint(s)
	case []byte:
		return string(v)
	}
	return fmt.Sprint(v)
}

func TestLargeElements(t *testing.T) {
	b := newBed(t)
	big := bytes.Repeat([]byte("$-1\r\n*3\r\n"), 16<<20/9)
	do(t, b.c, "SET", b.key, big)
	defer b.s.Do("DEL", b.key)
	if err := b.c.Send("GET", b.key); err != nil {
		t.Fatal(err)
	}
	if err := b.c.Send("ECHO", "\r\n\x00\xff"); err != nil {
		t.Fatal(err)
	}
	if err := b.c.Flush(); err != nil {
		t.Fatal(err)
	}
	if v, err := redis.Bytes(b.c.Receive()); err != nil || !bytes.Equal(v, big) {
		t.Errorf("%d bytes, %v; want %d", len(v), err, len(big))
	}
	if v, err := redis.String(b.c.Receive()); err != nil || v != "\r\n\x00\xff" {
		t.Errorf("%q, %v", v, err)
	}
}

func TestRepliesAreNeverMixed(t *testing.T) {
	b := newBed(t)
	b.On(Command("ECHO", "7"), 0, ReplyError("ERR seven"))
	done := make(chan error)
	const clients = 8
	for id := range clients {
		c := dial(t, "tcp", b.Addr())
		go func() {
			done <- func() error {
				const n = 500
				for i := range n {
					if err := c.Send("ECHO", fmt.Sprint(id, "-", i)); err != nil {
						return err
					}
				}
				if err := c.Flush(); err != nil {
					return err
				}
				for i := range n {
					want := fmt.Sprint(id, "-", i)
					v, err := redis.String(c.Receive())
					if strings.Contains(want, "7") != (err != nil) || err == nil && v != want {
						return fmt.Errorf("%q, %w for %q", v, err, want)
					}
				}
				return nil
			}()
		}()
	}
	for range clients {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func TestObservation(t *testing.T) {
	b := newBed(t)
	do(t, b.c, "SET", b.key, "\r\n"+strings.Repeat("v", 100))
	do(t, b.c, "GET", b.key)
	if b.Commands() != 2 || b.Conns() != 1 || b.Dials() != 1 || b.Count(Command("get", b.key)) != 1 {
		t.Errorf("%d commands, %d connections, %d dials", b.Commands(), b.Conns(), b.Dials())
	}
	want := []string{
		"#1 SET " + b.key + " .." + strings.Repeat("v", 38) + "…",
		"#1 GET " + b.key,
	}
	if got := b.Log(); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	b.ResetCounts()
	if b.Commands() != 0 || b.Dials() != 0 || len(b.Log()) != 0 {
		t.Error("counts after ResetCounts")
	}
	for range keepCommands/1000 + 1 {
		for range 1000 {
			if err := b.c.Send("ECHO", "x"); err != nil {
				t.Fatal(err)
			}
		}
		do(t, b.c, "")
	}
	if n := len(b.Log()); n != keepCommands {
		t.Errorf("%d commands kept", n)
	}
	c := &complaints{TB: t}
	b.Proxy.t = c
	if b.Count(Command("ECHO")); c.errors != 1 {
		t.Error("Count guessed")
	}
}

func TestNotRESP(t *testing.T) {
	b := newBed(t)
	for _, text := range []string{"PING\r\n", "*1\r\n:4\r\n", "*0\r\n", "*1\r\n$-1\r\n", "*x\r\n", "*1\n", "\n"} {
		c, err := net.Dial("tcp", b.Addr())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
		if n, err := c.Read(make([]byte, 1)); n != 0 || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%q: %d bytes, %v", text, n, err)
		}
		_ = c.Close()
	}
	if log := strings.Join(b.Log(), "\n"); strings.Count(log, "not RESP2") != 7 {
		t.Errorf("the log does not say why:\n%s", log)
	}
}

func BenchmarkProxy(b *testing.B) {
	s := Start(b)
	for _, c := range []struct{ name, addr string }{{"direct", s.Addr()}, {"proxy", NewProxy(b, s.Addr()).Addr()}} {
		b.Run(c.name, func(b *testing.B) {
			conn, err := redis.Dial("tcp", c.addr)
			if err != nil {
				b.Fatal(err)
			}
			defer conn.Close()
			const batch = 100
			for b.Loop() {
				for range batch {
					_ = conn.Send("ECHO", "0123456789")
				}
				if _, err := conn.Do(""); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N*batch)/b.Elapsed().Seconds(), "commands/s")
		})
	}
}
