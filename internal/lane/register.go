package lane

import (
	"context"
	"time"

	"github.com/shuntmq/shunt/internal/custody"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/store"
)

// Registered is an incarnation that every lane of a site has among the living.
type Registered struct {
	Incarnation store.Incarnation
	Run         store.ServerRun // at which it is registered
	sent        time.Time       // from which its lease counts
}

// Join makes the first incarnation known to Redis; only then may it take.
func (s *Site) Join(ctx context.Context) error {
	first, err := s.register(ctx, s.Live())
	if err == nil {
		s.Succeed(first)
	}
	return err
}

// RegisterNext makes another incarnation known to Redis. It asks nothing else, with a wait that grows, for as long as
// Redis is away. nil: the receiver has ended.
func (s *Site) RegisterNext() *Registered {
	running := s.conf.Running
	for wait := link.MinTrouble; ; {
		next, err := s.register(running, store.NewIncarnation(s.conf.Workers, s.conf.Lease))
		if err == nil {
			return next
		}
		if running.Err() != nil {
			return nil
		}
		if s.ReportFatal(s.Lanes[0], err) {
			wait = min(2*wait, link.MaxTrouble)
		}
		link.Sleep(running, link.Jitter(wait))
	}
}

// register enters an incarnation among the living of every lane. Only then may it take. Each attempt has a name of
// its own, and takes those of failed attempts away. So no name is ever both among the living and among the dead.
func (s *Site) register(ctx context.Context, inc store.Incarnation) (*Registered, error) {
	keys := make([]*store.Keys, len(s.Lanes))
	for i, l := range s.Lanes {
		keys[i] = l.Keys
	}
	sent := time.Now()
	run, err := store.RegisterIncarnation(ctx, s.Server.Data, keys, inc, s.Debts.abandoned)
	if err != nil {
		if link.Classify(err) != link.NotExecuted || len(keys) > 1 {
			s.Debts.abandon(inc.Name)
		}
		return nil, err
	}
	s.Debts.abandoned = nil
	return &Registered{inc, run, sent}, nil
}

// Succeed puts the next incarnation in the place of the live one, and answers for all that broke so far. The gate is
// closed, or nobody has entered yet.
func (s *Site) Succeed(next *Registered) {
	s.live.Store(&next.Incarnation)
	s.run.Store(&next.Run)
	s.Lease.renew(next.sent)
	s.mended()
	if s.Lease.Lost() { // the watcher saw the old lease lost just when it was renewed
		s.MustHandOver(custody.ErrLeaseLost)
	}
	s.takeOn(next.Incarnation)
}

// takeOn makes the lists of an incarnation the lanes' own.
func (s *Site) takeOn(inc store.Incarnation) {
	for _, l := range s.Lanes {
		l.Lists = l.DoingKeys(inc)
	}
	s.conf.Adopt(s)
}
