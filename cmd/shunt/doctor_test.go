package main

import (
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/cmd/shunt/internal/doctor"
	"github.com/shuntmq/shunt/internal/redistest"
)

// faults has the messages of mail vanish in an hour, and all messages where memory ends.
func faults(t *testing.T, s *redistest.Server) {
	t.Helper()
	q := &shunt.Queue{Pool: s.Pool(t), Quiet: true, NoCounts: true}
	if err := q.Enqueue(t.Context(), shunt.Raw("mail", []byte("x"))); err != nil {
		t.Fatal(err)
	}
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	s.Do("EXPIRE", "{mail}.prepare", 3600)
	s.Do("CONFIG", "SET", "maxmemory", "1gb")
	s.Do("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
}

// examined is what doctor prints as JSON.
type examined struct {
	Channels int
	Findings []doctor.Finding
	Mending  []mending
}

func examine(t *testing.T, c call, code int, args ...string) (e examined) {
	t.Helper()
	r := c.do(append([]string{"doctor", "--json"}, args...)...)
	if err := json.Unmarshal([]byte(r.out), &e); err != nil || r.code != code {
		t.Fatalf("doctor %v: exit %d, want %d, %v: %s%s", args, r.code, code, err, r.out, r.err)
	}
	return e
}

// What is mended is told, audited and gone. What is critical and stays is told by the status.
func TestDoctor(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "appendonly yes")
	c := call{url: s.URL()}
	if e := examine(t, c, exitOK); e.Findings == nil || len(e.Findings) != 0 || e.Mending != nil {
		t.Errorf("a healthy Redis: %+v", e)
	}
	faults(t, s)
	if e := examine(t, c, exitCritical); len(e.Findings) != 2 || e.Channels != 1 || e.Mending != nil {
		t.Errorf("%+v", e)
	}
	e := examine(t, c, exitCritical, "--fix", "--yes")
	if len(e.Mending) != 1 || e.Mending[0] != (mending{doctor.Expires, "mail", "{mail}.prepare", true, ""}) {
		t.Errorf("--fix: %+v", e.Mending)
	}
	if ttl := s.Do("TTL", "{mail}.prepare"); ttl != int64(-1) {
		t.Errorf("it still expires: %v", ttl)
	}
	if r := c.good(t, "doctor", "--fix-config", "--yes"); !strings.Contains(r.out, "mended: eviction of redis") {
		t.Errorf("--fix-config: %s", r.out)
	}
	log, err := queueOn(t, s).AuditLog(t.Context(), "", 10)
	if err != nil || len(log) != 2 || log[0].Verb != "mend" || !strings.HasPrefix(log[0].Detail, "eviction: ") ||
		log[1].Channel != "mail" {
		t.Errorf("audit: %+v, %v", log, err)
	}
	if e := examine(t, c, exitOK); len(e.Findings) != 0 {
		t.Errorf("after it was mended: %+v", e)
	}
	if all := payloads(t, queueOn(t, s), "mail", shunt.StatePrepare); len(all) != 1 {
		t.Errorf("messages: %q", all)
	}
	s.Do("SET", "{mail}.delay", "x")
	if e := examine(t, c, exitCritical, "mail", "--fix-config", "--yes"); e.Mending != nil {
		t.Errorf("what a person has to mend: %+v", e)
	}
	s.Do("ACL", "SETUSER", "app", "on", ">p", "~*", "&*", "+@all", "-lpush")
	if r := c.do("doctor", "--user", "app"); !strings.Contains(r.out, "+lpush") {
		t.Errorf("--user: %s%s", r.out, r.err)
	}
}

// What Redis refuses is told of that finding, and the others are mended.
func TestDoctorIsRefused(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "appendonly yes")
	faults(t, s)
	s.Do("ACL", "SETUSER", "app", "on", ">p", "~*", "&*", "+@all", "-persist")
	c := call{url: strings.Replace(s.URL(), "redis://", "redis://app:p@", 1)}
	r := c.do("doctor", "--fix-config", "--yes")
	if r.code != exitCritical || !strings.Contains(r.out, "not mended: expires of mail: PERSIST") ||
		!strings.Contains(r.out, "\nmended: eviction of redis") {
		t.Errorf("exit %d: %s%s", r.code, r.out, r.err)
	}
	log, err := queueOn(t, s).AuditLog(t.Context(), "", 10)
	if err != nil || len(log) != 2 || log[0].Error == "" || log[1].Error != "" {
		t.Errorf("audit: %+v, %v", log, err)
	}
}

func TestDoctorAsks(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "appendonly yes")
	faults(t, s)
	r := call{url: s.URL(), asks: true, in: strings.NewReader("n\n")}.do("doctor", "--fix")
	if r.code != exitFailed || !strings.Contains(r.err, "mend 1 finding? [y/N]") {
		t.Errorf("no: exit %d, %s", r.code, r.err)
	}
	in, write := io.Pipe()
	defer write.Close()
	ctx, cancel := context.WithCancel(t.Context())
	asked := func(said string) {
		if strings.Contains(said, "[y/N]") {
			cancel()
		}
	}
	if r := (call{url: s.URL(), asks: true, in: in, ctx: ctx, err: asked}).do("doctor", "--fix"); r.code !=
		exitInterrupted {
		t.Errorf("interrupted: exit %d, %s", r.code, r.err)
	}
	if r := (call{url: s.URL(), ctx: ctx}).do("doctor"); r.code != exitInterrupted {
		t.Errorf("interrupted before: exit %d, %s%s", r.code, r.out, r.err)
	}
	if ttl := s.Do("TTL", "{mail}.prepare"); ttl == int64(-1) {
		t.Error("it was mended without a yes")
	}
}
