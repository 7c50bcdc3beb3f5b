package trial

import (
	"context"
	"errors"
	"net"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/redistest"
)

// Processes of every kind live in one and say in its memory what they do. They break nothing as they are, and lose what
// is in hand at their end where they ack it first.
func TestProcessesInOne(t *testing.T) {
	for name, c := range map[string]struct {
		ackFirst bool
		want     []string
	}{"sound": {}, "ack first": {true, []string{"I1 lost", "I6 conservation"}}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redistest.Leaks(t)
			s := redistest.Shared(t)
			plain, batched := redistest.Name(t), redistest.Name(t)
			r := &run{TB: t, s: s, channels: []string{plain, batched}}
			holder := r.begin(Orders{Name: "holder", Channels: r.channels[:1], Workers: 1, Prefetch: 1,
				AckFirst: c.ackFirst})
			log := r.m.Ledger("test")
			held := &Message{On: plain, ID: plain + "/held", Plan: PlanHold + "holder"}
			if err := Post(context.Background(), holder.q, log, held); err != nil {
				t.Fatal(err)
			}
			r.until("it is held", func() bool { return r.begun("holder") })
			r.begin(Orders{Name: "batches", Channels: r.channels[1:], Workers: 2, Batch: 4})
			r.begin(Orders{Name: "puller", Channels: r.channels[:1], Workers: 2, Pull: 2, Hold: 5 * time.Second,
				Wait: time.Second})
			ctx, still := context.WithTimeout(context.Background(), time.Second)
			defer still()
			var loads sync.WaitGroup
			for _, o := range []Orders{
				{Name: "flow", Enqueue: 200, Plans: []string{PlanOK, PlanRetry, PlanReject, PlanOK + "+50",
					PlanThen + "2", PlanSlow + "20", PlanTwice}},
				{Name: "names", Enqueue: 100, Names: 20},
			} {
				p := r.start(o)
				loads.Go(func() { p.Load(ctx, p.q, p.log) })
			}
			loads.Wait()
			for _, name := range []string{"batches", "puller"} {
				if !r.begun(name) {
					t.Errorf("%s has handled nothing", name)
				}
			}
			holder.end() // what it holds goes back
			r.until("all is handled", func() bool {
				n, err := Busy(s.TryDo, r.channels...)
				return n == 0 && err == nil
			})
			v := r.judge()
			if got := v.Broke(); !slices.Equal(got, c.want) || v.Enqueued < 100 {
				t.Errorf("reported %v, want %v: %v\n%v", got, c.want, v, v.Err())
			}
		})
	}
}

// run is one of processes that live in this one.
type run struct {
	testing.TB
	s        *redistest.Server
	channels []string
	m        Memory
	all      []*process
}

// process is one of them; end ends it, once.
type process struct {
	Orders
	q   *shunt.Queue
	log *Ledger
	end func()
}

func (r *run) start(o Orders) *process {
	if o.Lease = time.Second; o.Channels == nil {
		o.Channels = r.channels
	}
	p := &process{Orders: o, log: r.m.Ledger(o.Name)}
	p.q = p.Queue(r.s.Pool(r), p.log)
	p.end = sync.OnceFunc(func() {
		if err := p.q.Close(); err != nil {
			r.Errorf("%s: %v", o.Name, err)
		}
	})
	r.Cleanup(func() { p.end() })
	r.all = append(r.all, p)
	return p
}

// begin starts one that handles.
func (r *run) begin(o Orders) *process {
	p := r.start(o)
	shutdown, err := p.Begin(context.Background(), p.q, p.log)
	for tries := 1; tries < 10 && err != nil; tries++ {
		var late net.Error
		if !errors.As(err, &late) || !late.Timeout() {
			break
		}
		shutdown, err = p.Begin(context.Background(), p.q, p.log)
	}
	if err != nil {
		r.Fatal(err)
	}
	closes := p.end
	p.end = sync.OnceFunc(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond) // then handlers lose theirs
		defer cancel()
		if err := shutdown(ctx); err != nil && o.Name != "holder" {
			r.Errorf("%s: %v", o.Name, err)
		}
		closes()
		p.log.Say(Entry{Op: Closed, Phase: OK})
	})
	return p
}

func (r *run) begun(by string) bool {
	return slices.ContainsFunc(r.m.Entries(), func(e Entry) bool { return e.By == by && e.Op == Handle })
}

func (r *run) until(what string, is func() bool) {
	redistest.Until(r, 10*time.Second, what, is)
}

// judge ends all, and has the ledgers checked.
func (r *run) judge() *Verdict {
	h := &History{}
	var err error
	if h.Left, err = Places(r.s.TryDo, r.channels...); err != nil {
		r.Fatal(err)
	}
	for _, p := range r.all {
		p.end()
	}
	q := r.start(Orders{Name: "judge"}).q
	if h.Counts, err = Counts(context.Background(), q, r.channels...); err != nil {
		r.Fatal(err)
	}
	h.Entries = append(r.m.Entries(), Entered(r.s.TryDo, r.channels...)...)
	return Check(h)
}

// What kills its process does so, and says nothing after that.
func TestKill(t *testing.T) {
	var m Memory
	died := false
	k := &Message{ID: "k", Plan: PlanKill, Log: m.Ledger("p"), Die: func() { died = true; runtime.Goexit() }}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = k.Resolve(context.Background()) }()
	<-ended
	if es := m.Entries(); !died || len(es) != 1 || es[0].Op != Handle || es[0].Phase != Invoke {
		t.Error(died, es)
	}
}

// A process has in flight what its workers hold: of a batch each of them holds as much, whatever is prefetched.
func TestFlight(t *testing.T) {
	for _, c := range []struct {
		o    Orders
		want int
	}{
		{Orders{Workers: 2, Prefetch: 3}, 6}, {Orders{Workers: 2}, 2 * usualPrefetch},
		{Orders{Workers: 2, Prefetch: 1, Batch: 4}, 8}, {Orders{Workers: 2, Pull: 5}, 10},
		{Orders{Workers: 2, Channels: []string{"high", "low"}}, 2}, {Orders{Workers: 2, Upkeep: true}, 0},
	} {
		if n := c.o.Flight(); n != c.want {
			t.Errorf("%+v has %d in flight, want %d", c.o, n, c.want)
		}
	}
}
