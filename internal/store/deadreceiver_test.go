package store

import (
	"context"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/link"
)

// The time of a death goes into arithmetic in finish.lua.
func TestJunkDeaths(t *testing.T) {
	t.Parallel()
	name := NewIncarnation(8, 10*time.Second).Name
	for _, member := range []string{name + " x r", name + " 1.5 r", name + " -1 r", name + " 1 x", name + " 1 rs",
		name + " 99999999999999999999999 r"} {
		if c, err := ParseDeadReceiver(member); err == nil {
			t.Errorf("%q: %+v", member, c)
		}
	}
}

// A superseded receiver is swept without a fence.
func TestSupersede(t *testing.T) {
	each(t, func(f *fixture) {
		ctx := context.Background()
		for _, counted := range []bool{false, true} {
			i := NewIncarnation(1, time.Minute)
			_, err := RegisterIncarnation(ctx, f.l, []*Keys{f.k}, i, nil)
			f.must(err)
			f.run(func(c *link.Call) { AddSupersede(c, f.k, i.Name, counted) })
			s, err := RunSweep(ctx, f.l, f.k, Sweeping{MaxClaims: 10, ClaimFor: time.Minute})
			if f.must(err); len(s.Claims) != 1 {
				f.Fatalf("%+v", s)
			}
			d, err := ParseDeadReceiver(s.Claims[0])
			if f.must(err); !d.Superseded || d.Counted != counted || d.Name != i.Name {
				f.Fatalf("%+v", d)
			}
		}
	})
}
