package worker

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"
)

type valueKey struct{}

func newTestHandling() *Handling {
	r := &Pool{conf: &Config{Timeout: time.Minute, Values: context.WithValue(context.Background(), valueKey{}, "value")}}
	it := &Item{}
	(&slot{r: r}).begin(it, 1, time.Now())
	return it.h()
}

// A handling's context is one as the context package makes them, whenever it is asked for what.
func TestHandlingIsAContext(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ cause, err error }{{ErrTimeout, context.DeadlineExceeded}, {ErrLeaseLost, context.Canceled}, {ErrShutdown, context.Canceled}, {context.Canceled, context.Canceled}} {
		for _, asked := range []string{"never", "before", "after"} {
			h := newTestHandling()
			if end, ok := h.Deadline(); !ok || !end.Equal(h.Started.Add(time.Minute)) || h.Err() != nil || h.Cause() != nil {
				t.Errorf("begins with deadline %v, %v, error %v", end, ok, h.Err())
			}
			var child context.Context
			var leave context.CancelFunc
			told := make(chan struct{})
			if asked == "before" {
				child, leave = context.WithTimeout(h, time.Hour)
				context.AfterFunc(h, func() { close(told) })
				select {
				case <-h.Done():
					t.Error("done at once")
				default:
				}
			}
			h.cancel(c.cause)
			h.cancel(errors.New("too late"))
			if h.inner == nil != (asked != "before") {
				t.Errorf("asked %s: a context proper: %v", asked, h.inner != nil)
			}
			if h.Err() != c.err || h.Cause() != c.cause {
				t.Errorf("%v: error %v, cause %v", c.cause, h.Err(), h.Cause())
			}
			if asked == "never" {
				continue
			}
			if asked == "after" {
				child, leave = context.WithTimeout(h, time.Hour)
				context.AfterFunc(h, func() { close(told) })
			}
			<-h.Done()
			<-child.Done()
			<-told
			if context.Cause(h) != c.cause || context.Cause(child) != c.cause {
				t.Errorf("%v: cause %v, of a child %v", c.cause, context.Cause(h), context.Cause(child))
			}
			leave()
		}
	}
	h := newTestHandling()
	if h.Value(valueKey{}) != "value" || h.Value(Key{}) != h || h.Value("none") != nil {
		t.Errorf("values %v, %v, %v", h.Value(valueKey{}), h.Value(Key{}), h.Value("none"))
	}
	h.timeout = -1
	if _, ok := h.Deadline(); ok {
		t.Error("a deadline without a timeout")
	}
}

// Many may ask while it ends.
func TestHandlingEndsBesideMany(t *testing.T) {
	t.Parallel()
	for range 200 {
		h := newTestHandling()
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				h.Err()
				child, cancel := context.WithCancel(h)
				defer cancel()
				<-child.Done()
				if context.Cause(child) != ErrLeaseLost || h.Err() != context.Canceled {
					t.Errorf("cause %v, error %v", context.Cause(child), h.Err())
				}
			})
		}
		all.Go(func() { h.cancel(ErrLeaseLost) })
		all.Wait()
	}
}
