package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// chosen are the measures to take, and of which systems.
type chosen struct {
	systems  []system
	measures []measure
}

// choose finds what only names; no system named means all of them, and so for measures.
func choose(only string, quick bool) (c chosen, err error) {
	for name := range strings.SplitSeq(only, ",") {
		name = strings.TrimSpace(name)
		i := slices.IndexFunc(systems, func(s system) bool { return s.name == name })
		j := slices.IndexFunc(measures, func(m measure) bool { return m.name == name })
		switch {
		case only == "":
		case i >= 0:
			c.systems = append(c.systems, systems[i])
		case j >= 0:
			c.measures = append(c.measures, measures[j])
		default:
			return chosen{}, fmt.Errorf(
				"-only: there is no system and no measure %q: the systems are %s; the measures are %s",
				name,
				names(systems, func(s system) string { return s.name }),
				names(measures, func(m measure) string { return m.name }),
			)
		}
	}
	if len(c.systems) == 0 {
		c.systems = systems
	}
	if len(c.measures) == 0 {
		c.measures = slices.DeleteFunc(slices.Clone(measures), func(m measure) bool { return quick && !m.quick })
	}
	return c, nil
}

func names[T any](all []T, name func(T) string) string {
	var ns []string
	for _, one := range all {
		ns = append(ns, name(one))
	}
	return strings.Join(ns, ", ")
}

// step is one measure of one system or, where nothing is lost by it, of several at once.
type step struct {
	round   int
	measure measure
	systems []system
}

// plan interleaves: a machine that slows down slows all systems, and each round begins with another one.
func (c chosen) plan(rounds int) (steps []step) {
	var last []step
	for round := range rounds {
		for _, m := range c.measures {
			fit := slices.DeleteFunc(slices.Clone(c.systems), func(s system) bool { return !m.fits(s) })
			if m.once && round == 0 && len(fit) > 0 {
				last = append(last, step{round, m, fit})
			}
			for i := range fit {
				if !m.once {
					steps = append(steps, step{round, m, []system{fit[(i+round)%len(fit)]}})
				}
			}
		}
	}
	return append(steps, last...)
}

// quickRounds is how long the rounds of -quick may take, so that with what comes after them it ends within a minute.
const quickRounds = 36 * time.Second

// take measures what is chosen. It returns what there is, and with it what went wrong.
func take(ctx context.Context, o options, c chosen, progress io.Writer) (*report, error) {
	r, err := newReport(o)
	if err != nil {
		return nil, err
	}
	c.systems = slices.DeleteFunc(slices.Clone(c.systems), func(s system) bool {
		if s.missing == nil {
			return false
		}
		fmt.Fprintf(progress, "%s: is it here, or can it be installed?\n", s.name)
		err := s.missing(ctx)
		if err != nil {
			r.note("%s is left out: %v", s.name, err)
		}
		return err != nil
	})
	steps := c.plan(o.rounds)
	if len(steps) == 0 {
		return nil, fmt.Errorf(
			"there is nothing to measure: none of the chosen systems has what the chosen measures need. %s",
			strings.Join(r.Notes, "; "),
		)
	}
	var faults []error
	began, round, enough := time.Now(), 0, false
	for i, s := range steps {
		if s.round > round && !enough {
			round = s.round
			if enough = o.quick && time.Since(began)*time.Duration(round+1)/time.Duration(round) > quickRounds; enough {
				r.note("there was no time for more rounds than %d", round)
			}
		}
		if enough && !s.measure.once {
			continue
		}
		fmt.Fprintf(progress, "%4.0f s  %3d/%d  round %d  %-13s", time.Since(began).Seconds(), i+1, len(steps),
			s.round+1, s.measure.name)
		results := make([][]sample, len(s.systems))
		errs := make([]error, len(s.systems))
		var all sync.WaitGroup
		for j, system := range s.systems {
			fmt.Fprintf(progress, " %s", system.name)
			all.Go(func() { results[j], errs[j] = takeOne(ctx, o, system, s.measure, r.note) })
		}
		all.Wait()
		if ctx.Err() != nil {
			fmt.Fprintln(progress)
			return nil, context.Cause(ctx)
		}
		for j, system := range s.systems {
			if errs[j] != nil {
				faults = append(faults, fmt.Errorf("no result of %s, %s: %w", s.measure.name, system.name, errs[j]))
				fmt.Fprintf(progress, "  %v", faults[len(faults)-1])
			} else if len(results[j]) > 0 {
				fmt.Fprintf(progress, "  %s %s", short(results[j][0].value), results[j][0].unit)
			}
			r.add(system.name, results[j])
		}
		fmt.Fprintln(progress)
	}
	r.summarize()
	return r, errors.Join(faults...)
}

// takeOne does one measurement: a fresh queue on a fresh server.
func takeOne(
	ctx context.Context, o options, s system, m measure, note func(string, ...any),
) (samples []sample, err error) {
	runtime.GC() // what the one before left behind is not this one's to collect
	start := startServer
	if m.tls {
		start = startTLSServer
	}
	srv, err := start(o.aof)
	if err != nil {
		return nil, err
	}
	defer srv.stop()
	if err := srv.nice(o.nice); err != nil {
		return nil, err
	}
	t := task{load: o.load, srv: srv, system: s}
	t.note = func(format string, args ...any) { note(s.name+", "+m.name+": "+format, args...) }
	if s.slow {
		t.n /= t.slowed
	}
	q, err := s.open(t)
	if err != nil {
		return nil, fmt.Errorf("open: %w", err)
	}
	defer func() { err = errors.Join(err, q.close()) }()
	samples, err = m.run(ctx, q, t)
	for _, a := range samples {
		if err == nil && (math.IsNaN(a.value) || math.IsInf(a.value, 0)) {
			err = fmt.Errorf("%s is %v", a.measure, a.value)
		}
	}
	if err != nil {
		return nil, err
	}
	return samples, nil
}
