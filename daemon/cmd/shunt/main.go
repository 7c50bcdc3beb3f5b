// Shunt is the command line of shunt's queues.
//
//	shunt work --redis redis://localhost:6379 --channel pictures --workers 8 -- ./handler.py
//	shunt help
//	shunt help work
//
// Work handles the messages of channels in child processes; package sandbox has their protocols. SIGTERM and SIGINT
// end it: it takes no more messages, and those that are being handled have --grace. A second signal ends it at once,
// and its children with it.
//
// The exit status is 0 after an end in which all handlers ended; 1 when Redis or the command could not be used at the
// start; 2 for wrong usage; 3 when the grace was over before all handlers had ended. What they had goes back to its
// channel, and so it does after status 1 or a kill.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"
)

// The exit statuses.
const (
	exitOK    = 0
	exitStart = 1
	exitUsage = 2
	exitGrace = 3
)

// version is set by -ldflags "-X main.version=…".
var version = "devel"

// cli is the command line.
type cli struct {
	Work    work     `cmd:"" help:"Handle the messages of channels in child processes."`
	Version struct{} `cmd:"" help:"Print the version."`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	os.Exit(command(ctx, stop, os.Args[1:], os.Stdout, os.Stderr))
}

// command runs one command line, and returns the exit status. It calls stop when ctx has ended, so that a second signal
// ends the process.
func command(ctx context.Context, stop func(), args []string, out, complain io.Writer) int {
	if len(args) == 0 {
		args = []string{"--help"}
	}
	if args[0] == "help" {
		args = append(args[1:len(args):len(args)], "--help")
	}
	var c cli
	over := false // help was asked for, and printed
	parser, err := kong.New(&c, kong.Name("shunt"), kong.Writers(out, complain), kong.Exit(func(int) { over = true }),
		kong.Description("The command line of shunt's queues on Redis."),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.WithHyphenPrefixedParameters(true)) // as in --max-messages -1
	if err != nil {
		panic(err) // the tags are ours
	}
	at, err := parser.Parse(args)
	switch {
	case over:
		return exitOK
	case err == nil && at.Command() == "version":
		fmt.Fprintln(out, "shunt", version)
		return exitOK
	case err == nil:
		err = c.Work.validate()
	}
	if err != nil {
		fmt.Fprintf(complain, "shunt: %s\n", strings.ReplaceAll(err.Error(), "\n", "\n  "))
		fmt.Fprintln(complain, "shunt help work lists all flags")
		return exitUsage
	}
	return c.Work.run(ctx, stop, complain)
}
