package link

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
)

// The right to try goes back from one who had nothing to send, and nobody else ends a wait.
func TestBreakerBack(t *testing.T) {
	b := Breaker{Over: func() {}, Tells: func(error, bool) {}}
	b.Judge(redis.Error("TRYAGAIN not now"))
	b.Back()
	wait := b.Pass()
	if wait <= 0 {
		t.Fatal("who had no right has ended the wait")
	}
	time.Sleep(wait)
	if b.Pass() > 0 {
		t.Fatal("nobody gets the right when the wait is over")
	}
	if b.Pass() <= 0 {
		t.Fatal("two have it")
	}
	if b.Back(); b.Pass() > 0 {
		t.Error("it did not come back")
	}
}

// A script that the server has forgotten goes again soon, and not at once; the second time it waits as others do.
func TestHoldoffOfAScript(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h Holdoff
		for _, most := range []time.Duration{MinTrouble / 50, MinTrouble, 2 * MinTrouble} {
			wait := h.Refuse(redis.Error("NOSCRIPT no matching script"))
			if wait < most*9/10 || wait > most || h.Left() != wait {
				t.Errorf("waits %v, and %v are left, want %v", wait, h.Left(), most)
			}
		}
	})
}
