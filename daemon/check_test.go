package daemon

import (
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
