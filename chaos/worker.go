package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt"
)

// ordersEnv tells a process that it is a worker, and of what kind.
const ordersEnv = "SHUNT_CHAOS_ORDERS"

// orders are what a worker process is told.
type orders struct {
	Name     string
	URL      string
	Dir      string   // of the ledgers
	Channels []string // the highest first
	Weights  []int    // one a channel: weighted; else several channels are in strict order
	Workers  int
	Lease    time.Duration
	Reply    time.Duration
	Timeout  time.Duration
	Grace    time.Duration
	Prefetch int
	Batch    int  // messages that are handled together; 0: one by one
	Quiet    bool // no events: of a load that is to be fast
	Enqueue  int  // messages a second, instead of receiving; to each channel in turn
	Plans    []string
	Bytes    int
	Names    int // enqueue to so many IDs, and cancel, postpone and wait for what has them
	Seed     uint64
	Clock    string // by how much it is wrong, in a build that has such a clock

	Pull   int           // pull up to so many at a time under a lease, instead of receiving
	Hold   time.Duration // of that lease
	Wait   time.Duration // for which a Pull waits
	Hurry  time.Duration // within which the context of a Pull ends, at random; 0: it does not
	Upkeep bool          // keep all channels, instead of receiving

	wrong *atomic.Bool // that clock has been seen to be
}

func init() {
	if text := os.Getenv(ordersEnv); text != "" {
		if name := os.Getenv(defectEnv); name != "" {
			if err := plantDefect(name); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
		}
		if err := work(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

// work is a worker process. It ends in order at SIGTERM or when it is told "stop", and at once when its parent is gone.
func work(text string) error {
	var o orders
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	log, err := openLedger(o.Dir, o.Name)
	if err != nil {
		return err
	}
	pool, err := shunt.NewPool(o.URL)
	if err != nil {
		return err
	}
	ackPool = pool
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	go func() {
		in := bufio.NewScanner(os.Stdin)
		for in.Scan() {
			if in.Text() == "stop" {
				stop <- syscall.SIGTERM
			}
		}
		os.Exit(2)
	}()
	o.wrong = new(atomic.Bool)
	goroutines := runtime.NumGoroutine()
	log.say(entry{Op: count, Phase: invoke, ID: "goroutines", N: goroutines},
		entry{Op: count, Phase: invoke, ID: "connections"})
	q := o.queue(pool, log)
	if o.Enqueue > 0 {
		ctx, cancel := context.WithCancel(context.Background())
		go func() { <-stop; cancel() }()
		o.load(ctx, q, log)
		return q.Close()
	}
	shutdown, err := o.begin(q, log, stop)
	if shutdown == nil {
		return errors.Join(err, q.Close())
	}
	<-stop
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err = shutdown(ctx)
	if err2 := q.Close(); err == nil {
		err = err2
	}
	pool.Close() // of what is idle there: it is the user's
	left, stacks := settled(goroutines)
	used := pool.Stats() // a dial that was under way may have outlived Close for a moment, as goroutines may
	if err == nil && o.Clock != "" && !o.wrong.Load() {
		err = errors.New("the clock was never wrong")
	}
	if err != nil {
		log.say(entry{Op: unclean, Phase: fail, Note: err.Error()})
		return err
	}
	log.say(entry{Op: count, Phase: ok, ID: "goroutines", N: left, Note: stacks},
		entry{Op: count, Phase: ok, ID: "connections", N: used.ActiveCount - used.IdleCount},
		entry{Op: closed, Phase: ok})
	return nil
}

// begin has a worker process do what its orders say. Without a shutdown it was stopped before it could.
func (o *orders) begin(q *shunt.Queue, log *ledger, stop <-chan os.Signal) (shutdown shunt.Shutdown, err error) {
	if o.Pull > 0 || o.Upkeep {
		return o.serve(q, log)
	}
	var prototypes []shunt.IMessage
	var shares []shunt.Share
	for i, c := range o.Channels {
		p := &message{channel: c, log: log}
		prototypes = append(prototypes, p)
		if len(o.Weights) > 0 {
			shares = append(shares, shunt.Share{Prototype: p, Weight: o.Weights[i]})
		}
	}
	for {
		switch ctx := context.Background(); {
		case len(o.Weights) > 0:
			shutdown, err = q.ReceiveWeighted(ctx, o.Workers, shares...)
		default:
			shutdown, err = q.ReceiveOrdered(ctx, o.Workers, prototypes...)
		}
		if err == nil {
			return shutdown, nil
		}
		log.say(entry{Op: "unstarted", Phase: fail, Note: err.Error()}) // Redis may be away just now
		select {
		case <-time.After(200 * time.Millisecond):
		case <-stop:
			return nil, nil
		}
	}
}

// settled is how many goroutines there are once those that are ending are gone; it waits a second at most. If there are
// more than before it also says what they do.
func settled(before int) (left int, stacks string) {
	left = runtime.NumGoroutine()
	for end := time.Now().Add(time.Second); left > before && time.Now().Before(end); left = runtime.NumGoroutine() {
		time.Sleep(time.Millisecond)
	}
	if left > before {
		text := make([]byte, 16<<10)
		stacks = string(text[:runtime.Stack(text, true)])
	}
	return left, stacks
}

// queue is what every process of a run works with.
func (o *orders) queue(pool *redis.Pool, log *ledger) *shunt.Queue {
	q := &shunt.Queue{
		Pool:         pool,
		Lease:        o.Lease,
		ReplyTimeout: o.Reply,
		Timeout:      o.Timeout,
		Prefetch:     cmp.Or(o.Prefetch, usualPrefetch),
		Grace:        cmp.Or(o.Grace, 200*time.Millisecond),
		MaxAttempts:  -1,
	}
	if o.Pull > 0 {
		q.Backoff = func(int) time.Duration { return backoff } // of messages that have no method for it here
	}
	if !o.Quiet {
		q.Events = events(log)
	}
	if tell := q.Events; o.Clock != "" && tell != nil {
		q.Events = func(e shunt.Event) {
			if wrong := time.Since(e.Time.Round(0)).Abs(); wrong > time.Minute {
				o.wrong.Store(true)
			}
			e.Time = time.Time{} // the ledger's own is right
			tell(e)
		}
	}
	return q
}

// events puts what a Queue tells into a ledger. An enqueue is said where it is made.
func events(log *ledger) func(shunt.Event) {
	return func(e shunt.Event) {
		if e.Kind == shunt.EventEnqueued {
			return
		}
		out := entry{
			At:      e.Time,
			Op:      string(e.Kind),
			Phase:   info,
			Serial:  e.Serial,
			Attempt: e.Attempt,
			N:       e.N,
			Note:    e.Receiver,
		}
		if e.Err != nil {
			text, _, _ := strings.Cut(e.Err.Error(), "\n") // without a panic's stack
			out.Note += " " + text
		}
		log.say(out)
	}
}

// load enqueues until ctx ends.
func (o *orders) load(ctx context.Context, q *shunt.Queue, log *ledger) {
	if o.Names > 0 {
		o.name(ctx, q, log)
		return
	}
	tick := time.NewTicker(time.Second / time.Duration(o.Enqueue))
	defer tick.Stop()
	for i := 0; ctx.Err() == nil; i++ {
		plan := planOK
		if len(o.Plans) > 0 {
			plan = o.Plans[i%len(o.Plans)]
		}
		c := o.Channels[i%len(o.Channels)]
		m := &message{channel: c, id: fmt.Sprintf("%s/%s.%d", c, o.Name, i), plan: plan}
		if o.Bytes > 0 {
			m.filler = slices.Repeat([]byte{byte(i)}, o.Bytes)
		}
		post(ctx, q, log, m)
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// post enqueues one message, now or as its plan's "+ms" says, and says what came of it.
func post(ctx context.Context, q *shunt.Queue, log *ledger, m *message) error {
	var opts []shunt.Option
	e := entry{Op: enqueue, Phase: invoke, ID: m.id, Note: m.plan, At: time.Now()}
	if plan, ms, later := strings.Cut(m.plan, "+"); later {
		var wait time.Duration
		fmt.Sscan(ms, &wait)
		wait *= time.Millisecond
		m.plan, e.Note = plan, plan
		e.Due = e.At.Add(wait)
		opts = append(opts, shunt.In(wait))
	}
	if m.plan == planTimeout || m.plan == planHang {
		opts = append(opts, shunt.Timeout(100*time.Millisecond))
	}
	log.say(e)
	err := q.Enqueue(context.WithoutCancel(ctx), m, opts...)
	e.At, e.Phase = time.Time{}, outcome(err)
	if err != nil {
		e.Note = err.Error()
	}
	log.say(e)
	return err
}

// outcome is what an error of Enqueue says of it.
func outcome(err error) string {
	switch {
	case err == nil:
		return ok
	case errors.Is(err, shunt.ErrUnknown):
		return info
	}
	return fail
}
