package worker

import (
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/redistest"
)

// A server refuses to mark a message as begun. A worker that holds it starts what it takes from another server.
func TestRefusedMarkHoldsUpNoOtherSite(t *testing.T) {
	t.Parallel()
	for name, order := range map[string]*Order{"strict": NewOrder(nil), "weighted": NewOrder([]int{1, 1})} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newSites(t, "ab", 1, order, func(*Item, int) error { return nil })
			refused := f.a.On(redistest.ByName("HSET", ".running")(f.keys[0].Name), 0,
				redistest.ReplyError("NOPERM no"))
			f.enqueue(0, 0, 1, f.withID(0, "a", element.Extra{}))
			f.until(5*time.Second, "its mark was refused", func() bool { return refused.Struck() > 0 })
			for i := range 3 {
				f.enqueue(1, 1+i, 2+i, f.withID(1, "b", element.Extra{}))
				f.until(2*time.Second, "the other's is handled", func() bool { return f.seen(1+i, 2+i) == 1 })
			}
			refused.Remove()
			f.until(10*time.Second, "the first one is handled", func() bool { return f.seen(0, 1) == 1 })
		})
	}
}
