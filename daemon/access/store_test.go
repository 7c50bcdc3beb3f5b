package access

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/redistest"
)

// newStore is a Store on a server of the test's own, whose feed hears.
func newStore(t *testing.T, addr string) *Store {
	t.Helper()
	s := &Store{Redis: redistest.Pool(t, addr)}
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() { defer close(over); _ = s.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-over })
	until(t, "the feed hears", s.Hears)
	return s
}

// namespace is one that no other test meets.
func namespace(t *testing.T) string { return strings.ReplaceAll(redistest.Name(t), "/", "-") }

func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in 10 s: %s", what)
		}
	}
}

func TestTokensAreForOnePoolAndNamespace(t *testing.T) {
	redistest.Leaks(t)
	s := newStore(t, redistest.Mini(t).Addr())
	ctx := context.Background()
	for _, c := range []struct{ pool, ns, token string }{
		{"default", "team-a", "0123456789-0123456789"},
		{"default", "team-a2", "abcdefghij-abcdefghij"},
		{"other", "team-a", "ABCDEFGHIJ-ABCDEFGHIJ"},
	} {
		of := Token{Pool: c.pool, Namespace: c.ns, Description: "d", Role: Both}
		if err := s.Create(ctx, c.token, of); err != nil {
			t.Fatal(err)
		}
		if err := s.Create(ctx, c.token, Token{Pool: c.pool, Namespace: c.ns}); !errors.Is(err, ErrExists) {
			t.Errorf("created twice: %v", err)
		}
	}
	for _, c := range []struct {
		pool, ns, token string
		valid           bool
	}{
		{"default", "team-a", "0123456789-0123456789", true},
		{"default", "team-a2", "abcdefghij-abcdefghij", true},
		{"other", "team-a", "ABCDEFGHIJ-ABCDEFGHIJ", true},
		{"default", "team-a", "abcdefghij-abcdefghij", false},
		{"default", "team-a2", "0123456789-0123456789", false},
		{"default", "team-a", "ABCDEFGHIJ-ABCDEFGHIJ", false},
		{"other", "team-a", "0123456789-0123456789", false},
		{"other", "team-a2", "abcdefghij-abcdefghij", false},
		{"default", "team-a", "2-0123456789", false},
		{"default", "team-a", "0123456789-012345678", false},
		{"default", "team-a", "0123456789-0123456789 ", false},
		{"default", "team-a", MarkOf("0123456789-0123456789"), false},
		{"default", "team-a", sumOf("0123456789-0123456789"), false},
		{"default", "nobody", "0123456789-0123456789", false},
		{"default", "", "", false},
	} {
		_, err := s.Check(ctx, c.pool, c.ns, c.token)
		if (err == nil) != c.valid || err != nil && !errors.Is(err, ErrInvalid) {
			t.Errorf("%s %s %s: %v", c.pool, c.ns, c.token, err)
		}
	}
}

// Redis has no token, and what is listed is none.
func TestTokensAreHashed(t *testing.T) {
	t.Parallel()
	b := redistest.Shared(t)
	s := &Store{Redis: b.Pool(t)}
	ctx, ns := context.Background(), namespace(t)
	secret := "s3cr/t-0123456789-0123456789"
	made := Token{Pool: "default", Namespace: ns, Description: "for ci", Role: Publish}
	if err := s.Create(ctx, secret, made); err != nil {
		t.Fatal(err)
	}
	kept := fmt.Sprintf("%s", b.Do("HGETALL", tokensKey+"default/"+ns))
	if strings.Contains(kept, secret) || strings.Contains(kept, secret[5:]) {
		t.Errorf("Redis has the token: %s", kept)
	}
	ts, err := s.List(ctx, "default", ns)
	if err != nil || len(ts) != 1 || ts[0].Description != made.Description || ts[0].Role != Publish ||
		ts[0].Mark != MarkOf(secret) {
		t.Fatalf("%+v, %v", ts, err)
	}
	if err := s.Delete(ctx, "default", ns, ts[0].Mark); err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(ctx, "default", ns, secret); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
}

// Checks ask Redis nothing while the feed hears, be the tokens known or not.
func TestFloodStaysHere(t *testing.T) {
	b := redistest.Start(t)
	s := newStore(t, b.Addr())
	ctx := context.Background()
	if err := s.Create(ctx, "0123456789-0123456789", Token{Pool: "default", Namespace: "a"}); err != nil {
		t.Fatal(err)
	}
	calls := func() (n int) {
		text, _ := redis.String(b.Do("INFO", "commandstats"), nil)
		for _, line := range strings.Split(text, "\n") {
			var calls int
			if _, rest, ok := strings.Cut(line, "calls="); ok && !strings.HasPrefix(line, "cmdstat_ping") &&
				!strings.HasPrefix(line, "cmdstat_info") {
				_, _ = fmt.Sscan(strings.SplitN(rest, ",", 2)[0], &calls)
				n += calls
			}
		}
		return n
	}
	_, _ = s.Check(ctx, "default", "a", "0123456789-0123456789")
	before := calls()
	for i := range 3000 {
		if _, err := s.Check(ctx, "default", "a", fmt.Sprint("bad", i)); !errors.Is(err, ErrInvalid) {
			t.Fatal(err)
		}
		if _, err := s.Check(ctx, "default", fmt.Sprint("ns", i), "bad"); !errors.Is(err, ErrInvalid) {
			t.Fatal(err)
		}
	}
	if n := calls() - before; n > 10 {
		t.Errorf("%d commands for 6,000 checks", n)
	}
}

// A deleted token is refused by another process within a second, whether that one hears or not.
func TestDeletedIsRefusedEverywhere(t *testing.T) {
	t.Parallel()
	for _, hears := range []bool{true, false} {
		t.Run(fmt.Sprint("hears ", hears), func(t *testing.T) {
			t.Parallel()
			b := redistest.Start(t)
			here, there := newStore(t, b.Addr()), &Store{Redis: b.Pool(t)}
			if hears {
				there = newStore(t, b.Addr())
			}
			ctx, token := context.Background(), "0123456789-0123456789"
			if err := here.Create(ctx, token, Token{Pool: "default", Namespace: "a"}); err != nil {
				t.Fatal(err)
			}
			until(t, "valid there", func() bool {
				_, err := there.Check(ctx, "default", "a", token)
				return err == nil
			})
			if err := here.Delete(ctx, "default", "a", token); err != nil {
				t.Fatal(err)
			}
			deleted := time.Now()
			until(t, "refused there", func() bool {
				_, err := there.Check(ctx, "default", "a", token)
				return errors.Is(err, ErrInvalid)
			})
			if took := time.Since(deleted); took > maxAge+600*time.Millisecond || maxAge >= time.Second {
				t.Errorf("refused after %v, believed for %v", took, maxAge)
			}
			if _, err := here.Check(ctx, "default", "a", token); !errors.Is(err, ErrInvalid) {
				t.Errorf("valid here: %v", err)
			}
		})
	}
}

// A feed whose server is frozen proves nothing: what is kept is not believed for longer than a second.
func TestFrozenFeed(t *testing.T) {
	t.Parallel()
	b := redistest.Start(t)
	s := newStore(t, b.Addr())
	ctx, cancel := context.WithTimeout(context.Background(), 1500*time.Millisecond)
	defer cancel()
	if err := s.Create(ctx, "0123456789-0123456789", Token{Pool: "default", Namespace: "a"}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Check(ctx, "default", "a", "0123456789-0123456789"); err != nil {
		t.Fatal(err)
	}
	b.Stop()
	defer b.Cont()
	frozen := time.Now()
	var err error
	until(t, "the check asks Redis", func() bool {
		_, err = s.Check(ctx, "default", "a", "0123456789-0123456789")
		return err != nil
	})
	if took := time.Since(frozen); took > 3*time.Second || errors.Is(err, ErrInvalid) {
		t.Errorf("%v after %v", err, took)
	}
}

func TestRoles(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		role Role
		may  string
	}{
		{Publish, "publish"}, {Consume, "consume"}, {Both, "publish consume both"},
		{Admin, "publish consume both admin"}, {"", ""},
	} {
		var may []string
		for _, do := range []Role{Publish, Consume, Both, Admin} {
			if c.role.May(do) {
				may = append(may, string(do))
			}
		}
		if got := strings.Join(may, " "); got != c.may {
			t.Errorf("%s may %q, want %q", c.role, got, c.may)
		}
	}
	if _, err := ParseRole("root"); err == nil {
		t.Error("root is a role")
	}
}

// Where Redis refuses the channel of hints, no token and no limit is left half made, and a deleted token is gone.
func TestHintsAreRefused(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	b := redistest.Start(t)
	s := &Store{Redis: b.Pool(t)}
	ctx, token := t.Context(), "0123456789-0123456789"
	if err := s.Create(ctx, token, Token{Pool: "default", Namespace: "ns"}); err != nil {
		t.Fatal(err)
	}
	b.Do("ACL", "SETUSER", "default", "resetchannels")
	if err := s.Delete(ctx, "default", "ns", token); err == nil {
		t.Error("the refusal is not told")
	}
	if err := s.Create(ctx, token, Token{Pool: "default", Namespace: "ns"}); err == nil {
		t.Error("a token was made")
	}
	if err := s.SetLimit(ctx, "default", "ns", token, Limit{Read: 1, Interval: 1}); err == nil {
		t.Error("a limit was set")
	}
	if keys, err := redis.Strings(b.Do("KEYS", "{shuntd}*"), nil); err != nil || len(keys) > 0 {
		t.Errorf("%q, %v", keys, err)
	}
}
