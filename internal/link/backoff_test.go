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

// All hear of the end of refusals. Of a script that was forgotten nobody hears: they wait for that a moment only.
func TestBreakerOver(t *testing.T) {
	forgotten, full := redis.Error("NOSCRIPT no matching script"), redis.Error("OOM command not allowed")
	for _, c := range []struct {
		errs  []error
		overs int
	}{
		{[]error{nil}, 0},
		{[]error{forgotten, nil}, 0},
		{[]error{forgotten, nil, forgotten, nil}, 0},
		{[]error{forgotten, forgotten, nil}, 1},
		{[]error{full, nil, nil}, 1},
		{[]error{full, forgotten, nil}, 1},
		{[]error{full, nil, forgotten, nil}, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			overs := 0
			b := Breaker{Over: func() { overs++ }, Tells: func(error, bool) {}}
			for _, err := range c.errs {
				time.Sleep(b.off.Left()) // one after another
				b.Judge(err)
			}
			if overs != c.overs || b.On() {
				t.Errorf("%q: %d times over, want %d; still on: %v", c.errs, overs, c.overs, b.On())
			}
		})
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

// Steps that are refused beside each other make the wait no longer than one does; the next that is tried does.
func TestBreakerBeside(t *testing.T) {
	for _, c := range []struct {
		err    error
		waits  []time.Duration
		events int
	}{
		{redis.Error("NOSCRIPT no matching script"), []time.Duration{MinTrouble / 50, MinTrouble, 2 * MinTrouble}, 16},
		{redis.Error("OOM command not allowed"), []time.Duration{MinTrouble, 2 * MinTrouble, 4 * MinTrouble}, 24},
		{redis.Error("NOPERM no right"), []time.Duration{MaxTrouble, MaxTrouble, MaxTrouble}, 24},
	} {
		synctest.Test(t, func(t *testing.T) {
			events := 0
			b := Breaker{Over: func() {}, Tells: func(error, bool) { events++ }}
			for i, most := range c.waits {
				if b.Pass() > 0 {
					t.Fatalf("%v: nobody is let through", c.err)
				}
				for range 8 {
					b.Judge(c.err)
				}
				wait := b.off.Left()
				if wait < most*9/10 || wait > most {
					t.Errorf("%v: the wait is %v after %d refusals, want %v", c.err, wait, i+1, most)
				}
				time.Sleep(wait)
			}
			if events != c.events {
				t.Errorf("%v: %d events, want %d", c.err, events, c.events)
			}
		})
	}
}
