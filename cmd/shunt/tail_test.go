package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/redistest"
)

// following runs a command until it has printed what is wanted, and ends it, which is its good end.
func following(t *testing.T, c call, act func(), wants []string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out, complaints := &buffer{}, &buffer{}
	code := make(chan int, 1)
	go func() { code <- c.app(out, complaints).run(ctx, args) }()
	if act != nil {
		act()
	}
	redistest.Until(t, 10*time.Second, strings.Join(wants, ", "), func() bool {
		for _, want := range wants {
			if !strings.Contains(out.String(), want) {
				return false
			}
		}
		return true
	})
	cancel()
	if got := <-code; got != exitOK {
		t.Errorf("shunt %v: exit %d: %s", args, got, complaints)
	}
	return out.String()
}

// looks waits until a command has looked three times, and so has finished two looks: each asks for the counts.
func looks(t *testing.T, s *redistest.Server) {
	t.Helper()
	asked := func() (n int) {
		stats, _ := s.Do("INFO", "commandstats").([]byte)
		if _, of, found := strings.Cut(string(stats), "cmdstat_hmget:calls="); found {
			_, _ = fmt.Sscan(strings.Split(of, ",")[0], &n)
		}
		return n
	}
	before := asked()
	redistest.Until(t, 10*time.Second, "three looks", func() bool { return asked() >= before+3 })
}

func TestTail(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	q := queueOn(t, s)
	put := func(channel, payload string) {
		if err := q.Enqueue(t.Context(), shunt.Raw(channel, []byte(payload))); err != nil {
			t.Error(err)
		}
	}
	put("mail", "die before")
	handle(t, s, "mail", 1)
	put("mail", "waits")
	act := func() {
		looks(t, s)
		put("jobs", "die of\x1b[2J it")
		put("jobs", "again")
		handle(t, s, "jobs", 2)
		put("mail", "waits")
	}
	out := following(t, call{url: s.URL()}, act, []string{"ready 2 (+1)", "retry ", "dead   jobs", "dead 1 (+1)"},
		"tail", "--every", "100ms")
	if strings.Contains(out, "before") || strings.Contains(out, "\x1b") || !strings.Contains(out, "it is busy") {
		t.Errorf("%q", out)
	}

	act = func() {
		looks(t, s)
		put("mail", "die now")
		handle(t, s, "mail", 3)
	}
	out = following(t, call{url: s.URL()}, act, []string{`"kind":"dead"`}, "tail", "mail", "--json", "--every", "100ms")
	for line := range strings.Lines(out) {
		var h struct{ Kind, Channel, Ref, Failure string }
		if err := json.Unmarshal([]byte(line), &h); err != nil || h.Channel != "mail" ||
			h.Kind == "dead" && (h.Ref == "" || h.Failure != "now") {
			t.Errorf("%v: %s", err, line)
		}
	}
}

func TestWatch(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	q := queueOn(t, s)
	act := func() {
		if err := q.Enqueue(t.Context(), shunt.Raw("mail", []byte("x"))); err != nil {
			t.Error(err)
		}
	}
	out := following(t, call{url: s.URL(), paint: true}, act, []string{"mail"}, "channels", "-w", "--every", "100ms")
	if !strings.HasPrefix(out, "\x1b[H\x1b[2J") {
		t.Errorf("%.40q", out)
	}
}

func TestReceivers(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	q := queueOn(t, s)
	running := make(chan struct{})
	hold := shunt.Define("held", func(ctx context.Context, _ int) error {
		close(running)
		<-ctx.Done()
		return errors.New("over")
	})
	shutdown, err := q.Receive(t.Context(), hold, 3)
	if err != nil {
		t.Fatal(err)
	}
	if err := q.Enqueue(t.Context(), hold.Message(7), shunt.ID("x")); err != nil {
		t.Fatal(err)
	}
	<-running
	c := call{url: s.URL()}
	if r := c.good(t, "receivers"); !strings.Contains(r.out, "alive") || !strings.Contains(r.out, "held") {
		t.Error(r.out)
	}
	r := c.good(t, "ls", "held", "-s", "doing")
	if !strings.Contains(r.out, "HOLDER") || !strings.Contains(r.out, ".x") {
		t.Error(r.out)
	}
	if r := c.do("retry", "held", "--id", "x"); r.code != exitFailed || !strings.Contains(r.err, "being handled") {
		t.Errorf("exit %d: %s", r.code, r.err)
	}
	if r := c.good(t, "export", "held"); !strings.Contains(r.err, "1 message was in hand") {
		t.Error(r.err)
	}
	c.good(t, "cancel", "held", "--id", "x", "--yes")
	if err := shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := c.good(t, "stats", "held"); strings.Contains(r.out, "OLDEST") {
		t.Errorf("it was not cancelled:\n%s", r.out)
	}
}
