package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/sim/daytime"
	"github.com/shuntmq/shunt/internal/sim/disturb"
	"github.com/shuntmq/shunt/internal/sim/redis"
	"github.com/shuntmq/shunt/internal/store"
	"github.com/shuntmq/shunt/internal/trial"
	"github.com/shuntmq/shunt/recur"
)

// world is one run: a Redis, the network before it, processes, and what they say.
type world struct {
	plot     *Plot
	server   *redis.Server
	net      *network
	said     trial.Memory
	log      *trial.Ledger // of the harness
	direct   *process      // past all faults but the server's
	producer *process      // nil while another one is to come; mu guards it
	began    time.Time

	hands  sync.WaitGroup // of faults and load
	living sync.WaitGroup // of processes, also those that were killed

	mu     sync.Mutex
	born   []*process
	crew   []*process
	armed  map[*rule]func(*process) // rules that may strike anybody: each notes one that begins meanwhile
	result Result

	timetable timetable
	table     []recur.Entry // as it was at the end
	operator  operator
	held      map[string]holding // by serial; a hand's until the end
	watches   map[string]*daytime.Clock
}

// epoch is when runs begin: after the start of this program, from which some of the package's clocks count.
var epoch = time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)

// Result is how a run ended.
type Result struct {
	Verdict  *trial.Verdict
	Problems []string // what no invariant of the ledger tells
	Commands int
	Story    func() string            // of the faults
	Struck   int                      // blows that did something
	Most     map[string]time.Duration // that something took
}

// Err tells of what is wrong.
func (r *Result) Err() error {
	err := r.Verdict.Err()
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, r.Story())
	}
	if len(r.Problems) > 0 {
		text := strings.Join(r.Problems, "\n")
		if err != nil {
			return fmt.Errorf("%s\n%w", text, err)
		}
		return fmt.Errorf("%s\n%s", text, r.Story())
	}
	return err
}

// Broke names what does not hold.
func (r *Result) Broke() (all []string) {
	for _, p := range r.Problems {
		name, _, _ := strings.Cut(p, ":")
		all = append(all, name)
	}
	return append(all, r.Verdict.Broke()...)
}

func (w *world) problem(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.result.Problems = append(w.result.Problems, fmt.Sprintf(format, args...))
}

// play plays a plot, in a bubble of testing/synctest.
func play(p *Plot) *Result {
	time.Sleep(time.Until(epoch))
	disturb.Seed(p.Seed, p.Yield)
	heard, closes := p.heard()
	defer closes()
	o := redis.Options{RunID: fmt.Sprint(p.Seed), MaxBulk: p.Bulk, MaxReply: p.Reply, Heard: heard}
	w := &world{plot: p, server: redis.New(o), began: time.Now()}
	w.net = &network{server: w.server, struck: func(p *port) { w.lasting(Blow{Kind: trial.HungUp}, 0, p.of) }}
	w.log = w.said.Ledger("harness")
	link.StaleAfter = time.Second
	if p.Idle > 0 {
		link.StaleAfter = staleAfter
	}
	w.direct = w.start(trial.Orders{Name: "direct", Quiet: true, Lease: lease})
	if p.Late == 0 {
		w.begin()
	}
	var namer *process
	if p.Names != nil {
		namer = w.start(*p.Names)
	}
	w.producer = w.start(trial.Orders{Name: "producer", Lease: lease})
	w.load()
	w.recalled()
	if p.Late > 0 {
		time.Sleep(p.Late)
		w.begin()
	}
	w.spells()
	stop := w.reap()
	timer := w.start(trial.Orders{Name: "timetable", Lease: lease})
	w.recur(timer)
	operator := w.start(trial.Orders{Name: "operator", Lease: lease})
	w.operate(operator)
	others := append(w.clerks(), w.waiting()...)
	w.looks()
	w.strikes()
	for c := range p.Cycles {
		w.lull(c)
	}
	w.sleepUntil(p.length())
	stop()
	w.hands.Wait()
	w.log.Say(trial.Entry{Op: trial.Healing, Phase: trial.Info})
	w.timetable.stop()
	if namer != nil {
		namer.term()
	}
	w.producer.term()
	timer.term()
	operator.term()
	for _, p := range others {
		p.term()
	}
	w.end()
	w.direct.term()
	w.living.Wait()
	w.spins()
	p.words(w.said.Entries())
	w.result.Commands += w.server.Commands()
	return &w.result
}

// begin starts the processes that handle.
func (w *world) begin() {
	for _, o := range w.plot.Crew {
		w.crew = append(w.crew, w.start(o))
	}
}

func (w *world) sleepUntil(at time.Duration) { time.Sleep(time.Until(w.began.Add(at))) }

// all are the processes that handle, in the order of the plot.
func (w *world) all() []*process {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.crew)
}

// load enqueues what the plot has, by four hands.
func (w *world) load() {
	const lanes = 4
	for lane := range lanes {
		w.hands.Go(func() {
			for i := lane; i < len(w.plot.Posts); i += lanes {
				post := w.plot.Posts[i]
				w.sleepUntil(post.At)
				w.post(i, post)
			}
		})
	}
}

func (p *Post) id(i int) string { return fmt.Sprintf("%s/%d", p.Channel, i) }

// post enqueues one message, or two of the same payload.
func (w *world) post(i int, post Post) {
	m := &trial.Message{On: post.Channel, ID: post.id(i), Plan: post.Plan,
		Filler: make([]byte, post.Bytes)}
	ctx := context.Background()
	switch post.How {
	case "direct":
		_ = trial.PostWithin(ctx, w.direct.queue, w.log, m, post.Terms)
		return
	case "bare":
		w.push(m, 1)
		return
	case "twins":
		w.push(m, 2)
		return
	}
	producer := w.posting()
	defer producer.posts.Done()
	switch post.How {
	case "all":
		plan, _, _ := strings.Cut(post.Plan, "+")
		m.Plan = plan
		w.log.Say(trial.Entry{Op: trial.Enqueue, Phase: trial.Invoke, ID: m.ID, Note: m.Plan})
		err := producer.queue.EnqueueAll(ctx, []shunt.IMessage{m})
		e := trial.Entry{Op: trial.Enqueue, Phase: outcomeOfAll(err), ID: m.ID}
		if err != nil {
			e.Note = err.Error()
		}
		w.log.Say(e)
	default:
		if post.Within > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, post.Within)
			defer cancel()
		}
		_ = trial.PostWithin(ctx, producer.queue, w.said.Ledger(producer.Name), m, post.Terms)
	}
}

// posting is the producer that enqueues now, and waits for the post.
func (w *world) posting() *process {
	for {
		w.mu.Lock()
		if p := w.producer; p != nil {
			p.posts.Add(1)
			w.mu.Unlock()
			return p
		}
		w.mu.Unlock()
		time.Sleep(time.Millisecond)
	}
}

// outcomeOfAll is what EnqueueAll says of its only message.
func outcomeOfAll(err error) string {
	var of *shunt.EnqueueError
	switch {
	case err == nil:
		return trial.OK
	case errors.As(err, &of) && len(of.Unknown) > 0:
		return trial.Info
	}
	return trial.Outcome(err)
}

// push enqueues so many of the same payload as another language would.
func (w *world) push(m *trial.Message, n int) {
	say := func(phase string) {
		for range n {
			w.log.Say(trial.Entry{Op: trial.Enqueue, Phase: phase, ID: m.ID, Note: m.Plan})
		}
	}
	args := []any{store.KeysOf(m.On).Prepare}
	for range n {
		args = append(args, m.Payload())
	}
	say(trial.Invoke)
	if _, err := w.do("LPUSH", args...); err != nil {
		say(trial.Fail)
		return
	}
	say(trial.OK)
}

var errDown = errors.New("sim: redis is down")

// do runs a command past all lines, where there is a server that serves.
func (w *world) do(cmd string, args ...any) (any, error) {
	w.net.mu.Lock()
	down := w.net.down || w.net.trunk.frozen
	w.net.mu.Unlock()
	if down {
		return nil, errDown
	}
	return w.server.Do(cmd, args...)
}
