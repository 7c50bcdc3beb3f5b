package shunt

import (
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
)

// The text of a Ref is read back as it was, whatever bytes its channel and id have.
func TestRefText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := Ref{
			Channel: rapid.StringMatching(`[a-z./@+]{1,20}`).Draw(t, "channel"),
			ID:      string(rapid.SliceOfN(rapid.Byte(), 0, 30).Draw(t, "id")),
			State:   rapid.SampledFrom(append([]State{""}, States...)).Draw(t, "state"),
			Serial: rapid.SampledFrom([]string{"", element.NewSerial().String(),
				"da39a3ee5e6b4b0d3255bfef95601890afd80709"}).Draw(t, "serial"),
		}
		if rapid.Bool().Draw(t, "timed") {
			r.At = time.UnixMilli(rapid.Int64Range(-1e12, 1e13).Draw(t, "at"))
		}
		if r.ID == "" && r.Serial == "" {
			r.ID = "x"
		}
		text := r.String()
		got, err := ParseRef(text)
		if err != nil || got != r {
			t.Fatalf("%q is read as %+v, %v; want %+v", text, got, err, r)
		}
		raw, err := stdjson.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if got = (Ref{}); stdjson.Unmarshal(raw, &got) != nil || got != r {
			t.Fatalf("JSON %s is read as %+v", raw, got)
		}
	})
}

// What names no message has an error that says why, and nothing is asked.
func TestBadRefs(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "orders", "{orders}", "{orders}.dead", "{}.dead.01JDZK0000000000000000000", "{orders}.dead.x",
		"{a b}.any.-.x", "{orders}.any.-", "{orders}.lost.-.x", "{orders}.dead.-@x.a", "{orders}.dead.-.%zz",
		"orders}.dead.-.a",
	} {
		if r, err := ParseRef(text); err == nil {
			t.Errorf("%q is read as %+v", text, r)
		}
	}
	q := newBench(t, redistest.Shared(t).URL())
	ctx := t.Context()
	for _, r := range []Ref{{}, {Channel: "c"}, {Channel: "c", Serial: "1"}, ByID("c", string(make([]byte, 256))),
		{Channel: "c", ID: "a", State: "lost"}, {ID: "a"}, {Channel: "c", Serial: "1", ID: "a"}} {
		_, status := q.Status(ctx, r)
		_, peek := q.Peek(ctx, r)
		_, cancel := q.Cancel(ctx, r)
		_, wait := q.Wait(ctx, r)
		for what, err := range map[string]error{
			"status": status, "peek": peek, "cancel": cancel, "wait": wait, "postpone": q.Postpone(ctx, r, In(1)),
			"promote": q.Promote(ctx, r), "retry": q.Retry(ctx, r), "delete": q.Delete(ctx, r),
		} {
			if err == nil || errors.Is(err, ErrNotFound) {
				t.Errorf("%s of %+v: %v", what, r, err)
			}
		}
	}
	if _, err := q.Wait(ctx, BySerial("c", element.NewSerial().String())); err == nil {
		t.Error("Wait for a message without an ID")
	}
}

// kinds of messages in the tests of verbs.
var refKinds = []string{"plain", "id", "bare"}

// puts has one message in a state, beside others of the same state, and gives its entry.
func (b *bench) puts(s redistest.Backend, state State, kind string) Entry {
	b.t.Helper()
	k := store.KeysOf(b.name)
	for i := range 3 {
		var opts []Option
		if kind == "id" {
			opts = append(opts, ID(fmt.Sprint("id", i)))
		}
		if state == StateDone {
			opts = append(opts, Retain(time.Hour))
		}
		if state == StateDelay {
			opts = append(opts, In(time.Hour))
		}
		if kind != "bare" {
			b.must(b.one(i, opts...))
			continue
		}
		if payload := fmt.Sprint(i); state == StateDelay {
			s.Do("ZADD", k.Delay, time.Now().Add(time.Hour).UnixMilli(), payload)
		} else {
			s.Do("LPUSH", k.Prepare, payload)
		}
	}
	switch state {
	case StateSuspect:
		for range 3 {
			s.Do("RPOPLPUSH", k.Prepare, k.Suspect)
		}
	case StateDead, StateDone:
		verdict, ended := Reject(errOops), EventRejected
		if state == StateDone {
			verdict, ended = nil, EventAcked
		}
		stop := b.receive(3, func(context.Context, int) error { return verdict })
		b.wait(ended, 3, 5*time.Second)
		b.must(stop(context.Background()))
	case StateLeased:
		b.pull(3, PullOptions{Max: 3, Lease: time.Hour})
	case StateDoing:
		end, begun := make(chan struct{}), make(chan struct{}, 100)
		b.t.Cleanup(func() { close(end) })
		b.receive(3, func(ctx context.Context, _ int) error {
			begun <- struct{}{}
			select {
			case <-ctx.Done():
			case <-end:
			}
			return ctx.Err()
		})
		for range 3 { // in whose hands a message with an ID is, is noted after it was taken
			<-begun
		}
	}
	var found Entry
	b.until(5*time.Second, "the message is in its state", func() bool {
		es, err := b.List(context.Background(), b.name, state, 0, 0)
		b.must(err)
		for _, e := range es {
			if string(e.Payload) == "1" || e.ID == "id1" {
				found = e
				return len(es) == 3
			}
		}
		return false
	})
	return found
}

// endsIn waits until an entry's message is in a state, or nowhere, and the two beside it are where they were.
func (b *bench) endsIn(e Entry, want State) {
	b.t.Helper()
	got, beside := State(""), 0
	ok := func() bool {
		got, beside = "", 0
		for _, state := range States {
			es, err := b.List(context.Background(), b.name, state, 0, 0)
			b.must(err)
			for _, o := range es {
				if string(o.Payload) == "1" || o.ID == "id1" {
					got = state
				} else if state == e.State {
					beside++
				}
			}
		}
		return got == want && beside == 2
	}
	if want == "" {
		b.until(5*time.Second, "it has gone alone", ok)
	} else if !ok() {
		b.t.Fatalf("it is in %q, want %q; %d of 2 are beside it", got, want, beside)
	}
}

// refs are the ways to name an entry's message.
func refs(t *testing.T, e Entry) map[string]Ref {
	t.Helper()
	parsed, err := ParseRef(e.Ref().String())
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]Ref{
		"entry": parsed, "serial": BySerial(e.Channel, e.Ref().Serial),
		"wrong hint": {Channel: e.Channel, Serial: e.Ref().Serial, State: StateDead, At: time.UnixMilli(7)},
	}
	if e.ID != "" {
		all["id"] = ByID(e.Channel, e.ID)
		if e.State == StateDone { // its outcome alone is kept, by its id
			delete(all, "serial")
			delete(all, "wrong hint")
		}
	}
	return all
}

// Every verb does the same to a message by whichever name, in every state, and to no other one.
func TestVerbsByRef(t *testing.T) {
	t.Parallel()
	type result struct {
		err   error // nil: it succeeds
		after State // empty: it is nowhere
	}
	running, waiting := result{ErrRunning, StateDoing}, result{ErrWaiting, StatePrepare}
	leased := result{ErrRunning, StateLeased}
	verbs := map[string]struct {
		do   func(q *Queue, r Ref) error
		want map[State]result
	}{
		"cancel": {func(q *Queue, r Ref) error { _, err := q.Cancel(context.Background(), r); return err },
			map[State]result{StatePrepare: {}, StateSuspect: {}, StateDelay: {}, StateDoing: {}, StateLeased: leased,
				StateDead: {ErrNotFound, StateDead}, StateDone: {ErrNotFound, StateDone}}},
		"delete": {func(q *Queue, r Ref) error { return q.Delete(context.Background(), r) },
			map[State]result{StatePrepare: {}, StateSuspect: {}, StateDelay: {}, StateDoing: running,
				StateLeased: leased, StateDead: {},
				StateDone: {}}},
		"promote": {func(q *Queue, r Ref) error { return q.Promote(context.Background(), r) },
			map[State]result{StatePrepare: {nil, StatePrepare}, StateSuspect: {nil, StateSuspect},
				StateDelay: {nil, StatePrepare}, StateDoing: running, StateLeased: leased,
				StateDead: {ErrNotFound, StateDead},
				StateDone: {ErrNotFound, StateDone}}},
		"postpone": {func(q *Queue, r Ref) error { return q.Postpone(context.Background(), r, In(2*time.Hour)) },
			map[State]result{StatePrepare: waiting, StateSuspect: {ErrWaiting, StateSuspect},
				StateDelay: {nil, StateDelay}, StateDoing: running, StateLeased: leased,
				StateDead: {ErrNotFound, StateDead},
				StateDone: {ErrNotFound, StateDone}}},
		"retry": {func(q *Queue, r Ref) error { return q.Retry(context.Background(), r) },
			map[State]result{StatePrepare: {nil, StatePrepare}, StateSuspect: {nil, StateSuspect},
				StateDelay: {nil, StatePrepare}, StateDoing: running, StateLeased: leased,
				StateDead: {nil, StatePrepare},
				StateDone: {ErrNotFound, StateDone}}},
		"peek": {func(q *Queue, r Ref) error {
			e, err := q.Peek(context.Background(), r)
			if err == nil && string(e.Payload) != "1" && e.State != StateDone {
				err = fmt.Errorf("it shows %q", e.Payload)
			}
			return err
		}, nil},
		"status": {func(q *Queue, r Ref) error { _, err := q.Status(context.Background(), r); return err }, nil},
	}
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		for verb, v := range verbs {
			for _, state := range States {
				for _, kind := range refKinds {
					if state == StateDone && kind != "id" || state == StateDead && kind == "bare" {
						continue // nothing is kept of it; it has a serial by then
					}
					for _, by := range []string{"entry", "serial", "wrong hint", "id"} {
						if by == "wrong hint" && kind != "plain" {
							continue
						}
						name := fmt.Sprintf("%s/%s/%s/%s", verb, state, kind, by)
						t.Run(name, func(t *testing.T) {
							t.Parallel()
							b := newBench(t, s.URL())
							e := b.puts(s, state, kind)
							r, has := refs(t, e)[by]
							if !has {
								t.Skip("it has no such name")
							}
							want := result{nil, state}
							if v.want != nil {
								want = v.want[state]
							}
							if verb == "cancel" && state == StateDoing && kind == "bare" {
								want = running
							}
							if verb == "cancel" && state == StateLeased && kind == "id" {
								want.err = nil // it ends when it is settled
							}
							err := v.do(b.Queue, r)
							if want.err == nil && state == StateDoing && kind == "plain" {
								b.until(5*time.Second, "its receiver listens", func() bool {
									if errors.Is(err, ErrRunning) {
										err = v.do(b.Queue, r)
									}
									return !errors.Is(err, ErrRunning)
								})
							}
							if !errors.Is(err, want.err) || want.err == nil && err != nil {
								t.Fatalf("%v, want %v", err, want.err)
							}
							b.endsIn(e, want.after)
						})
					}
				}
			}
		}
	})
}
