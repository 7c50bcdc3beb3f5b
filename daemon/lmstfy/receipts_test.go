package lmstfy

import (
	"fmt"
	"testing"

	"github.com/shuntmq/shunt"
)

// Receipts are those of one pool's job, are given away once, and are bounded.
func TestReceipts(t *testing.T) {
	t.Parallel()
	var r receipts
	job := func(i int) *shunt.Leased {
		return &shunt.Leased{
			Info:    shunt.Info{Channel: "ns/q", ID: fmt.Sprint(i)},
			Receipt: shunt.Receipt(fmt.Sprint("r", i)),
		}
	}
	r.keep("default", []*shunt.Leased{job(1), job(2)})
	for _, c := range []struct{ pool, channel, id, want string }{
		{"second", "ns/q", "1", ""}, {"default", "ns/q2", "1", ""}, {"default", "ns/q", "3", ""},
		{"default", "ns/q", "1", "r1"}, {"default", "ns/q", "1", ""}, {"default", "ns/q", "2", "r2"},
	} {
		if got := r.take(c.pool, c.channel, c.id); string(got) != c.want {
			t.Errorf("%v: %q", c, got)
		}
	}
	for i := range 3 * keptReceipts {
		r.keep("default", []*shunt.Leased{job(i)})
	}
	if n := len(r.now) + len(r.old); n > 2*keptReceipts {
		t.Errorf("%d receipts", n)
	}
	if got := r.take("default", "ns/q", fmt.Sprint(2*keptReceipts)); got == "" {
		t.Error("the last ones are not kept")
	}
}
