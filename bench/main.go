// Bench measures shunt beside its peers and beside the bare commands of Redis, and prints a table of medians.
//
//	cd bench && go run .
//
// A new system is a file and its line in systems, a new measure a function and its line in measures.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

const usage = `Usage: go run . [flags]

Starts a redis-server for each measurement (the program that REDIS_SERVER
names, else the one in PATH), has every system enqueue and handle the same
messages, several rounds in turn, and prints the medians. A run that lost or
doubled a message is no result.

`

// options are the flags.
type options struct {
	load
	quick, aof                 bool
	rounds, nice               int
	only                       string
	json, from, compare, chart string
}

func main() {
	if isChild() {
		return
	}
	var o options
	flag.BoolVar(&o.quick, "quick", false, "only what is marked with * above, on fewer messages: within a minute")
	flag.BoolVar(&o.aof, "aof", false, "have Redis keep an append-only file, synced every second")
	flag.IntVar(
		&o.nice,
		"nice",
		0,
		"`niceness` of Redis: below 0 it goes before its clients, for which one has to be root",
	)
	flag.IntVar(&o.rounds, "rounds", 3, "`turns` that each system gets at each measure")
	flag.IntVar(&o.n, "n", 0, "`messages` of a rate, at least 100 (default 200000, with -quick 40000)")
	flag.IntVar(&o.workers, "workers", 64, "`goroutines` that handle, or enqueue, at once: 1 to 10000")
	flag.StringVar(&o.only, "only", "", "`names` of systems, of measures or of both, separated by commas")
	flag.StringVar(&o.json, "json", "", "write the figures to this `file`")
	flag.StringVar(&o.from, "from", "", "measure nothing: take the figures of this JSON `file`")
	flag.StringVar(&o.compare, "compare", "", "say what is slower, and faster, than in this JSON `file`")
	flag.StringVar(&o.chart, "chart", "", "draw the charts into this `directory`")
	flag.Usage = func() { help(flag.CommandLine.Output()) }
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := errors.New("arguments that are no flags: see -help")
	if flag.NArg() == 0 {
		o.load = sized(o.quick, cmp.Or(o.n, defaultN(o.quick)), o.workers)
		err = run(ctx, o, os.Stdout, os.Stderr)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func help(w io.Writer) {
	fmt.Fprint(w, usage, "Systems:\n")
	for _, s := range systems {
		fmt.Fprintf(w, "  %-12s %s\n", s.name, s.about)
	}
	fmt.Fprint(w, "\nMeasures:\n")
	for _, m := range measures {
		mark := " "
		if m.quick {
			mark = "*"
		}
		fmt.Fprintf(w, "%s %-13s %s\n", mark, m.name, m.about)
	}
	fmt.Fprint(w, "\nFlags:\n")
	flag.PrintDefaults()
}

// run measures what o asks for: the results go to stdout, a line a measurement to stderr.
func run(ctx context.Context, o options, stdout, stderr io.Writer) error {
	chosen, err := choose(o.only, o.quick)
	if o.rounds < 1 || o.n < 100 || o.workers < 1 || o.workers > 10_000 || o.nice < -20 || o.nice > 19 {
		err = errors.Join(err,
			errors.New("-rounds is at least 1, -n at least 100, -workers 1 to 10000, -nice -20 to 19"))
	}
	var old, r *report
	if o.compare != "" && err == nil {
		old, err = readReport(o.compare)
	}
	if o.from != "" && err == nil {
		r, err = readReport(o.from)
	}
	// What cannot be written is told before the work, not after it.
	if o.json != "" && err == nil {
		var f *os.File
		if f, err = os.OpenFile(o.json, os.O_WRONLY|os.O_CREATE, 0o666); err == nil {
			f.Close()
		}
	}
	if o.chart != "" && err == nil {
		err = os.MkdirAll(o.chart, 0o777)
	}
	if err != nil {
		return err
	}

	if r == nil {
		r, err = take(ctx, o, chosen, stderr)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if r == nil {
			return err
		}
	}
	r.print(stdout)
	if old != nil {
		compare(stdout, old, r)
	}
	if o.chart != "" {
		err = errors.Join(err, drawCharts(o.chart, r))
	}
	if o.json != "" {
		err = errors.Join(err, r.write(o.json))
	}
	return err
}
