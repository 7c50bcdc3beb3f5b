package link

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/redistest"
)

// ear is one Listen and what it hears, in order: true and false for the subscription, a string for a payload.
type ear struct {
	b *bed
	*Listener
	heard chan any
}

func (b *bed) ear(s *Subscription, channel string) *ear {
	e := &ear{b: b, heard: make(chan any, 100)}
	e.Listener = s.Listen(channel, func(payload string) { e.heard <- payload }, func(on bool) { e.heard <- on })
	return e
}

func (e *ear) want(want any) {
	e.b.t.Helper()
	select {
	case got := <-e.heard:
		if got != want {
			e.b.t.Fatalf("heard %v, want %v", got, want)
		}
	case <-time.After(patience):
		e.b.t.Fatalf("never heard %v; commands:\n%s", want, strings.Join(e.b.Log(), "\n"))
	}
}

func (e *ear) nothing() {
	e.b.t.Helper()
	select {
	case got := <-e.heard:
		e.b.t.Errorf("heard %v", got)
	default:
	}
}

// forget ends a Listen, which must not take long.
func (b *bed) forget(s *Subscription, l *Listener) {
	b.t.Helper()
	ctx := b.within(5 * time.Second)
	s.Forget(ctx, l)
	if ctx.Err() != nil {
		b.t.Error("Forget was not over by its context's end")
	}
}

func TestSubscription(t *testing.T) {
	b := shared(t)
	s := NewSubscription(b.node)
	if b.Dials() != 0 {
		t.Errorf("%d connections before the first is wanted", b.Dials())
	}
	one := b.ear(s, b.key)
	one.want(true)
	b.s.Do("PUBLISH", b.key, "a")
	b.s.Do("PUBLISH", b.key, "b")
	b.s.Do("PUBLISH", b.key+"other", "not for it")
	one.want("a")
	one.want("b")

	other := b.ear(s, b.key+"other")
	other.want(true)
	b.s.Do("PUBLISH", b.key+"other", "c")
	other.want("c")
	one.nothing()

	// A second one on a channel is told that it is heard, and so is the first once more.
	two := b.ear(s, b.key)
	two.want(true)
	one.want(true)
	b.s.Do("PUBLISH", b.key, "d")
	one.want("d")
	two.want("d")

	// Cut, all are told, and that they are heard again.
	for range 2 {
		b.CutAll()
		for _, e := range []*ear{one, two, other} {
			e.want(false)
			e.want(true)
		}
		b.s.Do("PUBLISH", b.key, "e")
		b.s.Do("PUBLISH", b.key+"other", "f")
		one.want("e")
		two.want("e")
		other.want("f")
	}
	if n := b.Dials(); n != 3 {
		t.Errorf("%d connections", n)
	}

	// One less on a channel changes nothing for the other.
	b.forget(s, one.Listener)
	b.s.Do("PUBLISH", b.key, "g")
	two.want("g")
	one.nothing()
	if n := b.Count(redistest.Command("UNSUBSCRIBE")); n != 0 {
		t.Errorf("%d UNSUBSCRIBE", n)
	}
	// The last one on a channel ends it, not the subscription.
	b.forget(s, two.Listener)
	b.s.Do("PUBLISH", b.key, "h")
	b.s.Do("PUBLISH", b.key+"other", "i")
	other.want("i")
	two.nothing()
	b.gone("NUMSUB", b.key)
	// With the last of all the goroutine and the connection end.
	b.forget(s, other.Listener)
	b.gone("NUMSUB", b.key+"other")
	redistest.Until(t, patience, "no connection is left", func() bool { return b.Conns() == 0 })
	for _, e := range []*ear{one, two, other} {
		e.nothing()
	}

	// And it can begin anew.
	again := b.ear(s, b.key)
	again.want(true)
	b.s.Do("PUBLISH", b.key, "j")
	again.want("j")
	b.forget(s, again.Listener)
	again.nothing()
}

// gone waits until the server has nobody on a channel.
func (b *bed) gone(cmd, channel string) {
	b.t.Helper()
	redistest.Until(b.t, patience, "nobody listens", func() bool {
		vs, _ := b.s.Do("PUBSUB", cmd, channel).([]any)
		return len(vs) == 2 && vs[1] == int64(0)
	})
}

// Many channels on one connection.
func TestSubscriptionToMany(t *testing.T) {
	b := shared(t)
	s := NewSubscription(b.node)
	var ears []*ear
	for i := range 50 {
		ears = append(ears, b.ear(s, fmt.Sprint(b.key, i)))
	}
	for _, e := range ears {
		for on := false; !on; { // where the connection came between, it is told twice
			on = <-e.heard == true
		}
	}
	for i := range ears {
		b.s.Do("PUBLISH", fmt.Sprint(b.key, i), i)
	}
	for i, e := range ears {
		got := <-e.heard
		for got == true {
			got = <-e.heard
		}
		if got != fmt.Sprint(i) {
			t.Errorf("%d heard %v", i, got)
		}
	}
	if n := b.Dials(); n != 1 {
		t.Errorf("%d connections", n)
	}
	for _, e := range ears {
		b.forget(s, e.Listener)
	}
}

// While the server is away a listener is told nothing; and it can go.
func TestSubscriptionAway(t *testing.T) {
	b := shared(t)
	b.Refuse(true)
	s := NewSubscription(b.node)
	e := b.ear(s, b.key)
	b.hears(false)
	e.nothing()
	b.forget(s, e.Listener)

	e = b.ear(s, b.key)
	b.Refuse(false)
	e.want(true)
	b.forget(s, e.Listener)
	e.nothing()
}

// In a black hole too.
func TestForgetInABlackHole(t *testing.T) {
	b := shared(t)
	s := NewSubscription(b.node)
	e := b.ear(s, b.key)
	e.want(true)
	b.Hole(true)
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	s.Forget(ctx, e.Listener)
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("took %v", took)
	}
	b.Hole(false) // now the goroutine can end
}

// Whenever it comes, the goroutine ends at once.
func TestForgetAtOnce(t *testing.T) {
	b := shared(t)
	s := NewSubscription(b.node)
	for i := range 1000 {
		e := b.ear(s, b.key)
		e.want(true)
		b.forget(s, e.Listener)
		if t.Failed() {
			t.Fatalf("round %d", i)
		}
	}
}

// Forget where the connection is just being made.
func TestForgetBeforeItListens(t *testing.T) {
	b := shared(t)
	s := NewSubscription(b.node)
	for i := range 1000 {
		e := b.ear(s, b.key)
		for range i % 97 * 20 { // another moment each time
			_ = time.Now()
		}
		b.forget(s, e.Listener)
		if t.Failed() {
			t.Fatalf("round %d", i)
		}
	}
}

// A server that lets a connection in and ends it at SUBSCRIBE is not dialled without a pause.
func TestSubscriptionCutAtOnce(t *testing.T) {
	b := shared(t)
	b.On(redistest.Command("SUBSCRIBE"), 0, redistest.CutBefore)
	s := NewSubscription(b.node)
	e := b.ear(s, b.key)
	first := <-b.dials
	for range 3 {
		<-b.dials
	}
	if took := time.Since(first); took < minBackoff {
		t.Errorf("dialled 4 times in %v", took)
	}
	b.forget(s, e.Listener)
}

// A connection on which nothing comes any more was left open after the last Forget, with its reader, for a minute.
func TestForgetMute(t *testing.T) {
	b := shared(t)
	s := NewSubscription(b.node)
	e := b.ear(s, b.key)
	e.want(true)
	ended := s.ended
	b.DropReplies(true)
	began := time.Now()
	s.Forget(b.within(200*time.Millisecond), e.Listener)
	select {
	case <-ended:
	default:
		t.Error("the reader goes on")
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("it took %v", took)
	}
}

// A channel that the server refuses to a user is without hints, and the others are heard as ever. The first refusal
// ended the connection, for half a minute, unless a channel that is allowed came first.
func TestSubscriptionRefused(t *testing.T) {
	b := shared(t)
	allowed, user := b.key+"allowed", redistest.Name(t)
	b.s.Do("ACL", "SETUSER", user, "on", "nopass", "~*", "+@all", "resetchannels", "&"+allowed)
	t.Cleanup(func() { b.s.Do("ACL", "DELUSER", user) })
	pool, err := NewPool("redis://" + user + ":any@" + b.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pool.Close() })
	s := NewSubscription(NewNode(pool, Settings{DialTimeout: time.Second, MaxBackoff: time.Second}))
	var refused []*ear
	for i := range 8 { // the order on a new connection is not certain: one of nine is allowed
		refused = append(refused, b.ear(s, fmt.Sprint(b.key, "refused", i)))
	}
	one := b.ear(s, allowed)
	for range 2 {
		one.want(true)
		b.s.Do("PUBLISH", allowed, "a")
		for got := any(true); got != "a"; { // where the connection came between, it is told twice
			if got = <-one.heard; got != true && got != "a" {
				t.Fatalf("heard %v", got)
			}
		}
		b.CutAll()
		one.want(false)
	}
	one.want(true)
	for _, e := range refused {
		e.nothing()
	}

	// A channel that is allowed later is tried again, without the connection being lost.
	dials := b.Dials()
	b.s.Do("ACL", "SETUSER", user, "allchannels")
	s.retryRefused()
	for _, e := range refused {
		e.want(true)
		b.forget(s, e.Listener)
	}
	one.nothing()
	b.forget(s, one.Listener)
	if n := b.Dials() - dials; n != 0 {
		t.Errorf("%d more connections", n)
	}
}

// all is one ListenAll. What it hears is "channel payload".
func (b *bed) all(s *Subscription, pattern string) *ear {
	e := &ear{b: b, heard: make(chan any, 100)}
	e.Listener = s.ListenAll(pattern, func(channel, payload string) { e.heard <- channel + " " + payload },
		func(on bool) { e.heard <- on })
	return e
}

// published says how many subscriptions the server has given a message.
func (b *bed) published(channel, payload string) int {
	b.t.Helper()
	n, err := redis.Int(b.s.Do("PUBLISH", channel, payload), nil)
	if err != nil {
		b.t.Fatal(err)
	}
	return n
}

// A pattern hears every channel that it matches, with its name, beside channels that are heard by themselves. Cut, it
// is told, and hears them again.
func TestListenAll(t *testing.T) {
	b := shared(t)
	s := NewSubscription(b.node)
	all := b.all(s, b.key+"*.delay")
	all.want(true)
	b.published(b.key+"a.delay", "1")
	b.published(b.key+"b.delay", "2 3")
	b.published(b.key+"b.other", "not for it")
	b.published(b.key+".delay", "")
	all.want(b.key + "a.delay 1")
	all.want(b.key + "b.delay 2 3")
	all.want(b.key + ".delay ")

	one := b.ear(s, b.key+"a.delay")
	one.want(true)
	same := b.ear(s, b.key+"*.delay") // the channel of that name, and no pattern
	same.want(true)
	other := b.all(s, b.key+"b.*")
	other.want(true)
	if n := b.Dials(); n != 1 {
		t.Errorf("%d connections", n)
	}
	for _, cut := range []bool{true, false} {
		if n := b.published(b.key+"a.delay", "4"); n != 2 {
			t.Errorf("%d hear it", n)
		}
		one.want("4")
		all.want(b.key + "a.delay 4")
		b.published(b.key+"b.delay", "5")
		all.want(b.key + "b.delay 5")
		other.want(b.key + "b.delay 5")
		b.published(b.key+"*.delay", "6")
		same.want("6")
		all.want(b.key + "*.delay 6")
		ears := []*ear{all, one, same, other}
		for _, e := range ears {
			e.nothing()
		}
		if !cut {
			break
		}
		b.CutAll()
		for _, e := range ears {
			e.want(false)
			e.want(true)
		}
	}

	// A second one on a pattern is told that it is heard, and so is the first once more.
	two := b.all(s, b.key+"*.delay")
	two.want(true)
	all.want(true)
	b.forget(s, all.Listener)
	b.published(b.key+"a.delay", "7")
	two.want(b.key + "a.delay 7")
	one.want("7")
	// The last one on a pattern ends that alone.
	b.forget(s, two.Listener)
	redistest.Until(t, patience, "the pattern is not heard", func() bool {
		return b.published(b.key+"c.delay", "8") == 0
	})
	b.published(b.key+"*.delay", "9")
	same.want("9")
	b.published(b.key+"b.delay", "10")
	other.want(b.key + "b.delay 10")
	all.nothing()
	b.forget(s, same.Listener)
	b.forget(s, one.Listener)
	for len(two.heard) > 0 {
		<-two.heard // what came before it was forgotten
	}
	// With the last of all, a pattern, the goroutine and the connection end.
	b.forget(s, other.Listener)
	redistest.Until(t, patience, "no connection is left", func() bool { return b.Conns() == 0 })
	for _, e := range []*ear{all, one, same, other, two} {
		e.nothing()
	}
	if n := b.published(b.key+"b.delay", "11"); n != 0 {
		t.Errorf("%d hear it", n)
	}

	// And it can begin anew.
	again := b.all(s, b.key+"*")
	again.want(true)
	b.published(b.key+"x", "12")
	again.want(b.key + "x 12")
	b.forget(s, again.Listener)
}

// Forget of a pattern where its connection is just being made, or has just listened.
func TestForgetAllAtOnce(t *testing.T) {
	b := shared(t)
	s := NewSubscription(b.node)
	for i := range 500 {
		e := b.all(s, b.key+"*")
		for range i % 97 * 20 { // another moment each time
			_ = time.Now()
		}
		if i%2 == 0 {
			e.want(true)
		}
		b.forget(s, e.Listener)
		if t.Failed() {
			t.Fatalf("round %d", i)
		}
	}
}

// A pattern that the server refuses to a user is without hints, and channels are heard as ever; and the other way
// round. Once it is allowed, it is tried again.
func TestListenAllRefused(t *testing.T) {
	for name, c := range map[string]struct {
		rule    string
		pattern bool // is what is allowed
	}{"the pattern": {"one", false}, "the channels": {"*.delay", true}} {
		t.Run(name, func(t *testing.T) {
			b := shared(t)
			b.key = strings.ReplaceAll(b.key, "/", ".")
			user := strings.Trim(b.key, "{}")
			b.s.Do("ACL", "SETUSER", user, "on", "nopass", "~*", "+@all", "resetchannels", "&"+b.key+c.rule)
			t.Cleanup(func() { b.s.Do("ACL", "DELUSER", user) })
			pool, err := NewPool("redis://" + user + ":any@" + b.Addr())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { pool.Close() })
			s := NewSubscription(NewNode(pool, Settings{DialTimeout: time.Second, MaxBackoff: time.Second}))
			allowed, refused := b.ear(s, b.key+"one"), b.all(s, b.key+"*.delay")
			if c.pattern {
				allowed, refused = refused, allowed
			}
			heard := func() { // its own message; it may be told before that, more than once, that it listens
				t.Helper()
				b.published(b.key+"one", "a")
				b.published(b.key+"x.delay", "a")
				for {
					got := <-allowed.heard
					if got == "a" || got == b.key+"x.delay a" {
						return
					}
					if got != true {
						t.Fatalf("heard %v", got)
					}
				}
			}
			allowed.want(true)
			heard()
			b.CutAll()
			allowed.want(false)
			allowed.want(true)
			heard()
			refused.nothing()
			dials := b.Dials()
			b.s.Do("ACL", "SETUSER", user, "allchannels")
			s.retryRefused()
			refused.want(true)
			b.forget(s, refused.Listener)
			b.forget(s, allowed.Listener)
			if n := b.Dials() - dials; n != 0 {
				t.Errorf("%d more connections", n)
			}
		})
	}
}

// A connection that is mute is no hindrance to the last Forget of a pattern.
func TestForgetAllMute(t *testing.T) {
	b := shared(t)
	s := NewSubscription(b.node)
	e := b.all(s, b.key+"*")
	e.want(true)
	ended := s.ended
	b.DropReplies(true)
	s.Forget(b.within(200*time.Millisecond), e.Listener)
	select {
	case <-ended:
	default:
		t.Error("the reader goes on")
	}
}
