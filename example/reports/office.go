package main

import (
	"context"
	"errors"
	"fmt"
	"time"
	_ "time/tzdata" // for hosts that know no time zones

	"golang.org/x/sync/errgroup"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/example/internal/server"
	"github.com/shuntmq/shunt/recur"
)

const (
	zone     = "Europe/Berlin"
	patience = 2 * time.Second // with handlers, at the end
)

// Report is ordered by name: the name is its ID, too.
type Report struct {
	Name  string
	Takes time.Duration
}

// Filed goes into the archive, which is kept in east.
type Filed struct {
	What string
	Tick time.Time // of a report that recurs
	By   string    // who made it
}

// office is what both processes run.
type office struct {
	name    string
	berlin  *time.Location
	q       *shunt.Queue
	table   *recur.Timetable
	takings *shunt.Kind[string] // recurs
	report  *shunt.Kind[Report] // made to order
	filed   *shunt.Kind[Filed]  // for east
	visit   *shunt.Kind[string] // for west: a customer, who asks for a report
	arrived chan Filed          // in the archive

	ticking, making shunt.Shutdown
	shutdown        []shunt.Shutdown // of all that was begun
}

func newOffice(s *server.Server, name string) (*office, error) {
	berlin, err := time.LoadLocation(zone)
	if err != nil {
		return nil, err
	}
	o := &office{name: name, berlin: berlin, arrived: make(chan Filed, 64)}
	o.q = &shunt.Queue{Pool: s.Pool, Events: o.event}
	o.table = &recur.Timetable{Queue: o.q}
	o.takings = shunt.Define("example.reports.takings", o.count)
	o.report = shunt.Define("example.reports.report", o.make)
	o.filed = shunt.Define("example.reports.filed", o.file)
	o.visit = shunt.Define("example.reports.visit", o.serve)
	return o, nil
}

// open begins what both do, and receives what is this office's alone.
func (o *office) open(ctx context.Context, own shunt.IMessage) error {
	begun := func(shutdown shunt.Shutdown, err error) (shunt.Shutdown, error) {
		if err == nil {
			o.shutdown = append(o.shutdown, shutdown)
		}
		return shutdown, err
	}
	for _, m := range []shunt.IMessage{o.takings, own} {
		if _, err := begun(o.q.Receive(ctx, m, 1)); err != nil {
			return err
		}
	}
	var err error
	if o.making, err = begun(o.q.Receive(ctx, o.report, 1)); err != nil {
		return err
	}
	// Both add the same: the second changes nothing. All has seconds made up for that pass while the computer is too
	// busy for either.
	every := recur.Cron("* * * * * *", zone)
	if err = o.table.Add(ctx, "takings", every, o.takings.Message("the shop"),
		recur.Missed(recur.All(60))); err != nil {
		return err
	}
	if o.ticking, err = begun(o.table.Run(ctx, o.takings.Channel())); err == nil {
		o.tell("open", "and runs the timetable: takings at %q", every)
	}
	return err
}

// count handles what recurs.
func (o *office) count(ctx context.Context, of string) error {
	tick, _ := recur.Tick(ctx)
	if err := wait(ctx, 100*time.Millisecond); err != nil {
		return err
	}
	o.tell("made", "takings of %s at %s", of, tick.Format(time.TimeOnly))
	return shunt.Then(ctx, o.filed.Message(Filed{"takings of " + of, tick, o.name}))
}

// make handles what is made to order.
func (o *office) make(ctx context.Context, r Report) error {
	o.tell("began", "%s, which takes %v", r.Name, r.Takes)
	if err := wait(ctx, r.Takes); err != nil {
		o.tell("stopped", "%s, because: %v", r.Name, err)
		return err
	}
	o.tell("made", "%s", r.Name)
	if err := shunt.SetResult(ctx, fmt.Appendf(nil, "%d pages from %s", 10*len(r.Name), o.name)); err != nil {
		return err
	}
	return shunt.Then(ctx, o.filed.Message(Filed{What: r.Name, By: o.name}))
}

func (o *office) file(ctx context.Context, f Filed) error {
	if f.Tick.IsZero() {
		o.tell("filed", "%s, made in %s", f.What, f.By)
	}
	select {
	case o.arrived <- f:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// order asks for a report. Where one of that name is under way already that will do, too.
func (o *office) order(ctx context.Context, name string, takes time.Duration) error {
	o.tell("asks", "for %s", name)
	err := o.q.Enqueue(ctx, o.report.Message(Report{name, takes}), shunt.ID(name), shunt.Retain(time.Minute))
	var taken *shunt.DuplicateError
	if errors.As(err, &taken) {
		s := taken.Status
		o.tell("told", "%s was asked for at %s and is in state %s", name,
			s.EnqueuedAt.In(o.berlin).Format("15:04:05.000"), s.State)
		return nil
	}
	return err
}

// collect waits for a report, wherever it was ordered and is made.
func (o *office) collect(ctx context.Context, name string) error {
	end, err := o.q.Wait(ctx, shunt.ByID(o.report.Channel(), name))
	if err == nil {
		o.tell("got", "%s (%s): %s", name, end.Kind, end.Result)
	}
	return err
}

// serve handles a customer.
func (o *office) serve(ctx context.Context, name string) error {
	if err := o.order(ctx, name, time.Second); err != nil {
		return err
	}
	return o.collect(ctx, name)
}

// event shows of all that happens what no handler can say by itself.
func (o *office) event(e shunt.Event) {
	switch e.Kind {
	case shunt.EventEnqueued:
		if e.Channel == o.takings.Channel() {
			o.tell("· tick", "enqueued")
		}
	case shunt.EventCancelled:
		if e.Took == 0 {
			o.tell("· dropped", "%s, before anybody began it", e.ID)
		}
	case shunt.EventRetried,
		shunt.EventRejected,
		shunt.EventRecovered,
		shunt.EventLateVerdict,
		shunt.EventReceiverError,
		shunt.EventLeaseLost:
		o.tell("· "+string(e.Kind), "%s %d %v", e.Channel, e.N, e.Err)
	}
}

// tell writes one line, in one piece because both processes do: when, where, what happened, to what.
func (o *office) tell(what, format string, args ...any) {
	fmt.Printf("  %s  %s  %-9s  %s\n", time.Now().In(o.berlin).Format("15:04:05.000"), o.name, what,
		fmt.Sprintf(format, args...))
}

// close shuts down what was begun; what is in hands then goes back to Redis.
func (o *office) close(ctx context.Context) {
	var g errgroup.Group
	for _, shutdown := range o.shutdown {
		g.Go(func() error { return shutdown(ctx) })
	}
	if err := g.Wait(); err != nil {
		o.tell("shutdown", "%v", err)
	}
}

// wait is a sleep that ends with ctx, and then says why.
func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
