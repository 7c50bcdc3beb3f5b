package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/spf13/cobra"

	"github.com/shuntmq/shunt"
)

// The exit statuses.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitNotFound    = 3
	exitGrace       = 3 // of work
	exitCritical    = 4
	exitInterrupted = 130 // as shells have it for SIGINT
)

// app is one call of the command line.
type app struct {
	in       io.Reader
	out, err io.Writer
	getenv   func(string) string
	asks     bool          // somebody can be asked: standard input and standard error are terminals
	screen   bool          // standard input and standard output are a terminal
	paints   bool          // standard output is a terminal
	redraws  bool          // standard error is a terminal
	stop     func()        // has the next signal end the process
	draws    time.Duration // how often progress is drawn; 0: 200 ms on a terminal, else 10 s

	// Flags that all commands have.
	redis, profile, as string
	json, yes          bool
	timeout            time.Duration

	began   bool // the command line was understood: an error before is one of usage
	maxSize int  // of an element; 0: the Queue's default
	lines   bool // documents are lines of a stream
	code    int  // the exit status where there is no error
	pool    *redis.Pool
	queue   *shunt.Queue

	unwritten error // why a part of the output is missing
}

// usageError is what only another command line mends.
type usageError struct{ error }

func isUsage(err error) bool {
	var wrong usageError
	return errors.As(err, &wrong)
}

func usage(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// errInterrupted ends a command that a signal has ended before it was done.
var errInterrupted = errors.New("interrupted")

// newRoot has all commands: a file makes a group of them.
func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "shunt",
		Short: "The command line of shunt's queues on Redis",
		Long: `The command line of shunt's queues on Redis.

Redis is the one that --redis names, else --profile, else SHUNT_REDIS, else REDIS_URL, else the default
profile, else redis://localhost:6379. Profiles stand in $XDG_CONFIG_HOME/shunt/config.toml:

  default = "local"
  [profiles.local]
  redis = "redis://localhost:6379"
  as = "ann"            # who is written into the audit

A message is named by the text that ls prints, such as {mail}.dead.01KAV9…@1764102000000, or by its channel and
--id or --serial. A time is 2026-11-25T10:00:00Z, 2026-11-25 10:00 or 2026-11-25, 90m (ago) or +90m (ahead); the
clock is this machine's. A length of time is 10s, 5m, 2h or 7d.

The exit status is 0 for success, 1 for a failure, 2 for wrong usage, 3 where there is no such message or channel,
4 when health or doctor found something critical, and 130 after an interruption.`,
		SilenceErrors: true, SilenceUsage: true,
	}
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	f := root.PersistentFlags()
	f.StringVar(&a.redis, "redis", "", "URL of Redis, such as redis://localhost:6379/0")
	f.StringVar(&a.profile, "profile", "", "a profile of the configuration file")
	f.StringVar(&a.as, "as", "", "who you are, for the audit (default user@host)")
	f.BoolVar(&a.json, "json", false, "print one JSON document, or JSON lines where there is no end")
	f.BoolVarP(&a.yes, "yes", "y", false, "do not ask")
	f.DurationVar(&a.timeout, "timeout", 1500*time.Millisecond, "how long to wait for an answer of Redis")
	_ = root.RegisterFlagCompletionFunc("profile", a.completeProfile)
	for _, group := range []func(*app) []*cobra.Command{
		channelCommands, lookCommands, moveCommands, deadCommands, deliverCommands, exportCommands, countCommands,
		tailCommands, topCommands, healthCommands, doctorCommands, dashboardCommands, workCommands, benchCommands,
	} {
		root.AddCommand(group(a)...)
	}
	root.InitDefaultCompletionCmd()
	return root
}

// run runs one command line and returns the exit status.
func (a *app) run(ctx context.Context, args []string) int {
	root := newRoot(a)
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		err = a.unwritten
	}
	if err == nil {
		a.close(a.timeout)
		return a.code
	}
	a.close(300 * time.Millisecond)
	if !errors.Is(err, errInterrupted) && ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = errInterrupted
	}
	fmt.Fprintln(a.err, "shunt: "+oneLine(err))
	switch {
	case isUsage(err):
		return exitUsage
	case !a.began:
		name := strings.TrimPrefix(cmd.CommandPath(), "shunt ")
		if !cmd.HasParent() {
			name = "COMMAND"
		}
		fmt.Fprintln(a.err, "shunt help "+name+" lists all flags")
		return exitUsage
	case errors.Is(err, errInterrupted):
		return exitInterrupted
	case errors.Is(err, shunt.ErrNotFound):
		return exitNotFound
	}
	return exitFailed
}

// oneLine is the text of an error as one line, without the prefix that run gives it.
func oneLine(err error) string {
	text := strings.ReplaceAll(strings.TrimPrefix(err.Error(), "shunt: "), ": shunt: ", ": ")
	if errors.Is(err, context.DeadlineExceeded) {
		text += ": Redis does not answer: look whether it runs and --redis is right, or raise --timeout"
	}
	return printable(strings.ReplaceAll(strings.TrimSpace(text), "\n", "; "))
}

// open gives the Queue. It does not dial.
func (a *app) open() (*shunt.Queue, error) {
	a.began = true
	if a.queue != nil {
		return a.queue, nil
	}
	if a.timeout < 100*time.Millisecond || a.timeout > time.Hour {
		return nil, usage("--timeout %v: want 100ms to 1h", a.timeout)
	}
	pool, p, err := a.dialled()
	if err != nil {
		return nil, err
	}
	a.pool = pool
	if a.as == "" {
		a.as = p.As
	}
	a.queue = &shunt.Queue{
		Pool: a.pool, Quiet: true, MaxSize: a.maxSize, EnqueueTimeout: a.timeout,
		ReplyTimeout: max(a.timeout, 500*time.Millisecond),
	}
	return a.queue, nil
}

// dialled gives a pool for the Redis of this call, and its profile. It does not dial yet.
func (a *app) dialled() (*redis.Pool, profile, error) {
	p, err := a.chosen()
	if err != nil {
		return nil, p, err
	}
	pool, err := shunt.NewPool(p.Redis)
	switch {
	case err != nil && strings.Contains(p.Redis, "@"): // what the parser quotes may be of the password
		return nil, p, usage("the URL of Redis is none such as redis://user:password@host:6379/0")
	case err != nil:
		return nil, p, usageError{err}
	}
	return pool, p, nil
}

// close sends what was counted. A Redis that is away holds the process up for no longer than patience.
func (a *app) close(patience time.Duration) {
	if a.queue == nil {
		return
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_ = a.queue.Close()
		_ = a.pool.Close()
	}()
	select {
	case <-closed:
	case <-time.After(patience):
	}
}

// known is an error where nobody has ever used the channel.
func (a *app) known(ctx context.Context, channel string) error {
	all, err := a.queue.Channels(ctx)
	if err != nil {
		return err
	}
	for _, c := range all {
		if c == channel {
			return nil
		}
	}
	return notFound("there is no channel %q: shunt channels lists them", channel)
}

// missing is the error of a name that nothing has.
type missing struct{ text string }

func (m missing) Error() string        { return m.text }
func (m missing) Is(target error) bool { return target == shunt.ErrNotFound }

func notFound(format string, args ...any) error { return missing{fmt.Sprintf(format, args...)} }

// completeChannel offers the channels for the first argument.
func (a *app) completeChannel(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	q, err := a.open()
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), 500*time.Millisecond)
	defer cancel()
	all, _ := q.Channels(ctx)
	return all, cobra.ShellCompDirectiveNoFileComp
}
