package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
	"github.com/shuntmq/shunt/internal/trial"
)

// cell is one place of the matrix at which one fault strikes, once. Its receiver lives in this process.
type cell struct {
	row, name string
	run       func(w *world)
	own       bool // needs a server of its own
	long      bool // has no place in make test
	drain     time.Duration
}

// cells is what a report calls the row of all cells like it.
func (c *cell) cells() string { return c.row + " cells" }

// play is one cell. Where server is nil it starts one.
func (c *cell) play(t testing.TB, server *redistest.Server) *trial.Verdict {
	t.Helper()
	if server == nil {
		server = redistest.Start(t)
	}
	w := newWorld(t, server, "")
	c.run(w)
	return w.end(max(c.drain, 10*time.Second))
}

// receive starts a receiver in this process, through the world's proxy. Its shutdown is the cell's to call; it says so
// in the ledger.
func (w *world) receive(o trial.Orders) (q *shunt.Queue, shutdown func(clean bool)) {
	w.Helper()
	log := w.log.As("cell")
	if o.Lease == 0 {
		o.Lease = time.Second
	}
	q = w.queue(log.By, w.proxy.URL(), o)
	var down shunt.Shutdown
	w.until(10*time.Second, "it starts", func() bool {
		var err error
		if m := (&trial.Message{On: w.channels[0], Log: log, Hang: w.hang}); o.Batch > 0 {
			down, err = o.Gather(context.Background(), q, m)
		} else {
			down, err = q.Receive(context.Background(), m, o.Workers)
		}
		return err == nil
	})
	return q, func(clean bool) {
		w.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		end := trial.Entry{Op: trial.Closed, Phase: trial.OK}
		if err := down(ctx); err != nil {
			if end.Phase = trial.Fail; clean {
				w.Errorf("shutdown: %v", err)
			}
		}
		if err := q.Close(); err != nil { // all events have been told
			w.Error(err)
		}
		log.Say(end)
	}
}

// step is a command at which a fault can strike: where a message or an incarnation changes places.
type step struct {
	name  string
	match func(channel string) redistest.Match
	when  when
}

type when int

const (
	early   when = iota // it comes by itself
	broken              // it comes with a lost reply that ends the incarnation
	late                // it comes with shutdown
	idle                // it comes when there is nothing to do
	largely             // it comes after a large element
)

var steps = []step{
	{"enqueue", redistest.ByName("LPUSH", ".prepare"), early},
	{"enqueue later", redistest.ByScript(store.Later), early},
	{"take", redistest.ByName("RPOPLPUSH", ".prepare"), early},
	{"take by the waiter", redistest.ByName("BRPOPLPUSH", ".prepare"), idle},
	{"take after a large one", redistest.ByName("RPOPLPUSH", ".prepare"), largely},
	{"take a suspect", redistest.ByScript(store.Take), early},
	{"ack", redistest.ByName("LREM", ".doing"), early},
	{"ack of several", redistest.ByScript(store.Ack), early},
	{"retry", redistest.ByScript(store.Retry), early},
	{"reject", redistest.ByScript(store.Reject), early},
	{"promote", redistest.ByScript(store.Promote), early},
	{"register", redistest.ByScript(store.Register), broken},
	{"beat", redistest.ByScript(store.Beat), early},
	{"sweep", redistest.ByScript(store.Sweep), early},
	{"reap", redistest.ByScript(store.Reap), early},
	{"finish", redistest.ByScript(store.Finish), early},
	{"release", redistest.ByScript(store.Release), early},
	{"verdict again, in the handover", redistest.ByName("LREM", ".doing"), broken},
	{"handover", redistest.ByScript(store.Handover), broken},
	{"supersede", redistest.ByScript(store.Supersede), broken},
	{"unregister", redistest.ByScript(store.Unregister), late},
	{"yield", redistest.ByScript(store.Yield), late},
}

// cuts are a connection's end on each side of a command's execution.
var cuts = []struct {
	name string
	act  redistest.Action
}{{"cut before the send", redistest.CutBefore}, {"cut before it is executed", redistest.CutUnread},
	{"cut before the reply", redistest.CutAfter}}

// cells are all of F4, F6, F12, F13 and F22, those of IDs and those of pullers.
func cells() (all []cell) {
	for _, plan := range []string{trial.PlanPanic, trial.PlanGoexit, trial.PlanHang, trial.PlanTimeout,
		trial.PlanDeaf + "250", trial.PlanLate + "1000",
		trial.PlanRetry, trial.PlanReject, trial.PlanTwice} {
		all = append(all, cell{row: "F4", name: plan, run: func(w *world) { handlers(w, plan) }})
	}
	for _, s := range steps {
		for _, cut := range cuts {
			all = append(all,
				cell{row: "F6", name: s.name + "/" + cut.name, run: func(w *world) { strike(w, s, cut.act, "") }})
		}
	}
	all = append(all, cell{row: "F6", name: "verdict unsent", run: unsent})
	for _, s := range steps {
		for _, text := range trial.Refusals {
			code, _, _ := strings.Cut(text, " ")
			all = append(
				all,
				cell{
					row:  "F12",
					name: s.name + "/" + code,
					run:  func(w *world) { strike(w, s, redistest.ReplyError(text), text) },
				},
			)
		}
	}
	for _, key := range []string{"prepare", "delay", "suspect", "dead", "receivers", "receivers.dead", "keeper",
		"doing"} {
		all = append(
			all,
			cell{
				row:   "F12",
				name:  "wrong type/" + key,
				run:   func(w *world) { wrongType(w, key) },
				drain: 15 * time.Second,
			},
		)
	}
	for _, what := range []string{"SCRIPT FLUSH", "CLIENT KILL TYPE normal SKIPME yes", "CLIENT KILL TYPE pubsub " +
		"SKIPME yes"} {
		for _, busy := range []bool{true, false} {
			name := map[bool]string{true: "busy", false: "idle"}[busy]
			all = append(all,
				cell{row: "F13", name: what + "/" + name, own: true, run: func(w *world) { flush(w, what, busy) }})
		}
	}
	return slices.Concat(all, idCells(), timeCells(), batchCells(), pullCells(), payloadCells(), deskCells())
}

// handlers misbehave, and the pool keeps all its workers.
func handlers(w *world, plan string) {
	const n = 4
	_, shutdown := w.receive(trial.Orders{Workers: n, Timeout: 150 * time.Millisecond})
	w.Cleanup(func() { close(w.hang) })
	w.enqueue(n, plan) // of handlers that never end there may be as many as workers
	if plan != trial.PlanHang {
		w.enqueue(2*n, plan)
	}
	w.struck(plan)
	w.drained(10 * time.Second)
	most := 0
	if !w.within(5*time.Second, func() bool { // all workers are there to be had at once
		w.enqueue(n, trial.PlanSlow+"100")
		open := w.openHandlers()
		most = max(most, open)
		return open >= n
	}) {
		w.Errorf("%d workers of %d are left", most, n)
	}
	w.drained(5 * time.Second)
	shutdown(plan != trial.PlanHang) // which says that they still run
}

// openHandlers counts handlers of this process that run in good order.
func (w *world) openHandlers() int {
	es, err := w.said()
	if err != nil {
		w.Fatal(err)
	}
	type handling struct {
		serial  string
		attempt int
	}
	open := make(map[handling]bool)
	for _, e := range es { // one that was given up may return later, too
		h := handling{e.Serial, e.Attempt}
		if e.Op == trial.Handle && e.Phase == trial.Invoke {
			open[h] = true
		} else if e.Op == trial.Handle || e.Op == "orphaned" {
			delete(open, h)
		}
	}
	return len(open)
}

// repaired promises that all that was there at a time has been begun so much later (I8).
func (w *world) repaired(since time.Time, within time.Duration) {
	w.log.Say(trial.Entry{At: since.Add(within), Op: trial.Quiet, Phase: trial.Info, Due: since})
}

const (
	lostReply = 5 * time.Second         // from its detection, and of a black hole from its healing
	refusing  = 1200 * time.Millisecond // how long an error reply goes on
	perSecond = 5                       // attempts that are no spinning
	// commands of one pipeline, and a forgotten script's next; what spins shows all the same
	oneBurst = 60 * time.Millisecond
)

// strike has messages go through every transition while one command is struck: once by a cut, or for a while by an
// error reply.
func strike(w *world, st step, act redistest.Action, refusal string) {
	c := w.channels[0]
	k := store.KeysOf(c)
	nth := 1
	if refusal != "" {
		nth = 0
	}
	put := func(key any, id, plan string) {
		m := &trial.Message{ID: c + "/" + id, Plan: plan}
		w.log.Say(trial.Entry{Op: trial.Enqueue, Phase: trial.Invoke, ID: m.ID, Note: plan},
			trial.Entry{Op: trial.Enqueue, Phase: trial.OK, ID: m.ID, Note: plan})
		raw := m.Payload()
		if strings.HasPrefix(id, "some") {
			e := element.Element{Serial: element.NewSerial(), Payload: raw}
			raw = e.Encode()
		}
		w.server.Do("LPUSH", key, raw)
	}
	// A corpse whose list is to be reaped, two suspects, and a batch in which one holds up the others.
	dead := store.NewIncarnation(2, time.Second)
	put(k.Doing(dead, 1), "corpse1", trial.PlanOK)
	put(k.Doing(dead, 1), "corpse2", trial.PlanRetry)
	w.server.Do("ZADD", k.DeadReceivers, 0, dead.Name+" 1 s")
	put(k.Suspect, "suspect1", trial.PlanOK)
	put(k.Suspect, "suspect2", trial.PlanOK)
	for i := range 120 {
		plan := trial.PlanOK
		if i%40 == 39 {
			plan = trial.PlanSlow + "150"
		}
		put(k.Prepare, fmt.Sprint([]string{"bare", "some"}[i/8%2], i), plan)
	}
	match := st.match(w.channels[0])
	if st.when == largely {
		plain := match
		match = func(args [][]byte) bool { return w.began("/large") && plain(args) }
	}
	var rule *redistest.Rule
	var tries attempts
	strike := func() { rule = w.proxy.On(tries.of(match), nth, act) }
	if st.when != broken && st.when != late && st.name != "register" {
		strike()
	}
	q, shutdown := w.receive(trial.Orders{Workers: 2, Lease: time.Second})
	log := w.log.As("cell")
	post := func(id, plan string, bytes int) {
		_ = trial.Post(context.Background(), q, log,
			&trial.Message{On: c, ID: c + "/" + id, Plan: plan, Filler: make([]byte, bytes)})
	}
	if st.when == largely {
		post("large", trial.PlanOK, 100<<10)
	}
	if st.when == broken {
		first := 2
		if strings.HasPrefix(st.name, "verdict") {
			first = 1
		}
		broke := w.proxy.On(redistest.Command("LREM", c), first, redistest.CutAfter)
		if first == 1 {
			rule = w.proxy.On(tries.of(match), 2*nth, act) // of those that the handover sends
		} else {
			strike()
		}
		defer broke.Remove()
	}
	w.load.Go(func() {
		for i, plan := range []string{trial.PlanOK, trial.PlanRetry, trial.PlanReject, trial.PlanOK,
			trial.PlanSlow + "100", trial.PlanOK + "+50",
			trial.PlanRetry + "+30", trial.PlanOK} {
			post(fmt.Sprint(i), plan, 0)
		}
	})
	if st.when == idle {
		w.load.Wait()
		w.within(2*time.Second, func() bool { return w.busy() == 0 })
		w.load.Go(func() { post("wakes", trial.PlanOK, 0) })
	}
	if st.when != late {
		w.until(10*time.Second, "the fault strikes", func() bool { return rule.Struck() > 0 })
		if refusal == "" {
			w.repaired(time.Now(), lostReply)
		} else {
			if st.name == "supersede" { // what may not be listed as dead is not beaten for either, and runs out
				w.log.Say(trial.Entry{By: "cell", Op: trial.Fault, Phase: trial.Info, ID: st.name})
			}
			time.Sleep(refusing)
			rule.Remove()
			tries.spin(w, 1)
		}
		w.load.Wait()
		w.drained(15 * time.Second)
		w.strikes(st, refusal)
		shutdown(true)
		return
	}
	w.load.Wait()
	w.drained(10 * time.Second)
	strike()
	shutdown(false)
	if rule.Struck() == 0 {
		w.Error("the fault never struck")
	}
	rule.Remove()
	w.strikes(st, refusal)
}

// strikes notes the fault, with the duplicates that a cut allows: what both workers had in flight, in the two
// incarnations that it may cost. An error reply allows none, unless it costs the lease.
func (w *world) strikes(st step, refusal string) {
	allowed := 0
	if refusal == "" || st.name == "beat" || st.when == broken || strings.HasPrefix(refusal, "UNBLOCKED") {
		allowed = 2 * 2 * 16
	}
	w.log.Say(trial.Entry{By: "cell", Op: trial.Fault, Phase: trial.Info, ID: st.name, N: allowed})
}

// attempts are the times at which commands were tried, by their name, or a script's digest. What a command could not do
// it may do again, but at most 5 times in any second; commands of one pipeline are one attempt.
type attempts struct {
	mu sync.Mutex
	at map[string][]time.Time
}

// of is a match that notes what it matches.
func (a *attempts) of(match redistest.Match) redistest.Match {
	return func(args [][]byte) bool {
		if !match(args) {
			return false
		}
		name := strings.ToUpper(string(args[0]))
		if strings.HasPrefix(name, "EVAL") {
			name += fmt.Sprintf(" %.40q", args[1])
		}
		now := time.Now()
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.at == nil {
			a.at = make(map[string][]time.Time)
		}
		if at := a.at[name]; len(at) == 0 || now.Sub(at[len(at)-1]) > oneBurst {
			a.at[name] = append(at, now)
		}
		return true
	}
}

// spin complains of commands that were tried too often.
func (a *attempts) spin(w *world, workers int) {
	w.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	for name, at := range a.at {
		for i := range at {
			if n := i + perSecond*workers; n < len(at) && at[n].Sub(at[i]) < time.Second {
				var since []time.Duration
				for _, t := range at {
					since = append(since, t.Sub(at[0]).Round(time.Millisecond))
				}
				w.Errorf("it spins: %s was tried after %v", name, since)
				break
			}
		}
	}
}

// began says whether a message of that name has been begun.
func (w *world) began(name string) bool {
	es, _ := w.said()
	for _, e := range es {
		if e.Op == trial.Handle && e.Phase == trial.Invoke && strings.HasSuffix(e.ID, name) {
			return true
		}
	}
	return false
}

// unsent breaks the connection while a handler runs, and has its verdict come while there is none.
func unsent(w *world) {
	_, shutdown := w.receive(trial.Orders{Workers: 2})
	w.enqueue(1, trial.PlanSlow+"300")
	w.until(5*time.Second, "it runs", func() bool { return w.begun("harness") > 0 })
	rule := w.proxy.On(redistest.ByName("BRPOPLPUSH", ".prepare")(w.channels[0]), 1, redistest.CutAfter)
	w.until(5*time.Second, "the fault strikes",
		func() bool { return rule.Struck() > 0 || w.post(w.channels[0], trial.PlanOK, nil) != nil })
	w.proxy.Refuse(true)
	w.proxy.CutAll()
	time.Sleep(400 * time.Millisecond)
	w.proxy.Refuse(false)
	w.log.Say(trial.Entry{By: "cell", Op: trial.Fault, Phase: trial.Info, ID: "unsent", N: 32})
	w.drained(10 * time.Second)
	shutdown(true)
}

// wrongType puts something that is not shunt's where a key of shunt's belongs.
func wrongType(w *world, name string) {
	c := w.channels[0]
	key := "{" + c + "}." + name
	late := name == "prepare" || name == "doing" || name == "receivers" // else the receiver would not start
	if !late {
		w.server.Do("SET", key, "not shunt's")
	}
	q, shutdown := w.receive(trial.Orders{Workers: 2})
	log := w.log.As("cell")
	keys := []string{key}
	if late {
		names, _ := redis.Strings(w.server.TryDo("ZRANGE", "{"+c+"}.receivers", 0, -1))
		switch name {
		case "receivers":
			w.server.Do("RENAME", key, key+".kept")
		case "doing":
			keys = nil
			for n := range 2 {
				keys = append(keys, fmt.Sprintf("{%s}.doing.%s.%d", c, names[0], n))
			}
		}
		for _, k := range keys {
			w.server.Do("SET", k, "not shunt's")
		}
	}
	enqueue := func(from int) {
		for i, plan := range []string{trial.PlanOK, trial.PlanRetry, trial.PlanReject, trial.PlanOK + "+30",
			trial.PlanOK} {
			_ = trial.Post(context.Background(), q, log,
				&trial.Message{On: c, ID: fmt.Sprintf("%s/%d", c, from+i), Plan: plan})
		}
	}
	var tries attempts
	// The look for the key, which an Event's error names, is not counted: it follows an attempt that is.
	looks := map[string]bool{"LLEN": true, "ZCARD": true, "HLEN": true, "SCARD": true}
	rule := w.proxy.On(tries.of(func(args [][]byte) bool {
		return !looks[strings.ToUpper(string(args[0]))] &&
			slices.ContainsFunc(keys, func(k string) bool { return touches(args, k) })
	}), 0, redistest.Pass)
	enqueue(0)
	time.Sleep(refusing)
	rule.Remove()
	tries.spin(w, 1)
	for _, k := range keys {
		w.server.Do("DEL", k)
	}
	if name == "receivers" {
		w.server.Do("RENAME", key+".kept", key)
	}
	enqueue(10)
	w.log.Say(trial.Entry{By: "cell", Op: trial.Fault, Phase: trial.Info, ID: "wrong type", N: 64})
	w.drained(15 * time.Second)
	shutdown(true)
}

// flush is what an operator does to all connections or scripts at once.
func flush(w *world, what string, busy bool) {
	_, shutdown := w.receive(trial.Orders{Workers: 4})
	if busy {
		w.flow(200, usual...)
	}
	words := strings.Fields(what)
	var args []any
	for _, a := range words[1:] {
		args = append(args, a)
	}
	for range 5 {
		time.Sleep(150 * time.Millisecond)
		w.server.Do(words[0], args...)
		allowed := 0
		if words[0] == "CLIENT" {
			allowed = 64
		}
		w.log.Say(trial.Entry{By: "cell", Op: trial.Fault, Phase: trial.Info, ID: words[0], N: allowed})
		for i := range 3 {
			if !busy && w.post(w.channels[0], usual[i*2], nil) != nil {
				w.Log("an enqueue of unknown outcome") // its connection, too, was killed
			}
		}
	}
	w.drained(15 * time.Second)
	shutdown(true)
}

// payloadCells send bytes that a careless program would stumble over.
func payloadCells() (all []cell) {
	kinds := map[string][]byte{
		"empty": {}, "1 byte": {7}, "CRLF": []byte("\r\n$3\r\n*1\r\n"), "NUL": []byte("a\x00b"),
		"invalid UTF-8": []byte("\xff\xfe\xc3\x28"),
		"0xC1": []byte(
			"\xc1\x10\x00\x00 like a header",
		), "0xC1 0x00": []byte("\xc1\x00\x00"), "0xC1 0x20": []byte("\xc1\x20 too short"),
		"64 KB": make([]byte, 64<<10), "16 MB": make([]byte, 16<<20-1024),
	}
	for name, p := range kinds {
		for _, bare := range []bool{false, true} {
			if bare && name == "16 MB" {
				continue
			}
			all = append(
				all,
				cell{
					row:  "F22",
					name: name + map[bool]string{true: ", bare"}[bare],
					run:  func(w *world) { payloads(w, p, bare, 3) },
				},
			)
		}
	}
	return append(
		all,
		cell{row: "F22", name: "10,000 identical", run: func(w *world) { payloads(w, []byte("twin"), false, 10000) }},
		cell{
			row:  "F22",
			name: "10,000 identical, bare",
			run:  func(w *world) { payloads(w, []byte("twin"), true, 10000) },
		},
	)
}

// blob is a message without a form.
type blob struct {
	channel string
	payload []byte
	want    string
	log     *trial.Ledger
	hold    *atomic.Int32 // how many may yet be acked
}

func (b *blob) Channel() string           { return b.channel }
func (b *blob) Marshal() ([]byte, error)  { return b.payload, nil }
func (b *blob) Backoff(int) time.Duration { return 20 * time.Millisecond }
func (b *blob) Unmarshal(p []byte) (shunt.IMessage, error) {
	return &blob{channel: b.channel, payload: p, want: b.want, log: b.log, hold: b.hold}, nil
}
func (b *blob) Resolve(ctx context.Context) error {
	i, _ := shunt.FromContext(ctx)
	e := trial.Entry{Op: trial.Handle, Phase: trial.Invoke, ID: b.channel + "/blob", Serial: i.Serial,
		Attempt: i.Attempt}
	if string(b.payload) != b.want {
		e.ID = fmt.Sprintf("corrupt %.40q", b.payload)
	}
	b.log.Say(e)
	e.At, e.Phase = time.Time{}, trial.OK
	if b.hold.Add(-1) < 0 {
		<-ctx.Done()
		e.Phase = trial.Info
		b.log.Say(e)
		return ctx.Err()
	}
	b.log.Say(e)
	return nil
}

// payloads enqueues n of the same. It has one of them handled while its twins are held, sees that only that one goes,
// and then has all handled.
func payloads(w *world, p []byte, bare bool, n int) {
	c := w.channels[0]
	log := w.log.As("cell")
	hold := &atomic.Int32{}
	hold.Store(1)
	b := &blob{channel: c, payload: p, want: string(p), log: log, hold: hold}
	wire := p
	if bare && len(p) > 0 && p[0] == 0xC1 {
		wire = append([]byte{0xC1, 0}, p...)
	}
	if bare && strings.HasPrefix(string(p), "\xc1\x20") {
		wire = p // as a whole no header, so it needs no mark
	}
	for range n {
		w.log.Say(trial.Entry{Op: trial.Enqueue, Phase: trial.Invoke, ID: c + "/blob", Note: trial.PlanOK})
		var err error
		if bare {
			_, err = w.server.TryDo("LPUSH", "{"+c+"}.prepare", wire)
		} else {
			err = w.direct.Enqueue(context.Background(), b)
		}
		w.log.Say(trial.Entry{Op: trial.Enqueue, Phase: trial.Outcome(err), ID: c + "/blob", Note: trial.PlanOK})
		if err != nil {
			w.Fatal(err)
		}
	}
	w.struck("payload")
	receive := func() func() {
		q := w.queue(log.By, w.proxy.URL(), trial.Orders{Lease: lease})
		var shutdown shunt.Shutdown
		w.until(10*time.Second, "it starts", func() bool {
			var err error
			shutdown, err = q.Receive(context.Background(), b, 4)
			return err == nil
		})
		return func() {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			_ = shutdown(ctx) // those that are held go back
			if err := q.Close(); err != nil {
				w.Error(err)
			}
		}
	}
	stop := receive()
	w.until(20*time.Second, "one is gone", func() bool { return w.busy() == n-1 })
	time.Sleep(50 * time.Millisecond)
	stop()
	if left := w.busy(); left != n-1 {
		w.Errorf("%d are left of %d", left, n)
	}
	hold.Store(1 << 30)
	stop = receive()
	w.drained(30 * time.Second)
	stop()
}
