package push

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt"
)

// Pusher runs the groups of some pools in this process. Its exported fields are its configuration, and are not changed
// once a method was called. Its methods may be called by many goroutines at once.
type Pusher struct {
	Pools map[string]*shunt.Queue // by name; required
	Redis *redis.Pool             // keeps the groups; required
	Allow []netip.Prefix          // networks that all groups may reach beside public ones; SetAllow changes them
	Grace time.Duration           // how long the end of Run waits for requests under way; 0: not at all
	// RootCAs are the authorities that endpoints' certificates are verified with; nil: those of the system.
	RootCAs *x509.CertPool
	Metrics *Metrics     // nil: none
	Log     *slog.Logger // nil: slog.Default()

	once  sync.Once
	store store
	allow atomic.Pointer[[]netip.Prefix]
	pokes chan struct{} // of capacity 1: something may have changed
}

// Validate says all that is wrong with the configuration.
func (p *Pusher) Validate() error {
	var errs []error
	if len(p.Pools) == 0 {
		errs = append(errs, errors.New("push: Pusher.Pools is empty"))
	}
	for name, q := range p.Pools {
		if !isName(name) || q == nil {
			errs = append(errs,
				fmt.Errorf("push: Pusher.Pools has %.40q: want letters, digits, - and _, and a Queue", name))
		}
	}
	if p.Redis == nil {
		errs = append(errs, errors.New("push: Pusher.Redis is nil: want a pool"))
	}
	if p.Grace < 0 {
		errs = append(errs, fmt.Errorf("push: Pusher.Grace is %v: want 0 or more", p.Grace))
	}
	return errors.Join(errs...)
}

func (p *Pusher) begin() {
	p.once.Do(func() {
		if p.Log == nil {
			p.Log = slog.Default()
		}
		p.store.redis, p.pokes = p.Redis, make(chan struct{}, 1)
		p.allow.Store(&p.Allow)
	})
}

// SetAllow changes the networks that all groups may reach. Connections to others are not used any more.
func (p *Pusher) SetAllow(allow []netip.Prefix) {
	p.begin()
	p.allow.Store(&allow)
	p.poke()
}

// poke has the groups looked at now.
func (p *Pusher) poke() {
	select {
	case p.pokes <- struct{}{}:
	default:
	}
}

// Run runs the groups until ctx ends. Then no more messages are taken, and requests under way have Grace. What is left
// goes back to its queue. It returns nil. Call Validate before.
func (p *Pusher) Run(ctx context.Context) error {
	p.begin()
	var work sync.WaitGroup
	work.Go(func() { p.store.hear(ctx, p.poke) })
	ending, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	f := &follower{p: p, ending: ending, runners: make(map[Key]*running), bad: make(map[Key]string)}
	for ctx.Err() == nil {
		f.look(ctx)
		next := time.NewTimer(lookEvery + jitter(lookJitter))
		select {
		case <-ctx.Done():
		case <-p.pokes:
		case <-next.C:
		}
		next.Stop()
	}
	defer time.AfterFunc(p.Grace, end).Stop()
	for _, r := range f.runners {
		close(r.wants)
	}
	f.work.Wait()
	work.Wait()
	return nil
}

// running is a runner, and the plan that it has.
type running struct {
	*runner
	text  string
	allow *[]netip.Prefix
	group Group
}

// follower has the runners do what Redis has. One goroutine owns it.
type follower struct {
	p       *Pusher
	ending  context.Context
	runners map[Key]*running
	work    sync.WaitGroup // the runners

	version string    // of what was read last
	read    time.Time // when that was; zero: never
	allow   *[]netip.Prefix
	away    bool           // Redis is, and that was logged
	bad     map[Key]string // records that are none, and were logged
}

// look reads the groups where they have changed, or were not read for long.
func (f *follower) look(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	err := f.follow(limited)
	switch {
	case ctx.Err() != nil:
	case err == nil:
		f.away = false
	case !f.away:
		f.away = true
		f.p.Log.Error("push: the groups cannot be read, and run on as they are", "error", err)
	}
}

func (f *follower) follow(ctx context.Context) error {
	version, err := f.p.store.version(ctx)
	if err != nil {
		return err
	}
	allow := f.p.allow.Load()
	if version == f.version && allow == f.allow && time.Since(f.read) < readEvery {
		return nil
	}
	begun := time.Now()
	var errs []error
	for pool, q := range f.p.Pools {
		records, err := f.p.store.all(ctx, pool)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		f.take(pool, q, records, allow)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	f.version, f.allow, f.read = version, allow, begun
	return nil
}

// take has the runners of a pool do what its records say.
func (f *follower) take(pool string, q *shunt.Queue, records map[Key]record, allow *[]netip.Prefix) {
	for k, r := range f.runners {
		if _, there := records[k]; k.Pool == pool && !there {
			close(r.wants)
			delete(f.runners, k)
			f.p.Metrics.forget(r.runner)
		}
	}
	for k, rec := range records {
		if rec.err != nil {
			if f.bad[k] != rec.text {
				f.bad[k] = rec.text
				f.p.Log.Error("push: a group is paused, because its record in Redis is wrong", "group",
					k.String(), "error",
					rec.err)
			}
			if f.runners[k] == nil {
				continue
			}
			rec.group = f.runners[k].group
			rec.group.State = Paused
		} else {
			delete(f.bad, k)
		}
		r := f.runners[k]
		if r == nil {
			r = &running{runner: &runner{p: f.p, key: k, queue: q, wants: make(chan plan, 1)}}
			f.runners[k] = r
			f.work.Go(func() { r.run(f.ending) })
		}
		if r.text != rec.text || r.allow != allow {
			r.text, r.allow, r.group = rec.text, allow, rec.group
			r.want(plan{rec.group, *allow})
		}
	}
	for k := range f.bad {
		if _, there := records[k]; k.Pool == pool && !there {
			delete(f.bad, k)
		}
	}
}

var errChanged = errors.New("push: the group was changed meanwhile")

// stopGroup stops a group whose endpoint has answered 410, everywhere and until somebody resumes it.
func (p *Pusher) stopGroup(ctx context.Context, s *sender, channel string) {
	if s.left(true) {
		return // another request does it
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookTimeout)
	defer cancel()
	k := s.group.Key
	_, err := p.store.change(ctx, k, func(g *Group) error {
		if g.State != Active || !g.ChangedAt.Equal(s.group.ChangedAt) || g.Endpoint != s.group.Endpoint {
			return errChanged
		}
		g.State, g.StoppedAt = Stopped, now()
		g.Reason = fmt.Sprintf("the endpoint answered %d to a message of %s", http.StatusGone, channel)
		return nil
	})
	switch {
	case err == nil:
		p.Log.Warn("push: a group is stopped, because its endpoint answered 410: resume it when the endpoint is back",
			"group", k.String(), "channel", channel)
		p.poke()
	case errors.Is(err, errChanged), errors.Is(err, ErrNotFound): // another sender follows
	default:
		s.back()
		p.Log.Error("push: a group could not be stopped whose endpoint answered 410", "group", k.String(), "error", err)
	}
}
