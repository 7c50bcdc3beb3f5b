package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/redistest"
)

// asProcess has this test binary run main.
const asProcess = "TEST_SHUNT_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asProcess) != "" {
		main()
		return
	}
	os.Exit(redistest.Main(m))
}

// call is a command line of a test's.
type call struct {
	url   string
	in    io.Reader
	env   map[string]string
	draws time.Duration
	asks  bool
	paint bool
	shows bool // a screen
	ctx   context.Context
	err   func(said string) // called for all that is written to standard error
}

// result is what became of it.
type result struct {
	code     int
	out, err string
}

// buffer may be read while it is written to.
type buffer struct {
	mu   sync.Mutex
	b    bytes.Buffer
	hook func(string)
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.hook != nil {
		b.hook(string(p))
	}
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func (c call) app(out, err io.Writer) *app {
	env := map[string]string{"REDIS_URL": c.url, "HOME": "/nonexistent"}
	for key, value := range c.env {
		env[key] = value
	}
	if c.in == nil {
		c.in = strings.NewReader("")
	}
	return &app{in: c.in, out: out, err: err, getenv: func(key string) string { return env[key] }, draws: c.draws,
		asks: c.asks, paints: c.paint, screen: c.shows, stop: func() {}}
}

func (c call) do(args ...string) result {
	out, complaints := &buffer{}, &buffer{hook: c.err}
	if c.ctx == nil {
		c.ctx = context.Background()
	}
	code := c.app(out, complaints).run(c.ctx, args)
	return result{code, out.String(), complaints.String()}
}

// good is do for what must succeed.
func (c call) good(t *testing.T, args ...string) result {
	t.Helper()
	r := c.do(args...)
	if r.code != exitOK {
		t.Fatalf("shunt %s: exit %d\n%s%s", strings.Join(args, " "), r.code, r.out, r.err)
	}
	return r
}

func queueOn(t *testing.T, s *redistest.Server) *shunt.Queue {
	q := &shunt.Queue{Pool: s.Pool(t), Quiet: true}
	t.Cleanup(func() { _ = q.Close() })
	return q
}

// handle handles n messages of a channel: what begins with "die" goes to dead, what begins with "again" is retried.
func handle(t *testing.T, s *redistest.Server, channel string, n int) {
	t.Helper()
	over := make(chan struct{}, n+100)
	q := &shunt.Queue{Pool: s.Pool(t), MaxDead: -1, Events: func(e shunt.Event) {
		switch e.Kind {
		case shunt.EventAcked, shunt.EventRetried, shunt.EventRejected:
			over <- struct{}{}
		}
	}}
	shutdown, err := q.Receive(t.Context(), &handled{channel: channel}, 4)
	if err != nil {
		t.Fatal(err)
	}
	for range n {
		select {
		case <-over:
		case <-time.After(20 * time.Second):
			t.Fatal("not all were handled")
		}
	}
	if err := errors.Join(shutdown(t.Context()), q.Close()); err != nil {
		t.Fatal(err)
	}
}

type handled struct{ channel, payload string }

func (h *handled) Channel() string          { return h.channel }
func (h *handled) Marshal() ([]byte, error) { return []byte(h.payload), nil }
func (h *handled) Unmarshal(payload []byte) (shunt.IMessage, error) {
	return &handled{h.channel, string(payload)}, nil
}

func (h *handled) Resolve(context.Context) error {
	switch {
	case strings.HasPrefix(h.payload, "die"):
		return shunt.Reject(errors.New(strings.TrimSpace(strings.TrimPrefix(h.payload, "die"))))
	case strings.HasPrefix(h.payload, "again"):
		return shunt.RetryAfter(time.Hour, errors.New("it is busy"))
	}
	return nil
}

// numbered are n lines, or documents.
func numbered(n int, form string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, form+"\n", i)
	}
	return b.String()
}

// payloads are those of all messages of a state, in their order.
func payloads(t *testing.T, q *shunt.Queue, channel string, s shunt.State) []string {
	t.Helper()
	es, err := q.List(t.Context(), channel, s, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	all := make([]string, len(es))
	for i, e := range es {
		all[i] = string(e.Payload)
	}
	return all
}

func TestProfiles(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	dir := t.TempDir()
	write := func(text string) {
		if err := os.MkdirAll(filepath.Join(dir, "shunt"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "shunt", "config.toml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	away := "redis://127.0.0.1:1"
	write(fmt.Sprintf("default = \"here\"\n[profiles.here]\nredis = %q\nas = \"ann\"\n[profiles.away]\nredis = %q\n",
		s.URL(), away))
	env := map[string]string{"XDG_CONFIG_HOME": dir, "REDIS_URL": ""}
	c := call{env: env}
	c.good(t, "deliver", "mail", "x")
	if r := c.good(t, "audit"); !strings.Contains(r.out, " ann ") {
		t.Errorf("the profile names ann:\n%s", r.out)
	}
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	call{url: s.URL()}.good(t, "deliver", "mail", "x")
	if r := c.good(t, "audit", "--limit", "1"); !strings.Contains(r.out, me.Username+"@") {
		t.Errorf("without a profile the user is named:\n%s", r.out)
	}
	for _, row := range []struct {
		name string
		url  string // of REDIS_URL
		args []string
		code int
		says string
	}{
		{"REDIS_URL wins over the default profile", away, nil, exitFailed, "refused"},
		{"--profile wins over REDIS_URL", s.URL(), []string{"--profile", "away"}, exitFailed, "refused"},
		{"--redis wins over all", away, []string{"--profile", "away", "--redis", s.URL()}, exitOK, ""},
		{"no such profile", "", []string{"--profile", "mars"}, exitUsage, "it has away, here"},
	} {
		env := map[string]string{"XDG_CONFIG_HOME": dir, "REDIS_URL": row.url}
		r := call{env: env}.do(append(row.args, "stats", "mail")...)
		if r.code != row.code || !strings.Contains(r.err, row.says) {
			t.Errorf("%s: exit %d, %s", row.name, r.code, r.err)
		}
	}
	write("default = \"x\"\ncolour = true\n")
	if r := c.do("stats", "mail"); r.code != exitUsage || !strings.Contains(r.err, "colour") {
		t.Errorf("an unknown key: exit %d, %s", r.code, r.err)
	}
}

func TestColours(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	q := queueOn(t, s)
	if err := q.Enqueue(t.Context(), shunt.Raw("mail", []byte("die now"))); err != nil {
		t.Fatal(err)
	}
	handle(t, s, "mail", 1)
	has := func(c call) bool { return strings.Contains(c.good(t, "channels").out, "\x1b[") }
	if has(call{url: s.URL()}) {
		t.Error("colours where there is no terminal")
	}
	if !has(call{url: s.URL(), paint: true}) {
		t.Error("no colours on a terminal")
	}
	if has(call{url: s.URL(), paint: true, env: map[string]string{"NO_COLOR": "1"}}) {
		t.Error("colours in spite of NO_COLOR")
	}
}

// What could not be printed is a failure.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	if err := queueOn(t, s).Enqueue(t.Context(), shunt.Raw("mail", []byte("x"))); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"peek", "mail"}, {"ls", "mail"}, {"ls", "mail", "--json"}, {"version"}} {
		var said buffer
		code := call{url: s.URL()}.app(fullDisk{}, &said).run(t.Context(), args)
		if code != exitFailed || !strings.Contains(said.String(), "no space left") {
			t.Errorf("%v: %d %s", args, code, said.String())
		}
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// What comes from messages must not reach a terminal as commands.
func TestControlCharacters(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	q := queueOn(t, s)
	evil := "a\x1b]0;x\x07\r\u202eb"
	m := shunt.With(shunt.Raw("mail", []byte(`"`+"\u0085\u009b2J\u202e"+`"`)), shunt.ID(evil), shunt.Header(evil, evil),
		shunt.Type(evil))
	if err := q.Enqueue(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	c := call{url: s.URL()}
	for _, args := range [][]string{
		{"ls", "mail"}, {"show", "mail", "--id", evil}, {"peek", "mail"}, {"retry", "mail", "--id", evil},
		{"cancel", "mail", "--id", evil, "--yes"}, {"audit"}, {"show", "mail", "--id", evil + "?"},
		{"export", "mail", "--from", evil}, {"counts", "--since", evil},
	} {
		r := c.do(args...)
		if strings.ContainsAny(r.out+r.err, "\x1b\x07\r\u0085\u009b\u202e") {
			t.Errorf("shunt %q prints control characters: %q %q", args, r.out, r.err)
		}
	}
}
