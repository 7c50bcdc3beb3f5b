package main

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/gomodule/redigo/redis"
	"github.com/spf13/cobra"

	"github.com/shuntmq/shunt"
)

// version is set by -ldflags "-X main.version=…".
var version = ""

func healthCommands(a *app) []*cobra.Command {
	health := &cobra.Command{
		Use: "health [CHANNEL…]", Short: "Tell what is wrong now, and what mends it",
		Long: "Tell what is wrong now with all channels, or some, and with Redis, and what mends it: the worst " +
			"first. The exit status is 4 where something is critical.",
		ValidArgsFunction: a.completeChannel,
		RunE:              func(cmd *cobra.Command, args []string) error { return a.health(cmd.Context(), args) },
	}
	about := &cobra.Command{
		Use: "version", Short: "Print the versions of this program, of Go and of Redis", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.version(cmd.Context()) },
	}
	return []*cobra.Command{health, auditCommand(a), about}
}

func (a *app) health(ctx context.Context, names []string) error {
	q, err := a.open()
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := a.known(ctx, name); err != nil {
			return err
		}
	}
	fs, err := q.Health(ctx, names...)
	if err != nil {
		return err
	}
	for _, f := range fs {
		if f.Severity == shunt.Critical {
			a.code = exitCritical
		}
	}
	if a.json {
		if fs == nil {
			fs = []shunt.Finding{}
		}
		return a.document(fs)
	}
	if len(fs) == 0 {
		a.tell("nothing is wrong")
	}
	paint := map[shunt.Severity]func(string) string{shunt.Critical: a.red, shunt.Warning: a.yellow, shunt.Notice: a.dim}
	for _, f := range fs {
		p := paint[f.Severity]
		if p == nil {
			p = a.dim
		}
		a.tell("%s %s %s", p(fmt.Sprintf("%-8s", f.Severity)), a.bold(cmp.Or(printable(f.Channel), "redis")),
			printable(f.Text))
		a.tell("         %s", printable(f.Do))
	}
	return nil
}

// version asks Redis, too. A Redis that is away is no failure.
func (a *app) version(ctx context.Context) error {
	cli := version
	if info, ok := debug.ReadBuildInfo(); ok {
		cli = cmp.Or(cli, info.Main.Version)
	}
	server := ""
	_, err := a.open()
	if err == nil {
		server, err = a.serverVersion(ctx)
	}
	if err != nil {
		server = "not reached: " + oneLine(err)
	}
	if a.json {
		return a.document(map[string]string{"shunt": cmp.Or(cli, "(devel)"), "go": runtime.Version(), "redis": server})
	}
	a.tell("shunt  %s", cmp.Or(cli, "(devel)"))
	a.tell("go     %s", runtime.Version())
	a.tell("redis  %s", printable(server))
	return nil
}

// serverVersion is what INFO says, by the name that compatible servers give themselves.
func (a *app) serverVersion(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	c, err := a.pool.GetContext(ctx)
	if err != nil {
		return "", err
	}
	defer c.Close()
	info, err := redis.String(redis.DoWithTimeout(c, a.timeout, "INFO", "server"))
	if err != nil {
		return "", err
	}
	fields := make(map[string]string)
	for line := range strings.SplitSeq(info, "\r\n") {
		if name, value, ok := strings.Cut(line, ":"); ok {
			fields[name] = value
		}
	}
	for _, other := range []string{"valkey", "dragonfly", "kvrocks"} {
		if v := fields[other+"_version"]; v != "" {
			return other + " " + v, nil
		}
	}
	return cmp.Or(fields["redis_version"], "unknown"), nil
}
