package access

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/redistest"
)

func TestLimits(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		t.Parallel()
		s := &Store{Redis: redistest.Pool(t, b.Addr())}
		ctx, token, ns := context.Background(), "0123456789-0123456789", namespace(t)
		if err := s.Create(ctx, token, Token{Pool: "default", Namespace: ns}); err != nil {
			t.Fatal(err)
		}
		tok, err := s.Check(ctx, "default", ns, token)
		if err != nil {
			t.Fatal(err)
		}
		admitted := func(read bool) (n int, last Admission) {
			for range 5 {
				a, err := s.Admit(ctx, tok, read)
				if err != nil {
					t.Fatal(err)
				}
				if last = a; a.OK {
					n++
				}
			}
			return n, last
		}
		if n, _ := admitted(true); n != 5 {
			t.Errorf("without a limit: %d of 5", n)
		}
		if err := s.AddLimit(ctx, "default", ns, token, Limit{Read: 3, Interval: 3600}); err != nil {
			t.Fatal(err)
		}
		if err := s.AddLimit(ctx, "default", ns, token, Limit{Read: 3, Interval: 3600}); !errors.Is(err, ErrExists) {
			t.Error(err)
		}
		n, last := admitted(true)
		if n != 3 || last.RetryAfter <= 0 || last.RetryAfter > time.Hour {
			t.Errorf("%d of 5, %v", n, last.RetryAfter)
		}
		if n, _ := admitted(false); n != 5 {
			t.Errorf("writes have no limit: %d of 5", n)
		}
		if err := last.Refund(ctx); err != nil { // it was not admitted
			t.Error(err)
		}
		if n, _ := admitted(true); n != 0 {
			t.Errorf("%d of 5 after no refund", n)
		}
		if err := s.SetLimit(ctx, "default", ns, MarkOf(token), Limit{Read: 4, Interval: 3600}); err != nil {
			t.Fatal(err)
		}
		a, err := s.Admit(ctx, tok, true)
		if err != nil || !a.OK {
			t.Fatalf("%+v, %v", a, err)
		}
		if err := a.Refund(ctx); err != nil {
			t.Fatal(err)
		}
		if n, _ := admitted(true); n != 1 {
			t.Errorf("%d of 5 after a refund", n)
		}
		if l, err := s.LimitOf(ctx, "default", ns, token); err != nil || l != (Limit{Read: 4, Interval: 3600}) {
			t.Errorf("%+v, %v", l, err)
		}
		if err := s.Delete(ctx, "default", ns, token); err != nil {
			t.Fatal(err)
		}
		if _, err := s.LimitOf(ctx, "default", ns, token); !errors.Is(err, ErrNotFound) {
			t.Errorf("the limit outlives its token: %v", err)
		}
	})
}

// A window ends, and what is refunded later is not taken from the next one.
func TestWindow(t *testing.T) {
	t.Parallel()
	s := &Store{Redis: redistest.Shared(t).Pool(t)}
	ctx, token, ns := context.Background(), "0123456789-0123456789", namespace(t)
	if err := s.Create(ctx, token, Token{Pool: "default", Namespace: ns}); err != nil {
		t.Fatal(err)
	}
	tok, err := s.Check(ctx, "default", ns, token)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.SetLimit(ctx, "default", ns, token, Limit{Write: 1, Interval: 1}); err != nil {
		t.Fatal(err)
	}
	first, err := s.Admit(ctx, tok, false)
	if err != nil || !first.OK {
		t.Fatalf("%+v, %v", first, err)
	}
	until(t, "the next window", func() bool {
		a, err := s.Admit(ctx, tok, false)
		return err == nil && a.OK
	})
	if err := first.Refund(ctx); err != nil {
		t.Fatal(err)
	}
	if a, err := s.Admit(ctx, tok, false); err != nil || a.OK {
		t.Errorf("a late refund counts: %+v, %v", a, err)
	}
}
