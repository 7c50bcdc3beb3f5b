package link

import (
	"testing"
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
