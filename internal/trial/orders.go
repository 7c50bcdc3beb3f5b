package trial

import (
	"bytes"
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt"
)

// Orders are what a process of a run is told.
type Orders struct {
	Name     string
	Channels []string // the highest first
	Weights  []int    // one a channel: weighted; else several channels are in strict order
	Workers  int
	Lease    time.Duration
	Reply    time.Duration
	Timeout  time.Duration
	Grace    time.Duration
	Prefetch int
	MaxSize  int
	MaxDead  int
	Batch    int           // messages that are handled together, of which none panics; 0: one by one
	MaxWait  time.Duration // of a batch; 0: 20 ms
	Overlong bool          // ask first for batches that are due when their messages time out, which is refused
	Quiet    bool          // no events: of a load that is to be fast
	Enqueue  int           // messages a second, instead of receiving; to each channel in turn
	Plans    []string
	Bytes    int
	Names    int    // enqueue to so many IDs, and cancel, postpone and wait for what has them
	Seed     uint64 // of all that is drawn at random

	Pull   int           // pull up to so many at a time under a lease, instead of receiving
	Hold   time.Duration // of that lease
	Wait   time.Duration // for which a Pull waits
	Hurry  time.Duration // within which the context of a Pull ends, at random; 0: it does not
	Reads  bool          // decode payloads, of which some take long
	Upkeep bool          // keep all channels, instead of receiving

	// Mistakes.
	AckFirst   bool // handlers ack their message before they begin
	TakeAnyway bool // a puller takes what it acks too late out of whichever lease holds it

	Hang chan struct{} `json:"-"` // what hangs, hangs until it is closed; nil: for ever
	Die  func()        `json:"-"` // ends the process, and does not return; PlanKill wants it
}

// usualPrefetch is a quarter of the default, so that what a fault may double is bounded more tightly.
const usualPrefetch = 16

// Flight is what a process may have in flight when a fault strikes it.
func (o *Orders) Flight() int {
	prefetch := cmp.Or(o.Prefetch, usualPrefetch)
	switch {
	case o.Pull > 0:
		prefetch = o.Pull
	case o.Batch > 0:
		prefetch = o.Batch
	case o.Upkeep:
		prefetch = 0
	case len(o.Channels) > 1:
		prefetch = 1
	}
	return o.Workers * prefetch
}

// Queue is what every process of a run works with.
func (o *Orders) Queue(pool *redis.Pool, log *Ledger) *shunt.Queue {
	q := &shunt.Queue{
		Pool:         pool,
		Lease:        o.Lease,
		ReplyTimeout: o.Reply,
		Timeout:      o.Timeout,
		Prefetch:     cmp.Or(o.Prefetch, usualPrefetch),
		Grace:        cmp.Or(o.Grace, 200*time.Millisecond),
		MaxAttempts:  -1,
		MaxSize:      o.MaxSize,
		MaxDead:      o.MaxDead,
	}
	if o.Pull > 0 {
		q.Backoff = func(int) time.Duration { return backoff } // of messages that have no method for it here
	}
	if o.Reads {
		q.Payloads.Decode = log.decode
	}
	if !o.Quiet {
		q.Events = events(log)
	}
	return q
}

// decode takes as long as a payload's plan says.
func (l *Ledger) decode(ctx context.Context, p shunt.Payload) ([]byte, error) {
	if _, plan, _ := bytes.Cut(p.Bytes, []byte(" ")); bytes.HasPrefix(plan, []byte(PlanRead)) {
		ms, _ := millis(ParseMessage(p.Bytes).Plan, PlanRead)
		l.Say(Entry{Op: decodes, Phase: Invoke})
		defer l.Say(Entry{Op: decodes, Phase: OK})
		select {
		case <-time.After(ms):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return p.Bytes, nil
}

// Begin has a process do what its orders say, until it is shut down. Without a shutdown ctx ended before it could
// begin.
func (o *Orders) Begin(ctx context.Context, q *shunt.Queue, log *Ledger) (shutdown shunt.Shutdown, err error) {
	if o.Pull > 0 || o.Upkeep {
		return o.serve(ctx, q, log)
	}
	var prototypes []shunt.IMessage
	var shares []shunt.Share
	for i, c := range o.Channels {
		p := &Message{On: c, Log: log, Hang: o.Hang, Die: o.Die, Ask: asks(q, 100*time.Millisecond),
			Queue: q}
		if o.AckFirst {
			p.ackFirst = q.Pool
		}
		prototypes = append(prototypes, p)
		if len(o.Weights) > 0 {
			shares = append(shares, shunt.Share{Prototype: p, Weight: o.Weights[i]})
		}
	}
	for {
		switch ctx := context.WithoutCancel(ctx); {
		case len(o.Weights) > 0:
			shutdown, err = q.ReceiveWeighted(ctx, o.Workers, shares...)
		case o.Batch > 0:
			shutdown, err = o.Gather(ctx, q, prototypes[0])
		default:
			shutdown, err = q.ReceiveOrdered(ctx, o.Workers, prototypes...)
		}
		if err == nil {
			log.Say(o.takes()...)
			return shutdown, nil
		}
		log.Say(Entry{Op: "unstarted", Phase: Fail, Note: err.Error()}) // Redis may be away just now
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return nil, nil
		}
	}
}

// takes are the entries that say from where the process takes.
func (o *Orders) takes() (all []Entry) {
	for _, c := range o.Channels {
		all = append(all, Entry{Op: Takes, Phase: OK, ID: c, N: o.Workers})
	}
	return all
}

// asks asks Redis for its clock, as a handler does that works with Redis itself. It waits for that at most.
func asks(q *shunt.Queue, wait time.Duration) func() {
	return func() {
		c := q.Pool.Get()
		defer c.Close()
		_, _ = redis.DoWithTimeout(c, wait, "TIME")
	}
}

// Gather has a Queue handle messages by so many.
func (o *Orders) Gather(ctx context.Context, q *shunt.Queue, prototype shunt.IMessage) (shunt.Shutdown, error) {
	b := shunt.Batch{MaxSize: o.Batch, MaxWait: cmp.Or(o.MaxWait, 20*time.Millisecond),
		Handle: func(ctx context.Context, ms []shunt.IMessage) []error {
			errs, has := make([]error, len(ms)), make([]Entry, len(ms))
			for i, m := range ms {
				m := m.(*Message)
				info, _ := shunt.FromContext(shunt.MemberContext(ctx, i))
				has[i] = Entry{Op: Gathered, Phase: Info, ID: m.ID, N: info.Worker}
				m.gathered, m.holder = time.Now(), info.Receiver
			}
			prototype.(*Message).Log.Say(has...)
			for i, m := range ms {
				errs[i] = m.Resolve(shunt.MemberContext(ctx, i))
			}
			for i := range has {
				has[i].At, has[i].Op = time.Time{}, Returned
			}
			prototype.(*Message).Log.Say(has...)
			return errs
		}}
	if o.Overlong {
		long := b
		long.MaxWait = o.Timeout
		if shutdown, err := q.ReceiveBatch(ctx, prototype, o.Workers, long); err == nil {
			return shutdown, nil // it is to handle them all the same
		}
	}
	return q.ReceiveBatch(ctx, prototype, o.Workers, b)
}

// events puts what a Queue tells into a ledger. An enqueue is said where it is made.
func events(log *Ledger) func(shunt.Event) {
	return func(e shunt.Event) {
		if e.Kind == shunt.EventEnqueued {
			return
		}
		out := Entry{
			At:      log.timed(e.Time),
			Op:      string(e.Kind),
			Phase:   Info,
			Serial:  e.Serial,
			Attempt: e.Attempt,
			N:       e.N,
			Note:    e.Receiver,
		}
		if e.Err != nil {
			text, _, _ := strings.Cut(e.Err.Error(), "\n") // without a panic's stack
			out.Note += " " + text
		}
		log.Say(out)
	}
}
