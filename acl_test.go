package shunt

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
)

// aclLines are the lines of docs/access.md that make its Redis user and widen its rights. They say what shunt must be
// allowed, what it can do without, and what ids and the like, and pulls, have besides.
func aclLines(t *testing.T) (must, may, ids []string) {
	t.Helper()
	var lines [][]string
	for line := range strings.Lines(document(t, "docs/access.md")) {
		if words := strings.Fields(line); len(words) > 4 && strings.Join(words[:3], " ") == "ACL SETUSER shunt" {
			lines = append(lines, words[3:])
		}
	}
	if len(lines) != 4 {
		t.Fatalf("docs/access.md has %d lines that begin with ACL SETUSER shunt: want what is needed, what is "+
			"optional, what ids need, and what pulls may have", len(lines))
	}
	return lines[0], lines[1], slices.Concat(lines[2], lines[3])
}

var aclUsers atomic.Int64

// aclUser makes a user of a line's words and returns its name.
func aclUser(s *redistest.Server, words ...string) string {
	name := fmt.Sprintf("user%d", aclUsers.Add(1))
	args := []any{"SETUSER", name}
	for _, w := range words {
		args = append(args, w)
	}
	s.Do("ACL", args...)
	return name
}

// denials are what the server's ACL log says was refused to a user: commands, keys, channels.
func denials(s *redistest.Server, user string) map[string]bool {
	denied := make(map[string]bool)
	log, _ := redis.Values(s.TryDo("ACL", "LOG", 1000))
	for _, v := range log {
		entry, _ := redis.Values(v, nil)
		fields := make(map[string]string)
		for i := 0; i+1 < len(entry); i += 2 {
			k, _ := redis.String(entry[i], nil)
			fields[k], _ = redis.String(entry[i+1], nil)
		}
		if fields["username"] == user {
			denied[fields["object"]] = true
		}
	}
	return denied
}

// workout takes messages through every transition as a user, with one lost reply on the way. It returns the first thing
// that did not go well until ctx ended. all: with what the page calls optional too.
func workout(ctx context.Context, t *testing.T, s *redistest.Server, user, password string, all bool) (err error) {
	p := redistest.NewProxy(t, s.Addr())
	q := newBench(t, fmt.Sprintf("redis://%s:%s@%s/0", user, password, p.Addr()), func(q *Queue) {
		q.Lease = 6 * time.Second // dials have a second, and all users begin at once
		q.Backoff = func(int) time.Duration { return 10 * time.Millisecond }
	})
	// refused is the first event that speaks of a permission.
	refused := func() error {
		q.mu.Lock()
		defer q.mu.Unlock()
		for _, e := range q.events {
			if e.Err != nil && strings.Contains(e.Err.Error(), "NOPERM") {
				return fmt.Errorf("event %s: %w", e.Kind, e.Err)
			}
		}
		return nil
	}
	wait := func(what string, ok func() bool) error {
		for {
			q.mu.Lock()
			more := q.more
			q.mu.Unlock()
			if err := refused(); err != nil {
				return err
			}
			if ok() {
				return nil
			}
			select {
			case <-more:
			case <-time.After(5 * time.Millisecond):
			case <-ctx.Done():
				return fmt.Errorf("not yet: %s", what)
			}
		}
	}

	// There is a dead receiver that held one message for the first time, one for the second, and one once too often.
	// There is the entry of a live one whose lease has run out. And there is a suspect.
	k := store.KeysOf(q.name)
	do := func(cmd string, args ...any) {
		if _, e := s.TryDo(cmd, args...); e != nil {
			t.Error(e)
		}
	}
	for i, key := range []any{k.DeadReceivers, k.Receivers} {
		dead := store.NewIncarnation(2, time.Second)
		do("ZADD", key, 1, dead.Name+[]string{" 1 r", ""}[i])
		for recoveries := range 4 {
			if recoveries != 2 {
				e := element.Element{
					Recoveries: int16(recoveries),
					Serial:     element.NewSerial(),
					Payload:    strconv.AppendInt(nil, int64(100+10*i+recoveries), 10),
				}
				do("LPUSH", k.Doing(dead, 1), e.Encode())
			}
		}
	}
	do("LPUSH", k.Suspect, "130")
	do("HSET", k.Counts, "m1", "counted long ago")
	const good = 11 // 1 to 7, and 5 of those, less one that is rejected

	var mu sync.Mutex
	attempts := make(map[int]int)
	hold := make(chan struct{})
	release := sync.OnceFunc(func() { close(hold) })
	defer release()
	handle := func(_ context.Context, i int) error {
		mu.Lock()
		attempts[i]++
		n := attempts[i]
		mu.Unlock()
		switch {
		case i == 1 && n == 1:
			return errors.New("once")
		case i == 2 && n == 1:
			return Reject(errors.New("never"))
		case i == 6:
			<-hold // over the handover
		}
		return nil
	}
	handled := func(is ...int) bool {
		mu.Lock()
		defer mu.Unlock()
		for _, i := range is {
			if attempts[i] == 0 {
				return false
			}
		}
		return true
	}
	kind := q.kind(handle)

	shutdown, err := q.Receive(ctx, kind, 3)
	for tries := 1; tries < 10 && timedOut(err); tries++ {
		shutdown, err = q.Receive(ctx, kind, 3)
	}
	if err != nil {
		return fmt.Errorf("receive: %w", err)
	}
	stop := func() error {
		release()
		return shutdown(ctx)
	}
	defer func() { err = errors.Join(err, stop(), refused()) }()

	for i := 1; i <= 2; i++ {
		if err := q.Enqueue(ctx, kind.Message(i)); err != nil {
			return fmt.Errorf("enqueue: %w", err)
		}
	}
	if err := q.EnqueueAll(ctx, []IMessage{kind.Message(3), kind.Message(4)}); err != nil {
		return fmt.Errorf("enqueue all: %w", err)
	}
	if err := q.Enqueue(ctx, kind.Message(5), In(50*time.Millisecond)); err != nil {
		return fmt.Errorf("enqueue later: %w", err)
	}
	if err := wait("retried, rejected, promoted", func() bool {
		return handled(1, 2, 3, 4, 5) && q.count(EventAcked) >= 4 && q.count(EventRejected) == 1 &&
			q.count(EventPromoted) > 0
	}); err != nil {
		return err
	}
	if err := wait("the dead receivers' messages", func() bool {
		return handled(100, 101, 110, 111, 130)
	}); err != nil {
		return err
	}

	// The reply to a take is lost while a handler runs.
	if err := q.Enqueue(ctx, kind.Message(6)); err != nil {
		return err
	}
	if err := wait("6 runs", func() bool { return handled(6) }); err != nil {
		return err
	}
	lost := p.On(redistest.Command("RPOPLPUSH", q.name), 1, redistest.CutAfter)
	seventh := element.Element{Serial: element.NewSerial(), Payload: []byte("7")}
	do("LPUSH", k.Prepare, seventh.Encode()) // not by the connection that is cut
	if err := wait("the handover", func() bool {
		return lost.Struck() > 0 && q.count(EventHandedOver) > 0 &&
			handled(7)
	}); err != nil {
		return err
	}
	release()
	if err := wait("all acked",
		func() bool { return q.count(EventAcked)+q.count(EventUnconfirmedVerdict) >= good }); err != nil {
		return err
	}

	// The operators' methods.
	if _, err := q.Receivers(ctx, q.name); err != nil {
		return err
	}
	for _, state := range States {
		if _, err := q.List(ctx, q.name, state, 0, 10); err != nil {
			return err
		}
	}
	dead, err := q.List(ctx, q.name, StateDead, 0, 0)
	if err != nil || len(dead) != 3 {
		return fmt.Errorf("%d dead: %w", len(dead), err)
	}
	for i, e := range dead {
		switch {
		case string(e.Payload) == "2":
			_, err = q.RetryDead(ctx, q.name, e)
		case i == 0:
			_, err = q.DeleteDead(ctx, q.name, e)
		default:
			err = q.Delete(ctx, BySerial(q.name, e.Serial))
		}
		if err != nil {
			return err
		}
	}
	_, err = q.RetryAllDead(ctx, q.name, Filter{})
	if _, late := q.PromoteAll(ctx, q.name, Filter{}); err != nil || late != nil {
		return errors.Join(err, late)
	}
	if err := wait("the revived",
		func() bool { return q.count(EventAcked)+q.count(EventUnconfirmedVerdict) >= good+1 }); err != nil {
		return err
	}
	if all {
		if _, err := q.Channels(ctx); err != nil {
			return err
		}
		if _, err := q.Purge(ctx, q.name, StateDead); err != nil {
			return err
		}
	}
	st, err := q.Stats(ctx, q.name)
	if err != nil {
		return err
	}
	for state, s := range st {
		if s.Count != 0 {
			return fmt.Errorf("%d left in %s", s.Count, state)
		}
	}
	if err := stop(); err != nil {
		return fmt.Errorf("shutdown: %w", err)
	}

	var ordered atomic.Int64
	ks := q.ranks(2, func(context.Context, int, int) error { ordered.Add(1); return nil })
	for _, k := range ks {
		if err := q.Enqueue(ctx, k.Message(1)); err != nil {
			return err
		}
	}
	down, err := q.ReceiveOrdered(ctx, 1, ks[0], ks[1])
	if err != nil {
		return fmt.Errorf("receive ordered: %w", err)
	}
	if err := errors.Join(wait("both ranks", func() bool { return ordered.Load() == 2 }), down(ctx)); err != nil {
		return err
	}
	if err := pullout(ctx, q); err != nil || !all {
		return err
	}
	if err := q.Audit(ctx, AuditEntry{By: "somebody", Verb: "purge"}); err != nil {
		return err
	}
	if _, err := q.AuditLog(ctx, "", 1); err != nil {
		return err
	}
	if _, err := q.Counts(ctx, CountsOptions{Channels: []string{q.name}}); err != nil {
		return err
	}
	return q.Close() // it counts what is left
}

// pullout takes messages through the transitions of those that are pulled.
func pullout(ctx context.Context, q *bench) error {
	all := []IMessage{q.kind(nil).Message(1), q.kind(nil).Message(2), q.kind(nil).Message(3), q.kind(nil).Message(4)}
	if err := q.EnqueueAll(ctx, all); err != nil {
		return err
	}
	o := PullOptions{Channels: []string{q.name}, Max: 3, Lease: time.Minute, Wait: 10 * time.Second}
	ms, err := q.Pull(ctx, o)
	if err != nil || len(ms) != 3 {
		return fmt.Errorf("pulled %d: %w", len(ms), err)
	}
	err = errors.Join(ms[0].Extend(ctx, time.Minute), ms[0].Ack(ctx), q.Ack(ctx, ms[1].Receipt), ms[2].Release(ctx))
	o.Max, o.Lease = 2, 50*time.Millisecond
	late, bad := q.Pull(ctx, o)
	if err := errors.Join(err, bad); err != nil || len(late) != 2 {
		return fmt.Errorf("pulled %d: %w", len(late), err)
	}
	o.Lease = time.Minute
	for n := 0; n < 2; n += len(ms) { // they come back
		if ms, err = q.Pull(ctx, o); err != nil || len(ms) == 0 {
			return fmt.Errorf("pulled %d: %w", len(ms), err)
		}
		for _, m := range ms {
			if err := m.Fail(ctx, Reject(errOops)); err != nil {
				return err
			}
		}
	}
	return nil
}

// A user with the first of the page's lines does everything but what the page calls optional, and hears of no refusal.
func TestACLNeeded(t *testing.T) {
	t.Parallel()
	s := aclServer(t)
	must, may, ids := aclLines(t)
	user := aclUser(s, must...)
	password, _ := aclWords(must)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := workout(ctx, t, s, user, password, false); err != nil {
		t.Error(err)
	}
	denied := denials(s, user)
	for what := range denied {
		optional := strings.HasSuffix(what, ".delay") // a pub/sub channel
		for _, w := range append(may, ids...) {
			optional = optional || w == "+"+what || w == "~"+what
		}
		if !optional {
			t.Errorf("%s was denied, and the page does not call it optional", what)
		}
	}
	if len(denied) == 0 {
		t.Error("nothing was denied: the log says nothing")
	}
}

// With all lines nothing is refused. Without any one command of the first, something fails. Without any one of the
// second, something is refused. So nothing is there in vain.
func TestACLMinimal(t *testing.T) {
	t.Parallel()
	s := aclServer(t)
	must, may, ids := aclLines(t)
	password, needed := aclWords(must)
	_, optional := aclWords(may)
	whole := slices.Concat(must, may, ids)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	// All at once, however few tests may run in parallel: most of them wait.
	var g sync.WaitGroup
	all := aclUser(s, whole...)
	g.Go(func() {
		if err := workout(ctx, t, s, all, password, true); err != nil {
			t.Error(err)
		}
		denied := denials(s, all)
		// redigo's to a subscription that ends; it needs no answer
		for _, farewell := range []string{"punsubscribe", "echo"} {
			delete(denied, farewell)
		}
		for what := range denied {
			t.Errorf("%s was denied", what)
		}
	})
	for i, command := range append(needed, optional...) {
		user := aclUser(s, append(slices.Clone(whole), "-"+command)...)
		g.Go(func() {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			g.Go(func() { // what was refused has time to show; what is optional needs none
				for ctx.Err() == nil && !denials(s, user)[command] {
					time.Sleep(50 * time.Millisecond)
				}
				if i < len(needed) {
					link.Sleep(ctx, 3*time.Second)
				}
				cancel()
			})
			err := workout(ctx, t, s, user, password, true)
			if err == nil && i < len(needed) {
				t.Errorf("nothing fails without %s", command)
			}
			if !denials(s, user)[command] {
				t.Errorf("%s was never denied: %v", command, err)
			}
		})
	}
	g.Wait()
}

// Who only enqueues needs no more than the page says.
func TestACLEnqueue(t *testing.T) {
	t.Parallel()
	s := aclServer(t)
	_, sentence, _ := strings.Cut(document(t, "docs/access.md"), "A user who only enqueues needs ")
	sentence, _, found := strings.Cut(sentence, ".")
	if !found {
		t.Fatal("docs/access.md does not say what a user who only enqueues needs")
	}
	words := []string{"on", ">secret", "~{*}.*", "resetchannels"}
	for i, command := range strings.Split(sentence, "`") {
		if i%2 == 1 {
			words = append(words, "+"+command)
		}
	}
	user := aclUser(s, words...)
	q := newBench(t, fmt.Sprintf("redis://%s:secret@%s/0", user, s.Addr()))
	for range 2 {
		q.enqueue(0, 3)
		q.enqueue(3, 4, In(time.Second))
	}
}

// aclServer has a log that is long enough.
func aclServer(t *testing.T) *redistest.Server {
	s := redistest.Start(t, "acllog-max-len 1000")
	redistest.Leaks(t)
	return s
}

// aclWords finds the password and the commands in a line.
func aclWords(line []string) (password string, commands []string) {
	for _, w := range line {
		if strings.HasPrefix(w, ">") {
			password = w[1:]
		} else if strings.HasPrefix(w, "+") {
			commands = append(commands, w[1:])
		}
	}
	return password, commands
}

// The page's lines have every command that is written anywhere in the scripts and the code, whether a test sends it or
// not.
func TestACLNamesAll(t *testing.T) {
	must, may, ids := aclLines(t)
	allowed := slices.Concat(must, may, ids)
	n := 0
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		dir := filepath.Dir(path)
		if err != nil || d.IsDir() || filepath.Ext(path) != ".go" && filepath.Ext(path) != ".lua" ||
			strings.HasSuffix(path, "_test.go") || strings.HasPrefix(path, "example") ||
			strings.HasPrefix(path, "bench") || strings.HasPrefix(path, "daemon") || dir == "chaos" ||
			dir == "internal/redistest" || strings.HasPrefix(path, "internal/sim") ||
			strings.HasPrefix(path, "internal/store/embedded.") { // for the test kit's own Redis
			return err
		}
		text, err := os.ReadFile(path)
		command := regexp.MustCompile(`(?:redis\.p?call\('|\.Add\(")([A-Z]+)\b`)
		for _, m := range command.FindAllStringSubmatch(string(text), -1) {
			n++
			if c := "+" + strings.ToLower(m[1]); !slices.ContainsFunc(
				allowed,
				func(w string) bool { return w == c || strings.HasPrefix(w, c+"|") },
			) {
				t.Errorf("%s sends %s, which the page's lines do not allow", path, m[1])
			}
		}
		return err
	})
	if err != nil || n < 100 {
		t.Errorf("found %d: %v", n, err)
	}
}

// What is by id, and recur, may all that the page's third line says, needs no more, and sends each of its commands.
func TestACLByID(t *testing.T) {
	t.Parallel()
	s := aclServer(t)
	must, may, ids := aclLines(t)
	password, _ := aclWords(must)
	name := aclUser(s, slices.Concat(must, may, ids)...)
	ctx := t.Context()
	b := newBench(t, fmt.Sprintf("redis://%s:%s@%s/0", name, password, s.Addr()), func(q *Queue) {
		q.Backoff = func(int) time.Duration { return time.Hour }
		q.MaxDone = 1
	})
	s.Do("CONFIG", "RESETSTAT")

	b.must(b.one(0, ID("a"), In(time.Hour)))
	if err := b.one(0, ID("a")); !errors.Is(err, ErrDuplicate) {
		t.Error(err)
	}
	b.must(b.Postpone(ctx, ByID(b.name, "a"), In(2*time.Hour)))
	_, err := b.Cancel(ctx, ByID(b.name, "a"))
	b.must(err)
	b.must(b.one(0, ID("dropped")))
	if err := b.Postpone(ctx, ByID(b.name, "dropped"), In(time.Hour)); !errors.Is(err, ErrWaiting) {
		t.Error(err)
	}
	_, err = b.Cancel(ctx, ByID(b.name, "dropped"))
	b.must(err)
	var ms []IMessage
	for i := range 40 { // so that receipts are told
		ms = append(ms, With(b.kind(nil).Message(1), ID(fmt.Sprint(i)), Retain(time.Hour)))
	}
	for _, m := range ms {
		b.must(b.Enqueue(ctx, m))
	}
	b.must(b.one(1, ID("unique"), UniqueFor(time.Hour)))
	b.must(b.one(2, ID("retried")))
	b.must(b.one(3, ID("rejected"), Expire(time.Hour)))
	b.must(b.one(4, ID("chained")))
	b.must(b.one(5, ID("running")))
	ended := make(chan error, 1)
	go func() { _, err := b.Wait(ctx, ByID(b.name, "running")); ended <- err }()
	b.waited(s, 1)
	in := make(chan struct{})
	b.receive(2, func(ctx context.Context, i int) error {
		switch i {
		case 1:
			return SetResult(ctx, []byte("1"))
		case 2:
			return errors.New("again")
		case 3:
			return Reject(errors.New("no"))
		case 4:
			return Then(ctx, With(b.kind(nil).Message(1), ID("next")))
		}
		close(in)
		<-ctx.Done()
		return ctx.Err()
	})
	<-in
	_, err = b.Cancel(ctx, ByID(b.name, "running"))
	b.must(err)
	b.must(<-ended)
	b.wait(EventAcked, 43, 10*time.Second)
	b.wait(EventRejected, 1, 5*time.Second)
	b.wait(EventRetried, 1, 5*time.Second)
	dead, err := b.List(ctx, b.name, StateDead, 0, 0)
	b.must(err)
	b.must(b.Retry(ctx, ByID(b.name, "rejected")))
	_, err = b.RetryDead(ctx, b.name, dead...)
	b.must(err)
	_, err = b.PromoteAll(ctx, b.name, Filter{MinAttempts: 1})
	b.must(err)
	b.wait(EventRetried, 2, 5*time.Second)
	done, err := b.List(ctx, b.name, StateDone, 0, 1)
	b.must(err)
	b.must(b.Delete(ctx, done[0].Ref()))
	_, err = b.Purge(ctx, b.name, StateDelay, StateDone)
	b.must(err)

	// The scripts of recur, and its look.
	k, element := store.KeysOf(b.name), element.Element{Serial: element.NewSerial(), Payload: []byte("1")}
	_, _, err = asker{q: b.Queue}.Ask(ctx, b.name, func(c *link.Call) {
		c.AddScript(store.RecurSet, 1, k.Recur, "n", "", "head\nbody", "x")
		c.AddScript(
			store.RecurFire,
			4,
			k.Recur,
			k.Prepare,
			k.IDs,
			k.Running,
			"n",
			"head\n",
			"next\n",
			0,
			0,
			"tick",
			0,
			element.Encode(),
		)
		c.AddScript(store.RecurSet, 1, k.Recur, "n", "next\n", "", "y")
		c.Add("HGETALL", k.Recur)
		c.Add("PUBLISH", k.Recur, "")
	})
	b.must(err)
	for range 2 {
		_, err = b.EnqueueOnce(ctx, Once{Channel: b.name, Key: "k"}, With(Raw(b.name, nil), ID("once"), In(time.Hour)))
		b.must(err)
	}

	b.must(b.Upkeep(ctx))
	pulled := make(chan error, 1)
	go func() {
		_, err := b.Pull(ctx, PullOptions{Channels: []string{b.name + "pulled"}, Wait: 10 * time.Second})
		pulled <- err
	}()
	b.until(5*time.Second, "it waits", func() bool { return b.callers() == 1 })
	b.must(b.Enqueue(ctx, Raw(b.name+"pulled", nil)))
	b.must(<-pulled)

	s.Do("HSET", k.Running, "stale", "gone/0 1 1")
	b.must(store.Upkeep(context.Background(), b.server.Data, k, new(store.Scan), time.Now()))

	for what := range denials(s, name) {
		if what != "punsubscribe" && what != "echo" {
			t.Errorf("%s was denied", what)
		}
	}
	stats, _ := redis.String(s.Do("INFO", "commandstats"), nil)
	for _, w := range ids {
		if command, is := strings.CutPrefix(w, "+"); is && !strings.Contains(stats, "cmdstat_"+command+":") {
			t.Errorf("%s is never sent", command)
		}
	}
}

// A URL with a user and an empty password, as of a variable that is not set, does not come in as the default user.
func TestUserWithoutPassword(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	s.Do("ACL", "SETUSER", "worker", "on", "nopass", "~*", "&*", "+@all")
	for url, user := range map[string]string{
		"redis://worker:@": "", "redis://worker:any@": "worker", "redis://default:@": "default",
		"redis://:@": "default",
	} {
		pool, err := NewPool(url + s.Addr())
		if err != nil {
			if user != "" || !strings.Contains(err.Error(), `the password of user "worker" is empty`) {
				t.Errorf("%s: %v", url, err)
			}
			continue
		}
		c := pool.Get()
		if is, err := redis.String(c.Do("ACL", "WHOAMI")); is != user || err != nil {
			t.Errorf("%s is user %q, %v: want %q", url, is, err, user)
		}
		c.Close()
		pool.Close()
	}
}
