package shunt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/oklog/ulid/v2"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
)

// What goes with an id: that it is free when its message is gone, and taken only while there is one.

// opaque is a message of bytes as they come.
type opaque struct {
	channel string
	payload []byte
	handle  func(context.Context, []byte) error
}

func (s *opaque) Channel() string                   { return s.channel }
func (s *opaque) Marshal() ([]byte, error)          { return s.payload, nil }
func (s *opaque) Resolve(ctx context.Context) error { return s.handle(ctx, s.payload) }
func (s *opaque) Unmarshal(p []byte) (IMessage, error) {
	return &opaque{s.channel, bytes.Clone(p), s.handle}, nil
}

// A payload that began as an element of a newer version does was taken for one: RetryDead lost all that was before it.
func TestRetryDeadKeepsPayload(t *testing.T) {
	t.Parallel()
	payload := append([]byte{0xC1, 0x20}, strings.Repeat("sealed", 10)...)
	for name, opts := range map[string][]Option{"plain": nil, "id": {ID("a"), Header("k", "v"), MaxAttempts(3)}} {
		for _, reason := range []string{"never", element.ErrNewerVersion.Error()} {
			t.Run(name+"/"+reason[:5], func(t *testing.T) {
				t.Parallel()
				s := redistest.Shared(t)
				redistest.Leaks(t)
				b := newBench(t, s.URL())
				ctx := context.Background()
				infos := make(chan Info, 10)
				handled := 0
				p := &opaque{channel: b.name}
				p.handle = func(ctx context.Context, got []byte) error {
					info, _ := FromContext(ctx)
					if !bytes.Equal(got, payload) {
						t.Errorf("handled %q", got)
					}
					infos <- info
					if handled++; handled == 1 {
						return Reject(errors.New(reason))
					}
					return nil
				}
				if _, err := b.Receive(ctx, p, 1); err != nil {
					t.Fatal(err)
				}
				b.must(b.Enqueue(ctx, Raw(b.name, payload), opts...))
				b.wait(EventRejected, 1, 5*time.Second)
				dead, err := b.List(ctx, b.name, StateDead, 0, 0)
				b.must(err)
				if n, err := b.RetryDead(ctx, b.name, dead...); n != 1 || err != nil {
					t.Fatal(n, err)
				}
				b.wait(EventAcked, 1, 5*time.Second)
				before, after := <-infos, <-infos
				if after.Serial != before.Serial || after.ID != before.ID ||
					after.Headers["k"] != before.Headers["k"] ||
					after.Attempt != 1 {
					t.Errorf("rejected as %+v, handled again as %+v", before, after)
				}
				if ids := b.taken(s); len(ids) > 0 {
					t.Errorf("the ids %q are taken for ever", ids)
				}
			})
		}
	}
}

// taken are the ids of the bench's channel that are taken.
func (b *bench) taken(s redistest.Backend) []string {
	b.t.Helper()
	ids, err := redis.Strings(s.Do("HKEYS", store.KeysOf(b.name).IDs), nil)
	b.must(err)
	slices.Sort(ids)
	return ids
}

// A key of the wrong type ended the script's last part: the message was gone, and its id taken for ever.
func TestWrongTypeFreesIDs(t *testing.T) {
	t.Parallel()
	for _, suffix := range []string{"cancelled", "running", "waited", "done", "kept"} {
		t.Run(suffix, func(t *testing.T) {
			t.Parallel()
			s := redistest.Shared(t)
			redistest.Leaks(t)
			b := newBench(t, s.URL())
			foreign := "{" + b.name + "}." + suffix
			s.Do("SET", foreign, "not shunt's")
			ids := []string{"plain 1", "plain 2", "plain 3", "retained", "result", "unique", "rejected", "followed"}
			for i, id := range ids {
				b.must(b.one(i, append([]Option{ID(id)}, map[string][]Option{
					"retained": {Retain(time.Hour)}, "result": {Retain(time.Hour)},
					"unique": {UniqueFor(20 * time.Millisecond)}, "rejected": {Retain(time.Hour)},
				}[id]...)...))
			}
			b.must(b.one(len(ids), ID("long"), UniqueFor(time.Hour)))
			shutdown := b.receive(1, func(ctx context.Context, i int) error {
				switch {
				case i >= len(ids):
				case ids[i] == "result":
					return SetResult(ctx, []byte("what came of it"))
				case ids[i] == "rejected":
					return Reject(errors.New("never"))
				case ids[i] == "followed":
					return Then(ctx, b.kind(nil).Message(100))
				}
				return nil
			})
			b.wait(EventAcked, len(ids)+1, 5*time.Second) // one was rejected, and another follows
			b.wait(EventRejected, 1, 5*time.Second)
			b.must(shutdown(context.Background()))
			b.passes(s, 21*time.Millisecond) // so the one is not unique any more
			for i, id := range ids {
				if err := b.one(i, ID(id)); err != nil {
					t.Errorf("%q is gone, and its id is not free: %v", id, err)
				}
			}
			if err := b.one(0, ID("long")); !errors.Is(err, ErrDuplicate) {
				t.Errorf("the id is unique for an hour: %v", err)
			}
			s.Do("DEL", foreign)
			for _, id := range ids {
				if st := b.status(id); st.State != StatePrepare {
					t.Errorf("%q: %+v", id, st)
				}
			}
			if n := s.Do("HLEN", store.KeysOf(b.name).Running).(int64); n > 0 {
				t.Errorf("%d that are gone are still in hand", n)
			}
			// What is kept is known to both keys, or will be forgotten: else it would be there for ever.
			k := store.KeysOf(b.name)
			kept, _ := redis.Strings(s.Do("HKEYS", k.Done), nil)
			for _, id := range []string{"retained", "result", "rejected"} {
				if !strings.HasPrefix(suffix, "done") && suffix != "kept" && !slices.Contains(kept, id) {
					t.Errorf("what became of %q is not kept", id)
				}
			}
			for _, id := range kept {
				if id != "" && (s.Do("ZSCORE", k.Kept, "e"+id) == nil || s.Do("ZSCORE", k.Kept, "r"+id) == nil) {
					t.Errorf("what became of %q is never forgotten", id)
				}
			}
		})
	}
}

// Nor was whoever waited for the end told of it. With these keys as they are that is all he gets.
func TestWrongTypeIsTold(t *testing.T) {
	t.Parallel()
	for _, suffix := range []string{"running", "cancelled", "done", "kept"} {
		t.Run(suffix, func(t *testing.T) {
			t.Parallel()
			s := redistest.Shared(t)
			redistest.Leaks(t)
			b := newBench(t, s.URL())
			k := store.KeysOf(b.name)
			c, err := redis.DialURL(s.URL())
			b.must(err)
			defer c.Close()
			listens := redis.PubSubConn{Conn: c}
			b.must(listens.Subscribe(k.Done))
			if _, ok := listens.ReceiveWithTimeout(5 * time.Second).(redis.Subscription); !ok {
				t.Fatal("not subscribed")
			}
			b.must(b.one(1, ID("a")))
			serial := ulid.MustParseStrict(b.status("a").Serial)
			s.Do("SADD", k.Waited, serial[:]) // as Wait does
			s.Do("SET", "{"+b.name+"}."+suffix, "not shunt's")
			b.receive(1, func(ctx context.Context, _ int) error { return SetResult(ctx, []byte("r")) })
			m, ok := listens.ReceiveWithTimeout(5 * time.Second).(redis.Message)
			if st, _ := published(string(m.Data), "a"); !ok || st.Outcome.Kind != EventAcked ||
				string(st.Outcome.Result) != "r" {
				t.Errorf("told %q", m.Data)
			}
		})
	}
}

// expires leaves in the bench's channel a message with that id which nobody has taken in its time, and makes running a
// key of the wrong type.
func (b *bench) expires(s redistest.Backend, id string) {
	b.t.Helper()
	b.must(b.one(0, ID(id), Expire(time.Millisecond)))
	b.passes(s, 2*time.Millisecond)
	s.Do("SET", store.KeysOf(b.name).Running, "not shunt's")
}

// waiting are the ids of what lies in prepare and delay, '-' for none.
func (b *bench) waiting() (ids []string) {
	b.t.Helper()
	for _, state := range []State{StatePrepare, StateDelay} {
		es, err := b.List(context.Background(), b.name, state, 0, 0)
		b.must(err)
		for _, e := range es {
			id := e.ID
			if id == "" {
				id = "-"
			}
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// Who had the expired message could not be read, and that ended the script after what was to follow had been pushed,
// each time anew.
func TestFollowBesideForeignRunning(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	b, d := newBench(t, s.URL()), newBench(t, s.URL())
	d.name += ".d"
	d.expires(s, "x")
	b.receive(1, func(ctx context.Context, _ int) error {
		return Then(
			ctx,
			d.kind(nil).Message(1),
			d.kind(nil).Message(2),
			With(d.kind(nil).Message(3), ID("x")),
			With(d.kind(nil).Message(4), In(time.Hour)),
		)
	})
	b.enqueue(0, 1)
	b.until(
		5*time.Second,
		"it is acked, or refused",
		func() bool { return b.count(EventAcked)+b.count(EventReceiverError) > 0 },
	)
	if b.count(EventAcked) == 0 {
		b.wait(EventReceiverError, 2, 5*time.Second)
	}
	if got := fmt.Sprint(d.waiting()); got != "[- - - x]" || b.count(EventAcked) != 1 || b.sum(EventDuplicate) != 1 {
		t.Errorf("%d acked, %d refused for their id, there are %s", b.count(EventAcked), b.sum(EventDuplicate), got)
	}
	s.Do("DEL", store.KeysOf(d.name).Running)
	d.must(d.one(5, ID("x")))
}

// The same ended an enqueue after ids had been taken, which then had no message.
func TestEnqueueBesideForeignRunning(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]Option{"now": nil, "expire": {Expire(time.Hour)}, "later": {In(time.Hour)}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Shared(t)
			redistest.Leaks(t)
			b := newBench(t, s.URL())
			b.expires(s, "x")
			var ms []IMessage
			for i, id := range []string{"a", "x", "b"} {
				ms = append(ms, With(b.kind(nil).Message(i), ID(id)))
			}
			err := b.EnqueueAll(context.Background(), ms, opts...)
			var all *EnqueueError
			if !errors.As(err, &all) || len(all.Failed) != 1 || !errors.Is(all.Failed[1], ErrDuplicate) ||
				len(all.Unknown) > 0 {
				t.Errorf("want that x is taken: %v", err)
			}
			if taken, waiting := fmt.Sprint(b.taken(s)), fmt.Sprint(b.waiting()); taken != "[a b x]" ||
				waiting != taken {
				t.Errorf("the ids %s are taken, and there are %s", taken, waiting)
			}
		})
	}
}

// Purge deletes what waits, with its ids, whatever lies at the keys of what is cancelled or waited for.
func TestPurgeBesideWrongType(t *testing.T) {
	t.Parallel()
	for _, suffix := range []string{"cancelled", "waited"} {
		t.Run(suffix, func(t *testing.T) {
			t.Parallel()
			s := redistest.Shared(t)
			b := newBench(t, s.URL())
			b.must(b.one(1, ID("a")))
			b.must(b.one(2, ID("b")))
			s.Do("SET", "{"+b.name+"}."+suffix, "not shunt's")
			if n, err := b.Purge(context.Background(), b.name, StatePrepare); n != 2 || err != nil {
				t.Errorf("%d purged, %v", n, err)
			}
			b.noID("a")
			b.noID("b")
		})
	}
}

// What is asked, and moved, by id does not need the keys of what is cancelled or kept.
func TestStatusBesideWrongType(t *testing.T) {
	t.Parallel()
	for _, suffix := range []string{"cancelled", "done"} {
		t.Run(suffix, func(t *testing.T) {
			t.Parallel()
			s := redistest.Shared(t)
			b := newBench(t, s.URL())
			b.must(b.one(1, ID("a"), In(time.Hour)))
			s.Do("SET", "{"+b.name+"}."+suffix, "not shunt's")
			if st := b.status("a"); st.State != StateDelay {
				t.Errorf("%+v", st)
			}
			b.must(b.Promote(context.Background(), b.name, "a"))
			if st := b.status("a"); st.State != StatePrepare {
				t.Errorf("%+v", st)
			}
		})
	}
}
