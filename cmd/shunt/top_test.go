package main

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/redistest"
)

// The screen ends by q and by a signal, both in order.
func TestTop(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	if err := queueOn(t, s).Enqueue(t.Context(), shunt.Raw("mail", []byte("x"))); err != nil {
		t.Fatal(err)
	}
	for _, by := range []string{"q", "signal"} {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			keys, typed := io.Pipe()
			defer typed.Close()
			c := call{url: s.URL(), in: keys, ctx: ctx, shows: true}
			out, complaints := &buffer{}, &buffer{}
			code := make(chan int, 1)
			go func() { code <- c.app(out, complaints).run(ctx, []string{"top", "--refresh", "100ms"}) }()
			redistest.Until(t, 10*time.Second, "the channel is shown", func() bool {
				return strings.Contains(out.String(), "mail")
			})
			if by == "q" {
				_, _ = io.WriteString(typed, "q")
			} else {
				cancel()
			}
			select {
			case got := <-code:
				if got != exitOK || complaints.String() != "" {
					t.Errorf("exit %d, %s", got, complaints.String())
				}
			case <-time.After(10 * time.Second):
				t.Error("it does not end")
			}
		})
	}
}
