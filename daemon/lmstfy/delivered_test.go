package lmstfy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/shuntmq/shunt"
)

// Delivered jobs are those of one pool, are given away once and while their lease lasts, and are bounded.
func TestDelivered(t *testing.T) {
	t.Parallel()
	var d delivered
	job := func(i, size int) *shunt.Leased {
		return &shunt.Leased{
			Info: shunt.Info{Channel: "ns/q", ID: fmt.Sprint(i)}, Payload: make([]byte, size),
			EndsAt: time.Now().Add(time.Minute), Receipt: shunt.Receipt(fmt.Sprint("r", i)),
		}
	}
	over := job(4, 1)
	over.EndsAt = time.Now()
	d.keep("default", []*shunt.Leased{job(1, 1), job(2, 1), over, job(5, keptBytes/50)})
	for _, c := range []struct{ pool, channel, id, want string }{
		{"second", "ns/q", "1", ""}, {"default", "ns/q2", "1", ""}, {"default", "ns/q", "3", ""},
		{"default", "ns/q", "1", "r1"}, {"default", "ns/q", "1", ""}, {"default", "ns/q", "2", "r2"},
		{"default", "ns/q", "4", ""}, {"default", "ns/q", "5", ""},
	} {
		got := shunt.Receipt("")
		if l := d.take(c.pool, c.channel, c.id); l != nil {
			got = l.Receipt
		}
		if string(got) != c.want {
			t.Errorf("%v: %q", c, got)
		}
	}
	for size, most := range map[int]int{0: 2 * keptJobs, keptBytes / 200: 400, -keptBytes / 400: 400} {
		last := 3 * most / 2
		for i := range last + 1 {
			l := job(i, max(0, size))
			l.Headers = map[string]string{"": strings.Repeat("x", max(0, -size))}
			d.keep("default", []*shunt.Leased{l, job(-1, keptBytes/50)})
		}
		if n := len(d.now) + len(d.old); n > most {
			t.Errorf("%d jobs of %d bytes", n, size)
		}
		if d.take("default", "ns/q", fmt.Sprint(last)) == nil ||
			d.take("default", "ns/q", fmt.Sprint(last-most/2+1)) == nil {
			t.Error("the last ones are not kept")
		}
		d = delivered{}
	}
}
