package shunt

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
)

// A message that fails does not grow beyond what MaxSize let in: what Redis takes at the enqueue it takes at the
// verdict too.
func TestFailureFitsMaxSize(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	const most = 4096
	b := newBench(t, s.URL(), func(q *Queue) { q.MaxSize = most; q.MaxAttempts = 1 })
	k := Define(b.name, func(context.Context, string) error { return errors.New(strings.Repeat("é", 1000)) })
	if _, err := b.Receive(context.Background(), k, 1); err != nil {
		t.Fatal(err)
	}
	for _, room := range []int{0, 2, 3, 4, 100, 3000} {
		if err := b.Enqueue(context.Background(), k.Message(strings.Repeat("x", most-21-2-room))); err != nil {
			t.Fatal(room, err)
		}
	}
	b.wait(EventRejected, 6, 5*time.Second)
	all, _ := s.Do("ZRANGE", store.KeysOf(b.name).Dead, 0, -1).([]any)
	if len(all) != 6 {
		t.Errorf("%d are dead", len(all))
	}
	for _, e := range all {
		if n := len(e.([]byte)); n > most {
			t.Errorf("a dead one has %d bytes", n)
		}
	}
}
