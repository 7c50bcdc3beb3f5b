package topics

import (
	"context"
	"errors"
	"time"

	"github.com/shuntmq/shunt"
)

const (
	// mostFirst is the lease of a pull, before it is known how long the job's own is. For so long Redis may be out of
	// reach between the two, and the job loses no try.
	mostFirst  = 10 * time.Second
	leastLease = time.Second // of a job
	// shortFor is how long pulls have a shorter lease because of one job's. So a job is taken twice once in that time.
	shortFor = time.Minute
	// settleTimeout bounds what is done with a job whose client may have left.
	settleTimeout = 10 * time.Second
	longestLease  = 7 * 24 * time.Hour // as shunt has it
)

// Demand is what a Take asks for.
type Demand struct {
	Channels []string      // 1 to 64, the highest first
	Wait     time.Duration // for a first job; 0: not at all
	// Lease is how long the job is the client's, from now: 1 s to 7 days; others are cut to these.
	Lease func(*shunt.Leased) time.Duration
}

// Take pulls one job, under the lease that the job itself names. It returns nil, and no error, where there was none
// within Wait. Who has it and cannot hand it over gives it to Release.
func (t *Topics) Take(ctx context.Context, d Demand) (*shunt.Leased, error) {
	end := time.Now().Add(d.Wait)
	for {
		first := t.firstLease()
		ms, err := t.Queue.Pull(ctx, shunt.PullOptions{Channels: d.Channels, Lease: first,
			Wait: max(0, time.Until(end))})
		if err != nil {
			return nil, err
		}
		if len(ms) > 0 {
			l := ms[0]
			own := min(max(d.Lease(l), leastLease), longestLease)
			if own < first { // a lease is never made shorter, so it is taken again
				t.shortens(own)
				if err := t.Release(ctx, l); err != nil {
					return nil, err
				}
				continue
			}
			switch err := t.extend(ctx, l, own); {
			case err == nil:
				return l, nil
			case errors.Is(err, shunt.ErrLeaseLost): // Redis was slow, and others may have it
			case errors.Is(err, shunt.ErrCancelled):
				err = t.Release(ctx, l) // which drops it
				if err != nil {
					return nil, err
				}
			default:
				return nil, errors.Join(err, t.Release(ctx, l))
			}
		}
		if !time.Now().Before(end) {
			return nil, nil
		}
	}
}

func (t *Topics) extend(ctx context.Context, l *shunt.Leased, d time.Duration) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	return l.Extend(ctx, d)
}

// firstLease is that of a pull: mostFirst, or the shortest that a job has named here of late.
func (t *Topics) firstLease() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !time.Now().Before(t.until) {
		return mostFirst
	}
	return t.shortest
}

// shortens takes in that a job's own lease is shorter than that of its pull.
func (t *Topics) shortens(own time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now := time.Now(); !now.Before(t.until) || own < t.shortest {
		t.shortest, t.until = own, now.Add(shortFor)
	}
}

// Release gives back what could not be handed over: it is taken next, and no attempt is counted. It goes on although
// ctx has ended.
func (t *Topics) Release(ctx context.Context, l *shunt.Leased) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	if err := l.Release(ctx); !errors.Is(err, shunt.ErrLeaseLost) {
		return err
	}
	return nil // its lease has ended, which comes to the same
}
