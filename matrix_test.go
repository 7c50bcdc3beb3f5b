package shunt

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/lists"
	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/worker"
)

// A step is a command of shunt's that a fault can strike: where a message or an incarnation changes places.
type step struct {
	name  string
	match func(q *bench) redistest.Match
	// breaks: the fault needs another one to come to this command, a lost reply that ends the incarnation.
	breaks bool
	// late: the command comes with shutdown.
	late bool
}

func byName(name, suffix string) func(*bench) redistest.Match {
	return func(q *bench) redistest.Match { return redistest.Command(name, "{"+q.name+"}"+suffix) }
}

// byScript matches a script however it is sent.
func byScript(s *link.Script, suffix string) func(*bench) redistest.Match {
	return func(q *bench) redistest.Match {
		key := "{" + q.name + "}" + suffix
		return func(args [][]byte) bool {
			if len(args) < 4 || !strings.HasPrefix(strings.ToUpper(string(args[0])), "EVAL") {
				return false
			}
			text := string(args[1])
			if text != s.Digest() && link.NewScript(text).Digest() != s.Digest() {
				return false
			}
			return strings.HasPrefix(string(args[3]), key)
		}
	}
}

var steps = []step{
	{name: "deliver", match: byName("LPUSH", ".prepare")},
	{name: "deliver later", match: byScript(lists.Later, "")},
	{name: "take", match: byName("RPOPLPUSH", ".prepare")},
	{name: "take by the waiter", match: byName("BRPOPLPUSH", ".prepare")},
	{name: "take a suspect", match: byScript(lists.Take, "")},
	{name: "ack", match: byName("LREM", ".doing")},
	{name: "retry", match: byScript(lists.Retry, "")},
	{name: "reject", match: byScript(lists.Reject, "")},
	{name: "promote", match: byScript(lists.Promote, "")},
	{name: "register", match: byScript(lists.Register, ""), breaks: true},
	{name: "beat", match: byScript(lists.Beat, "")},
	{name: "sweep", match: byScript(lists.Sweep, "")},
	{name: "reap", match: byScript(lists.Reap, "")},
	{name: "finish", match: byScript(lists.Finish, "")},
	{name: "release", match: byScript(lists.Release, "")},
	{name: "handover", match: byScript(lists.Handover, ""), breaks: true},
	{name: "supersede", match: byScript(lists.Supersede, ""), breaks: true},
	{name: "unregister", match: byScript(lists.Unregister, ""), late: true},
	{name: "yield", match: byScript(lists.Yield, ""), late: true},
}

// refusals are an error reply of each kind, as Redis writes it.
var refusals = []string{
	"LOADING Redis is loading the dataset in memory",
	"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
	"OOM command not allowed when used memory > 'maxmemory'.",
	"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
	"READONLY You can't write against a read only replica.",
	"NOREPLICAS Not enough good replicas to write.",
	"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
	"CLUSTERDOWN Hash slot not served",
	"TRYAGAIN Multiple keys request during rehashing of slot",
	"NOSCRIPT No matching script. Please use EVAL.",
	"UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)",
	"NOPERM User default has no permissions to run this command",
	"WRONGTYPE Operation against a key holding the wrong kind of value",
	"ERR something that nobody foresaw",
}

// TestMatrix strikes every command with every fault, while messages go through every transition: nothing is lost, nothing stays
// anywhere, nothing spins, and only a lost reply may cost a duplicate.
func TestMatrix(t *testing.T) {
	redistest.Each(t, matrix)
}

func matrix(t *testing.T, s redistest.Backend) {
	for _, st := range steps {
		for name, cut := range map[string]redistest.Action{"cut before": redistest.CutBefore, "cut unread": redistest.CutUnread, "cut after": redistest.CutAfter} {
			t.Run(st.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				cell(t, s, st, cut, 1)
			})
		}
		for _, text := range refusals {
			code, _, _ := strings.Cut(text, " ")
			t.Run(st.name+"/"+code, func(t *testing.T) {
				t.Parallel()
				if code != "TRYAGAIN" { // one is looked at there too
					redistest.Cannot(t, s, "end a wait early (CLIENT UNBLOCK), so each cell takes 1 s more: there TRYAGAIN stands for all refusals")
				}
				cell(t, s, st, redistest.ReplyError(text), 0)
			})
		}
	}
}

// refusing is how long an error reply goes on.
const refusing = 400 * time.Millisecond

func cell(t *testing.T, s redistest.Backend, st step, fault redistest.Action, nth int) {
	redistest.Leaks(t)
	p := redistest.NewProxy(t, s.Addr())
	q := newBench(t, p.URL(), func(q *Queue) {
		q.Lease = time.Second
		q.Backoff = func(int) time.Duration { return 20 * time.Millisecond }
		q.DeliverTimeout = 5 * time.Second
	})
	match := st.match(q)
	var rule *redistest.Rule
	strike := func() { rule = p.On(match, nth, fault) }
	ctx := context.Background()

	// A corpse whose list is to be reaped, and two suspects.
	dead := lists.NewIncarnation(2, time.Second)
	k := lists.KeysOf(q.name)
	s.Do("RPUSH", k.List(dead, 1), "10000", "10001")
	s.Do("ZADD", k.Gone, 0, dead.Name+" 1 s")
	s.Do("RPUSH", k.Suspect, "10002", "10003")
	want := []int{10000, 10001, 10002, 10003}
	// What any language can deliver, enough for workers to take in batches; among it some that hold up their batch.
	for i := range 200 {
		if slow := 3 + 1000*(i/40); i%40 == 39 { // 3, 1003, 2003…
			want = append(want, slow)
			s.Do("LPUSH", k.Prepare, strconv.Itoa(slow))
		}
		want = append(want, 20000+i)
		s.Do("LPUSH", k.Prepare, strconv.Itoa(20000+i))
	}

	seen := newTally()
	handle := func(ctx context.Context, i int) error {
		n := seen.add(i)
		switch {
		case i%10 == 1 && i < 1000 && n == 1:
			return errors.New("once")
		case i%10 == 2 && i < 1000:
			return Reject(errors.New("never"))
		case i%1000 == 3 && i < 10000 && n == 1: // holds up its batch
			select {
			case <-time.After(3 * worker.Stall):
			case <-ctx.Done():
			}
		}
		return nil
	}
	if !st.breaks && !st.late {
		strike()
	}
	var shutdown Shutdown
	until(t, 10*time.Second, "it starts", func() bool {
		var err error
		shutdown, err = q.Receive(ctx, q.kind(handle), 2)
		if err != nil && rule != nil && rule.Struck() > 0 && nth == 0 {
			rule.Remove() // an error at the start is Receive's to return
		}
		return err == nil
	})
	if st.breaks {
		strike()
		p.On(redistest.Command("LREM", q.name), 2, redistest.CutAfter)
	}
	began := time.Now()
	unknown := make(map[int]bool)
	kind := q.kind(nil)
	deliver := func(i int, opts ...Option) {
		err := q.Deliver(ctx, kind.Message(i), opts...)
		switch {
		case err == nil:
			want = append(want, i)
		case errors.Is(err, ErrUnknown):
			unknown[i] = true
		case rule == nil || rule.Struck() == 0:
			t.Errorf("deliver %d: %v", i, err)
		}
		if nth == 0 && rule != nil && rule.Struck() > 0 && time.Since(began) > refusing {
			rule.Remove()
		}
	}
	go func() {
		if nth == 0 && !st.late && (st.name == "deliver" || st.name == "deliver later") {
			until := time.Now().Add(refusing)
			for rule.Struck() == 0 && time.Now().Before(until.Add(5*time.Second)) {
				time.Sleep(5 * time.Millisecond)
			}
			time.Sleep(refusing)
			rule.Remove()
		}
	}()
	for i := range 16 {
		if i != 3 {
			deliver(i)
		}
	}
	for i := 16; i < 24; i++ {
		deliver(i, In(50*time.Millisecond))
	}
	all := func() error {
		for _, i := range want {
			seen.mu.Lock()
			n := seen.n[i]
			seen.mu.Unlock()
			if n == 0 || n == 1 && i < 1000 && i%10 == 1 {
				return fmt.Errorf("%d of %d was not handled to its end", i, len(want))
			}
		}
		st, err := q.Stats(ctx, q.name)
		if err != nil {
			return err
		}
		for _, state := range []State{Prepare, Doing, Delay, Suspect} {
			if st[state].Count != 0 {
				return fmt.Errorf("%s has %d", state, st[state].Count)
			}
		}
		return nil
	}
	drained := func() {
		t.Helper()
		var err error
		for end := time.Now().Add(15 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			if err = all(); err == nil {
				return
			}
			if time.Now().After(end) {
				t.Fatal(err)
			}
		}
	}
	if !st.late {
		until(t, 10*time.Second, "the fault strikes", func() bool { return rule.Struck() > 0 })
		if nth == 0 {
			time.Sleep(refusing - min(refusing, time.Since(began)))
			attempts := rule.Struck()
			rule.Remove()
			// Some ten pipelines of up to 16 commands: what spins makes thousands.
			if most := 160; attempts > most {
				t.Errorf("it spins: %d attempts in %v", attempts, time.Since(began))
			}
		}
		drained()
	} else {
		drained()
		strike()
	}
	end, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	err := shutdown(end)
	if err != nil && !st.late {
		t.Errorf("shutdown: %v", err)
	}
	if st.late && rule.Struck() == 0 {
		t.Error("the fault never struck")
	}
	if st.late {
		rule.Remove()
	}
	if err := all(); err != nil {
		t.Error(err)
	}
	dead2, err := q.List(ctx, q.name, Dead, 0, 0)
	if err != nil {
		t.Error(err)
	}
	rejected := make(map[string]int)
	for _, e := range dead2 {
		rejected[string(e.Payload)]++
	}
	for _, i := range want {
		if i < 1000 && i%10 == 2 && rejected[strconv.Itoa(i)] != 1 {
			t.Errorf("%d is %d times in dead", i, rejected[strconv.Itoa(i)])
		}
	}
	seen.mu.Lock()
	defer seen.mu.Unlock()
	extra := 0
	for i, n := range seen.n {
		switch {
		case i%10 == 1 && i < 1000:
			n--
		case i%1000 == 3 && i < 10000 && n > 1:
			n = 1 // its context may have ended with the lease
		}
		extra += n - 1
	}
	most := 0
	if nth != 0 {
		most = 2 * 16 // in flight when the connection was cut
	}
	if strings.HasPrefix(st.name, "beat") || st.breaks {
		most = 2 * 16
	}
	if extra > most {
		t.Errorf("%d duplicates, %d allowed: %v", extra, most, seen.n)
	}
}
