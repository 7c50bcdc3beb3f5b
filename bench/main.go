// Bench measures shunt beside its peers, each on the same private redis-server, and prints a table of medians.
//
//	cd bench && go run .
//
// A new system is a file and its line in systems, a new measure a function and its line in measures.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

const usage = `Usage: go run . [flags]

Starts a redis-server of its own (the one REDIS_SERVER names, else the one in
PATH), has every system deliver and handle the same messages on it, and prints
the medians. A system that loses or doubles a message ends the run.

Systems:
`

type options struct {
	load
	rounds int
	only   string
	json   string
}

func main() {
	o := options{load: load{size: 128, stall: 20 * time.Second}}
	flag.IntVar(&o.rounds, "rounds", 3, "`turns` that each system gets")
	flag.IntVar(&o.n, "n", 100_000, "`messages` in each measurement")
	flag.IntVar(&o.workers, "workers", 64, "`goroutines` that handle, or deliver, at once: 1 to 10000")
	flag.StringVar(&o.only, "only", "", "measure only these `systems`, separated by commas")
	flag.StringVar(&o.json, "json", "", "write the results as JSON to this `file` too")
	flag.Usage = func() {
		out := flag.CommandLine.Output()
		fmt.Fprint(out, usage)
		for _, s := range systems {
			fmt.Fprintf(out, "  %-8s %s\n", s.name, s.about)
		}
		fmt.Fprint(out, "\nFlags:\n")
		flag.PrintDefaults()
	}
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := errors.New("arguments that are no flags: see -help")
	if flag.NArg() == 0 {
		err = run(ctx, o, os.Stdout, os.Stderr)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run measures what o asks for: the table goes to stdout, a line a measurement to stderr.
func run(ctx context.Context, o options, stdout, stderr io.Writer) error {
	chosen, err := choose(o.only)
	if o.rounds < 1 || o.n < 1 || o.workers < 1 || o.workers > 10_000 {
		err = errors.Join(err, errors.New("-rounds and -n are at least 1, -workers 1 to 10000"))
	}
	if err != nil {
		return err
	}
	var file *os.File
	if o.json != "" { // a file that cannot be written is told before the work, not after it
		if file, err = os.Create(o.json); err != nil {
			return fmt.Errorf("-json: %w", err)
		}
		defer file.Close()
	}
	srv, err := startServer()
	if err != nil {
		return err
	}
	defer srv.stop()

	var rows []*row
	step, steps := 0, o.rounds*len(chosen)*len(measures)
	for round := range o.rounds {
		// Interleaved, so that a machine that slows down slows them all; each round begins with another system.
		for i := range chosen {
			s := chosen[(i+round)%len(chosen)]
			for _, m := range measures {
				step++
				fmt.Fprintf(stderr, "%3d/%d  round %d  %-8s %s", step, steps, round+1, s.name, m.name)
				samples, err := take(ctx, srv, s, m, o.load)
				if err != nil {
					fmt.Fprintln(stderr)
					if ctx.Err() != nil {
						return context.Cause(ctx)
					}
					return fmt.Errorf("%s, %s: %w", s.name, m.name, err)
				}
				fmt.Fprintf(stderr, " %.0f %s\n", samples[0].value, samples[0].unit)
				rows = add(rows, s.name, samples)
			}
		}
	}
	summarize(rows)
	fmt.Fprintf(stdout, "%d messages of %d bytes, %d workers, medians of %d rounds\n\n", o.n, o.size, o.workers, o.rounds)
	printTable(stdout, rows)
	if file == nil {
		return nil
	}
	return writeJSON(file, srv, rows)
}

// choose finds the systems named in only; none named means all.
func choose(only string) ([]system, error) {
	if only == "" {
		return systems, nil
	}
	var chosen []system
	for name := range strings.SplitSeq(only, ",") {
		i := slices.IndexFunc(systems, func(s system) bool { return s.name == strings.TrimSpace(name) })
		if i < 0 {
			return nil, fmt.Errorf("-only: there is no system %q: see -help", name)
		}
		chosen = append(chosen, systems[i])
	}
	return chosen, nil
}

// take does one measurement: a fresh queue on an empty server.
func take(ctx context.Context, srv *server, s system, m measure, l load) (samples []sample, err error) {
	if _, err := srv.conn.Do("FLUSHALL"); err != nil {
		return nil, fmt.Errorf("empty redis-server: %w", err)
	}
	runtime.GC() // what the one before left behind is not this one's to collect
	q, err := s.open(srv.addr)
	if err != nil {
		return nil, fmt.Errorf("open: %w", err)
	}
	defer func() { err = errors.Join(err, q.close()) }()
	return m.run(ctx, q, l)
}
