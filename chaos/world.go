package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
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
)

// world is one run: a server, a proxy before it, worker processes, a producer in this process, and the ledgers of all
// of them.
type world struct {
	testing.TB
	dir      string
	bin      string // of worker processes
	defect   string // that they make; empty: none
	log      *ledger
	server   *redistest.Server
	proxy    *redistest.Proxy
	channels []string
	direct   *shunt.Queue // of this process, past the proxy

	pulls   bool       // its workers pull where their orders do not say otherwise
	h       history    // what is promised
	mu      sync.Mutex // guards what follows
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
	orders
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
	if w.log, err = openLedger(dir, "harness"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.close)
	n := worlds.Add(1)
	for _, c := range append([]string{"c"}, channels...) {
		w.channels = append(w.channels, fmt.Sprintf("%s%d.%d", c, os.Getpid()%1000, n))
	}
	w.proxy = redistest.NewProxy(t, s.Addr())
	w.direct = w.queue("harness", s.URL(), orders{Quiet: true})
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
		w.log.file.Close()
	case <-time.After(30 * time.Second):
		w.Error("the load of a row does not end")
	}
}

// queue makes a Queue in this process whose name in the ledgers is by.
func (w *world) queue(by, url string, o orders) *shunt.Queue {
	w.Helper()
	pool, err := shunt.NewPool(url)
	if err != nil {
		w.Fatal(err)
	}
	q := o.queue(pool, &ledger{by: by, file: w.log.file})
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
func (w *world) start(o orders) *worker {
	w.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.born++
	x := &worker{orders: o, proxy: redistest.NewProxy(w.TB, w.proxy.Addr())}
	if x.Name == "" {
		x.Name = fmt.Sprintf("w%d", w.born)
	}
	x.URL, x.Dir = x.proxy.URL(), w.dir
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
	text, err := json.Marshal(x.orders)
	if err != nil {
		w.Fatal(err)
	}
	x.Child = redistest.Run(
		w.TB,
		[]string{
			ordersEnv + "=" + string(text),
			"CHAOS_CLOCK=" + x.Clock,
			"GORACE=halt_on_error=1",
			defectEnv + "=" + w.defect,
		},
		w.bin,
	)
	w.workers[x.Name] = x
	return x
}

// usualPrefetch is a quarter of the default, so that what a fault may double is bounded more tightly.
const usualPrefetch = 16

// usualPull is how many messages a Pull takes at most.
const usualPull = 4

// flight is what a worker may have in flight when a fault strikes it.
func (x *worker) flight() int {
	prefetch := cmp.Or(x.Prefetch, usualPrefetch)
	switch {
	case x.Pull > 0:
		prefetch = x.Pull
	case x.Upkeep:
		prefetch = 0
	case len(x.Channels) > 1:
		prefetch = 1
	}
	return x.Workers * prefetch
}

// lasting is struck with a fault that goes on for d.
func (w *world) lasting(what string, d time.Duration, by ...*worker) {
	for _, x := range by {
		w.log.say(entry{By: x.Name, Op: fault, Phase: info, ID: what, N: x.flight(), Due: time.Now().Add(d)})
	}
}

// struck notes a fault that struck some workers; none: it allows no duplicates.
func (w *world) struck(what string, by ...*worker) {
	if len(by) == 0 {
		w.log.say(entry{By: "harness", Op: fault, Phase: info, ID: what})
	}
	for _, x := range by {
		w.log.say(entry{By: x.Name, Op: fault, Phase: info, ID: what, N: x.flight()})
	}
}

// all are the workers that receive, in the order of their names.
func (w *world) all() (xs []*worker) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(w.workers)) {
		if x := w.workers[name]; x.orders.Enqueue == 0 {
			xs = append(xs, x)
		}
	}
	return xs
}

// kill ends a worker with SIGKILL.
func (w *world) kill(x *worker) {
	x.Kill()
	w.log.say(entry{By: x.Name, Op: fault, Phase: info, ID: "kill", N: x.flight(), Due: forEver})
	w.forget(x)
}

// forEver is when a killed process comes back.
var forEver = time.Unix(1<<33, 0)

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
		plan := planOK
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
	return post(context.Background(), w.direct, w.log, &message{channel: channel, id: id, plan: plan, filler: filler})
}

// push says of n enqueues at once, by somebody who is no shunt, what came of them.
func (w *world) push(id, plan string, n int, do func() error) error {
	say := func(phase string) {
		for range n {
			w.log.say(entry{Op: enqueue, Phase: phase, ID: id, Note: plan})
		}
	}
	say(invoke)
	err := do()
	if err != nil {
		say(info)
	} else {
		say(ok)
	}
	return err
}

// bare puts a payload into a channel as another language would. Given an id again, it is a twin.
func (w *world) bare(channel, id, plan string) error {
	m := &message{id: id, plan: plan}
	return w.push(id, plan, 1, func() error {
		_, err := w.server.TryDo("LPUSH", store.KeysOf(channel).Prepare, m.payload())
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
				plan := planOK
				if len(plans) > 0 {
					plan = plans[int(n)%len(plans)]
				}
				m := &message{channel: c, id: fmt.Sprintf("%s/%d", c, n), plan: plan}
				if n%64 == 0 { // like what any language enqueues
					_ = w.bare(c, m.id, planOK)
				} else {
					post(ctx, w.direct, w.log, m)
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
	return strings.Count(string(text), "\t"+handle+"\t"+invoke+"\t")
}

// told counts what a process said of an operation.
func (w *world) told(by, op string) int {
	text, _ := os.ReadFile(w.dir + "/" + by + ".ledger")
	return strings.Count(string(text), "\t"+op+"\t")
}

// places is all that lies in the world's channels.
func (w *world) places() ([]place, error) {
	var all []place
	for _, c := range w.channels {
		ps, err := placesOf(w.server.TryDo, c)
		if err != nil {
			return nil, err
		}
		all = append(all, ps...)
	}
	return all, nil
}

// ends says whether a lease has an end.
func ends(do doer, k *store.Keys, name string) bool {
	v, err := do("ZSCORE", k.Leased, name)
	return err != nil || v != nil
}

type doer func(cmd string, args ...any) (any, error)

// placesOf reads a channel's keys one after another, as no receiver may.
func placesOf(do doer, channel string) ([]place, error) {
	keys, err := redis.Strings(do("KEYS", "{"+channel+"}.*"))
	if err != nil {
		return nil, err
	}
	k := store.KeysOf(channel)
	var all []place
	for _, key := range keys {
		state := strings.TrimPrefix(key, "{"+channel+"}.")
		var raws [][]byte
		switch {
		case !hasElements(k, key):
			continue
		case key == k.Delay || key == k.Dead:
			raws, err = redis.ByteSlices(do("ZRANGE", key, 0, -1))
		default:
			if strings.HasPrefix(state, "doing.") {
				state = "doing"
			} else if name, leased := strings.CutPrefix(state, "leased."); leased {
				if state = "leased"; !ends(do, k, name) {
					state = "doing" // of nobody
				}
			}
			raws, err = redis.ByteSlices(do("LRANGE", key, 0, -1))
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		for _, raw := range raws {
			e, _ := element.Decode(raw)
			m := parseMessage(e.Payload)
			id := m.id
			if m.corrupt != "" {
				id = "corrupt " + id
			}
			all = append(all,
				place{ID: id, State: state, Key: key, Recoveries: int(e.Recoveries), Failure: e.Failure()})
		}
	}
	return all, nil
}

// tally counts what is left but the dead, also in the lists of every incarnation and every lease that is known. It does
// so in one step, and looks at no other channel's keys.
const tally = `
local function n(command, key) local v = redis.pcall(command, key) return type(v) == 'number' and v or 0 end
local sum = 0
for _, c in ipairs(ARGV) do
  local k = '{' .. c .. '}.'
  sum = sum + n('LLEN', k .. 'prepare') + n('LLEN', k .. 'suspect') + n('ZCARD', k .. 'delay')
  local leases = redis.pcall('ZRANGE', k .. 'leased', 0, -1)
  for _, name in ipairs(leases) do sum = sum + n('LLEN', k .. 'leased.' .. name) end
  for _, set in ipairs({'receivers', 'receivers.dead'}) do
    local names = redis.pcall('ZRANGE', k .. set, 0, -1)
    for _, name in ipairs(names) do
      name = string.match(name, '^%S+')
      local workers = tonumber(string.match(name, '%-(%d+)%-'))
      for w = 0, workers - 1 do sum = sum + n('LLEN', k .. 'doing.' .. name .. '.' .. w) end
    end
  end
end
return sum`

// busy counts what is left but the dead; -1 where Redis does not say.
func (w *world) busy() int {
	args := []any{tally, 0}
	for _, c := range w.channels {
		args = append(args, c)
	}
	n, err := redis.Int(w.server.TryDo("EVAL", args...))
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
func (w *world) end(drain time.Duration) *verdict {
	w.Helper()
	well := w.drained(drain)
	left, err := w.places() // before the shutdowns put anything back
	if err != nil {
		w.Fatal(err)
	}
	if w.h.left = left; well {
		w.stop()
		w.h.counts = w.counts()
	}
	return w.judge()
}

// counts are those of the channels, nil where they cannot be read or promise nothing.
func (w *world) counts() (all []shunt.Counts) {
	if w.h.lossy {
		return nil
	}
	cs, err := w.direct.Counts(context.Background(), shunt.CountsOptions{Channels: w.channels})
	if err != nil {
		w.Logf("counts: %v", err)
		return nil
	}
	for _, of := range cs {
		all = append(all, of...)
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

// judge has the ledgers checked.
func (w *world) judge() *verdict {
	w.Helper()
	es, err := readLedgers(w.dir)
	if err != nil {
		w.Fatal(err)
	}
	w.h.entries = append(es, w.entered()...)
	v := check(&w.h)
	v.chronicle = chronicle(es)
	return v
}

// entered is what Redis still knows of receivers. These are the leases that some receiver has found to be over, which
// Redis keeps for an hour, and the living.
func (w *world) entered() (es []entry) {
	now := time.Now()
	for _, c := range w.channels {
		k := store.KeysOf(c)
		members, _ := redis.Strings(w.server.TryDo("ZRANGE", k.DeadReceivers, 0, -1))
		for _, m := range members {
			if dead, err := store.ParseDeadReceiver(m); err == nil && !dead.Superseded {
				ms, _ := strconv.ParseInt(dead.Death, 10, 64)
				es = append(es, entry{At: time.UnixMilli(ms), By: "redis", Op: judged, Phase: info, Note: dead.Name})
			}
		}
		living, _ := redis.Strings(w.server.TryDo("ZRANGE", k.Receivers, 0, -1))
		for _, name := range living {
			es = append(es, entry{At: now, By: "redis", Op: remains, Phase: info, ID: k.Receivers, Note: name})
		}
	}
	return es
}

// chronicle is what concerns no message, for a run that failed: all faults, and the end of the rest.
func chronicle(es []entry) string {
	var faults, others []string
	for _, e := range es {
		line := e.At.Format("05.000") + " " + strings.Join(strings.Split(strings.TrimSpace(e.String()), "\t")[1:], " ")
		switch {
		case e.Op == fault || e.Op == delayed:
			faults = append(faults, line)
		case e.ID == "" && e.Serial == "":
			others = append(others, line)
		}
	}
	return strings.Join(append(faults, others[max(0, len(others)-60):]...), "\n")
}
