package main

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/gomodule/redigo/redis"
	"github.com/spf13/cobra"

	"github.com/shuntmq/shunt/sandbox"
)

// work is the command work. Flags are texts, so that all mistakes are told at once.
type work struct {
	Channel                                                           []string
	Workers, Protocol, Timeout, Grace, MaxMemory, MaxMessages, Stderr string
	Command                                                           []string

	// What validate makes of these.
	pool  *redis.Pool
	box   sandbox.Pool
	wait  time.Duration // the timeout; negative: none
	grace time.Duration
	n     int // workers
}

func workCommands(a *app) []*cobra.Command {
	var w work
	cmd := &cobra.Command{
		Use:   "work --channel NAME… [flags] -- COMMAND [ARGUMENT…]",
		Short: "Handle the messages of channels in child processes",
		Long: `Handle the messages of channels in child processes, in any language; package sandbox has their protocols.

SIGTERM and SIGINT end it: it takes no more messages, and those that are being handled have --grace. A second
signal ends it at once, and its children with it. The exit status is 0 after an end in which all handlers ended,
1 when Redis or the command could not be used at the start, 2 for wrong usage or a command that is not there, and
3 when the grace was over before all handlers had ended. What they had goes back to its channel, and so it does
after status 1 or a kill.`,
		Example: "  shunt work --channel pictures --workers 8 -- ./handler.py",
		RunE: func(cmd *cobra.Command, args []string) error {
			w.Command = args
			if err := w.validate(a); err != nil {
				return err
			}
			a.began = true
			a.code = w.run(cmd.Context(), a.stop, a.err)
			return nil
		},
	}
	f := cmd.Flags()
	f.SetInterspersed(false) // what follows the command is its own
	f.StringArrayVar(&w.Channel, "channel", nil, "channel to receive, a `NAME`; several share the workers: 1 to 64")
	f.StringVar(&w.Workers, "workers", "8", "children, each with one message at a time: 1 to 10,000")
	f.StringVar(&w.Protocol, "protocol", "lines", "lines: messages as lines of JSON; exec: a child for each")
	f.StringVar(&w.Timeout, "timeout", "30s", "bound on the handling of a message; 0: none")
	f.StringVar(&w.Grace, "grace", "30s", "how long handlers may go on after SIGTERM: up to 24h")
	f.StringVar(&w.MaxMemory, "max-memory", "0", "memory of each, a `SIZE` such as 256MB; 0: no bound; Linux")
	f.StringVar(&w.MaxMessages, "max-messages", "10000", "after how many a lines child is replaced; -1: never")
	f.StringVar(&w.Stderr, "stderr", "all", "all: all that children write there; failures: last lines of failures")
	_ = cmd.RegisterFlagCompletionFunc("channel", a.completeChannel)
	_ = cmd.RegisterFlagCompletionFunc("protocol", cobra.FixedCompletions([]string{"lines", "exec"},
		cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("stderr", cobra.FixedCompletions([]string{"all", "failures"},
		cobra.ShellCompDirectiveNoFileComp))
	return []*cobra.Command{cmd}
}

// validate reads the flags, and says all that is wrong with them, each by its name.
func (w *work) validate(a *app) error {
	var errs []error
	check := func(ok bool, flag, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("%s: %s", flag, fmt.Sprintf(format, args...)))
		}
	}
	check(!a.json, "--json", "work writes a log for people: leave it out")
	var err error
	if w.pool, _, err = a.dialled(); err != nil {
		check(false, "--redis", "%s", oneLine(err))
	}
	check(len(w.Channel) > 0 && len(w.Channel) <= 64, "--channel", "there are %d: want 1 to 64", len(w.Channel))
	for i, name := range w.Channel {
		bad := func(r rune) bool { return r == '{' || r == '}' || unicode.IsSpace(r) || unicode.IsControl(r) }
		check(name != "" && len(name) <= 200 && !strings.ContainsFunc(name, bad), "--channel",
			"%.40q: want 1 to 200 bytes without braces, blanks and control characters", name)
		check(!slices.Contains(w.Channel[:i], name), "--channel", "%.40q is there twice", name)
	}
	w.n, err = strconv.Atoi(w.Workers)
	check(err == nil && w.n >= 1 && w.n <= 10000, "--workers", "%.40q: want 1 to 10000", w.Workers)
	w.wait, err = time.ParseDuration(w.Timeout)
	check(err == nil && w.wait >= 0, "--timeout", "%.40q: want a time such as 30s or 5m, or 0 for none", w.Timeout)
	if w.wait == 0 {
		w.wait = -1
	}
	w.grace, err = time.ParseDuration(w.Grace)
	check(err == nil && w.grace >= 0 && w.grace <= 24*time.Hour, "--grace", "%.40q: want a time from 0 to 24h", w.Grace)
	check(w.Protocol == "lines" || w.Protocol == "exec", "--protocol", "%.40q: want lines or exec", w.Protocol)
	check(w.Stderr == "all" || w.Stderr == "failures", "--stderr", "%.40q: want all or failures", w.Stderr)
	memory, err := parseSize(w.MaxMemory)
	check(err == nil, "--max-memory", "%.40q: want a size such as 256MB or 1GB, or 0 for no bound", w.MaxMemory)
	messages, err := strconv.Atoi(w.MaxMessages)
	check(err == nil && (messages >= 1 || messages == -1), "--max-messages", "%.40q: want 1 or more, or -1 for never",
		w.MaxMessages)
	given := len(w.Command) > 0 && w.Command[0] != ""
	check(given, "COMMAND", "it is missing: want it at the end, as in -- ./handler.py")
	w.box = sandbox.Pool{Command: w.Command, Children: min(max(w.n, 0), 10000), Timeout: w.wait, MaxMemory: memory,
		MaxMessages: messages}
	if w.Protocol == "exec" {
		w.box.Protocol = sandbox.Exec
	}
	if given {
		if err := w.box.Validate(); err != nil {
			errs = append(errs, errors.New(poolFlags.Replace(err.Error())))
		}
	}
	return errors.Join(errs...)
}

// poolFlags names what is wrong with a Pool as the command line does.
var poolFlags = strings.NewReplacer("sandbox: Pool.MaxMemory", "--max-memory: it", "sandbox: ", "COMMAND: ")

// parseSize reads a number of bytes with its unit. A KB has 1,024.
func parseSize(text string) (int64, error) {
	digits := strings.TrimRight(text, "BKMGTIbkmgti ")
	unit := int64(1)
	switch strings.ToUpper(strings.TrimSpace(text[len(digits):])) {
	case "", "B":
	case "K", "KB", "KIB":
		unit = 1 << 10
	case "M", "MB", "MIB":
		unit = 1 << 20
	case "G", "GB", "GIB":
		unit = 1 << 30
	default:
		return 0, errors.New("no unit")
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/unit {
		return 0, errors.New("no size")
	}
	return n * unit, nil
}
