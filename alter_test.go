package shunt

import (
	"context"
	stdjson "encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
)

// A verb whose reply is lost is sent again, and has succeeded.
func TestVerbsBySerialSentTwice(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	ctx := context.Background()
	for name, c := range map[string]struct {
		state State
		at    func(channel string) redistest.Match
		do    func(q *Queue, r Ref) error
		after State
	}{
		"cancel": {StatePrepare, redistest.ByName("LREM", ".prepare"),
			func(q *Queue, r Ref) error { _, err := q.Cancel(ctx, r); return err }, ""},
		"delete dead": {StateDead, redistest.ByName("ZREM", ".dead"),
			func(q *Queue, r Ref) error { return q.Delete(ctx, r) }, ""},
		"promote": {StateDelay, redistest.ByScript(store.Postpone),
			func(q *Queue, r Ref) error { return q.Promote(ctx, r) }, StatePrepare},
		"retry dead": {StateDead, redistest.ByScript(store.Revive),
			func(q *Queue, r Ref) error { return q.Retry(ctx, r) }, StatePrepare},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := redistest.NewProxy(t, s.Addr())
			b := newBench(t, p.URL())
			e := b.puts(s, c.state, "plain")
			cut := p.On(c.at(b.name), 1, redistest.CutAfter)
			if err := c.do(b.Queue, e.Ref()); err != nil {
				t.Error(err)
			}
			if cut.Struck() != 1 {
				t.Error("no reply was lost")
			}
			b.endsIn(e, c.after)
		})
	}
}

// The removal of one of several bare payloads that are the same is not sent twice: a twin would go with it.
func TestDeleteOneTwin(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	ctx := context.Background()
	p := redistest.NewProxy(t, s.Addr())
	b := newBench(t, p.URL())
	k := store.KeysOf(b.name)
	for range 3 {
		s.Do("LPUSH", k.Prepare, "twin")
	}
	es, err := b.List(ctx, b.name, StatePrepare, 0, 0)
	b.must(err)
	p.On(redistest.Command("LREM", ".prepare"), 1, redistest.CutAfter)
	if err := b.Delete(ctx, es[0].Ref()); !errors.Is(err, ErrUnknown) {
		t.Errorf("%v", err)
	}
	if n := s.Do("LLEN", k.Prepare); n != int64(2) {
		t.Errorf("%d of 3 twins are left", n)
	}
	b.must(b.Delete(ctx, es[0].Ref()))
	if n := s.Do("LLEN", k.Prepare); n != int64(1) {
		t.Errorf("%d of 3 twins are left", n)
	}
}

// A message that moves between the search and the change is looked for again.
func TestVerbFindsWhatMoved(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	ctx := context.Background()
	p := redistest.NewProxy(t, s.Addr())
	b := newBench(t, p.URL())
	e := b.puts(s, StateDelay, "plain")
	k := store.KeysOf(b.name)
	p.On(redistest.Command("ZREM", ".delay"), 1, redistest.Call(func() { // it is promoted just before
		s.Do("LPUSH", k.Prepare, e.raw)
		s.Do("ZREM", k.Delay, e.raw)
	}))
	if before, err := b.Cancel(ctx, e.Ref()); err != nil || before.State != StatePrepare {
		t.Errorf("%+v, %v", before, err)
	}
	b.endsIn(e, "")
}

// A message that was cancelled, and lies in its list until a worker meets it, is found by no name.
func TestCancelledIsNotFound(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	ctx := context.Background()
	b := newBench(t, s.URL())
	e := b.puts(s, StatePrepare, "id")
	_, err := b.Cancel(ctx, e.Ref())
	b.must(err)
	for name, r := range refs(t, e) {
		if _, err := b.Peek(ctx, r); !errors.Is(err, ErrNotFound) {
			t.Errorf("peek by %s: %v", name, err)
		}
		if _, err := b.Cancel(ctx, r); !errors.Is(err, ErrNotFound) {
			t.Errorf("cancel by %s: %v", name, err)
		}
	}
}

// A message that has lost its ID to another is found by its serial, and the other one by the ID.
func TestVerbsOfALostID(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	ctx := context.Background()
	b := newBench(t, s.URL())
	b.must(b.one(1, ID("a"), In(time.Hour)))
	es, err := b.List(ctx, b.name, StateDelay, 0, 0)
	b.must(err)
	s.Do("HDEL", store.KeysOf(b.name).IDs, "a")
	b.must(b.one(2, ID("a"), In(time.Hour)))
	first := es[0].Ref()
	if e, err := b.Peek(ctx, first); err != nil || string(e.Payload) != "1" {
		t.Errorf("%+v, %v", e, err)
	}
	b.must(b.Postpone(ctx, first, In(2*time.Hour)))
	_, err = b.Cancel(ctx, first)
	b.must(err)
	if e, err := b.Peek(ctx, ByID(b.name, "a")); err != nil || string(e.Payload) != "2" {
		t.Errorf("%+v, %v", e, err)
	}
}

// A dead letter is found by its ID, although the ID is free.
func TestDeadByID(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	ctx := context.Background()
	b := newBench(t, s.URL())
	e := b.puts(s, StateDead, "id")
	r := ByID(b.name, "id1")
	st, err := b.Status(ctx, r)
	if err != nil || st.State != StateDead || st.Failure != "oops" || st.Serial != e.Serial {
		t.Errorf("%+v, %v", st, err)
	}
	b.must(b.one(7, ID("id1"), In(time.Hour))) // another one takes it
	if st := b.status("id1"); st.State != StateDelay {
		t.Errorf("%+v", st)
	}
	if err := b.Retry(ctx, e.Ref()); !errors.Is(err, ErrDuplicate) {
		t.Errorf("retry of a dead letter whose ID is another's: %v", err)
	}
	if _, err := b.Cancel(ctx, r); err != nil {
		t.Error(err)
	}
	b.must(b.Retry(ctx, e.Ref()))
	if st := b.status("id1"); st.State != StatePrepare || st.Serial != e.Serial {
		t.Errorf("%+v", st)
	}
}

// RetryDead and DeleteDead say which entries they are not for, and take entries that have come as JSON.
func TestDeadEntries(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	ctx := context.Background()
	b := newBench(t, s.URL())
	b.must(b.one(1, In(time.Hour)))
	late, err := b.List(ctx, b.name, StateDelay, 0, 0)
	b.must(err)
	for what, do := range map[string]func(context.Context, string, ...Entry) (int, error){
		"retry": b.RetryDead, "delete": b.DeleteDead,
	} {
		if n, err := do(ctx, b.name, late...); n != 0 || err == nil || !strings.Contains(err.Error(), "state delay") {
			t.Errorf("%s of a delayed one: %d, %v", what, n, err)
		}
		if n, err := do(ctx, "other", late...); n != 0 || err == nil || !strings.Contains(err.Error(), `"other"`) {
			t.Errorf("%s in another channel: %d, %v", what, n, err)
		}
	}
	b.puts(s, StateDead, "plain")
	es, err := b.List(ctx, b.name, StateDead, 0, 0)
	b.must(err)
	raw, err := stdjson.Marshal(es)
	b.must(err)
	for _, name := range []string{`"channel":"`, `"state":"dead"`, `"died_at":"2`, `"failure":"oops"`, `"attempts":1`} {
		if !strings.Contains(string(raw), name) {
			t.Errorf("JSON of a dead letter has no %s: %s", name, raw)
		}
	}
	if strings.Contains(string(raw), "due_at") || strings.Contains(string(raw), "outcome") {
		t.Errorf("JSON of a dead letter has what others have: %s", raw)
	}
	var back []Entry
	b.must(stdjson.Unmarshal(raw, &back))
	if n, err := b.RetryDead(ctx, b.name, back[:2]...); n != 2 || err != nil {
		t.Errorf("%d retried, %v", n, err)
	}
	if n, err := b.DeleteDead(ctx, b.name, back...); n != 1 || err != nil {
		t.Errorf("%d deleted, %v", n, err)
	}
}

// A message in the midst of a hundred thousand is found by its serial.
func TestSerialAmongMany(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	t.Parallel()
	s := redistest.Shared(t)
	ctx := context.Background()
	b := newBench(t, s.URL())
	b.enqueue(0, 50_000)
	b.must(b.one(-1))
	b.enqueue(0, 50_000)
	es, err := b.List(ctx, b.name, StatePrepare, 50_000, 1)
	b.must(err)
	began := time.Now()
	b.must(b.Delete(ctx, BySerial(b.name, es[0].Serial)))
	t.Log("found and deleted after", time.Since(began))
	if _, err := b.Peek(ctx, BySerial(b.name, es[0].Serial)); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	began = time.Now()
	if _, err := b.Peek(ctx, BySerial(b.name, element.NewSerial().String())); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	t.Log("found to be nowhere after", time.Since(began))
}
