package shunttest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/shuntmq/shunt"
)

var errDown = errors.New("mail server down")

// What becomes of a message, by what its handler does.
func TestHandleVerdicts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		send    func(ctx context.Context, m *mail) error
		opts    []Option
		verdict shunt.EventKind
		wait    time.Duration
		err     error
	}{
		"acked":    {nil, nil, shunt.EventAcked, 0, nil},
		"error":    {fails(errDown), []Option{Attempt(2)}, shunt.EventRetried, 2 * time.Minute, errDown},
		"last":     {fails(errDown), []Option{Attempt(3)}, shunt.EventRejected, 0, errDown},
		"own last": {fails(errDown), []Option{With(shunt.MaxAttempts(1))}, shunt.EventRejected, 0, errDown},
		"retry after": {fails(shunt.RetryAfter(7*time.Hour, errDown)), nil, shunt.EventRetried, 7 * time.Hour,
			errDown},
		"below a ms": {fails(shunt.RetryAfter(time.Microsecond, errDown)), nil, shunt.EventRetried,
			time.Millisecond, errDown},
		"retry at once": {fails(shunt.RetryAfter(0, errDown)), nil, shunt.EventRetried, 0, errDown},
		"reject":        {fails(shunt.Reject(errDown)), nil, shunt.EventRejected, 0, errDown},
		"panic of error": {func(context.Context, *mail) error { panic(errDown) }, nil, shunt.EventRetried,
			time.Minute, errDown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := New(t, func(q *shunt.Queue) {
				q.MaxAttempts = 3
				q.Backoff = func(n int) time.Duration { return time.Duration(n) * time.Minute }
			})
			calls := 0
			out := q.Handle(&mail{outbox: &outbox{send: func(ctx context.Context, m *mail) error {
				calls++
				if c.send == nil {
					return nil
				}
				return c.send(ctx, m)
			}}}, &mail{To: "ann"}, c.opts...)
			if out.Verdict != c.verdict || out.Wait != c.wait || !errors.Is(out.Err, c.err) || c.err == nil &&
				out.Err != nil {
				t.Errorf("it was %v", out)
			}
			if calls != 1 {
				t.Errorf("it was handled %d times", calls)
			}
			if m, _ := out.Message.(*mail); m == nil || m.To != "ann" || out.Channel != "mail" || out.Serial == "" {
				t.Errorf("outcome %+v", out)
			}
			q.AssertEmpty() // of its own it leaves nothing
		})
	}
}

func fails(err error) func(context.Context, *mail) error {
	return func(context.Context, *mail) error { return err }
}

func TestHandlePanicAndGoexit(t *testing.T) {
	t.Parallel()
	q := New(t)
	var p *shunt.PanicError
	out := q.Handle(&mail{outbox: &outbox{send: func(context.Context, *mail) error { panic("ouch") }}}, &mail{})
	if !errors.As(out.Err, &p) || p.Value != "ouch" || !strings.Contains(string(p.Stack), "handle_test.go") ||
		out.Verdict != shunt.EventRetried {
		t.Errorf("a panic was %v", out)
	}
	out = q.Handle(&mail{outbox: &outbox{send: func(context.Context, *mail) error { runtime.Goexit(); return nil }}},
		&mail{})
	if !errors.As(out.Err, &p) || !p.Goexit || out.Verdict != shunt.EventRetried {
		t.Errorf("a Goexit was %v", out)
	}
}

func TestHandlerMayEndTheTest(t *testing.T) {
	t.Parallel()
	for name, run := range map[string]func(q *Queue, p shunt.IMessage){
		"Handle": func(q *Queue, p shunt.IMessage) { q.Handle(p, &mail{}) },
		"Drain":  func(q *Queue, p shunt.IMessage) { enqueue(q.t, q, &mail{}); q.Drain(p) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			calls := 0
			r := record(t, func(tb testing.TB) {
				run(New(tb), &mail{outbox: &outbox{send: func(context.Context, *mail) error {
					calls++
					tb.Fatalf("not what the test wants")
					return nil
				}}})
				tb.Errorf("the test goes on")
			})
			if got := r.text.String(); got != "not what the test wants\n" || !r.ended || calls != 1 {
				t.Errorf("after %d calls the failure is: %s", calls, got)
			}
		})
	}
}

func TestHandleGoesAllTheWay(t *testing.T) {
	t.Parallel()
	var seen []string
	var kinds []string
	q := New(t, func(q *shunt.Queue) {
		q.Wrap = func(next shunt.Handler) shunt.Handler {
			return func(ctx context.Context, m shunt.IMessage) error {
				seen = append(seen, "wrapped "+m.(*mail).To)
				return fmt.Errorf("wrapped: %w", next(ctx, m))
			}
		}
		q.Events = func(e shunt.Event) { kinds = append(kinds, string(e.Kind)) }
	})
	var info shunt.Info
	var deadline time.Duration
	p := &mail{outbox: &outbox{send: func(ctx context.Context, m *mail) error {
		info, _ = shunt.FromContext(ctx)
		at, _ := ctx.Deadline()
		deadline = time.Until(at)
		seen = append(seen, "sent "+m.To+m.secret)
		return errDown
	}}}
	out := q.Handle(p, &mail{To: "ann", secret: "?"}, Attempt(5), Age(48*time.Hour), Failure("greylisted"),
		With(shunt.Header("trace", "x"), shunt.Timeout(time.Hour)))
	if got := strings.Join(seen, ", "); got != "wrapped ann, sent ann" {
		t.Errorf("seen: %s", got)
	}
	if out.Err == nil || out.Err.Error() != "wrapped: mail server down" || out.Attempt != 5 {
		t.Errorf("it was %v", out)
	}
	age := time.Since(info.EnqueuedAt)
	if info.Channel != "mail" || info.Attempt != 5 || info.Failure != "greylisted" || info.Headers["trace"] != "x" ||
		info.Serial != out.Serial ||
		age < 48*time.Hour || age > 49*time.Hour {
		t.Errorf("the handler's Info: %+v", info)
	}
	if deadline <= 59*time.Minute || deadline > time.Hour {
		t.Errorf("the handler had %v", deadline)
	}
	if got := strings.Join(kinds, " "); got != "retried" {
		t.Errorf("Events: %s", got)
	}
}

func TestHandleTellsWhatWasEnqueued(t *testing.T) {
	t.Parallel()
	q := New(t)
	enqueue(t, q, &mail{To: "before"})
	enqueue(t, q, shunt.Raw("letters", []byte("before")), shunt.In(time.Minute))
	out := q.Handle(&mail{outbox: &outbox{send: func(ctx context.Context, m *mail) error {
		q.Enqueue(ctx, &mail{To: "next"}) // into its own channel: nobody handles it
		q.Enqueue(ctx, shunt.Raw("letters", []byte("after")), shunt.In(time.Hour))
		return nil
	}}}, &mail{To: "ann"})
	var got []string
	for _, d := range out.Enqueued {
		got = append(got, d.Channel+" "+string(d.Payload)+" "+d.In().Round(time.Minute).String())
	}
	if want := `letters after 1h0m0s, mail {"To":"next"} 0s`; strings.Join(got, ", ") != want {
		t.Errorf("have %s\nwant %s", strings.Join(got, ", "), want)
	}
	q.AssertEnqueued(&mail{To: "before"})
	q.AssertEnqueued(&mail{To: "next"})
}

func TestHandleTellsWhatFollows(t *testing.T) {
	t.Parallel()
	q := New(t)
	enqueue(t, q, &mail{To: "taken"}, shunt.ID("7"))
	p := &mail{outbox: &outbox{send: func(ctx context.Context, m *mail) error {
		err := shunt.Then(ctx, &mail{To: "next"}, &mail{To: "one more"}, shunt.With(shunt.Raw("letters",
			[]byte("later")), shunt.In(time.Hour)),
			shunt.With(&mail{To: "same"}, shunt.ID("7")), shunt.With(&mail{To: "other"}, shunt.ID("8")))
		if m.To == "bob" {
			return errDown
		}
		return errors.Join(err, shunt.SetResult(ctx, []byte("sent")))
	}}}
	if out := q.Handle(p, &mail{To: "bob"}); out.Verdict != shunt.EventRetried || len(out.Enqueued) > 0 {
		t.Errorf("after a failure there follows %v: %v", out.Enqueued, out)
	}
	out := q.Handle(p, &mail{To: "ann"}, With(shunt.ID("1"), shunt.Retain(time.Hour)))
	var got []string
	for _, d := range out.Enqueued {
		got = append(got, d.Channel+" "+string(d.Payload)+" "+d.In().Round(time.Minute).String())
	}
	want := `letters later 1h0m0s, mail {"To":"next"} 0s, mail {"To":"one more"} 0s, mail {"To":"other"} 0s`
	if strings.Join(got, ", ") != want || string(out.Result) != "sent" {
		t.Errorf("%v with result %q\nhave %s\nwant %s", out, out.Result, strings.Join(got, ", "), want)
	}
	if err := q.Enqueue(context.Background(), &mail{}, shunt.ID("8")); !errors.Is(err, shunt.ErrDuplicate) {
		t.Errorf("the id of what followed: %v", err)
	}
	if err := q.Enqueue(context.Background(), &mail{}, shunt.ID("1")); err != nil {
		t.Errorf("the id of what was handled: %v", err)
	}
}

func TestHandleUndecodable(t *testing.T) {
	t.Parallel()
	q := New(t)
	out := q.Handle(&mail{outbox: &outbox{}}, shunt.Raw("mail", []byte("{")))
	if out.Verdict != shunt.EventUndecodable || out.Err == nil || out.Message != nil {
		t.Errorf("it was %v", out)
	}
}

func TestHandleMisuse(t *testing.T) {
	t.Parallel()
	p := &mail{outbox: &outbox{}}
	for name, c := range map[string]struct {
		prototype, m shunt.IMessage
		opts         []Option
		says         string
	}{
		"nil": {nil, p, nil, "one is nil"},
		"channels": {p, shunt.Raw("letters", nil), nil,
			`the prototype's channel is "mail" and the message's "letters"`},
		"attempt": {p, p, []Option{Attempt(0)}, "Attempt(0): want 1 to 255"},
		"age":     {p, p, []Option{Age(-1)}, "Age(-1ns)"},
		"in":      {p, p, []Option{With(shunt.In(time.Hour))}, "shunt.In and shunt.At have no meaning"},
		"expire":  {p, p, []Option{With(shunt.Expire(time.Hour))}, "shunt.Expire has no meaning"},
		"header":  {p, p, []Option{With(shunt.Header("", ""))}, "a key has 1 to 255 bytes"},
		"raw":     {shunt.Raw("mail", nil), p, nil, "a Raw message is no prototype"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := record(t, func(tb testing.TB) { New(tb).Handle(c.prototype, c.m, c.opts...) })
			r.wants(t, c.says)
			if !r.ended {
				t.Error("the test goes on")
			}
		})
	}
}

func TestHandlePatience(t *testing.T) {
	t.Parallel()
	patience := 20 * time.Millisecond
	for {
		causes := make(chan error, 1)
		r := record(t, func(tb testing.TB) {
			q := New(tb)
			q.Patience = patience
			q.Handle(&mail{outbox: &outbox{send: func(ctx context.Context, _ *mail) error {
				<-ctx.Done()
				causes <- context.Cause(ctx)
				return ctx.Err()
			}}}, &mail{})
		})
		if strings.Contains(r.text.String(), fmt.Sprintf("the handler has not begun after %v", patience)) &&
			patience < 10*time.Second {
			patience *= 2 // the machine is that slow
			continue
		}
		r.wants(t, fmt.Sprintf("the handler has not returned after %v", patience))
		select {
		case cause := <-causes: // Handle may have given up before it was there
			if !errors.Is(cause, shunt.ErrShutdown) {
				t.Errorf("its context ended by %v", cause)
			}
		case <-time.After(10 * time.Second):
			t.Error("its context has not ended")
		}
		return
	}
}

// illegible is a message that takes until its end is closed to be read.
type illegible struct {
	*mail
	end chan struct{}
}

func (m illegible) Unmarshal([]byte) (shunt.IMessage, error) { <-m.end; return m, nil }

func TestHandlePatienceBeforeTheHandler(t *testing.T) {
	t.Parallel()
	p := illegible{&mail{outbox: &outbox{}}, make(chan struct{})}
	r := record(t, func(tb testing.TB) {
		q := New(tb)
		q.Patience = 20 * time.Millisecond
		q.Handle(p, &mail{})
	})
	close(p.end)
	r.wants(t, "the handler has not begun after 20ms")
}

func TestHandleTimeout(t *testing.T) {
	t.Parallel()
	q := New(t)
	out := q.Handle(&mail{outbox: &outbox{send: func(ctx context.Context, _ *mail) error {
		<-ctx.Done()
		return context.Cause(ctx)
	}}}, &mail{}, With(shunt.Timeout(time.Millisecond)))
	if out.Verdict != shunt.EventRetried || !errors.Is(out.Err, shunt.ErrTimeout) {
		t.Errorf("it was %v", out)
	}
}

func TestHandleWrapThatGivesNothing(t *testing.T) {
	t.Parallel()
	r := record(t, func(tb testing.TB) {
		q := New(tb, func(q *shunt.Queue) { q.Wrap = func(shunt.Handler) shunt.Handler { return nil } })
		q.Handle(&mail{outbox: &outbox{}}, &mail{})
	})
	r.wants(t, "Queue.Wrap gave no Handler")
}

func TestHandleInParallel(t *testing.T) {
	t.Parallel()
	q := New(t)
	for range 8 {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			if out := q.Handle(&mail{outbox: &outbox{}}, &mail{}); out.Verdict != shunt.EventAcked {
				t.Error(out)
			}
		})
	}
}

func TestHandlingSaysItInWords(t *testing.T) {
	t.Parallel()
	o := Handling{Verdict: shunt.EventRetried, Attempt: 3, Wait: time.Minute, Err: errDown}
	if got := o.String(); got != "retried at attempt 3, to wait 1m0s: mail server down" {
		t.Error(got)
	}
}

// What follows a handler that takes its time is due as long after its enqueue as it was asked for.
func TestHandleSlowThen(t *testing.T) {
	t.Parallel()
	q := New(t)
	out := q.Handle(&mail{outbox: &outbox{send: func(ctx context.Context, m *mail) error {
		time.Sleep(1200 * time.Millisecond)
		return shunt.Then(ctx, shunt.With(&mail{To: "ben"}, shunt.In(time.Second)))
	}}}, &mail{To: "ann"})
	if len(out.Enqueued) != 1 || (out.Enqueued[0].In()-time.Second).Abs() > 500*time.Millisecond {
		t.Fatalf("%+v: in %v, want 1s", out, out.Enqueued[0].In())
	}
	q.AssertEnqueued(&mail{To: "ben"}, In(time.Second))
}
