package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/shuntmq/shunt/dashboard"
)

// served is one call of dashboard.
type served struct {
	a              *app
	addr           string
	users, viewers []string
}

// farewell is how long requests may take to end that are under way when the dashboard is shut down.
const farewell = 3 * time.Second

func dashboardCommands(a *app) []*cobra.Command {
	s := served{a: a}
	cmd := &cobra.Command{
		Use: "dashboard", Short: "Serve the dashboard to browsers", Args: cobra.NoArgs,
		Long: `Serve the dashboard to browsers until SIGINT or SIGTERM: channels, messages, dead letters and receivers,
live.

Without users only this machine may see it, and may do all. With users each logs in with name and password: a
--user may act, a --viewer sees only. A password on a command line is seen by all who use the machine, so --user
@FILE and --viewer @FILE read lines of NAME=PASSWORD; empty lines, and those that begin with #, are skipped.

Off loopback it wants users. It does not speak TLS: put a proxy in front that does.`,
		Example: "  shunt dashboard\n  shunt dashboard --addr 10.0.0.5:7878 --user @operators --viewer @viewers",
		RunE:    func(cmd *cobra.Command, _ []string) error { return s.run(cmd.Context()) },
	}
	f := cmd.Flags()
	f.StringVar(&s.addr, "addr", "127.0.0.1:7878", "`HOST:PORT` to listen on; port 0: any that is free")
	f.StringArrayVar(&s.users, "user", nil, "who may act, as `NAME=PASSWORD` or @FILE; may be given again")
	f.StringArrayVar(&s.viewers, "viewer", nil, "who sees only, as `NAME=PASSWORD` or @FILE; may be given again")
	return []*cobra.Command{cmd}
}

func (s *served) run(ctx context.Context) error {
	a := s.a
	logins := make(map[string]dashboard.Login)
	at, err := net.ResolveTCPAddr("tcp", s.addr)
	if err != nil {
		err = fmt.Errorf("--addr %s: want HOST:PORT: %w", s.addr, err)
	}
	err = errors.Join(err, add(logins, "--user", s.users, dashboard.Operator),
		add(logins, "--viewer", s.viewers, dashboard.Viewer))
	if err != nil {
		return usageError{err}
	}
	if !at.IP.IsLoopback() && len(logins) == 0 {
		return usage("--addr %s is not this machine's alone: give --user, or an address of loopback", s.addr)
	}
	q, err := a.open()
	if err != nil {
		return err
	}
	if _, err := q.Channels(ctx); err != nil { // a wrong URL is told now, not on each page
		return err
	}
	l, err := net.ListenTCP("tcp", at)
	if err != nil {
		return fmt.Errorf("--addr %s: %w", s.addr, err)
	}
	log := slog.New(slog.NewTextHandler(a.err, nil))
	o := dashboard.Options{Pool: a.pool, Log: log}
	if len(logins) > 0 {
		o.Authenticate = dashboard.BasicAuth(logins)
	}
	d := dashboard.Handler(q, o)
	server := &http.Server{
		Handler: d, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var g errgroup.Group
	g.Go(func() error {
		defer stop()
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve: %w", err)
		}
		return nil
	})
	url := "http://" + l.Addr().String() + "/"
	if a.json {
		a.lines = true
		err = a.document(map[string]string{"url": url})
	} else {
		a.tell("the dashboard is at %s", url)
	}
	if err == nil {
		<-ctx.Done()
	}
	_ = d.Close() // ends streams, which Shutdown would wait for
	patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer cancel()
	if server.Shutdown(patience) != nil {
		_ = server.Close()
	}
	return errors.Join(err, g.Wait())
}

// add takes in the logins of one flag. Its error tells all mistakes, and no password.
func add(logins map[string]dashboard.Login, flag string, given []string, role dashboard.Role) error {
	var errs []error
	one := func(where, text string) {
		name, password, is := strings.Cut(text, "=")
		_, twice := logins[name]
		switch {
		case !is || password == "":
			errs = append(errs, fmt.Errorf("%s: want NAME=PASSWORD", where))
		case name == "" || len(name) > 255 || strings.Contains(name, ":"):
			errs = append(errs, fmt.Errorf("%s: want a name of 1 to 255 bytes without a colon", where))
		case twice:
			errs = append(errs, fmt.Errorf("%s: %q is there twice", where, name))
		default:
			logins[name] = dashboard.Login{Password: password, Role: role}
		}
	}
	for i, text := range given {
		name, is := strings.CutPrefix(text, "@")
		if !is {
			one(fmt.Sprintf("%s %d", flag, i+1), text)
			continue
		}
		f, err := os.Open(name)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", flag, err))
			continue
		}
		before, lines := len(logins)+len(errs), bufio.NewScanner(f)
		for n := 1; lines.Scan(); n++ {
			if line := strings.TrimSpace(lines.Text()); line != "" && line[0] != '#' {
				one(fmt.Sprintf("%s %s:%d", flag, name, n), line)
			}
		}
		if err := lines.Err(); err != nil {
			errs = append(errs, fmt.Errorf("%s: read %s: %w", flag, name, err))
		} else if len(logins)+len(errs) == before {
			errs = append(errs, fmt.Errorf("%s: %s has nobody in it", flag, name))
		}
		_ = f.Close()
	}
	return errors.Join(errs...)
}
