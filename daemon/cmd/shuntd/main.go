// Shuntd serves reliable queues on Redis over HTTP, with lmstfy's interface.
//
//	shuntd -dev                            everything on a Redis within the process, without tokens
//	shuntd -config shuntd.toml             serve
//	shuntd check -config shuntd.toml       say all that is wrong with the configuration, and with the Redis servers
//	shuntd keys                            list all keys of the configuration
//	shuntd version
//
// Each key of the file is a flag, too, and a variable: -limits.max_wait and SHUNTD_LIMITS_MAX_WAIT. SIGHUP has the file
// read again. SIGTERM and SIGINT end it, with a grace for requests that run, and a second one ends it at once. The exit
// status is 0 after such an end, 1 when it could not serve, 2 for wrong usage or configuration.
package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/shuntmq/shunt/daemon"
	"github.com/shuntmq/shunt/daemon/config"
	"github.com/shuntmq/shunt/daemon/lmstfy"
)

// Set by -ldflags "-X main.version=… -X main.date=…".
var version, date = "devel", ""

// ballast is how large the heap is at least to the collector, which runs whenever the heap has doubled. A small one
// does so a hundred times a second under load. Nothing is written to it, so it takes no memory of the machine.
const ballast = 32 << 20

func main() {
	floor := make([]byte, ballast)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	code := command(ctx, os.Args[1:], os.Stdout, os.Stderr)
	runtime.KeepAlive(floor)
	os.Exit(code)
}

// usage is what the command line asks for, beside the keys of the configuration.
type usage struct {
	what string // "", check, keys, version or help
	dev  bool
	from config.Source
}

func parse(args []string) (u usage) {
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		u.what, args = args[0], args[1:]
	}
	u.from.Env = os.Environ()
	for i := 0; i < len(args); i++ {
		name, value, given := strings.Cut(strings.TrimLeft(args[i], "-"), "=")
		switch {
		case name == "dev" && !given:
			u.dev = true
		case name == "help" || name == "h":
			u.what = "help"
		case name == "config" && given:
			u.from.File = value
		case name == "config" && i+1 < len(args):
			i++
			u.from.File = args[i]
		default:
			u.from.Args = append(u.from.Args, args[i])
		}
	}
	return u
}

func command(ctx context.Context, args []string, out, complain io.Writer) int {
	u := parse(args)
	switch u.what {
	case "", "check":
	case "keys":
		for _, k := range config.Keys() {
			fmt.Fprintf(out, "%-24s %s (default %q)\n", k.Name, k.Help, k.Default)
		}
		return 0
	case "version":
		fmt.Fprintf(out, "shuntd %s %s %s\n", build().Version, build().Commit, build().Date)
		return 0
	default:
		fmt.Fprintln(complain, "usage: shuntd [check|keys|version] [-config FILE] [-dev] [-KEY VALUE ...]")
		return 2
	}
	if u.dev {
		return serveDev(ctx, u, out, complain)
	}
	c, err := config.Load(u.from)
	if err != nil {
		fmt.Fprintf(complain, "shuntd: the configuration is wrong:\n%s\n", indent(err))
		return 2
	}
	if u.what == "check" {
		return check(ctx, c, out, complain)
	}
	return serve(ctx, c, u.from, nil, complain)
}

func indent(err error) string { return "  " + strings.ReplaceAll(err.Error(), "\n", "\n  ") }

// check says that all is well, or what is not.
func check(ctx context.Context, c config.Config, out, complain io.Writer) int {
	d := daemon.Daemon{Config: c}
	if err := d.Check(ctx); err != nil {
		fmt.Fprintf(complain, "shuntd: checks that missed:\n%s\n", indent(err))
		return 1
	}
	if c.Checks == "off" {
		fmt.Fprintln(out, "shuntd: the configuration is right; no Redis was asked, since the key checks is off")
		return 0
	}
	fmt.Fprintln(out, "shuntd: the configuration is right, and so are the Redis servers")
	return 0
}

func serveDev(ctx context.Context, u usage, out, complain io.Writer) int {
	dev, err := daemon.StartDev()
	if err != nil {
		fmt.Fprintln(complain, err)
		return 1
	}
	defer dev.Close()
	u.from.Args = append(dev.Args(), u.from.Args...)
	c, err := config.Load(u.from)
	if err != nil {
		fmt.Fprintf(complain, "shuntd: the configuration is wrong:\n%s\n", indent(err))
		return 2
	}
	return serve(ctx, c, u.from, func(api, admin string) {
		if url := daemon.DashboardURL(&c, admin); url != "" {
			fmt.Fprintf(out, "The dashboard is at %s\n", url)
		}
		fmt.Fprintf(out, "It keeps nothing, and asks for no token. Try:\n\n  %s\n\n",
			strings.Join(daemon.Lines(api), "\n  "))
	}, complain)
}

// serve runs the daemon until ctx ends, and reads its configuration anew at each SIGHUP.
func serve(
	ctx context.Context, c config.Config, from config.Source, serving func(api, admin string), to io.Writer,
) int {
	level := new(slog.LevelVar)
	level.Set(daemon.LevelOf(&c))
	options := &slog.HandlerOptions{Level: level}
	var log *slog.Logger
	if c.Log.Format == "json" {
		log = slog.New(slog.NewJSONHandler(to, options))
	} else {
		log = slog.New(slog.NewTextHandler(to, options))
	}
	slog.SetDefault(log) // for what the queues have to say
	d := &daemon.Daemon{Config: c, Log: log, Level: level, Build: build(), Serving: serving}
	hangups, over := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(hangups, syscall.SIGHUP)
	go func() {
		defer close(over)
		for range hangups {
			c, err := config.Load(from)
			if err == nil {
				err = d.Reload(c)
			}
			if err != nil {
				log.Error("the configuration was read anew, and is wrong", "error", err)
			}
		}
	}()
	err := d.Run(ctx)
	signal.Stop(hangups)
	close(hangups)
	<-over
	if err != nil {
		log.Error("shuntd could not serve", "error", err)
		return 1
	}
	return 0
}

func build() lmstfy.Build {
	b := lmstfy.Build{Version: version, Date: date}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				b.Commit = s.Value
			}
		}
	}
	return b
}
