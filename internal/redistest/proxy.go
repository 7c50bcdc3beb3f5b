package redistest

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Proxy is a TCP link to a Redis server that breaks on demand. It reads RESP2 both ways and matches each reply to its
// request, so that it can break at a chosen command and on a chosen side of its execution. After SUBSCRIBE, PSUBSCRIBE
// or MONITOR has been answered, a connection's replies pass unmatched, and of the actions only Pass, Call and CutBefore
// strike there. MULTI is understood; CLIENT REPLY, HELLO 3, TLS and inline commands are not. All methods may be called
// from any goroutine but Count, which may fail the test.
type Proxy struct {
	t      testing.TB
	server string
	listen net.Listener
	work   sync.WaitGroup // the accepting goroutine and every connection's

	drop, refuse atomic.Bool
	slow         atomic.Pointer[slowness]
	hole         atomic.Pointer[chan struct{}] // nil, or a channel that is closed when the hole is

	mu       sync.Mutex // guards what follows
	closed   bool
	links    map[*link]bool
	rules    []*Rule
	dials    int
	open     int // connections whose client side is open
	commands int
	log      []record // a ring once it is full; next is its oldest
	next     int
}

// slowness is a bad line: latency each way, rate and segment size of each direction of each connection.
type slowness struct {
	latency time.Duration
	rate    int // bytes a second; 0 is unbounded
	slice   int // bytes a write; 0 is unbounded
}

// What is kept of past commands: enough to count by key or script hash, little enough for a long test.
const (
	keepCommands = 10_000
	keepArgs     = 32
	keepBytes    = 256 // of each argument
	showBytes    = 40
)

// record is one past command; or a note of the proxy's own, which counts nowhere.
type record struct {
	link int
	args [][]byte
	more int // arguments not kept
	note string
}

// NewProxy starts a proxy in front of the server at addr, "host:port", on a free port of loopback. The test's cleanup
// closes it.
func NewProxy(t testing.TB, addr string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("redistest: proxy: %v", err)
	}
	p := &Proxy{t: t, server: addr, listen: l, links: map[*link]bool{}}
	p.work.Go(p.accept)
	t.Cleanup(p.Close)
	return p
}

// Addr returns "127.0.0.1:port".
func (p *Proxy) Addr() string { return p.listen.Addr().String() }

// URL returns the redis:// URL of database 0.
func (p *Proxy) URL() string { return "redis://" + p.Addr() + "/0" }

// Close ends all connections and waits for the proxy's goroutines; a second call does nothing.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	_ = p.listen.Close()
	p.CutAll()
	p.work.Wait()
}

// accept owns the listener.
func (p *Proxy) accept() {
	for id := 1; ; id++ {
		client, err := p.listen.Accept()
		p.mu.Lock()
		if err != nil && !p.closed {
			p.noteLocked(id, err)
		}
		if err != nil || p.closed {
			p.mu.Unlock()
			if client != nil {
				_ = client.Close()
			}
			return
		}
		p.dials++
		if p.refuse.Load() {
			p.mu.Unlock()
			_ = client.Close()
			continue
		}
		l := newLink(p, id, client)
		p.links[l] = true
		p.open++
		p.mu.Unlock()
		p.work.Go(l.run)
	}
}

// On makes a rule: act is done to the nth command that matches, counted from 1 and from now over all connections; 0
// means every one. All rules count each command; of those whose turn it is, every Pass and Call strikes and the first
// made of the others.
func (p *Proxy) On(match Match, nth int, act Action) *Rule {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := &Rule{p: p, match: match, nth: nth, act: act}
	p.rules = append(p.rules, r)
	return r
}

// see records a command and returns what shall be done to it. On an unmatched link no rule strikes that needs a reply.
func (p *Proxy) see(link int, args [][]byte, unmatched bool) (chosen *Rule, calls []*Rule) {
	rec := keep(link, args)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.commands++
	p.recordLocked(rec)
	for _, r := range p.rules {
		if !r.match(args) {
			continue
		}
		r.seen++
		switch {
		case r.nth != 0 && r.nth != r.seen:
		case r.act.kind == pass:
			r.strikeLocked()
		case r.act.kind == call:
			calls = append(calls, r)
		case chosen == nil && (!unmatched || r.act.kind == cutBefore):
			chosen = r
		}
	}
	return chosen, calls
}

// keep copies what is kept of a command.
func keep(link int, args [][]byte) record {
	rec := record{link: link, more: max(0, len(args)-keepArgs)}
	args = args[:len(args)-rec.more]
	size := 0
	for _, a := range args {
		size += min(len(a), keepBytes)
	}
	buf := make([]byte, 0, size)
	rec.args = make([][]byte, len(args))
	for i, a := range args {
		start := len(buf)
		buf = append(buf, a[:min(len(a), keepBytes)]...)
		rec.args[i] = buf[start:len(buf):len(buf)]
	}
	return rec
}

func (p *Proxy) recordLocked(rec record) {
	if len(p.log) < keepCommands {
		p.log = append(p.log, rec)
		return
	}
	p.log[p.next] = rec
	p.next = (p.next + 1) % keepCommands
}

func (p *Proxy) noteLocked(link int, err error) {
	p.recordLocked(record{link: link, note: err.Error()})
}

// Hole turns the link into a black hole: connections open and stay open, nothing passes either way, no end is seen.
// When it is switched off, what was held back flows on. What was being written at the moment of switching may still
// pass.
func (p *Proxy) Hole(on bool) {
	var gate *chan struct{}
	if on {
		c := make(chan struct{})
		gate = &c
		if !p.hole.CompareAndSwap(nil, gate) {
			return // there is one already
		}
		return
	}
	if gate = p.hole.Swap(nil); gate != nil {
		close(*gate)
	}
}

// DropReplies lets requests pass and swallows replies. A connection that has lost a reply stays mute when it is
// switched off, for the reason given at DropReply; the others are unhurt.
func (p *Proxy) DropReplies(on bool) { p.drop.Store(on) }

// Slow makes a bad line of each direction of each connection: a latency, a rate (0: unbounded) and a bound on the bytes
// sent at once (0: unbounded). Slow(0, 0, 0) ends it.
func (p *Proxy) Slow(latency time.Duration, bytesPerSecond, slice int) {
	if latency == 0 && bytesPerSecond == 0 && slice == 0 {
		p.slow.Store(nil)
		return
	}
	p.slow.Store(&slowness{latency: latency, rate: bytesPerSecond, slice: slice})
}

// Refuse closes new connections as soon as they come; those that are open stay so.
func (p *Proxy) Refuse(on bool) { p.refuse.Store(on) }

// CutAll closes all connections now, on both sides.
func (p *Proxy) CutAll() {
	p.mu.Lock()
	links := make([]*link, 0, len(p.links))
	for l := range p.links {
		links = append(links, l)
	}
	p.mu.Unlock()
	for _, l := range links {
		l.cut()
	}
}

// Dials returns how many connections clients have opened, refused ones included.
func (p *Proxy) Dials() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dials
}

// Conns returns how many connections are open on the client's side.
func (p *Proxy) Conns() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.open
}

// Commands returns how many commands clients have sent.
func (p *Proxy) Commands() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.commands
}

// Count returns how many of the commands since ResetCounts match. It looks at the last 10,000 commands, 32 arguments of
// each and 256 bytes of each of those, and fails the test when there were more commands; a rule with Pass has no such
// bound.
func (p *Proxy) Count(match Match) (n int) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.commands > keepCommands {
		p.t.Errorf("redistest: Count after %d commands, of which %d are kept: use a rule with Pass", p.commands,
			keepCommands)
	}
	for _, rec := range p.log {
		if rec.note == "" && match(rec.args) {
			n++
		}
	}
	return n
}

// Log returns the last 10,000 commands for failure messages, the oldest first, each as "#connection NAME argument…".
func (p *Proxy) Log() []string {
	p.mu.Lock()
	log := slices.Concat(p.log[p.next:], p.log[:p.next])
	p.mu.Unlock()
	lines := make([]string, len(log))
	for i, rec := range log {
		lines[i] = rec.String()
	}
	return lines
}

func (r record) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "#%d", r.link)
	if r.note != "" {
		fmt.Fprintf(&b, " (%s)", r.note)
	}
	for _, a := range r.args {
		b.WriteByte(' ')
		for _, c := range a[:min(len(a), showBytes)] {
			if c < ' ' || c > '~' {
				c = '.'
			}
			b.WriteByte(c)
		}
		if len(a) > showBytes {
			b.WriteString("…")
		}
	}
	if r.more > 0 {
		fmt.Fprintf(&b, " and %d more", r.more)
	}
	return b.String()
}

// ResetCounts sets Dials, Commands, Count and Log back to nothing; rules keep their counts.
func (p *Proxy) ResetCounts() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dials, p.commands, p.log, p.next = 0, 0, nil, 0
}
