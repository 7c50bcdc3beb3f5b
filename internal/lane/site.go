package lane

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/shuntmq/shunt/internal/custody"
	"github.com/shuntmq/shunt/internal/event"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/store"
)

// Config is what all sites of a receiver share.
type Config struct {
	Lease, ReplyTimeout time.Duration
	Workers             int
	Emit                func(...event.Event)
	Wake                func() // something has changed for workers and waiters: all look
	// Busy gives the messages of a site's lanes whose handlers have been at work since before then; nil for none.
	Busy func(s *Site, before time.Time) []Busy
	// Renewed is called after a good beat; it does less than Wake.
	Renewed func()
	// Lost is called when a lease is found lost, before the handover begins.
	Lost func(*Site)
	// Adopt is called when the lists of a site's lanes are another incarnation's. The gate is closed.
	Adopt func(*Site)

	Taking  context.Context // ends: nothing more is taken
	Running context.Context // ends: all goroutines that are left return
}

// Site is one server, as one receiver uses it.
type Site struct {
	Server *link.Server
	Lanes  []*Lane // the receiver's lanes there, the highest first
	Mask   uint64  // the same, as bits by their index
	Gate
	Lease    Lease
	Debts    Debts
	Breaker  link.Breaker
	Full     Span // its Redis has refused something for want of memory: it is asked by script, which it does not refuse
	Large    Large
	Suspects Suspects

	sweeps chan *Lane // sweep now
	live   atomic.Pointer[store.Incarnation]
	run    atomic.Pointer[store.ServerRun] // the process of Redis at which the incarnation is registered
	heart  heart
	conf   *Config
}

// Sites groups the lanes of a receiver, the highest first, by their servers.
func Sites(lanes []*Lane, conf *Config) (all []*Site) {
	of := make(map[*link.Server]*Site)
	for i, l := range lanes {
		s := of[l.server]
		if s == nil {
			s = newSite(l.server, conf)
			of[l.server], all = s, append(all, s)
		}
		s.Lanes, s.Mask = append(s.Lanes, l), s.Mask|1<<i
		l.Site, l.Index, l.beside = s, i, lanes
		l.Waiter.Waiter = link.NewWaiter(s.Server.Node, conf.ReplyTimeout)
	}
	for _, s := range all {
		s.takeOn(*s.live.Load())
	}
	return all
}

func newSite(server *link.Server, conf *Config) *Site {
	s := &Site{Server: server, conf: conf, sweeps: make(chan *Lane, 128)}
	inc := store.NewIncarnation(conf.Workers, conf.Lease)
	s.live.Store(&inc)
	s.Lease.Length = inc.Term()
	s.Gate.init(s.unblock)
	s.Debts.init(s)
	s.heart.init(s)
	s.Large.init(s)
	s.Breaker.Over = conf.Wake
	s.Breaker.Tells = func(err error, fatal bool) {
		s.emit(event.Event{Kind: event.ReceiverError, Channel: s.first(), Receiver: s.Live().Name, Err: err,
			Fatal: fatal})
	}
	return s
}

// Live is the incarnation that the receiver is at the site now.
func (s *Site) Live() store.Incarnation { return *s.live.Load() }

// Run is the process of Redis at which it is registered; nil before.
func (s *Site) Run() *store.ServerRun { return s.run.Load() }

// Replaced says whether a process of Redis is another one than that. Where one of them does not say who it is, nothing
// is known.
func (s *Site) Replaced(now store.ServerRun) bool {
	at := s.Run()
	return at != nil && *at != "" && now != "" && now != *at
}

// Stopped says that nothing more is taken.
func (s *Site) Stopped() bool { return s.conf.Taking.Err() != nil }

// first is the channel that Events of the whole site name.
func (s *Site) first() string { return s.Lanes[0].Name }

func (s *Site) emit(evs ...event.Event) { s.conf.Emit(evs...) }

// Exchange sends a call of the incarnation's and waits for all replies, however long they take: a worker never walks
// away from a take. A reply that is lost ends the incarnation. The caller is inside the gate.
func (s *Site) Exchange(call *link.Call) {
	s.Large.link().Do(context.Background(), call)
	for _, rep := range call.Replies {
		if Broke(rep.Err) {
			s.MustHandOver(rep.Err)
			return
		}
	}
}

// ExchangeTakes is Exchange for a call whose first commands are takes. A take is only sent on a connection that is
// older than a good beat: so the Redis behind it knows the incarnation. Otherwise it ends with link.ErrYoung, and the
// other commands are sent alone. sent: something was.
func (s *Site) ExchangeTakes(call *link.Call, takes int) (sent bool) {
	if takes > 0 {
		call.Before = *s.Lease.Last()
	}
	s.Exchange(call)
	if takes == 0 || !errors.Is(call.Replies[0].Err, link.ErrYoung) {
		return true
	}
	s.Lease.Doubt()
	s.RequestBeat()
	others := make([]int, call.Len()-takes)
	if len(others) == 0 {
		return false
	}
	for i := range others {
		others[i] = takes + i
	}
	rest := call.Only(others)
	s.Exchange(rest)
	copy(call.Replies[takes:], rest.Replies)
	call.Order = rest.Order
	return true
}

// Judge tells the breaker what a step came to, or that nothing of it was sent.
func (s *Site) Judge(sent bool, err error) {
	if sent {
		s.Breaker.Judge(err)
	} else {
		s.Breaker.Back()
	}
}

// Do sends a call on the receiver's own behalf.
func (s *Site) Do(ctx context.Context, c *link.Call) error { return s.Server.Data.Run(ctx, c) }

// Dials counts the connections of the links. The link of the beats learns of a restart soon. The data link is silent
// while all workers are busy, so its connection may be gone unnoticed.
func (s *Site) Dials() int64 { return s.Server.Data.Dials() + s.Server.Pulse.Dials() }

// LoseLease ends what the incarnation holds, which may be another's already. A new incarnation follows when Redis is
// back.
func (s *Site) LoseLease(why error) {
	if s.Lease.Lose() {
		return
	}
	s.emit(event.Event{Kind: event.LeaseLost, Channel: s.first(), Receiver: s.Live().Name, Err: why})
	s.conf.Lost(s)
	s.MustHandOver(custody.ErrLeaseLost)
}

// ReportFatal emits an error that waiting does not mend, and says whether it is one.
func (s *Site) ReportFatal(l *Lane, err error) bool {
	class := link.Classify(err)
	if class != link.Fatal && class != link.Failed {
		return false
	}
	s.emit(event.Event{Kind: event.ReceiverError, Channel: l.Name, Receiver: s.Live().Name, Err: err, Fatal: true})
	return true
}

// RequestSweep asks for a sweep of one lane, also for what it says of delay.
func (s *Site) RequestSweep(l *Lane) {
	select {
	case s.sweeps <- l:
	default: // a regular one will do
	}
}

// SweepRequests gives the lanes to sweep at once.
func (s *Site) SweepRequests() <-chan *Lane { return s.sweeps }

// unblock ends the blocking commands of its lanes' waiters, where the server allows it, until ctx ends.
func (s *Site) unblock(ctx context.Context) {
	for helps := true; helps && ctx.Err() == nil; link.Sleep(ctx, unblockEvery) {
		for _, l := range s.Lanes {
			helps = helps && l.unblock(ctx)
		}
	}
}
