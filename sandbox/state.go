package sandbox

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// errClosed is what ends the wait for a child, or a child's message, when the Pool is closed.
var errClosed = errors.New("sandbox: the pool is closed")

// state is a Pool at work. Its children's places are tokens in two channels, each of a capacity of Children: a place
// with an idle child is in idle, one without a child in empty. Who took a token is the owner of the place, and puts a
// token back.
type state struct {
	settings
	protocol Protocol
	invalid  error // the configuration's complaints; nil: none
	log      *logger
	forker   *forker
	gate     gate

	idle  chan *child
	empty chan struct{}

	closing chan struct{}      // closed: no message gets a place any more
	ending  context.Context    // ended: messages in the hands of children are cut short
	end     context.CancelFunc // of ending

	work   sync.WaitGroup // children that are being ended
	forked sync.WaitGroup // the forker
	cut    atomic.Int32   // messages cut short by Close
}

func newState(conf settings, p Protocol, invalid error) *state {
	s := &state{
		settings: conf, protocol: p, invalid: invalid, log: &logger{to: conf.log}, forker: newForker(),
		idle: make(chan *child, conf.children), empty: make(chan struct{}, conf.children),
		closing: make(chan struct{}),
	}
	s.ending, s.end = context.WithCancel(context.Background())
	for range cap(s.empty) {
		s.empty <- struct{}{}
	}
	s.forked.Go(s.forker.run)
	return s
}

// take gets the caller a place: with a child, or with none where one is to be started.
func (s *state) take(ctx context.Context) (*child, error) {
	select {
	case c := <-s.idle:
		return c, nil
	default:
	}
	select {
	case c := <-s.idle:
		return c, nil
	case <-s.empty:
	case <-s.closing:
		return nil, errClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	wait := s.gate.wait(time.Now())
	if wait <= 0 {
		return nil, nil
	}
	opens := time.NewTimer(wait)
	defer opens.Stop()
	var err error
	select {
	case <-opens.C:
		return nil, nil
	case c := <-s.idle:
		s.empty <- struct{}{}
		return c, nil
	case <-s.closing:
		err = errClosed
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	s.empty <- struct{}{}
	return nil, err
}

// give gives a place back. A child that takes no more messages is ended meanwhile.
func (s *state) give(c *child) {
	switch {
	case c == nil:
		s.empty <- struct{}{}
	case !c.spent:
		s.idle <- c
	default:
		s.work.Go(c.dismiss)
		s.empty <- struct{}{}
	}
}

// note counts a message that Close has cut short. Its caller still has the place that Close waits for.
func (s *state) note(err error) {
	if errors.Is(err, errClosed) {
		s.cut.Add(1)
	}
}

// start starts a process. A failure keeps others from trying again at once.
func (s *state) start(env []string) (p *process, err error) {
	if err = s.invalid; err != nil {
		err = &failure{kind: ErrStart, text: strings.TrimPrefix(err.Error(), "sandbox: ")}
	} else if err = look(s.dir, s.command[0]); err == nil {
		s.forker.do(func() { p, err = start(&s.settings, s.log, env) })
	}
	if err != nil {
		s.gate.fail(time.Now())
	}
	return p, err
}

// close takes all places away, and ends their children.
func (s *state) close(ctx context.Context) error {
	defer s.end()
	close(s.closing)
	late := context.AfterFunc(ctx, s.end)
	for range cap(s.empty) {
		select {
		case <-s.empty:
		case c := <-s.idle:
			s.work.Go(c.dismiss)
		}
	}
	late()
	s.work.Wait()
	close(s.forker.calls) // not before: its thread would go, and a child in its grace with that
	s.forked.Wait()
	if n := s.cut.Load(); n > 0 {
		return fmt.Errorf("sandbox: closed with %d messages cut short: shut the receivers down before: %w", n,
			context.Cause(ctx))
	}
	return nil
}

// watch has stop called when ctx ends, or Close cuts the message short. release returns the cause, or nil if stop has
// not been called and never will be; else it waits until stop has returned.
func (s *state) watch(ctx context.Context, stop func()) (release func() error) {
	var once sync.Once
	var cause error
	done := make(chan struct{})
	on := func(why func() error) func() {
		return func() {
			once.Do(func() {
				defer close(done)
				cause = why()
				stop()
			})
		}
	}
	handled := context.AfterFunc(ctx, on(func() error { return context.Cause(ctx) }))
	closed := context.AfterFunc(s.ending, on(func() error { return errClosed }))
	return func() error {
		if a, b := handled(), closed(); a && b {
			return nil
		}
		<-done
		return cause
	}
}
