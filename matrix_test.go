package shunt

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
	"github.com/shuntmq/shunt/internal/worker"
)

// A step is a command of shunt's that a fault can strike: where a message or an incarnation changes places.
type step struct {
	name  string
	match func(channel string) redistest.Match
	// breaks: the fault needs another one to come to this command, a lost reply that ends the incarnation.
	breaks bool
	// late: the command comes with shutdown.
	late bool
}

var steps = []step{
	{name: "enqueue", match: redistest.ByName("LPUSH", ".prepare")},
	{name: "enqueue later", match: redistest.ByScript(store.Later)},
	{name: "take", match: redistest.ByName("RPOPLPUSH", ".prepare")},
	{name: "take by the waiter", match: redistest.ByName("BRPOPLPUSH", ".prepare")},
	{name: "take a suspect", match: redistest.ByScript(store.Take)},
	{name: "ack", match: redistest.ByName("LREM", ".doing")},
	{name: "ack of several", match: redistest.ByScript(store.Ack)},
	{name: "retry", match: redistest.ByScript(store.Retry)},
	{name: "reject", match: redistest.ByScript(store.Reject)},
	{name: "promote", match: redistest.ByScript(store.Promote)},
	{name: "register", match: redistest.ByScript(store.Register), breaks: true},
	{name: "beat", match: redistest.ByScript(store.Beat)},
	{name: "about", match: redistest.ByScript(store.SetAbout)},
	{name: "sweep", match: redistest.ByScript(store.Sweep)},
	{name: "reap", match: redistest.ByScript(store.Reap)},
	{name: "finish", match: redistest.ByScript(store.Finish)},
	{name: "release", match: redistest.ByScript(store.Release)},
	{name: "handover", match: redistest.ByScript(store.Handover), breaks: true},
	{name: "supersede", match: redistest.ByScript(store.Supersede), breaks: true},
	{name: "unregister", match: redistest.ByScript(store.Unregister), late: true},
	{name: "yield", match: redistest.ByScript(store.Yield), late: true},
}

// TestMatrix strikes every command with every cut, and with one refusal, on miniredis: what users' tests run on keeps
// the promise, too. On redis-server the harness in chaos strikes the same commands, with every refusal, and judges
// more.
func TestMatrix(t *testing.T) {
	t.Parallel()
	for _, st := range steps {
		for name, fault := range map[string]redistest.Action{"cut before": redistest.CutBefore,
			"cut unread": redistest.CutUnread, "cut after": redistest.CutAfter,
			"refused": redistest.ReplyError("TRYAGAIN Multiple keys request during rehashing of slot")} {
			t.Run(st.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				cell(t, st, fault, name == "refused")
			})
		}
	}
}

// cell has messages go through every transition while one command is struck: all are handled, to their end, and nothing
// stays anywhere.
func cell(t *testing.T, st step, fault redistest.Action, refused bool) {
	redistest.Leaks(t)
	m := redistest.Mini(t)
	p := redistest.NewProxy(t, m.Addr())
	q := newBench(t, p.URL(), func(q *Queue) {
		q.Lease = time.Second
		q.Backoff = func(int) time.Duration { return 20 * time.Millisecond }
	})
	ctx := context.Background()

	// A corpse whose list is to be reaped, two suspects, and a batch in which some hold up the others.
	dead, k := store.NewIncarnation(2, time.Second), store.KeysOf(q.name)
	_, _ = m.Push(k.Doing(dead, 1), "10000", "10001")
	_, _ = m.ZAdd(k.DeadReceivers, 0, dead.Name+" 1 s")
	_, _ = m.Push(k.Suspect, "10002", "10004")
	want := []int{10000, 10001, 10002, 10004}
	for i := range 80 {
		want = append(want, 20000+i)
		e := element.Element{Serial: element.NewSerial(), Payload: strconv.AppendInt(nil, int64(20000+i), 10)}
		raw := e.Encode()
		if i%4 == 0 {
			raw = e.Payload // bare
		}
		_, _ = m.Lpush(k.Prepare, string(raw))
	}
	seen := newTally()
	handle := func(ctx context.Context, i int) error {
		n := seen.add(i)
		switch {
		case i < 1000 && i%10 == 1 && n == 1:
			return errors.New("once")
		case i < 1000 && i%10 == 2:
			return Reject(errors.New("never"))
		case i%40 == 3 && n == 1:
			select {
			case <-time.After(3 * worker.Stall):
			case <-ctx.Done():
			}
		}
		return nil
	}
	nth := 1
	if refused {
		nth = 0
	}
	var rule *redistest.Rule
	strike := func() { rule = p.On(st.match(q.name), nth, fault) }
	if !st.breaks && !st.late {
		strike()
	}
	var shutdown Shutdown
	redistest.Until(
		t,
		10*time.Second,
		"it starts",
		func() bool { // a fault that strikes the start is Receive's to return
			var err error
			shutdown, err = q.Receive(ctx, q.kind(handle), 2)
			return err == nil
		},
	)
	if st.breaks {
		strike()
		p.On(redistest.Command("LREM", q.name), 2, redistest.CutAfter)
	}
	var more []int
	enqueued := make(chan error, 1)
	go func() {
		var unexpected error
		for i := range 24 {
			var opts []Option
			if i > 15 {
				opts = append(opts, In(50*time.Millisecond))
			}
			if err := q.Enqueue(ctx, q.kind(nil).Message(i), opts...); err == nil {
				want = append(want, i)
			} else if !errors.Is(err, ErrUnknown) {
				unexpected = fmt.Errorf("enqueue %d: %w", i, err)
			}
		}
		enqueued <- unexpected
	}()
	if !st.late {
		redistest.Until(t, 10*time.Second, "the fault strikes", func() bool {
			if i := 20080 + len(more); st.name == "release" &&
				rule.Struck() == 0 { // the slow ones may have had nothing behind them
				_, _ = m.Lpush(k.Prepare, strconv.Itoa(i))
				more = append(more, i)
			}
			return rule.Struck() > 0
		})
		if refused {
			time.Sleep(200 * time.Millisecond) // the fault's own length
			rule.Remove()
		}
	}
	if err := <-enqueued; err != nil {
		t.Error(err)
	}
	want = append(want, more...)
	handled := func() error {
		seen.mu.Lock()
		defer seen.mu.Unlock()
		for _, i := range want {
			if n := seen.n[i]; n == 0 || n == 1 && i < 1000 && i%10 == 1 {
				return fmt.Errorf("%d of %d was not handled to its end", i, len(want))
			}
		}
		st, err := q.Stats(ctx, q.name)
		left := st[StatePrepare].Count + st[StateDoing].Count + st[StateDelay].Count + st[StateSuspect].Count
		if err == nil && left > 0 {
			err = fmt.Errorf("%d are left", left)
		}
		return err
	}
	var err error
	defer func() {
		if err != nil { // what until was not told before it gave up
			t.Error(err)
		}
	}()
	q.until(15*time.Second, "all are handled", func() bool {
		err = handled()
		return err == nil
	})
	if st.late {
		strike()
	}
	end, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := shutdown(end); err != nil && !st.late {
		t.Errorf("shutdown: %v", err)
	}
	if rule.Struck() == 0 {
		t.Error("the fault never struck")
	}
	rule.Remove()
	if err := handled(); err != nil {
		t.Error(err)
	}
}
