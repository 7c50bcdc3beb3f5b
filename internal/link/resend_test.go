package link

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
)

// From the first sending on whose outcome is unknown, no failure means that the command was not executed.
func TestResendFailed(t *testing.T) {
	unknown, refused := &Error{Class: Unknown, Err: errors.New("EOF")}, redis.Error("OOM command not allowed")
	for _, c := range []struct {
		name string
		errs []error
		want []Class
	}{
		{"refused", []error{refused, refused}, []Class{NotExecuted, NotExecuted}},
		{"unknown", []error{unknown}, []Class{Unknown}},
		{"refused after unknown", []error{refused, unknown, refused}, []Class{NotExecuted, Unknown, Unknown}},
		{"done after unknown", []error{unknown, nil}, []Class{Unknown, Done}},
		{"fatal after unknown", []error{unknown, redis.Error("WRONGTYPE key")}, []Class{Unknown, Unknown}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var r Resend
			doubt := false
			for i, err := range c.errs {
				got := r.Failed(err)
				doubt = doubt || c.want[i] == Unknown
				if Classify(got) != c.want[i] || r.InDoubt() != doubt || (got == nil) != (err == nil) ||
					!errors.Is(got, err) {
					t.Errorf("failure %d: %v of class %v, in doubt: %v", i, got, Classify(got), r.InDoubt())
				}
			}
		})
	}
}

// Pauses double from the first one up to a second, and end with their limit, the context and the link.
func TestResendPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := Resend{First: 50 * time.Millisecond}
		pause := func(ctx context.Context, limit time.Duration) time.Duration {
			began := time.Now()
			r.Pause(ctx, limit)
			return time.Since(began)
		}
		for want := 50 * time.Millisecond; want < 4*time.Second; want *= 2 {
			if got, most := pause(t.Context(), 0), min(want, time.Second); got < most*3/4 || got > most*5/4 {
				t.Errorf("a pause of %v, want about %v", got, most)
			}
		}
		if got := pause(t.Context(), 10*time.Millisecond); got != 10*time.Millisecond {
			t.Errorf("a pause of %v, want its limit", got)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		defer cancel()
		if got := pause(ctx, 0); got != 5*time.Millisecond {
			t.Errorf("a pause of %v, want the context's", got)
		}
		closed := make(chan struct{})
		time.AfterFunc(7*time.Millisecond, func() { close(closed) })
		r.Until = closed
		if got := pause(t.Context(), 0); got != 7*time.Millisecond {
			t.Errorf("a pause of %v, want one until the link is closed", got)
		}
		var zero Resend
		began := time.Now()
		zero.Pause(t.Context(), 0)
		if got := time.Since(began); got < 15*time.Millisecond || got > 25*time.Millisecond {
			t.Errorf("a first pause of %v, want about 20ms", got)
		}
	})
}
