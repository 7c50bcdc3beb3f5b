package sandbox

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/shuntmq/shunt"
)

// All complaints come at once.
func TestValidate(t *testing.T) {
	t.Parallel()
	p := &Pool{
		Protocol: 7, Children: -1, Grace: time.Hour, MaxMemory: 5, MaxOutput: 5, MaxStderr: 5, Dir: "no/such/dir",
		Env: []string{"A=b", "nothing"}, Command: []string{""},
	}
	err := p.Validate()
	if err == nil {
		t.Fatal("no complaint")
	}
	for _, part := range []string{
		"Pool.Command is empty", "Pool.Protocol is 7", "Pool.Children is -1", "Pool.Grace is 1h0m0s",
		"Pool.MaxMemory is 5",
		"Pool.MaxOutput is 5", "Pool.MaxStderr is 5", `Pool.Env has "nothing"`,
	} {
		contains(t, err.Error(), part)
	}
	if n := strings.Count(err.Error(), "sandbox: "); n < 8 {
		t.Errorf("%d complaints", n)
	}
	for _, p := range []*Pool{
		{Command: []string{"no-such-command-here"}},
		{Command: []string{"true"}, Dir: "no/such/dir"},
		{Command: []string{"./pool_test.go/none"}},
	} {
		if err := p.Validate(); !errors.Is(err, ErrStart) {
			t.Errorf("%v: %v", p.Command, err)
		}
	}
}

func TestPrototype(t *testing.T) {
	t.Parallel()
	p := &Pool{Timeout: time.Minute}
	m := p.Message("c")
	if m.Channel() != "c" || m.(shunt.Timeouter).Timeout() != time.Minute {
		t.Errorf("%s, %v", m.Channel(), m.(shunt.Timeouter).Timeout())
	}
	if _, err := m.Marshal(); err == nil || !strings.Contains(err.Error(), "shunt.Raw") {
		t.Errorf("a prototype is enqueued: %v", err)
	}
	made, err := m.Unmarshal([]byte("payload"))
	if err != nil {
		t.Fatal(err)
	}
	if b, err := made.Marshal(); err != nil || string(b) != "payload" {
		t.Errorf("%q, %v", b, err)
	}
	if err := p.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if err := made.Resolve(t.Context()); err == nil || !strings.Contains(err.Error(), "snoozed") {
		t.Errorf("a closed pool: %v", err)
	}
	var none context.Context
	if err := p.Close(none); err == nil {
		t.Error("nil is a context")
	}
}
