package shunt

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/shuntmq/shunt/internal/element"
)

func TestErrorTexts(t *testing.T) {
	t.Parallel()
	seen := make(map[string]bool)
	all := []error{
		ErrClosed,
		ErrUnknown,
		ErrFull,
		ErrTooLarge,
		ErrTimeout,
		ErrLeaseLost,
		ErrShutdown,
		ErrInHandler,
		element.ErrNewerVersion,
	}
	for i, err := range all {
		if !strings.HasPrefix(err.Error(), "shunt: ") || seen[err.Error()] {
			t.Errorf("%q", err)
		}
		seen[err.Error()] = true
		for j, other := range all {
			if errors.Is(err, other) != (i == j) {
				t.Errorf("%v is %v", err, other)
			}
		}
	}
}

func TestEnqueueError(t *testing.T) {
	t.Parallel()
	full := fmt.Errorf("enqueue: %w", ErrFull)
	large := fmt.Errorf("enqueue: %w", ErrTooLarge)
	lost := fmt.Errorf("enqueue: %w", ErrUnknown)
	for _, c := range []struct {
		e    *EnqueueError
		text string
		is   []error
		not  []error
		all  []error
	}{
		{&EnqueueError{Failed: map[int]error{12: full, 3: large}}, "shunt: 2 messages not enqueued, the first " +
			"because: " + large.Error(),
			[]error{ErrFull, ErrTooLarge}, []error{ErrUnknown}, []error{large, full}},
		{&EnqueueError{Unknown: map[int]error{7: lost}}, "shunt: 1 messages of unknown outcome, the first because: " +
			"" + lost.Error(),
			[]error{ErrUnknown}, []error{ErrFull}, []error{lost}},
		{&EnqueueError{Failed: map[int]error{9: full}, Unknown: map[int]error{8: lost, 10: lost}},
			"shunt: 1 messages not enqueued, the first because: " + full.Error() + "; 2 of unknown outcome, the " +
				"first because: " + lost.Error(),
			[]error{ErrFull, ErrUnknown}, []error{ErrClosed}, []error{full, lost, lost}},
	} {
		err := fmt.Errorf("batch: %w", c.e)
		var got *EnqueueError
		if !errors.As(err, &got) || got != c.e {
			t.Errorf("%v is no EnqueueError", err)
		}
		if c.e.Error() != c.text {
			t.Errorf("text %q, want %q", c.e, c.text)
		}
		for _, want := range c.is {
			if !errors.Is(err, want) {
				t.Errorf("%v is not %v", err, want)
			}
		}
		for _, want := range c.not {
			if errors.Is(err, want) {
				t.Errorf("%v is %v", err, want)
			}
		}
		if !slices.Equal(c.e.Unwrap(), c.all) {
			t.Errorf("unwrapped %v, want %v", c.e.Unwrap(), c.all)
		}
	}
}

func TestShutdownError(t *testing.T) {
	t.Parallel()
	e := &ShutdownError{Returned: 3, Running: 1}
	if want := "shunt: shut down with 3 messages handed back and 1 handlers still running"; e.Error() != want ||
		e.Unwrap() != nil {
		t.Errorf("%q, %v", e, e.Unwrap())
	}
	e.Err = fmt.Errorf("connect: %w", io.ErrUnexpectedEOF)
	if !strings.HasSuffix(e.Error(), "; what is left is freed by its lease: connect: unexpected EOF") ||
		!errors.Is(e, io.ErrUnexpectedEOF) || errors.Is(e, context.Canceled) {
		t.Errorf("%q", e)
	}
}
