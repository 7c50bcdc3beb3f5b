package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
	"github.com/shuntmq/shunt/internal/trial"
)

// world is one run: a server, a proxy before it, worker processes, a producer in this process, and the ledgers of all
// of them.
type world struct {
	testing.TB
	dir      string
	bin      string // of worker processes
	defect   string // that they make; empty: none
	log      *trial.Ledger
	file     io.Closer // of log
	server   *redistest.Server
	proxy    *redistest.Proxy
	channels []string
	direct   *shunt.Queue // of this process, past the proxy

	pulls   bool          // its workers pull where their orders do not say otherwise
	h       trial.History // what is promised
	mu      sync.Mutex    // guards what follows
	workers map[string]*worker
	born    int

	next   atomic.Int64 // id
	load   sync.WaitGroup
	unload context.CancelFunc
	hang   chan struct{} // of handlers in this process
}

// worker is a process that handles or enqueues.
type worker struct {
	*redistest.Child
	trial.Orders
	clock string // by how much it is wrong
	proxy *redistest.Proxy
}

var worlds atomic.Int64

// newWorld makes a world on a server, on channels of its own. Its workers make the defect of that name, if
// it is not empty.
func newWorld(t testing.TB, s *redistest.Server, defect string, channels ...string) *world {
	t.Helper()
	dir, err := os.MkdirTemp("", "chaos")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	bin, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	w := &world{
		TB:      t,
		dir:     dir,
		bin:     bin,
		defect:  defect,
		server:  s,
		workers: make(map[string]*worker),
		hang:    make(chan struct{}),
	}
	if w.log, w.file, err = openLedger(dir, "harness"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.close)
	n := worlds.Add(1)
	for _, c := range append([]string{"c"}, channels...) {
		w.channels = append(w.channels, fmt.Sprintf("%s%d.%d", c, os.Getpid()%1000, n))
	}
	w.proxy = redistest.NewProxy(t, s.Addr())
	w.direct = w.queue("harness", s.URL(), trial.Orders{Quiet: true})
	return w
}

// close ends the ledger when nobody writes to it any more, also where a row has failed under its load. The Queues are
// closed by then.
func (w *world) close() {
	if w.unload != nil {
		w.unload()
	}
	over := make(chan struct{})
	go func() { w.load.Wait(); close(over) }()
	select {
	case <-over:
		w.file.Close()
	case <-time.After(30 * time.Second):
		w.Error("the load of a row does not end")
	}
}

// queue makes a Queue in this process whose name in the ledgers is by.
func (w *world) queue(by, url string, o trial.Orders) *shunt.Queue {
	w.Helper()
	pool, err := shunt.NewPool(url)
	if err != nil {
		w.Fatal(err)
	}
	q := o.Queue(pool, w.log.As(by))
	w.Cleanup(func() {
		done := make(chan struct{})
		go func() { q.Close(); close(done) }()
		select {
		case <-done:
		case <-time.After(30 * time.Second):
			w.Error("Close hangs")
		}
		pool.Close()
	})
	return q
}

// start starts a worker process with a proxy of its own, receiving from the world's channels unless it is told
// otherwise.
func (w *world) start(o trial.Orders) *worker {
	w.Helper()
	return w.startWrong("", o)
}

// startWrong starts one whose clock is wrong by so much.
func (w *world) startWrong(clock string, o trial.Orders) *worker {
	w.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.born++
	x := &worker{Orders: o, clock: clock, proxy: redistest.NewProxy(w.TB, w.proxy.Addr())}
	if x.Name == "" {
		x.Name = fmt.Sprintf("w%d", w.born)
	}
	if x.Channels == nil {
		x.Channels = w.channels
	}
	if x.Workers == 0 {
		x.Workers = 8
	}
	if x.Lease == 0 {
		x.Lease = 2 * time.Second
	}
	if w.pulls && x.Pull == 0 && x.Enqueue == 0 && !x.Upkeep {
		x.Pull = usualPull
	}
	if x.Pull > 0 {
		x.Hold, x.Wait = cmp.Or(x.Hold, usualTerm), cmp.Or(x.Wait, 10*time.Second)
	}
	text, err := json.Marshal(process{Orders: x.Orders, URL: x.proxy.URL(), Dir: w.dir, Clock: clock})
	if err != nil {
		w.Fatal(err)
	}
	x.Child = redistest.Run(
		w.TB,
		[]string{
			ordersEnv + "=" + string(text),
			"CHAOS_CLOCK=" + clock,
			"GORACE=halt_on_error=1",
			defectEnv + "=" + w.defect,
		},
		w.bin,
	)
	w.workers[x.Name] = x
	return x
}

// What a puller is told where its orders say nothing.
const (
	usualPull = 4 // messages at most
	usualTerm = 2 * time.Second
)

// lasting is struck with a fault that goes on for d.
func (w *world) lasting(what string, d time.Duration, by ...*worker) {
	for _, x := range by {
		w.log.Say(trial.Entry{By: x.Name, Op: trial.Fault, Phase: trial.Info, ID: what, N: x.Flight(),
			Due: time.Now().Add(d)})
	}
}

// struck notes a fault that struck some workers; none: it allows no duplicates.
func (w *world) struck(what string, by ...*worker) {
	if len(by) == 0 {
		w.log.Say(trial.Entry{By: "harness", Op: trial.Fault, Phase: trial.Info, ID: what})
	}
	for _, x := range by {
		w.log.Say(trial.Entry{By: x.Name, Op: trial.Fault, Phase: trial.Info, ID: what, N: x.Flight()})
	}
}

// all are the workers that receive, in the order of their names.
func (w *world) all() (xs []*worker) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(w.workers)) {
		if x := w.workers[name]; x.Orders.Enqueue == 0 {
			xs = append(xs, x)
		}
	}
	return xs
}

// kill ends a worker with SIGKILL. One that a message has killed before was struck then, however late that is seen.
func (w *world) kill(x *worker) {
	x.Kill()
	w.log.Say(trial.Entry{At: x.EndedAt(), By: x.Name, Op: trial.Fault, Phase: trial.Info, ID: "kill", N: x.Flight(),
		Due: trial.ForEver})
	w.forget(x)
}

// forget takes one who is gone from the list.
func (w *world) forget(x *worker) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.workers, x.Name)
}

// enqueue puts n messages with plans in turn into the channels in turn.
func (w *world) enqueue(n int, plans ...string) {
	w.Helper()
	for i := range n {
		plan := trial.PlanOK
		if len(plans) > 0 {
			plan = plans[i%len(plans)]
		}
		if err := w.post(w.channels[i%len(w.channels)], plan, nil); err != nil {
			w.Fatal(err)
		}
	}
}

// post enqueues one message.
func (w *world) post(channel, plan string, filler []byte) error {
	id := fmt.Sprintf("%s/%d", channel, w.next.Add(1))
	return trial.Post(context.Background(), w.direct, w.log, &trial.Message{On: channel, ID: id, Plan: plan,
		Filler: filler})
}

// push says of n enqueues at once, by somebody who is no shunt, what came of them.
func (w *world) push(id, plan string, n int, do func() error) error {
	say := func(phase string) {
		for range n {
			w.log.Say(trial.Entry{Op: trial.Enqueue, Phase: phase, ID: id, Note: plan})
		}
	}
	say(trial.Invoke)
	err := do()
	if err != nil {
		say(trial.Info)
	} else {
		say(trial.OK)
	}
	return err
}

// bare puts a payload into a channel as another language would. Given an id again, it is a twin.
func (w *world) bare(channel, id, plan string) error {
	m := &trial.Message{ID: id, Plan: plan}
	return w.push(id, plan, 1, func() error {
		_, err := w.server.TryDo("LPUSH", store.KeysOf(channel).Prepare, m.Payload())
		return err
	})
}

// flow enqueues so many a second in this process until still is called.
func (w *world) flow(perSecond int, plans ...string) {
	ctx, cancel := context.WithCancel(context.Background())
	w.unload = cancel
	for range min(8, perSecond) { // so that one slow enqueue does not hold up all
		w.load.Go(func() {
			tick := time.NewTicker(time.Second * time.Duration(min(8, perSecond)) / time.Duration(perSecond))
			defer tick.Stop()
			for ctx.Err() == nil {
				n := w.next.Add(1)
				c := w.channels[int(n)%len(w.channels)]
				plan := trial.PlanOK
				if len(plans) > 0 {
					plan = plans[int(n)%len(plans)]
				}
				m := &trial.Message{On: c, ID: fmt.Sprintf("%s/%d", c, n), Plan: plan}
				if n%64 == 0 { // like what any language enqueues
					_ = w.bare(c, m.ID, trial.PlanOK)
				} else {
					trial.Post(ctx, w.direct, w.log, m)
				}
				select {
				case <-tick.C:
				case <-ctx.Done():
				}
			}
		})
	}
}

// still ends flow.
func (w *world) still() {
	if w.unload != nil {
		w.unload()
		w.load.Wait()
		w.unload = nil
	}
}

// until waits for a condition of which no Event tells this process.
func (w *world) until(limit time.Duration, what string, done func() bool) {
	w.Helper()
	if !w.within(limit, done) {
		w.Fatalf("after %v: not yet: %s\n%s", limit, what, w.state())
	}
}

func (w *world) within(limit time.Duration, done func() bool) bool {
	for end := time.Now().Add(limit); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// holds says whether a worker process has begun so many handlings.
func (w *world) holds(x *worker, n int) {
	w.Helper()
	w.until(10*time.Second, fmt.Sprintf("%s begins %d", x.Name, n),
		func() bool { return w.begun(x.Name) >= n || x.Gone() })
}

func (w *world) begun(by string) int {
	text, _ := os.ReadFile(w.dir + "/" + by + ".ledger")
	return strings.Count(string(text), "\t"+trial.Handle+"\t"+trial.Invoke+"\t")
}

// told counts what a process said of an operation.
func (w *world) told(by, op string) int {
	text, _ := os.ReadFile(w.dir + "/" + by + ".ledger")
	return strings.Count(string(text), "\t"+op+"\t")
}

// places is all that lies in the world's channels.
func (w *world) places() ([]trial.Place, error) {
	return trial.Places(w.server.TryDo, w.channels...)
}

// busy counts what is left but the dead; -1 where Redis does not say.
func (w *world) busy() int {
	n, err := trial.Busy(w.server.TryDo, w.channels...)
	if err != nil {
		return -1
	}
	return n
}

// drained waits until nothing is left but the dead. What is left after that is the checker's.
func (w *world) drained(limit time.Duration) bool {
	w.still()
	return w.within(limit, func() bool { return w.busy() == 0 })
}

// state is what Redis has, for a failed run.
func (w *world) state() string {
	ps, err := w.places()
	n := make(map[string]int)
	for _, p := range ps {
		n[p.Key]++
	}
	s := fmt.Sprintln(n, err)
	for _, x := range w.workers {
		if text := x.Said(); text != "" {
			s += x.Name + ": " + text + "\n"
		}
	}
	return s
}

// end shuts the workers down in order, and judges.
func (w *world) end(drain time.Duration) *trial.Verdict {
	w.Helper()
	well := w.drained(drain)
	left, err := w.places() // before the shutdowns put anything back
	if err != nil {
		w.Fatal(err)
	}
	if w.h.Left = left; well {
		w.stop()
		w.h.Counts = w.counts()
	}
	return w.judge()
}

// counts are those of the channels, nil where they cannot be read or promise nothing.
func (w *world) counts() []shunt.Counts {
	if w.h.Lossy {
		return nil
	}
	all, err := trial.Counts(context.Background(), w.direct, w.channels...)
	if err != nil {
		w.Logf("counts: %v", err)
		return nil
	}
	return all
}

// stop shuts all workers down in order.
func (w *world) stop() {
	w.Helper()
	for _, x := range w.workers {
		_ = x.Tell("stop") // who is gone is seen below
	}
	for name, x := range w.workers {
		select {
		case <-x.Ended():
		case <-time.After(20 * time.Second):
			w.Errorf("%s does not end", name)
			x.Kill()
		}
		if code := x.Code(); code != 0 {
			w.Errorf("%s ended with %d: %s", name, code, x.Said())
		}
	}
	w.workers = make(map[string]*worker)
}

// said is what all ledgers say until now.
func (w *world) said() ([]trial.Entry, error) { return trial.Read(os.DirFS(w.dir)) }

// openLedger opens that of a process.
func openLedger(dir, by string) (*trial.Ledger, io.Closer, error) {
	f, err := os.OpenFile(filepath.Join(dir, by+".ledger"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	return trial.NewLedger(by, f), f, err
}

// judge has the ledgers checked.
func (w *world) judge() *trial.Verdict {
	w.Helper()
	es, err := w.said()
	if err != nil {
		w.Fatal(err)
	}
	w.h.Entries = append(es, trial.Entered(w.server.TryDo, w.channels...)...)
	v := trial.Check(&w.h)
	v.Chronicle = trial.Chronicle(es)
	return v
}
