// Checksum hashes the files of a directory with as many workers as there are processors, and writes a manifest that
// sha256sum -c accepts. Run it where you are:
//
//	go run ./example/checksum .
//
// That needs no Redis: it brings a small one along. With a real one and a file for the manifest it shows what the
// toolkit is for:
//
//	go run ./example/checksum -redis redis://localhost:6379 -out manifest -crash-after 100 .
//	go run ./example/checksum -redis redis://localhost:6379 -out manifest .
//	sha256sum -c manifest
//
// The first command ends its own process with SIGKILL in the middle; the second continues it. There is one message a
// file. A worker's message leaves Redis only after its line is on the disk, in manifest.part. So a file is either in
// there or still in Redis, whatever is killed, and whenever. What the killed process held comes back when its lease is
// over. That may handle a message twice, so the lines are keyed by path and what is done is not done again. A file that
// changes after its line was written keeps it until a run has finished.
//
// What cannot be read is tried three times and then listed from the dead letters. The exit status is 0 when all files
// are in the manifest, 1 when not, 2 for wrong usage, 130 after Ctrl-C.
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
	"strings"
	"syscall"

	"github.com/shuntmq/shunt/example/internal/server"
)

// config is the command line.
type config struct {
	redis      string
	workers    int
	out        string
	crashAfter int
	dir        string
}

func main() { os.Exit(command(os.Args[1:])) }

func command(args []string) int {
	c, err := parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintf(os.Stderr, "checksum: %s\nchecksum -h tells the usage\n",
			strings.ReplaceAll(err.Error(), "\n", "\nchecksum: "))
		return 2
	}
	s, err := server.Open(c.redis)
	if err != nil {
		fmt.Fprintln(os.Stderr, "checksum:", err)
		return 2
	}
	defer s.Close()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the process at once
	return newRun(c, s).do(ctx)
}

func parse(args []string) (c config, err error) {
	f := flag.NewFlagSet("checksum", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.StringVar(
		&c.redis,
		"redis",
		"",
		"`URL` of a Redis, by default $REDIS_URL; without either, a server inside this process",
	)
	f.IntVar(&c.workers, "workers", runtime.NumCPU(), "`number` of files that are hashed at once")
	f.StringVar(
		&c.out,
		"out",
		"",
		"`file` for the manifest; a run that was killed is then continued by the same command",
	)
	f.IntVar(
		&c.crashAfter,
		"crash-after",
		0,
		"end this process with SIGKILL after so `many` files, to see how the next run continues",
	)
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "usage: checksum [-redis URL] [-workers N] [-out FILE] [-crash-after N] DIR")
			f.SetOutput(os.Stderr)
			f.PrintDefaults()
		}
		return c, err
	}
	if c.redis == "" {
		c.redis = os.Getenv("REDIS_URL") // no flag's default, which -h would show with its password
	}
	if f.NArg() != 1 {
		return c, fmt.Errorf("%d arguments after the flags: want one, the directory", f.NArg())
	}
	c.dir = f.Arg(0)
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	info, err := os.Stat(c.dir)
	check(err == nil, "%s: %v", c.dir, reason(err))
	check(err != nil || info.IsDir(), "%s is not a directory", c.dir)
	info, err = os.Stat(c.out)
	check(err != nil || !info.IsDir(), "-out %s is a directory: want a file", c.out)
	check(c.workers >= 1 && c.workers <= 10000, "-workers %d: want 1 to 10000", c.workers)
	check(c.crashAfter >= 0, "-crash-after %d: want a positive number", c.crashAfter)
	check(c.crashAfter == 0 || c.redis != "",
		"-crash-after needs a Redis that outlives this process: give -redis or REDIS_URL")
	check(c.crashAfter == 0 || c.out != "",
		"-crash-after needs -out: without it a killed run leaves nothing to continue")
	return c, errors.Join(errs...)
}
