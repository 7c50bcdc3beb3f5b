package daemon

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/shuntmq/shunt/daemon/config"
	"github.com/shuntmq/shunt/internal/redistest"
)

// A Redis that does not tell by INFO what is asked for is none that is away, and no miss.
func TestInfoRefused(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	m := redistest.Mini(t)
	p, err := openPool("default", config.Pool{Redis: "redis://" + m.Addr()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.queue.Pool.Close(); _ = p.own.Close() }()
	if misses := p.check(t.Context()); len(misses) > 0 {
		t.Error(misses)
	}
	m.Close()
	if misses := p.check(t.Context()); len(misses) != 1 {
		t.Errorf("of a Redis that is gone: %v", misses)
	}
}

// Checks say what a miss may cost, and whether the daemon serves all the same is a setting.
func TestChecks(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	b := redistest.Start(t, "maxmemory-policy allkeys-lru")
	r := serving(t, b.URL(), func(c *config.Config) { c.Checks = "warn" })
	log := r.log.String()
	strict := &Daemon{Config: r.Config, Log: slog.New(slog.DiscardHandler)}
	strict.Config.Checks = "fail"
	err := strict.Run(context.Background())
	for _, want := range []string{"allkeys-lru: when memory runs out Redis drops jobs", "the AOF is off"} {
		if !strings.Contains(log, want) {
			t.Errorf("the log has no %q", want)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	for info, want := range map[string]int{
		"": 0, "maxmemory_policy:noeviction\r\naof_enabled:1\r\nredis_version:7.0.15\r\nrole:master\r\n": 0,
		"role:slave": 1, "rdb_last_bgsave_status:err": 1, "redis_version:6.0.9": 1, "redis_version:6.2.0": 0,
		"redis_version:5": 1, "redis_version:unknown": 1, "redis_version:255.255.255": 0,
	} {
		if got := missesOf(parseInfo(info)); len(got) != want {
			t.Errorf("%q: %v", info, got)
		}
	}
	strict.Config.Pools = map[string]config.Pool{"default": {Redis: "redis://ann:hunter2@127.0.0.1:1"}}
	if err := strict.Check(context.Background()); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Error(err)
	}
}
