package topics

import (
	"context"
	"errors"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/shuntmq/shunt"
)

const (
	maxSearches = 4      // at once; further ones wait
	maxLooks    = 16     // of a search at once
	maxSearched = 10_000 // channels of a search
	endTries    = 3      // for a job that moves meanwhile
)

var (
	// ErrNotLeased says that a job is there, and nobody has it under a lease.
	ErrNotLeased = errors.New("topics: the job is not leased")
	// ErrSeveral says that several topics have a job of that id.
	ErrSeveral = errors.New("topics: several topics have a job of that id: which one is meant is not known")
)

// Place is where a job is, and what is known of it.
type Place struct {
	Ref    shunt.Ref
	Status shunt.Status
}

// over says that nothing of the job lives.
func (p *Place) over() bool {
	return p.Status.State == shunt.StateDone || p.Status.State == shunt.StateDead
}

// searches are slots for searches through all channels.
type searches struct {
	once sync.Once
	free chan struct{}
}

func (s *searches) begin(ctx context.Context) error {
	s.once.Do(func() { s.free = make(chan struct{}, maxSearches) })
	select {
	case s.free <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *searches) end() { <-s.free }

// In finds a job in one channel. shunt.ErrNotFound: it is not there.
func (t *Topics) In(ctx context.Context, channel, id string) (p Place, err error) {
	ref, ok := refOf(channel, id)
	if !ok {
		return p, shunt.ErrNotFound
	}
	p.Ref = ref
	p.Status, err = t.Queue.Status(ctx, ref)
	return p, err
}

// find takes the job where the id was met last, if it is one that is meant; else it asks all channels. Where none has
// it under a lease, the one that was met is taken all the same, if it lives.
func (t *Topics) find(ctx context.Context, id string, meant func(*Place) bool) (Place, error) {
	at := t.hints.of(id)
	var met Place
	if at.channel != "" && !at.several {
		p, err := t.In(ctx, at.channel, id)
		if err == nil && meant(&p) || err != nil && !errors.Is(err, shunt.ErrNotFound) {
			return p, err
		}
		if err == nil && !p.over() {
			met = p
		}
	}
	if CheckID(id) != nil {
		return Place{}, shunt.ErrNotFound
	}
	found, err := t.search(ctx, id)
	if err != nil {
		return Place{}, err
	}
	if leased, living := len(found.of[0]), len(found.of[1]); at.several && leased+living > 1 {
		return Place{}, ErrSeveral // an ack may mean the one whose lease has ended
	} else if leased == 0 && met.Ref != (shunt.Ref{}) {
		return met, nil
	}
	return found.best()
}

// search asks all channels.
func (t *Topics) search(ctx context.Context, id string) (*findings, error) {
	if err := t.searches.begin(ctx); err != nil {
		return nil, err
	}
	defer t.searches.end()
	channels, err := t.Queue.Channels(ctx)
	if err != nil {
		return nil, err
	}
	found := new(findings)
	g, within := errgroup.WithContext(ctx)
	g.SetLimit(maxLooks)
	looks := 0
	for _, channel := range channels {
		if _, ok := t.Topic(channel); !ok {
			continue
		}
		if looks++; looks > maxSearched {
			break
		}
		g.Go(func() error {
			p, err := t.In(within, channel, id)
			switch {
			case err == nil:
				found.add(p)
			case !errors.Is(err, shunt.ErrNotFound):
				return err
			}
			return nil
		})
	}
	return found, g.Wait()
}

// findings are the places that have an id, by how much they count.
type findings struct {
	mu sync.Mutex
	of [3][]Place // leased, living, over
}

func (f *findings) add(p Place) {
	rank := 1
	switch {
	case p.Status.State == shunt.StateLeased:
		rank = 0
	case p.over():
		rank = 2
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.of[rank] = append(f.of[rank], p)
}

func (f *findings) best() (Place, error) {
	for _, ps := range f.of {
		switch len(ps) {
		case 0:
		case 1:
			return ps[0], nil
		default:
			return Place{}, ErrSeveral
		}
	}
	return Place{}, shunt.ErrNotFound
}

// Elsewhere says whether this process knows of a living job of that id on another channel. Other processes may know of
// one: an id is sure to be the only one on its channel alone.
func (t *Topics) Elsewhere(ctx context.Context, id, channel string) (bool, error) {
	at := t.hints.of(id)
	if at.channel == "" || at.channel == channel {
		return false, nil
	}
	p, err := t.In(ctx, at.channel, id)
	if errors.Is(err, shunt.ErrNotFound) {
		return false, nil
	}
	return err == nil && !p.over(), err
}

// Ack acks a job that is leased, whoever has pulled it and whoever says so. before, if any, is called with it first.
// ErrNotLeased: it is there, as the Place says, and not leased. shunt.ErrNotFound: it is not there.
func (t *Topics) Ack(ctx context.Context, id, channel string, before func(*shunt.Leased)) (Place, error) {
	at, sent := t.hints.of(id), false // sent: an ack whose reply was lost
	if at.receipt != "" && !at.several && (channel == "" || channel == at.channel) {
		l, err := t.Queue.Leased(ctx, at.receipt)
		if err == nil {
			err = ack(ctx, l, before)
		}
		if err == nil {
			t.hints.drop(id, at)
			return Place{}, nil
		}
		if sent = errors.Is(err, shunt.ErrUnconfirmed); sent {
			channel = at.channel // no other topic's job is meant
		}
	}
	// A late ack of a job that was delivered here ends no other one, and of a serial there is none. Where the job was
	// only pushed here, and waits, another topic may have one that is leased.
	meant := func(p *Place) bool {
		return p.Status.State == shunt.StateLeased || (at.receipt != "" || CheckID(id) != nil) && !p.over()
	}
	for range endTries {
		p, err := t.at(ctx, id, channel, meant)
		if sent && errors.Is(err, shunt.ErrNotFound) {
			return p, nil
		}
		if err != nil {
			return p, err
		}
		if p.Status.State != shunt.StateLeased {
			return p, ErrNotLeased
		}
		l, err := t.Queue.LeasedBy(ctx, p.Ref)
		if err == nil {
			err = ack(ctx, l, before)
		}
		switch {
		case errors.Is(err, shunt.ErrUnconfirmed):
			sent, channel = true, l.Channel
		case errors.Is(err, shunt.ErrNotFound), errors.Is(err, shunt.ErrLeaseLost): // it moves
		case err == nil && at.several && channel == "": // which was the last one that is leased
			t.hints.drop(id, at)
			return p, nil
		default:
			return p, err
		}
	}
	return Place{}, errors.New("topics: the job moved each time when it was to be acked")
}

// At finds a job in one channel, as In does; where none is given, in all of them. It takes one that lives where the id
// was met last, unless it was delivered here from several. Else it takes a leased one before one that waits, and that
// before what is kept of one that is over. A message without an id is found only by the process that has delivered it.
func (t *Topics) At(ctx context.Context, id, channel string) (Place, error) {
	return t.at(ctx, id, channel, func(p *Place) bool { return !p.over() })
}

func (t *Topics) at(ctx context.Context, id, channel string, meant func(*Place) bool) (Place, error) {
	if channel != "" {
		return t.In(ctx, channel, id)
	}
	return t.find(ctx, id, meant)
}

func ack(ctx context.Context, l *shunt.Leased, before func(*shunt.Leased)) error {
	if before != nil {
		before(l)
	}
	return l.Ack(ctx)
}
