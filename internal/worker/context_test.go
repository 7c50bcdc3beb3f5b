package worker

import (
	"context"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/shuntmq/shunt/internal/custody"
	"github.com/shuntmq/shunt/internal/lane"
)

type valueKey struct{}

func newTestItem() *Item {
	r := &Pool{
		conf:     &Config{Timeout: time.Minute, Values: context.WithValue(context.Background(), valueKey{}, "value")},
		lifetime: lifetime{handlerCtx: context.Background()},
	}
	it := &Item{Lane: &lane.Lane{Site: new(lane.Site)}}
	(&worker{r: r, now: time.Now()}).begin(it)
	return it
}

// An item is a context as the context package makes them, whenever it is asked for what.
func TestItemIsAContext(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ cause, err error }{{custody.ErrTimeout, context.DeadlineExceeded},
		{custody.ErrLeaseLost,
			context.Canceled}, {custody.ErrShutdown, context.Canceled}, {context.Canceled, context.Canceled}} {
		for _, asked := range []string{"never", "before", "after"} {
			it := newTestItem()
			if end, ok := it.Deadline(); !ok || !end.Equal(it.Started.Add(time.Minute)) || it.Err() != nil ||
				it.Cause() != nil {
				t.Errorf("begins with deadline %v, %v, error %v", end, ok, it.Err())
			}
			var child context.Context
			var leave context.CancelFunc
			told := make(chan struct{})
			if asked == "before" {
				child, leave = context.WithTimeout(it, time.Hour)
				context.AfterFunc(it, func() { close(told) })
				select {
				case <-it.Done():
					t.Error("done at once")
				default:
				}
			}
			it.cancel(c.cause)
			it.cancel(custody.ErrCancelled)
			if it.inner.Load() == nil != (asked != "before") {
				t.Errorf("asked %s: a context proper: %v", asked, it.inner.Load() != nil)
			}
			if it.Err() != c.err || it.Cause() != c.cause {
				t.Errorf("%v: error %v, cause %v", c.cause, it.Err(), it.Cause())
			}
			if asked == "never" {
				continue
			}
			if asked == "after" {
				child, leave = context.WithTimeout(it, time.Hour)
				context.AfterFunc(it, func() { close(told) })
			}
			<-it.Done()
			<-child.Done()
			<-told
			if context.Cause(it) != c.cause || context.Cause(child) != c.cause {
				t.Errorf("%v: cause %v, of a child %v", c.cause, context.Cause(it), context.Cause(child))
			}
			leave()
		}
	}
	it := newTestItem()
	if it.Value(valueKey{}) != "value" || it.Value(Key{}) != it || it.Value("none") != nil {
		t.Errorf("values %v, %v, %v", it.Value(valueKey{}), it.Value(Key{}), it.Value("none"))
	}
	it.timeout = -1
	if _, ok := it.Deadline(); ok {
		t.Error("a deadline without a timeout")
	}
}

// Many may ask while it ends.
func TestItemEndsBesideMany(t *testing.T) {
	t.Parallel()
	for range 200 {
		it := newTestItem()
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				it.Err()
				child, cancel := context.WithCancel(it)
				defer cancel()
				<-child.Done()
				if context.Cause(child) != custody.ErrLeaseLost || it.Err() != context.Canceled {
					t.Errorf("cause %v, error %v", context.Cause(child), it.Err())
				}
			})
		}
		all.Go(func() { it.cancel(custody.ErrLeaseLost) })
		all.Wait()
	}
}

// What an item takes is paid for every message: 64 bytes more cost 4 % of the rate.
func TestItemIsSmall(t *testing.T) {
	if n := unsafe.Sizeof(Item{}); n > 224 {
		t.Errorf("an item has %d bytes", n)
	}
}
