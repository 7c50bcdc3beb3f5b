package redis

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/redistest"
)

// Arity and flags are Redis' own.
func TestTableAsRedis(t *testing.T) {
	t.Parallel()
	real := redistest.Start(t)
	flags := map[string]flag{"write": write, "denyoom": denyOOM, "noscript": noScript, "loading": loading,
		"no_auth": noAuth}
	for i := range commands {
		cmd := &commands[i]
		if cmd.run == nil {
			continue
		}
		all, err := redis.Values(real.TryDo("COMMAND", "INFO", cmd.name))
		if err != nil {
			t.Fatal(err)
		}
		of, err := redis.Values(all[0], nil)
		if err != nil {
			t.Fatalf("%s: %v", cmd.name, err)
		}
		var has flag
		names, _ := redis.Strings(of[2], nil)
		for _, name := range names {
			has |= flags[name]
		}
		if arity, _ := redis.Int(of[1], nil); arity != cmd.arity || has != cmd.flags&^pubSub {
			t.Errorf("%s: arity %d, flags %b; Redis has %d, %b (%v)", cmd.name, cmd.arity, cmd.flags, arity, has,
				names)
		}
	}
}

// heard is a session and what it has heard.
type heard struct {
	*Session
	said string
	cut  int
}

func connect(s *Server) *heard {
	h := &heard{}
	h.Session = s.Connect(func(b []byte) { h.said += string(b) }, func() { h.cut++ })
	return h
}

func (h *heard) do(words string) string {
	h.hears()
	h.Command(bytesOf(strings.Fields(words)))
	return h.hears()
}

// hears is what was said since it was asked last.
func (h *heard) hears() string {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	said := h.said
	h.said = ""
	return said
}

func (h *heard) expect(t *testing.T, words, want string) {
	t.Helper()
	if got := h.do(words); got != want {
		t.Errorf("%s: %q, want %q", words, got, want)
	}
}

func TestKeysExpire(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{})
		c := connect(s)
		c.expect(t, "set a 1 px 1000", "+OK\r\n")
		c.expect(t, "set b 1 px 5000", "+OK\r\n")
		time.Sleep(1000 * time.Millisecond)
		c.expect(t, "pttl a", ":0\r\n")
		time.Sleep(time.Millisecond)
		c.expect(t, "exists a b", ":1\r\n")
		s.Step(-3 * time.Second)
		c.expect(t, "pttl b", ":6999\r\n")
		s.Step(10 * time.Second)
		c.expect(t, "dbsize", ":0\r\n")
	})
}

func TestTimeouts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{})
		c := connect(s)
		began := time.Now()
		c.expect(t, "brpoplpush a b 2", "")
		c.Command(bytesOf([]string{"ping"}))
		time.Sleep(1999 * time.Millisecond)
		synctest.Wait()
		if said := c.hears(); said != "" {
			t.Errorf("after %v: %q", time.Since(began), said)
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if said, want := c.hears(), "*-1\r\n+PONG\r\n"; said != want {
			t.Errorf("%q, want %q", said, want)
		}
		c.expect(t, "brpoplpush a b 3600", "")
		s.Step(time.Hour)
		synctest.Wait()
		if said := c.hears(); said != "*-1\r\n" {
			t.Errorf("the clock was stepped: %q", said)
		}
		c.expect(t, "blmove a a right right 0", "")
		time.Sleep(1000 * time.Hour)
		synctest.Wait()
		if said := c.hears(); said != "" {
			t.Errorf("a wait for ever ended: %q", said)
		}
		c.Close()
	})
}

// What a blocked session waits for is not lost with it.
func TestClosedTakesNothing(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"close", "kill"} {
		s := New(Options{})
		c, d := connect(s), connect(s)
		c.expect(t, "brpoplpush a b 0", "")
		if end == "close" {
			c.Close()
		} else if n, err := s.Do("CLIENT", "KILL", "TYPE",
			"normal"); n != int64(2) || err != nil || c.cut != 1 || d.cut != 1 {
			t.Errorf("killed %v, %v; hung up %d and %d times", n, err, c.cut, d.cut)
		}
		if n, err := s.Do("LPUSH", "a", 1); n != int64(1) || err != nil {
			t.Errorf("%s: %v, %v", end, n, err)
		}
		if n, err := redis.Strings(s.Do("LRANGE", "a", 0, -1)); !slices.Equal(n,
			[]string{"1"}) || err != nil || c.said != "" {
			t.Errorf("%s: %v, %v; it heard %q", end, n, err, c.said)
		}
	}
}

func TestRestart(t *testing.T) {
	t.Parallel()
	s := New(Options{RunID: "x"})
	id := func() string {
		text, _ := redis.String(s.Do("INFO", "server"))
		_, text, _ = strings.Cut(text, "run_id:")
		return text[:40]
	}
	first := id()
	for i, cmd := range []string{"set text 1 px 100000", "rpush list 1 2", "hset hash a 1", "sadd set 1",
		"zadd zset 1 a", "xadd stream 1-1 a b"} {
		if _, err := s.Do(strings.Fields(cmd)[0], toAny(strings.Fields(cmd)[1:])...); err != nil {
			t.Fatal(i, err)
		}
	}
	kept := s.Snapshot()
	for range 2 {
		for _, cmd := range []string{"append text 2", "rpop list", "hset hash a 2 b 3", "srem set 1",
			"zadd zset 2 a 3 b", "xadd stream 2-2 a b"} {
			if _, err := s.Do(strings.Fields(cmd)[0], toAny(strings.Fields(cmd)[1:])...); err != nil {
				t.Fatal(cmd, err)
			}
		}
		c := connect(s)
		c.do("subscribe x")
		blocked := connect(s)
		blocked.expect(t, "brpoplpush none b 0", "")
		if _, err := s.Do("SCRIPT", "LOAD", "return 1"); err != nil {
			t.Fatal(err)
		}
		s.Restart(kept)
		if c.cut != 1 || blocked.cut != 1 {
			t.Errorf("hung up %d and %d times", c.cut, blocked.cut)
		}
		all := fmt.Sprintf("%q", []any{
			valueOf(s.Do("GET", "text")), valueOf(s.Do("LRANGE", "list", 0, -1)), valueOf(s.Do("HGETALL", "hash")),
			valueOf(s.Do("SMEMBERS", "set")), valueOf(s.Do("ZRANGE", "zset", 0, -1, "WITHSCORES")),
			valueOf(s.Do("XRANGE", "stream", "-", "+")), valueOf(s.Do("PUBLISH", "x", "y")),
			valueOf(s.Do("LPUSH", "none", "1")),
		})
		if want := `["1" ["1" "2"] ["a" "1"] ["1"] ["a" "1"] [["1-1" ["a" "b"]]] '\x00' '\x01']`; all != want {
			t.Errorf("%s\nwant %s", all, want)
		}
		if ttl, _ := redis.Int(s.Do("PTTL", "text")); ttl < 90_000 {
			t.Errorf("ttl %d", ttl)
		}
		if _, err := s.Do("EVALSHA", shaOf("return 1"), 0); err == nil || !strings.HasPrefix(err.Error(),
			"NOSCRIPT") {
			t.Error(err)
		}
		if _, err := s.Do("DEL", "none"); err != nil {
			t.Fatal(err)
		}
		if now := id(); now == first {
			t.Error("the same run_id")
		}
	}
	s.Restart(nil)
	if n, err := s.Do("DBSIZE"); n != int64(0) || err != nil {
		t.Error(n, err)
	}
}

func valueOf(v any, _ error) any { return v }

func toAny(words []string) []any {
	all := make([]any, len(words))
	for i, w := range words {
		all[i] = w
	}
	return all
}

func TestLoadingAndPassword(t *testing.T) {
	t.Parallel()
	s := New(Options{})
	c := connect(s)
	s.Loading(true)
	for _, cmd := range []string{"get a", "ping", "eval x 0", "brpoplpush a b 0"} {
		c.expect(t, cmd, "-LOADING Redis is loading the dataset in memory\r\n")
	}
	c.expect(t, "echo x", "$1\r\nx\r\n")
	s.Loading(false)
	c.expect(t, "config set requirepass secret", "+OK\r\n")
	c.expect(t, "ping", "+PONG\r\n")
	d := connect(s)
	d.expect(t, "ping", "-NOAUTH Authentication required.\r\n")
	d.expect(t, "auth wrong", "-WRONGPASS invalid username-password pair or user is disabled.\r\n")
	d.expect(t, "auth secret", "+OK\r\n")
	d.expect(t, "ping", "+PONG\r\n")
}

// A maxmemory counts what keys hold: a full server takes again when some of it is gone.
func TestMemory(t *testing.T) {
	t.Parallel()
	s := New(Options{})
	c := connect(s)
	c.expect(t, "config set maxmemory 1100000", "+OK\r\n")
	n := 0
	for ; n < 1000 && c.do("lpush a " + strings.Repeat("x", 1000))[0] == ':'; n++ {
	}
	if n < 30 || n > 60 {
		t.Errorf("full after %d elements", n)
	}
	c.expect(t, "rpop a", "$1000\r\n"+strings.Repeat("x", 1000)+"\r\n")
	c.do("ltrim a 0 3")
	c.expect(t, "lpush a 1", ":5\r\n")
}

// A cursor meets all that is there throughout, whatever comes and goes meanwhile.
func TestScanMeetsAll(t *testing.T) {
	t.Parallel()
	s := New(Options{})
	for i := range 200 {
		_, _ = s.Do("SADD", "a", i)
	}
	met, cursor := make(map[string]bool), "0"
	for round := 0; round == 0 || cursor != "0"; round++ {
		vs, err := redis.Values(s.Do("SSCAN", "a", cursor, "COUNT", 7))
		if err != nil {
			t.Fatal(err)
		}
		cursor, _ = redis.String(vs[0], nil)
		found, _ := redis.Strings(vs[1], nil)
		for _, m := range found {
			met[m] = true
		}
		for i := range 6 { // all but the multiples of 10 go
			if n := round*6 + i; n%10 != 0 {
				_, _ = s.Do("SREM", "a", n)
			}
		}
		_, _ = s.Do("SADD", "a", fmt.Sprint("new", round))
		if round > 1000 {
			t.Fatal("it does not end")
		}
	}
	for i := 0; i < 200; i += 10 {
		if !met[fmt.Sprint(i)] {
			t.Errorf("%d was not met", i)
		}
	}
}
