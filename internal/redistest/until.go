package redistest

import (
	"testing"
	"time"
)

// Until returns once ok does, with how long that took; after limit the test fails. It is for what nothing tells of: it
// asks every 2 ms.
func Until(t testing.TB, limit time.Duration, what string, ok func() bool) time.Duration {
	t.Helper()
	began := time.Now()
	poll, bound := time.NewTicker(2*time.Millisecond), time.NewTimer(limit)
	defer poll.Stop()
	defer bound.Stop()
	for !ok() {
		select {
		case <-poll.C:
		case <-bound.C:
			t.Fatalf("after %v: not yet: %s", limit, what)
		}
	}
	return time.Since(began)
}
