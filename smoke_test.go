package shunt

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/redistest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

func TestSmoke(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		redistest.Leaks(t)
		pool, err := NewPool(b.URL())
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		q := &Queue{Pool: pool, Events: func(e Event) {
			if e.Kind != Acked && e.Kind != Delivered {
				t.Logf("%+v", e)
			}
		}}
		name := redistest.Name(t)
		var n atomic.Int64
		done := make(chan struct{})
		const total = 20000
		k := Define(name, func(ctx context.Context, i int) error {
			if n.Add(1) == total {
				close(done)
			}
			return nil
		})
		var ms []IMessage
		for i := range total {
			ms = append(ms, k.Message(i))
		}
		ctx := context.Background()
		t0 := time.Now()
		if err := q.DeliverAll(ctx, ms[1:]); err != nil {
			t.Fatal(err)
		}
		if err := q.Deliver(ctx, ms[0], In(300*time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		fmt.Println("delivered", time.Since(t0))
		t0 = time.Now()
		shutdown, err := q.Receive(ctx, k, 64)
		if err != nil {
			t.Fatal(err)
		}
		select {
		case <-done:
		case <-time.After(20 * time.Second):
			t.Error("timed out at ", n.Load())
		}
		fmt.Println("done", time.Since(t0))
		time.Sleep(300 * time.Millisecond)
		t0 = time.Now()
		if err := shutdown(ctx); err != nil {
			t.Error(err)
		}
		fmt.Println("shut", time.Since(t0))
		if err := q.Close(); err != nil {
			t.Error(err)
		}
		fmt.Println("closed", time.Since(t0))
	})
}
