package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/trial"
	"github.com/shuntmq/shunt/recur"
)

// ticks is the channel of what recurs.
const ticks = "ticks"

// Recurring is a message that recurs, and what an operator does with it. The first change adds it. Those at an even
// place begin its ticks, and the others end them.
type Recurring struct {
	Name    string
	Every   time.Duration
	Cron    bool
	Missed  int // a recur.Policy, which cannot be read from JSON
	Changes []Change
}

// Change is one call of an operator.
type Change struct {
	At   time.Duration
	What string
}

func (r *Recurring) spec() recur.Spec {
	if r.Cron {
		return recur.Cron(fmt.Sprintf("*/%d * * * * *", r.Every/time.Second), "")
	}
	return recur.Every(r.Every)
}

// recurs draws what recurs, and who runs it.
func (p *Plot) recurs(r *rand.Rand, join func(trial.Orders)) {
	for range 1 + r.IntN(2) {
		join(trial.Orders{Channels: []string{ticks}, Workers: 1 + r.IntN(3)})
	}
	for i := range 1 + r.IntN(3) {
		e := Recurring{Name: fmt.Sprint("r", i), Missed: int(pick(r, []recur.Policy{recur.Skip,
			recur.One, recur.All(recur.MaxAll)}))}
		if e.Cron = r.IntN(3) == 0; e.Cron {
			e.Every = time.Duration(pick(r, []int{1, 2, 5})) * time.Second
		} else {
			e.Every = pick(r, []time.Duration{300, 700, 1500, 4000}) * time.Millisecond
		}
		for at := between(r, 0, 5*time.Second); at < p.length()-lull; at += between(r, 2*time.Second, 40*time.Second) {
			c := Change{At: at, What: "add"}
			switch n := len(e.Changes); {
			case n%2 == 1:
				c.What = pick(r, []string{"pause", "remove"})
			case n > 0 && e.Changes[n-1].What == "pause":
				c.What = "resume"
			}
			e.Changes = append(e.Changes, c)
		}
		p.Recurs = append(p.Recurs, e)
	}
}

// timetable has all that recurs, and what was done with it. It is its hand's until the end.
type timetable struct {
	*recur.Timetable
	w       *world
	seasons [][]season // of each Recurring
}

// recur has hands make the changes of all that recurs.
func (w *world) recur(by *process) {
	w.timetable = timetable{Timetable: &recur.Timetable{Queue: by.queue}, w: w,
		seasons: make([][]season, len(w.plot.Recurs))}
	for i := range w.plot.Recurs {
		w.hands.Go(func() { w.timetable.operate(i) })
	}
}

// operate makes the changes of one that recurs, each as often as it takes.
func (t *timetable) operate(i int) {
	r := &t.w.plot.Recurs[i]
	for _, c := range r.Changes {
		t.w.sleepUntil(c.At)
		t.change(i, c.What)
	}
}

func (t *timetable) change(i int, what string) {
	r, ctx, from := &t.w.plot.Recurs[i], context.Background(), time.Now()
	for {
		var err error
		switch what {
		case "add":
			err = t.Add(ctx, r.Name, r.spec(), shunt.Raw(ticks, []byte(r.Name)), recur.Missed(recur.Policy(r.Missed)))
		case "pause":
			err = t.Pause(ctx, ticks, r.Name)
		case "resume":
			err = t.Resume(ctx, ticks, r.Name)
		case "remove":
			err = t.Remove(ctx, ticks, r.Name)
		}
		if err == nil || what == "remove" && strings.HasSuffix(err.Error(), recur.ErrNotFound.Error()) {
			break // an earlier try may have removed it
		}
		time.Sleep(100 * time.Millisecond)
	}
	es := &t.seasons[i]
	if what == "add" || what == "resume" {
		far := time.Now().Add(t.w.plot.length())
		*es = append(*es, season{begun: from, sure: time.Now(), ends: far, over: far, fresh: what == "add"})
	} else if e := &(*es)[len(*es)-1]; time.Now().Before(e.over) {
		e.ends, e.over = from, time.Now()
	}
}

// stop pauses all that recurs.
func (t *timetable) stop() {
	t.Queue = t.w.direct.queue
	for i, es := range t.seasons {
		if n := len(es); n > 0 && es[n-1].over.After(time.Now()) {
			t.change(i, "pause")
		}
	}
}

// tick has a process handle ticks, and run their timetable, until it is shut down.
func (p *process) tick(ctx context.Context) shunt.Shutdown {
	again := func(begin func() (shunt.Shutdown, error)) shunt.Shutdown {
		for {
			end, err := begin()
			if err == nil {
				return end
			}
			p.log.Say(trial.Entry{Op: "unstarted", Phase: trial.Fail, Note: err.Error()})
			select {
			case <-time.After(200 * time.Millisecond):
			case <-ctx.Done():
				return nil
			}
		}
	}
	all := context.WithoutCancel(ctx)
	heard := again(func() (shunt.Shutdown, error) {
		return p.queue.Receive(all, &ticked{log: p.log}, p.Workers)
	})
	if heard == nil {
		return nil
	}
	heard = p.timed(heard)
	ends := again(func() (shunt.Shutdown, error) { return (&recur.Timetable{Queue: p.queue}).Run(all, ticks) })
	return func(ctx context.Context) error {
		if ends != nil {
			began, waits := time.Now(), ctx.Err() == nil
			_ = ends(ctx)
			if waits {
				p.w.took("shutdown of a runner", time.Since(began), p.Name)
			}
		}
		return heard(ctx)
	}
}

// ticked is the message of a tick: the name of what recurs.
type ticked struct {
	log  *trial.Ledger
	name string
}

func (m *ticked) Channel() string          { return ticks }
func (m *ticked) Marshal() ([]byte, error) { return []byte(m.name), nil }
func (m *ticked) Unmarshal(payload []byte) (shunt.IMessage, error) {
	return &ticked{m.log, string(payload)}, nil
}

func (m *ticked) Resolve(ctx context.Context) error {
	i, _ := shunt.FromContext(ctx)
	at, _ := recur.Tick(ctx)
	e := trial.Entry{Op: trial.Handle, Phase: trial.Invoke, ID: tickID(m.name, at), Serial: i.Serial,
		Attempt: i.Attempt, N: i.Worker, Note: i.Receiver}
	m.log.Say(e)
	e.Phase = trial.OK
	m.log.Say(e)
	return nil
}

func tickID(name string, at time.Time) string {
	return fmt.Sprintf("%s/%s@%d", ticks, name, at.UnixMilli())
}

// remove removes all that recurs, and keeps what was known of it.
func (t *timetable) remove() {
	var err error
	if t.w.table, err = t.List(context.Background(), ticks); err != nil {
		t.w.problem("I22 ticks: list: %v", err)
	}
	t.w.table = append([]recur.Entry{}, t.w.table...) // not nil: it was read
	for _, e := range t.w.table {
		if err := t.Remove(context.Background(), ticks, e.Name); err != nil {
			t.w.problem("I22 ticks: %v", err)
		}
	}
}
