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

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/sandbox"
)

// work is the command work. Flags are texts, so that all mistakes are told at once.
type work struct {
	Redis       string   `env:"SHUNT_REDIS" placeholder:"URL" help:"redis://, rediss:// or unix:// URL."`
	Channel     []string `sep:"none" placeholder:"NAME" help:"Channel to receive. Several share the workers: 1 to 64."`
	Workers     string   `default:"8" help:"Children, each with one message at a time: 1 to 10,000."`
	Protocol    string   `default:"lines" help:"lines: messages as lines of JSON. exec: a child for each."`
	Timeout     string   `default:"30s" help:"Bound on the handling of a message; 0: none."`
	Grace       string   `default:"30s" help:"How long handlers may go on after SIGTERM: up to 24h."`
	MaxMemory   string   `default:"0" placeholder:"SIZE" help:"Memory of each, such as 256MB; 0: no bound. Linux."`
	MaxMessages string   `default:"10000" help:"After how many a lines child is replaced; -1: never."`
	Stderr      string   `default:"all" help:"all: all that children write there. failures: last lines of failures."`

	Command []string `arg:"" optional:"" passthrough:"partial" help:"-- and the program with its arguments."`

	// What validate makes of these.
	pool  *redis.Pool
	box   sandbox.Pool
	wait  time.Duration // the timeout; negative: none
	grace time.Duration
	n     int // workers
}

// validate reads the flags, and says all that is wrong with them, each by its name.
func (w *work) validate() error {
	var errs []error
	check := func(ok bool, flag, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("%s: %s", flag, fmt.Sprintf(format, args...)))
		}
	}
	w.checkRedis(check)
	check(len(w.Channel) > 0 && len(w.Channel) <= 64, "--channel", "there are %d: want 1 to 64", len(w.Channel))
	for i, name := range w.Channel {
		bad := func(r rune) bool { return r == '{' || r == '}' || unicode.IsSpace(r) || unicode.IsControl(r) }
		check(name != "" && len(name) <= 200 && !strings.ContainsFunc(name, bad), "--channel",
			"%.40q: want 1 to 200 bytes without braces, blanks and control characters", name)
		check(!slices.Contains(w.Channel[:i], name), "--channel", "%.40q is there twice", name)
	}
	var err error
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
	memory, err := size(w.MaxMemory)
	check(err == nil, "--max-memory", "%.40q: want a size such as 256MB or 1GB, or 0 for no bound", w.MaxMemory)
	messages, err := strconv.Atoi(w.MaxMessages)
	check(err == nil && (messages >= 1 || messages == -1), "--max-messages", "%.40q: want 1 or more, or -1 for never",
		w.MaxMessages)
	if len(w.Command) > 0 && w.Command[0] == "--" {
		w.Command = w.Command[1:]
	}
	given := len(w.Command) > 0 && w.Command[0] != ""
	check(given, "COMMAND", "it is missing: want it at the end, as in -- ./handler.py")
	w.box = sandbox.Pool{Command: w.Command, Children: min(max(w.n, 0), 10000), Timeout: w.wait, MaxMemory: memory,
		MaxMessages: messages}
	if w.Protocol == "exec" {
		w.box.Protocol = sandbox.Exec
	}
	if given {
		if err := w.box.Validate(); err != nil {
			errs = append(errs, errors.New(flags.Replace(err.Error())))
		}
	}
	return errors.Join(errs...)
}

// flags names what is wrong with a Pool as the command line does.
var flags = strings.NewReplacer("sandbox: Pool.MaxMemory", "--max-memory: it", "sandbox: ", "COMMAND: ")

// checkRedis does not quote a password.
func (w *work) checkRedis(check func(ok bool, flag, format string, args ...any)) {
	if w.Redis == "" {
		check(false, "--redis", "it is missing: want a URL such as redis://localhost:6379, or the variable SHUNT_REDIS")
		return
	}
	pool, err := shunt.NewPool(w.Redis)
	if err != nil && strings.Contains(w.Redis, "@") {
		err = errors.New("it is no URL such as redis://user:password@host:6379/0")
	}
	if err != nil {
		err = errors.New(strings.TrimPrefix(err.Error(), "shunt: "))
	}
	check(err == nil, "--redis", "%v", err)
	w.pool = pool
}

// size reads a number of bytes with its unit. A KB has 1,024.
func size(text string) (int64, error) {
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
