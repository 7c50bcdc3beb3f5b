// Shunt is the command line of shunt's queues on Redis: it shows what lies in them, and moves it.
//
//	shunt channels                        all channels at a glance
//	shunt ls mail --state dead            the dead messages of a channel
//	shunt retry --all mail --failure 503  has them handled again
//	shunt top                             a live screen
//	shunt doctor                          what is wrong, and what mends it
//	shunt help                            all commands
//
// The exit status is 0 when all went well, 1 when something failed, 2 for wrong usage, 3 when there is no such message
// or channel, 4 when health or doctor found something critical, and 130 after an interruption; those of work are its
// own. What went wrong is one line on standard error.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process
	terminal := func(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }
	a := &app{
		in: os.Stdin, out: os.Stdout, err: os.Stderr, getenv: os.Getenv,
		asks: terminal(os.Stdin) && terminal(os.Stderr), screen: terminal(os.Stdin) && terminal(os.Stdout),
		paints: terminal(os.Stdout), redraws: terminal(os.Stderr), stop: stop,
	}
	os.Exit(a.run(ctx, os.Args[1:]))
}
