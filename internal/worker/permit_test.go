package worker

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
)

// Of a closed lane nothing starts: not what is enqueued, not what a blocked take brings that could not be ended, and no
// suspect. The other lanes go on. Once it is open, all of it is handled.
func TestClosedLane(t *testing.T) {
	for name, order := range map[string]func() *Order{
		"ordered":  func() *Order { return NewOrder(nil) },
		"weighted": func() *Order { return NewOrder([]int{1, 2, 3}) },
	} {
		for _, unblocks := range []bool{true, false} {
			t.Run(name+map[bool]string{true: "", false: ", a take that stays blocked"}[unblocks], func(t *testing.T) {
				t.Parallel()
				redistest.Leaks(t)
				s := redistest.Shared(t)
				p := redistest.NewProxy(t, s.Addr())
				if !unblocks {
					r := p.On(redistest.Command("CLIENT", "UNBLOCK"), 0, redistest.ReplyError("NOPERM no"))
					defer r.Remove()
				}
				f := newFake(t, s, p.URL(), 3, 4, func(*Item, int) error { return nil },
					func(c *Config) { c.Order = order() })
				l := f.Lanes[1]
				blocked := func() int {
					n := 0
					for _, l := range f.Lanes {
						if l.Waiter.Blocked.Load() {
							n++
						}
					}
					return n
				}
				f.until(5*time.Second, "all waiters block", func() bool { return blocked() == 3 })
				time.Sleep(50 * time.Millisecond) // so that Redis has the last command
				why := errors.New("a test")
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				l.Close(ctx, why)
				if n, _, got := l.MayTake(time.Now()); n != 0 || got != why || !l.Closed() {
					t.Errorf("%d may be taken, %v", n, got)
				}
				f.enqueue(1, 100, 150)
				s.Do("LPUSH", f.keys[1].Suspect, "150")
				f.Suspects(l)
				for i := range 20 {
					f.enqueue(0, i, i+1)
					f.enqueue(2, 200+i, 201+i)
					f.until(2*time.Second, "the others go on", func() bool {
						return f.seen(i, i+1)+f.seen(200+i, 201+i) == 2
					})
				}
				f.until(2*time.Second, "what a blocked take has brought went back", func() bool {
					return f.length("LLEN", f.keys[1].Prepare) == 50
				})
				if n := f.seen(100, 151); n > 0 {
					t.Errorf("%d of the closed lane were handled", n)
				}
				if unblocks {
					f.until(2*time.Second, "the others wait again", func() bool { return blocked() == 2 })
				}
				l.Open()
				f.until(10*time.Second, "all are handled", func() bool { return f.seen(100, 151) == 51 })
			})
		}
	}
}

// Messages that a worker holds of a lane that is closed meanwhile go back, and start again once it is open.
func TestClosedLaneReleases(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	f := newFake(t, s, s.URL(), 1, 1, nil)
	begun, goOn := make(chan struct{}), make(chan struct{})
	f.handles(func(_ *Item, n int) error {
		if n == 300 {
			close(begun)
			<-goOn
		}
		return nil
	})
	f.enqueue(0, 0, 400)
	<-begun
	f.Lanes[0].Close(t.Context(), errors.New("a test"))
	close(goOn)
	list := f.keys[0].Doing(f.Sites[0].Live(), 0)
	f.until(5*time.Second, "nothing is held", func() bool {
		return f.length("LLEN", list) == 0 && f.length("LLEN", f.keys[0].Prepare) == 99
	})
	if n := f.seen(301, 400); n > 0 {
		t.Errorf("%d began", n)
	}
	f.Lanes[0].Open()
	f.until(5*time.Second, "all are handled", func() bool { return f.seen(0, 400) == 400 })
}

// A closed lane may have suspects: idle workers sleep all the same. They asked the other lanes as fast as they could.
func TestSuspectsOfClosedLane(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	f := newFake(t, s, p.URL(), 2, 2, func(*Item, int) error { return nil },
		func(c *Config) { c.Order = NewOrder(nil) })
	s.Do("LPUSH", f.keys[0].Suspect, "1")
	f.Lanes[0].Close(t.Context(), errors.New("a test"))
	f.Suspects(f.Lanes[0])
	takes := p.On(redistest.ByScript(store.Take)(f.keys[1].Name), 0, redistest.Pass)
	time.Sleep(300 * time.Millisecond) // in which there were hundreds
	if n := takes.Struck(); n > 10 {
		t.Errorf("%d takes of an empty lane", n)
	}
	f.Lanes[0].Open()
	f.until(8*time.Second, "the suspect is handled", func() bool { return f.seen(1, 2) == 1 })
}
