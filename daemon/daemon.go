package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"

	"github.com/shuntmq/shunt/daemon/access"
	"github.com/shuntmq/shunt/daemon/budget"
	"github.com/shuntmq/shunt/daemon/config"
	"github.com/shuntmq/shunt/daemon/delayq"
	"github.com/shuntmq/shunt/daemon/gmq"
	"github.com/shuntmq/shunt/daemon/lmstfy"
	"github.com/shuntmq/shunt/daemon/push"
	"github.com/shuntmq/shunt/daemon/serve"
	"github.com/shuntmq/shunt/daemon/v1"
)

// Daemon serves the pools of a configuration. Its exported fields are its own configuration, read by Run.
type Daemon struct {
	Config config.Config  // validated
	Log    *slog.Logger   // nil: slog.Default()
	Level  *slog.LevelVar // of Log, for Reload; nil: it stays
	Build  lmstfy.Build
	// Serving is called once both listeners accept requests, with their addresses; nil: nobody is told.
	Serving func(api, admin string)

	pools     map[string]*pool
	access    *access.Store
	api       *lmstfy.API
	admin     *lmstfy.Admin
	own       *v1.API
	push      *push.Pusher
	boards    *boards
	gmq       *gmq.Server // nil: it is off
	delayq    *delayq.API // nil: it is off
	accessLog atomic.Bool
	stopping  atomic.Bool

	mu      sync.Mutex // guards what follows, and the fields above until they are set
	set     bool
	fronts  map[string]allower
	certs   map[string]*serve.Certificate
	current config.Config
}

// server is a listener with what it serves.
type server interface {
	Open() error
	Addr() net.Addr
	Serve() error
	Shutdown(context.Context) error
	Close() error
}

// allower is what has a list of networks.
type allower interface{ Allow([]netip.Prefix) }

// grace is that of the configuration, or 1 s, in which requests that wait are answered.
func (d *Daemon) grace() time.Duration { return max(d.Config.Grace, time.Second) }

// errEnded is why the parts end when Run's context has ended.
var errEnded = errors.New("daemon: ended")

// Run serves until ctx ends, and returns nil then, once all has ended: requests that wait for a job are answered, those
// that run have Grace, and what was taken and not sent is put back. Any other error is why it could not serve.
func (d *Daemon) Run(ctx context.Context) (err error) {
	if d.Log == nil {
		d.Log = slog.Default()
	}
	defer func() { err = errors.Join(err, d.closePools()) }()
	if err := d.openPools(ctx); err != nil {
		return err
	}
	servers, err := d.assemble()
	if err != nil {
		return err
	}
	for i, s := range servers {
		if err := s.Open(); err != nil {
			for _, opened := range servers[:i] {
				_ = opened.Close()
			}
			return err
		}
	}
	if d.Config.PIDFile != "" {
		if err := os.WriteFile(d.Config.PIDFile, []byte(strconv.Itoa(os.Getpid())+"\n"), 0o644); err != nil {
			for _, s := range servers {
				_ = s.Close()
			}
			return fmt.Errorf("daemon: pid_file: %w", err)
		}
		defer removePID(d.Config.PIDFile)
	}
	return d.serve(ctx, servers)
}

// removePID removes the file, unless a newer process has written its own id to it.
func removePID(file string) {
	if text, err := os.ReadFile(file); err == nil && strings.TrimSpace(string(text)) == strconv.Itoa(os.Getpid()) {
		_ = os.Remove(file)
	}
}

// serve runs all parts. The upkeep goes on until the last request has ended.
func (d *Daemon) serve(ctx context.Context, servers []server) error {
	parts, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(errEnded)
	g, failed := errgroup.WithContext(parts)
	g.Go(func() error { return d.access.Run(parts) })
	g.Go(func() error { return d.own.Recurring.Run(parts) })
	pushing, endPush := context.WithCancel(parts)
	defer endPush()
	pushed := make(chan error, 1)
	go func() { pushed <- d.push.Run(pushing) }() // until endPush; waited for below
	for name, p := range d.pools {                // until closePools
		if err := p.queue.Upkeep(parts); err != nil {
			stop(fmt.Errorf("daemon: upkeep of pool %s: %w", name, err))
		}
	}
	for _, s := range servers {
		g.Go(s.Serve)
	}
	g.Go(func() error {
		select {
		case <-ctx.Done():
		case <-failed.Done():
		}
		d.stopping.Store(true)
		d.notify("STOPPING=1")
		d.Log.Info("shuntd stops", "waiting", d.api.Waiting(), "grace", d.grace())
		d.api.Stop()
		d.own.Stop()
		endPush()
		if d.delayq != nil {
			d.delayq.Stop()
		}
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.grace())
		defer cancel()
		var all errgroup.Group
		for _, s := range servers {
			all.Go(func() error { return s.Shutdown(grace) })
		}
		all.Go(func() error { return <-pushed })
		all.Go(d.boards.close)
		if err := all.Wait(); err != nil {
			d.Log.Warn("requests ran on when the grace was over", "error", err)
		}
		stop(errEnded)
		return nil
	})
	api, admin := servers[0].Addr().String(), servers[1].Addr().String()
	d.Log.Info("shuntd serves", "api", api, "admin", admin, "version", d.Build.Version, "pid", os.Getpid())
	d.warnOfAdapters()
	d.notify("READY=1")
	if d.Serving != nil {
		d.Serving(api, admin)
	}
	if err := g.Wait(); err != nil && !errors.Is(err, errEnded) {
		return err
	}
	return nil
}

func (d *Daemon) notify(state string) {
	if err := serve.Notify(state); err != nil {
		d.Log.Warn("systemd was not told", "state", state, "error", err)
	}
}

// assemble makes the handlers and their servers, api first.
func (d *Daemon) assemble() ([]server, error) {
	c := &d.Config
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	d.access = &access.Store{Redis: d.pools[c.Admin.Pool].own}
	queues, shared := d.queues(), new(budget.Budget)
	d.api = &lmstfy.API{Pools: queues, Access: d.access, Open: c.Admin.Open, Defaults: defaults(c), Limits: limits(c),
		Budget: shared, Metrics: lmstfy.NewMetrics(registry), Log: d.Log}
	d.own = &v1.API{Pools: queues, Access: d.access, Open: c.Admin.Open, Budget: shared, Events: d.hubs(),
		Recurring: &v1.Recurring{Pools: queues, Redis: d.owns(), Log: d.Log}, Metrics: v1.NewMetrics(registry),
		Log: d.Log}
	allow, err := c.Push.Prefixes()
	if err != nil {
		return nil, fmt.Errorf("daemon: push.allow: %w", err)
	}
	d.push = &push.Pusher{Pools: queues, Redis: d.pools[c.Admin.Pool].own, Allow: allow, Grace: d.grace(),
		Metrics: push.NewMetrics(registry), Log: d.Log}
	if err := d.push.Validate(); err != nil {
		return nil, err
	}
	d.admin = &lmstfy.Admin{Pools: queues, Access: d.access, Accounts: operators(c), AccessLog: &d.accessLog,
		Metrics: promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), Build: d.Build, Log: d.Log,
		Mount: d.push.Routes()}
	if err := errors.Join(d.api.Validate(), d.admin.Validate(), d.own.Validate()); err != nil {
		return nil, err
	}
	registry.MustRegister(&gauges{d: d})
	d.accessLog.Store(c.Log.Access)
	d.fronts, d.certs = make(map[string]allower), make(map[string]*serve.Certificate)
	api, err := d.server("api", &c.API, both(d.own.Handler(), d.api.Handler()))
	if err != nil {
		return nil, err
	}
	d.boards = newBoards(d.pools, c, d.Log)
	routes := d.boards.before(both(d.own.Operators(d.admin.Authorized), d.admin.Handler()))
	admin, err := d.server("admin", &c.Admin.Listener, routes)
	if err != nil {
		return nil, err
	}
	more, err := d.adapters(registry, shared)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	d.set, d.current = true, d.Config
	d.mu.Unlock()
	return append([]server{api, admin}, more...), nil
}

// both serves /v1 by one handler, and all else by another one. It asks no ServeMux, which would clean paths.
func both(own, rest http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1" || strings.HasPrefix(r.URL.Path, "/v1/") {
			own.ServeHTTP(w, r)
		} else {
			rest.ServeHTTP(w, r)
		}
	})
}

func (d *Daemon) server(name string, at *config.Listener, h http.Handler) (*serve.Server, error) {
	l := &d.Config.Limits
	front := &serve.Front{Name: name, Handler: h, Log: d.Log, AccessLog: &d.accessLog, Ready: d.ready,
		MaxTime: maxTime(l)}
	networks, err := at.Prefixes()
	if err != nil {
		return nil, fmt.Errorf("daemon: %s.allow: %w", name, err)
	}
	front.Allow(networks)
	s := &serve.Server{Name: name, Listen: at.Listen, Handler: front, Log: d.Log, MaxHeader: l.MaxHeader,
		MaxConnections: l.MaxConnections, HeaderTimeout: l.HeaderTimeout, IdleTimeout: l.IdleTimeout}
	if s.TLS, err = certificate(name, at); err != nil {
		return nil, err
	}
	if s.TLS != nil {
		d.certs[name] = s.TLS
	}
	d.fronts[name] = front
	return s, nil
}

// certificate is that of a listener, or nil where it has none.
func certificate(name string, at *config.Listener) (*serve.Certificate, error) {
	if at.Cert == "" {
		return nil, nil
	}
	c := &serve.Certificate{CertFile: at.Cert, KeyFile: at.Key}
	if err := c.Load(); err != nil {
		return nil, fmt.Errorf("daemon: %s.tls_cert: %w", name, err)
	}
	return c, nil
}

// maxTime bounds a request with its answer. Over HTTP/2 its end ends a request that still waits, too.
func maxTime(l *config.Limits) time.Duration { return l.MaxWait + time.Minute }

func defaults(c *config.Config) lmstfy.Defaults {
	d := c.Defaults
	return lmstfy.Defaults{TTL: uint32(d.TTL), NoTTL: d.TTL == 0, Delay: uint32(d.Delay), Tries: uint16(d.Tries),
		TTR: uint32(d.TTR), Timeout: uint32(d.Timeout)}
}

func limits(c *config.Config) lmstfy.Limits {
	l := c.Limits
	return lmstfy.Limits{MaxBody: int64(l.MaxBody), MaxBodies: int64(l.MaxBodies), BodyTimeout: l.BodyTimeout,
		MaxWait: l.MaxWait, MaxWaiting: l.MaxWaiting}
}
