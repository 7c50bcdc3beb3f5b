package bell

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
)

// patience bounds what should come at once, on a busy machine too.
const patience = 20 * time.Second

// bed is a tower on a server, with a proxy between.
type bed struct {
	*redistest.Proxy
	*Tower
	t *testing.T
	s redistest.Backend
	k *store.Keys
}

// each runs f on miniredis and on redis-server.
func each(t *testing.T, f func(b *bed)) {
	t.Helper()
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		t.Parallel()
		redistest.Leaks(t)
		f(newBed(t, s))
	})
}

// newBed makes a tower that the test's cleanup closes.
func newBed(t *testing.T, s redistest.Backend) *bed {
	p := redistest.NewProxy(t, s.Addr())
	b := &bed{Proxy: p, t: t, s: s, k: store.KeysOf(redistest.Name(t))}
	b.Tower = newTower(t, b.pool("redis://"+p.Addr()))
	return b
}

// pool is one whose sockets are known.
func (b *bed) pool(url string) *redis.Pool {
	b.t.Helper()
	pool, err := link.NewPool(url)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { pool.Close() })
	return pool
}

func newTower(t *testing.T, pool *redis.Pool) *Tower {
	node := link.NewNode(pool, link.Settings{DialTimeout: time.Second, MaxBackoff: 50 * time.Millisecond})
	server := &link.Server{Node: node, Data: link.New(node, 5*time.Second, true)}
	server.Pulse = link.New(node, time.Second, false)
	tower := New(server, time.Second, func() int { return 100 })
	t.Cleanup(func() {
		tower.Close()
		server.Data.Close()
		server.Pulse.Close()
	})
	return tower
}

// as has the tower be that of a user with some rights less, and names that one.
func (b *bed) as(rules ...any) string {
	b.t.Helper()
	user := strings.NewReplacer("/", ".", "|", ".").Replace(redistest.Name(b.t))
	b.s.Do("ACL", append([]any{"SETUSER", user, "on", "nopass", "~*", "&*", "+@all"}, rules...)...)
	b.t.Cleanup(func() { b.s.Do("ACL", "DELUSER", user) })
	b.Tower = newTower(b.t, b.pool("redis://"+user+":any@"+b.Addr()))
	return user
}

// push adds n messages.
func (b *bed) push(k *store.Keys, n int) {
	b.t.Helper()
	for range n {
		b.s.Do("LPUSH", k.Prepare, "message")
	}
}

// take takes one message.
func (b *bed) take(k *store.Keys) bool {
	b.t.Helper()
	return b.s.Do("RPOP", k.Prepare) != nil
}

// woken waits until a caller is.
func (b *bed) woken(c *Caller) {
	b.t.Helper()
	select {
	case <-c.C:
	case <-time.After(patience):
		b.t.Fatal("not woken")
	}
}

// asleep says that a caller is not woken.
func (b *bed) asleep(cs ...*Caller) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, c := range cs {
		if c.woken != nil || len(c.C) > 0 {
			b.t.Errorf("caller %d is awake", i)
		}
	}
}

// rings says how often a bell has been asked for.
func (b *bed) rings() int { return b.Count(redistest.Command("BLMOVE")) }

// blocks waits until a bell of a channel blocks.
func (b *bed) blocks(k *store.Keys) {
	b.t.Helper()
	redistest.Until(b.t, patience, "a bell blocks", func() bool {
		return b.Count(redistest.Command("BLMOVE", k.Prepare)) > 0
	})
}

// A message wakes the one who waits at once, and is still there. Nothing is kept of a channel for which nobody waits.
func TestWake(t *testing.T) {
	each(t, func(b *bed) {
		if b.Dials() != 0 {
			b.t.Errorf("%d connections before anybody waits", b.Dials())
		}
		c := b.Join([]*store.Keys{b.k})
		if n := b.Waiting(); n != 1 {
			b.t.Errorf("%d wait", n)
		}
		b.blocks(b.k)
		b.asleep(c)
		for range 3 {
			began := time.Now()
			b.push(b.k, 1)
			b.woken(c)
			if took := time.Since(began); took > block/2 {
				b.t.Errorf("woken after %v", took)
			}
			if !b.take(b.k) {
				b.t.Error("what has woken it is gone")
			}
			c.Took(true)
			b.woken(c) // there may be more
			c.Took(false)
		}
		b.push(b.k, 1) // there before it waits
		c.Leave()
		c = b.Join([]*store.Keys{b.k})
		b.woken(c)
		c.Leave()
		if n := b.Waiting(); n != 0 {
			b.t.Errorf("%d wait", n)
		}
		b.take(b.k)
	})
}

// Where sockets are not known blocks are short, and the end of one is no reason to look. Close waits for no longer.
func TestShortBlocks(t *testing.T) {
	each(t, func(b *bed) {
		b.Tower = newTower(b.t, redistest.Pool(b.t, b.Addr()))
		c := b.Join([]*store.Keys{b.k})
		redistest.Until(b.t, patience, "it blocks again", func() bool { return b.rings() > 1 })
		b.asleep(c)
		b.push(b.k, 1)
		b.woken(c)
		b.take(b.k)
		c.Took(true)
		b.woken(c)
		c.Took(false)
		b.ResetCounts()
		b.blocks(b.k)
		b.closes(c, shortBlock+time.Second)
	})
}

// A bell for which nobody waits keeps its connection for a while. Whoever comes meanwhile does not wait for the end of
// that.
func TestLinger(t *testing.T) {
	each(t, func(b *bed) {
		for range 3 {
			c := b.Join([]*store.Keys{b.k})
			began := time.Now()
			b.push(b.k, 1)
			b.woken(c)
			if took := time.Since(began); took > linger/2 {
				b.t.Errorf("woken after %v", took)
			}
			b.take(b.k)
			c.Leave()
			redistest.Until(b.t, patience, "the bell has heard of it", func() bool {
				b.mu.Lock()
				defer b.mu.Unlock()
				return len(b.bells[b.k.Name].changed) == 0
			})
			<-time.After(20 * time.Millisecond) // it may linger by now; nothing tells of that
		}
		if n := b.Count(redistest.Command("CLIENT", "ID")); n != 1 {
			b.t.Errorf("%d connections", n)
		}
	})
}

// What comes as a suspect rings no bell, and is found soon all the same.
func TestWakeForSuspects(t *testing.T) {
	each(t, func(b *bed) {
		c := b.Join([]*store.Keys{b.k})
		b.blocks(b.k)
		b.s.Do("LPUSH", b.k.Suspect, "message")
		b.woken(c)
		c.Took(true)
		b.woken(c)
	})
}

// Who came first is woken first, and one alone; once that one has found something, two look for more.
func TestOrder(t *testing.T) {
	each(t, func(b *bed) {
		var cs []*Caller
		for range 5 {
			cs = append(cs, b.Join([]*store.Keys{b.k}))
		}
		b.blocks(b.k)
		b.push(b.k, 2)
		b.woken(cs[0])
		b.asleep(cs[1:]...)
		cs[0].Took(b.take(b.k))
		cs[0].Leave()
		b.woken(cs[1])
		b.woken(cs[2])
		b.asleep(cs[3:]...)
		cs[2].Took(b.take(b.k)) // it looked before the other: two more look
		cs[2].Leave()
		b.woken(cs[3])
		b.woken(cs[4])
		cs[3].Took(b.take(b.k))
		cs[4].Took(b.take(b.k)) // there is no more
		cs[1].Took(b.take(b.k))
		redistest.Until(b.t, patience, "nobody is awake", func() bool {
			b.mu.Lock()
			defer b.mu.Unlock()
			return b.bells[b.k.Name].awake == 0
		})
		b.push(b.k, 1)
		b.woken(cs[1]) // as it came before the others that still wait
		b.asleep(cs[4])
		if n := b.Waiting(); n != 3 {
			b.t.Errorf("%d wait", n)
		}
	})
}

// As many callers find as many messages, whether these come at once or one by one.
func TestFanOut(t *testing.T) {
	each(t, func(b *bed) {
		const callers = 40
		for _, at := range []int{callers, 1} {
			var served sync.WaitGroup
			errs := make(chan string, callers)
			for i := range callers {
				c := b.Join([]*store.Keys{b.k})
				served.Go(func() {
					defer c.Leave()
					for late := time.After(patience); ; {
						select {
						case <-c.C:
							some := b.take(b.k)
							if c.Took(some); some {
								return
							}
						case <-late:
							errs <- fmt.Sprintf("caller %d is never served", i)
							return
						}
					}
				})
			}
			for range callers / at {
				b.push(b.k, at)
			}
			served.Wait()
			close(errs)
			for err := range errs {
				b.t.Error(err)
			}
		}
	})
}

// A caller that leaves without an answer hands its wake on, and the last one leaves the message to whoever comes.
func TestLeave(t *testing.T) {
	each(t, func(b *bed) {
		one, two, three := b.Join([]*store.Keys{b.k}), b.Join([]*store.Keys{b.k}), b.Join([]*store.Keys{b.k})
		b.push(b.k, 1)
		redistest.Until(b.t, patience, "the first is woken", func() bool { return len(one.C) == 1 })
		one.Leave() // it has not heard yet
		if len(two.C) != 1 {
			b.t.Error("the next one is not woken")
		}
		b.asleep(three)
		b.woken(two)
		three.Leave() // it was not woken
		two.Leave()
		one.Leave() // again
		one.Took(true)
		four := b.Join([]*store.Keys{b.k})
		b.woken(four)
		four.Took(b.take(b.k))
		four.Took(true) // it has answered
		four.Leave()
	})
}

// One who leaves while it is awake leaves no bell behind, also of the channels that did not wake it. They had nobody to
// wake, and went on with a connection for an hour.
func TestLeaveAwake(t *testing.T) {
	each(t, func(b *bed) {
		k2 := store.KeysOf(redistest.Name(b.t))
		rung := b.On(redistest.Command("BLMOVE", k2.Prepare), 0, redistest.Delay(0)) // it counts replies
		c := b.Join([]*store.Keys{b.k, k2})
		b.blocks(k2)
		b.push(b.k, 1)
		b.woken(c)
		b.push(k2, 1)
		redistest.Until(b.t, patience, "the second bell has rung for nobody", func() bool { return rung.Struck() > 0 })
		c.Leave()
		redistest.Until(b.t, patience, "no bell is left", func() bool {
			b.mu.Lock()
			defer b.mu.Unlock()
			return b.hung == 0
		})
		b.take(b.k)
		b.take(k2)
	})
}

// A caller that looks by chance has answered a wake that it has not heard.
func TestTookUnheard(t *testing.T) {
	each(t, func(b *bed) {
		one, two := b.Join([]*store.Keys{b.k}), b.Join([]*store.Keys{b.k})
		b.push(b.k, 2)
		redistest.Until(b.t, patience, "the first is woken", func() bool { return len(one.C) == 1 })
		one.Took(b.take(b.k)) // two look for more, and it is one of them
		b.woken(one)
		b.woken(two)
		two.Took(b.take(b.k))
		two.Leave()
		one.Took(b.take(b.k))
		b.push(b.k, 1)
		b.woken(one)
	})
}

// Who waits for several channels is woken by each, by one at a time; another who waits for one of them does not wait
// for that.
func TestChannels(t *testing.T) {
	each(t, func(b *bed) {
		k2 := store.KeysOf(redistest.Name(b.t))
		both, one := b.Join([]*store.Keys{b.k, k2}), b.Join([]*store.Keys{k2})
		if n := b.Waiting(); n != 2 {
			b.t.Errorf("%d wait", n)
		}
		for range 2 {
			for _, k := range []*store.Keys{b.k, k2} {
				b.push(k, 1)
				b.woken(both)
				b.asleep(one)
				if !b.take(k) {
					b.t.Error("there is nothing")
				}
				both.Took(false)
			}
		}
		b.push(b.k, 1)
		b.woken(both)
		b.push(k2, 1)
		b.woken(one)
		both.Leave()
		b.take(b.k)
		one.Took(b.take(k2))
		b.woken(one)
		one.Leave()
	})
}

// Channels beyond those that have a connection are polled, and get one when another is free.
func TestPolled(t *testing.T) {
	each(t, func(b *bed) {
		b.most = func() int { return 1 }
		k2, k3 := store.KeysOf(redistest.Name(b.t)), store.KeysOf(redistest.Name(b.t))
		one, two, three := b.Join([]*store.Keys{b.k}), b.Join([]*store.Keys{k2}), b.Join([]*store.Keys{k3})
		for range 2 {
			b.push(k2, 1)
			b.woken(two)
			two.Took(b.take(k2))
			b.woken(two)
			two.Took(b.take(k2))
		}
		// While one is awake, no other is woken; those of other channels are asked for all the while.
		after := b.Join([]*store.Keys{k2})
		b.push(k2, 1)
		b.woken(two)
		asked := func() int { return b.Count(redistest.Command("EXISTS", k3.Prepare)) }
		n := asked()
		redistest.Until(b.t, patience, "it is polled", func() bool { return asked() > n+1 })
		b.asleep(after)
		after.Leave()
		two.Took(b.take(k2))
		b.woken(two)
		two.Took(b.take(k2))
		b.s.Do("LPUSH", k3.Suspect, "message")
		b.woken(three)
		three.Leave()
		if n := b.Count(redistest.Command("BLMOVE", k2.Prepare)); n != 0 {
			b.t.Errorf("%d bells of what is polled", n)
		}
		if n := b.Conns(); n != 2 {
			b.t.Errorf("%d connections, of one bell and of the one that polls", n)
		}
		b.push(b.k, 1)
		b.woken(one)
		one.Took(b.take(b.k))
		one.Leave()
		b.blocks(k2) // once the first has lingered
		b.push(k2, 1)
		b.woken(two)
		redistest.Until(b.t, patience, "nothing is polled any more", func() bool {
			b.mu.Lock()
			defer b.mu.Unlock()
			return !b.polling && b.hung == 1 && len(b.bells) == 1
		})
		b.take(k2)
	})
}

// Where nobody waits any more, nothing polls, and nothing is there that would.
func TestPollEnds(t *testing.T) {
	each(t, func(b *bed) {
		b.most = func() int { return 0 }
		for range 2 {
			b.ResetCounts()
			c := b.Join([]*store.Keys{b.k})
			redistest.Until(b.t, patience, "it is polled", func() bool {
				return b.Count(redistest.Command("EXISTS", b.k.Prepare)) > 0
			})
			c.Leave()
			ended := make(chan struct{})
			go func() { b.running.Wait(); close(ended) }()
			select {
			case <-ended:
			case <-time.After(patience):
				b.t.Fatal("it goes on")
			}
		}
	})
}

// A server that refuses the blocking move is polled, and asked for it again only after a while.
func TestRefused(t *testing.T) {
	t.Parallel()
	type refusal func(b *bed) (allow func())
	by := func(act redistest.Action) refusal {
		return func(b *bed) func() { return b.On(redistest.Command("BLMOVE"), 0, act).Remove }
	}
	for name, c := range map[string]struct {
		refuse refusal
		times  int
	}{
		"unknown": {by(redistest.ReplyError("ERR unknown command 'BLMOVE'")), 1},
		"full":    {by(redistest.ReplyError("OOM command not allowed when used memory > 'maxmemory'.")), 1},
		"wrong type": {func(b *bed) func() {
			b.s.Do("ZADD", b.k.Prepare, 1, "x")
			return func() {}
		}, 1},
		"cut": {by(redistest.CutBefore), maxBroken}, // as by a server that ends the connection for it
	} {
		t.Run(name, func(t *testing.T) { each(t, func(b *bed) { b.refused(c.times, c.refuse(b)) }) })
	}
	t.Run("by an ACL", func(t *testing.T) {
		t.Parallel()
		redistest.Leaks(t)
		b := newBed(t, redistest.Shared(t))
		user := b.as("-blmove")
		b.refused(1, func() { b.s.Do("ACL", "SETUSER", user, "+blmove") })
	})
}

// refused says that the bell is given up after so many attempts, and is back once the server allows it again.
func (b *bed) refused(times int, allow func()) {
	b.t.Helper()
	c := b.Join([]*store.Keys{b.k})
	redistest.Until(b.t, patience, "it is polled", func() bool {
		return b.Count(redistest.Command("EXISTS", b.k.Prepare)) > 0
	})
	for range 3 {
		b.s.Do("DEL", b.k.Prepare)
		b.push(b.k, 1)
		b.woken(c)
		c.Took(b.take(b.k))
		b.woken(c)
		c.Took(false)
	}
	if n := b.rings(); n != times {
		b.t.Errorf("asked %d times for what is refused", n)
	}
	redistest.Until(b.t, patience, "all that is left is the connection that polls", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.hung == 0 && b.polling && b.Conns() == 1
	})
	b.mu.Lock()
	at := b.bells[b.k.Name]
	if until := time.Until(at.refused); until > refusedFor || until < refusedFor/2 {
		b.t.Errorf("it is polled for %v", until)
	}
	b.mu.Unlock()
	allow()
	b.s.Do("DEL", b.k.Prepare)
	b.ResetCounts()
	b.mu.Lock()
	at.refused = time.Now()
	b.mu.Unlock()
	b.blocks(b.k)
	b.push(b.k, 1)
	b.woken(c)
	c.Took(b.take(b.k))
	b.woken(c)
}

// A message that nobody can take, or a bell that nobody can ring, makes no one spin.
func TestNoSpin(t *testing.T) {
	t.Parallel()
	over := func(b *bed, c *Caller) { // for 300 ms, whoever is woken finds nothing
		for end := time.After(300 * time.Millisecond); ; {
			select {
			case <-c.C:
				c.Took(false)
			case <-end:
				return
			}
		}
	}
	for name, prepare := range map[string]func(b *bed){
		"nobody can take it": func(b *bed) { b.push(b.k, 1) },
		"it is a suspect":    func(b *bed) { b.s.Do("LPUSH", b.k.Suspect, "message") },
		"refused": func(b *bed) {
			b.On(redistest.Command("BLMOVE"), 0, redistest.ReplyError("ERR unknown command"))
			b.push(b.k, 1)
		},
		"polled":            func(b *bed) { b.most = func() int { return 0 }; b.push(b.k, 1) },
		"no key of shunt's": func(b *bed) { b.s.Do("SET", b.k.Prepare, "foreign") },
		"cut at once":       func(b *bed) { b.On(redistest.Command("BLMOVE"), 0, redistest.CutBefore) },
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(b *bed) {
				prepare(b)
				c := b.Join([]*store.Keys{b.k})
				over(b, c)
				if n := b.Commands(); n > 40 {
					b.t.Errorf("%d commands in 300 ms", n)
				}
				c.Leave()
			})
		})
	}
}

// A wake that is not answered holds the bell up: who is taking needs no further one. It rests longer and longer while
// nothing is found, and no more once something is.
func TestAwake(t *testing.T) {
	each(t, func(b *bed) {
		one, two := b.Join([]*store.Keys{b.k}), b.Join([]*store.Keys{b.k})
		b.mu.Lock()
		at := b.bells[b.k.Name]
		at.looked = time.Time{}
		b.mu.Unlock()
		b.push(b.k, 1)
		b.woken(one)
		due := func() bool {
			b.mu.Lock()
			defer b.mu.Unlock()
			is, _ := at.due(time.Now())
			return is && time.Since(at.looked) < block // who is woken looks
		}
		if b.asleep(two); due() {
			b.t.Error("it is asked again")
		}
		one.Took(false)
		if !due() {
			b.t.Error("it is not asked again")
		}
		for range 5 {
			b.woken(one)
			one.Took(false)
		}
		b.woken(one)
		one.Took(true)
		b.mu.Lock()
		defer b.mu.Unlock()
		if at.empty != 0 || !at.rest.IsZero() {
			b.t.Errorf("it rests after %d, though something was found", at.empty)
		}
	})
}

// A bell that rings while all who wait are awake, woken by other bells, rings once.
func TestNoSpinWhileAwake(t *testing.T) {
	each(t, func(b *bed) {
		k2 := store.KeysOf(redistest.Name(b.t))
		c := b.Join([]*store.Keys{b.k, k2})
		b.push(b.k, 1)
		b.woken(c)
		b.push(k2, 1)
		b.blocks(k2)
		<-time.After(300 * time.Millisecond)
		if n := b.rings(); n > 20 { // of miniredis, which blocks for 50 ms, some before the message came
			b.t.Errorf("%d rings in 300 ms", n)
		}
		b.take(b.k)
		c.Took(false)
		b.woken(c)
	})
}

// closes closes the tower, which takes so long at most, and says that nobody is woken.
func (b *bed) closes(c *Caller, most time.Duration) {
	b.t.Helper()
	began := time.Now()
	b.Tower.Close()
	if took := time.Since(began); took > most {
		b.t.Errorf("Close took %v", took)
	}
	b.asleep(c)
	c.Leave()
	b.Join([]*store.Keys{b.k}).Leave()
	b.Tower.Close()
}

// Close ends what blocks at once, whether or not CLIENT is refused, and wakes nobody.
func TestClose(t *testing.T) {
	t.Parallel()
	closes := func(b *bed, c *Caller) { b.t.Helper(); b.closes(c, shortBlock/2) }
	t.Run("blocked", func(t *testing.T) {
		each(t, func(b *bed) {
			c := b.Join([]*store.Keys{b.k})
			b.blocks(b.k)
			b.mu.Lock()
			b.bells[b.k.Name].looked = time.Time{} // at the end of this block somebody would look for suspects
			b.mu.Unlock()
			closes(b, c)
			redistest.Until(b.t, patience, "its connection is closed", func() bool { return b.Conns() == 0 })
		})
	})
	t.Run("polling", func(t *testing.T) {
		each(t, func(b *bed) {
			b.most = func() int { return 0 }
			c := b.Join([]*store.Keys{b.k})
			redistest.Until(b.t, patience, "it polls", func() bool { return b.Count(redistest.Command("EXISTS")) > 0 })
			closes(b, c)
		})
	})
	t.Run("lingering", func(t *testing.T) {
		each(t, func(b *bed) {
			b.Join([]*store.Keys{b.k}).Leave()
			closes(b, b.Join(nil))
		})
	})
	t.Run("at once", func(t *testing.T) {
		each(t, func(b *bed) {
			server := b.server
			for i := range 100 {
				b.Tower = New(server, time.Second, b.most)
				c := b.Join([]*store.Keys{b.k})
				for range i % 97 * 20 { // another moment each time
					_ = time.Now()
				}
				if closes(b, c); b.t.Failed() {
					b.t.Fatalf("round %d", i)
				}
			}
		})
	})
	t.Run("away", func(t *testing.T) {
		each(t, func(b *bed) {
			b.Refuse(true)
			c := b.Join([]*store.Keys{b.k})
			redistest.Until(b.t, patience, "it dials", func() bool { return b.Dials() > 0 })
			closes(b, c)
		})
	})
	for _, rule := range []string{"-client|unblock", "-client|id", "-client"} {
		t.Run(rule, func(t *testing.T) {
			t.Parallel()
			redistest.Leaks(t)
			b := newBed(t, redistest.Shared(t))
			b.as(rule)
			c := b.Join([]*store.Keys{b.k})
			b.blocks(b.k)
			closes(b, c)
		})
	}
}

// A server that comes back rings the bells again.
func TestRestart(t *testing.T) {
	t.Parallel()
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		redistest.Leaks(t)
		s := redistest.Start(t)
		b := newBed(t, s)
		c := b.Join([]*store.Keys{b.k})
		b.blocks(b.k)
		for range 2 {
			s.Kill()
			s.Restart()
			b.push(b.k, 1)
			b.woken(c)
			c.Took(b.take(b.k))
			b.woken(c)
			c.Took(b.take(b.k))
		}
	})
	t.Run("cut", func(t *testing.T) {
		each(t, func(b *bed) {
			c := b.Join([]*store.Keys{b.k})
			for range 3 {
				b.blocks(b.k)
				b.ResetCounts()
				b.CutAll()
				b.push(b.k, 1)
				b.woken(c)
				c.Took(b.take(b.k))
				b.woken(c)
				c.Took(b.take(b.k))
			}
		})
	})
}
