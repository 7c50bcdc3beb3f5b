package sim

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/shuntmq/shunt/internal/sim/redis"
)

// match says whether a rule means a command; args[0] is its name. It must not keep args.
type match func(args [][]byte) bool

// act is what a rule does to a command.
type act int

const (
	pass       act = iota
	cutBefore      // it is not executed; the connection ends once what came before is answered
	cutUnread      // it is executed, and the client's side ends at once
	cutAfter       // it is executed, and the connection ends in place of its reply
	cutWithin      // it is executed, and the connection ends within its reply
	replyError     // it is not executed, and answered with an error
	dropReply      // it is executed; its reply and all later ones of the connection are swallowed
)

// rule is a fault that waits for its command.
type rule struct {
	match match
	nth   int // of the commands that match, from 1; 0: each of them
	act   act
	text  string // of the error

	seen, struck int
}

// quality is how a line is; the zero value is a good one.
type quality struct {
	latency time.Duration // more than usual
	slice   int           // bytes that arrive at once; 0: all
}

// cable is a part of the way to Redis on which faults strike: that of one process, or the trunk, which all have.
type cable struct {
	rules   []*rule
	hole    bool // nothing passes, either way, and no end is seen
	frozen  bool // the process, or the server, is stopped
	mute    bool // replies are swallowed
	refuse  bool // dials fail
	quality quality
}

// network is all lines to one Redis.
type network struct {
	server *redis.Server

	mu     sync.Mutex // of all lines, too; never held while the server is called
	trunk  cable
	lines  []*line // that have not ended on both sides
	down   bool    // no server listens
	opened int
	struck func(*port) // called with the server's lock, where that has ended a line
}

// port is a process's access to a network.
type port struct {
	n     *network
	of    *process
	own   cable
	draw  *rand.Rand    // n.mu guards it
	dead  bool          // the process was killed
	inUse int           // lines open on the client's side
	idle  bool          // looks are counted
	looks int           // at the lists of the dead, each of two commands
	sent  int           // commands
	each  map[int64]int // of them, by the second, beside looks at different dead receivers
	last  looked

	refused tries
}

// tries counts the milliseconds of a second in which something was refused.
type tries struct {
	second, last int64
	n, most      int
}

func (t *tries) add(ms int64) {
	if second := ms / 1000; second != t.second {
		t.second, t.n = second, 0
	}
	if ms != t.last {
		t.last, t.n = ms, t.n+1
	}
	t.most = max(t.most, t.n)
}

func (n *network) port(seed, who uint64) *port {
	return &port{n: n, each: make(map[int64]int), draw: rand.New(rand.NewPCG(seed, who))}
}

var (
	errRefused = &net.OpError{Op: "dial", Net: "sim", Err: errors.New("connection refused")}
	errReset   = &net.OpError{Op: "read", Net: "sim", Err: errors.New("connection reset by peer")}
)

// dial opens a line. Where nothing answers it waits for the end of ctx.
func (p *port) dial(ctx context.Context) (net.Conn, error) {
	n := p.n
	n.mu.Lock()
	wait := p.latency()
	n.mu.Unlock()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-timer.C:
		}
		n.mu.Lock()
		switch {
		case p.dead, n.down, p.own.refuse, n.trunk.refuse:
			n.mu.Unlock()
			return nil, errRefused
		case p.own.hole, n.trunk.hole, p.own.frozen:
			n.mu.Unlock()
			timer.Reset(50 * time.Millisecond)
			continue
		}
		n.opened++
		p.inUse++
		l := newLine(p, n.opened)
		n.mu.Unlock()
		l.session = n.server.Connect(l.answer, l.hungUp)
		n.mu.Lock()
		n.lines = append(n.lines, l)
		n.mu.Unlock()
		return l, nil
	}
}

// looked are the dead receivers that were looked at in a second.
type looked struct {
	second int64
	who    map[string]bool
}

// perLook are the commands of a look at a dead receiver: what it has left is counted, and then it is put off.
const perLook = 2

// add takes in the end of a look, and says whether it is the first one at this receiver in this second.
func (l *looked) add(second int64, args [][]byte) bool {
	if second != l.second {
		*l = looked{second, make(map[string]bool)}
	}
	list := string(args[slices.IndexFunc(args, func(a []byte) bool { return bytes.Contains(a, []byte(".doing.")) })])
	first := !l.who[list]
	l.who[list] = true
	return first
}

// latency draws how long bytes take; n.mu is held.
func (p *port) latency() time.Duration {
	d := time.Duration(20+p.draw.IntN(200)) * time.Microsecond
	if p.draw.IntN(100) == 0 {
		d += time.Duration(p.draw.IntN(8000)) * time.Microsecond
	}
	return d + p.own.quality.latency + p.n.trunk.quality.latency
}

// stopped says whether nothing passes between a port and the server. n.mu is held.
func (p *port) stopped() bool {
	return p.own.hole || p.own.frozen || p.n.trunk.hole || p.n.trunk.frozen
}

// see says what shall be done to a command; n.mu is held. On a line whose replies cannot be told apart any more no rule
// strikes that needs one.
func (p *port) see(args [][]byte, unmatched bool) *rule {
	var chosen *rule
	now := time.Now().Unix()
	p.each[now]++
	p.sent++
	if looksAgain(args) {
		if p.idle {
			p.looks++
		}
		if p.last.add(now, args) {
			p.each[now] -= perLook
		}
	}
	for _, c := range []*cable{&p.own, &p.n.trunk} {
		for _, r := range c.rules {
			if !r.match(args) {
				continue
			}
			r.seen++
			if (r.nth == 0 || r.nth == r.seen) && chosen == nil && (!unmatched || r.act == cutBefore) {
				chosen = r
				r.struck++
			}
		}
	}
	return chosen
}

// change changes cables, and lets what was held back flow on.
func (n *network) change(do func()) {
	n.mu.Lock()
	do()
	lines := slices.Clone(n.lines)
	n.mu.Unlock()
	for _, l := range lines {
		l.pump()
		l.wake()
	}
}

// add makes a rule on a cable.
func (n *network) add(c *cable, r *rule) {
	n.mu.Lock()
	defer n.mu.Unlock()
	c.rules = append(c.rules, r)
}

// remove ends a rule, and says how often it struck.
func (n *network) remove(c *cable, r *rule) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	c.rules = slices.DeleteFunc(c.rules, func(o *rule) bool { return o == r })
	return r.struck
}

// cut ends the lines of a port, or all of them, on both sides.
func (n *network) cut(of *port) {
	for _, l := range n.ended(of) {
		l.session.Close()
		n.mu.Lock()
		dead := l.dead
		n.mu.Unlock()
		if dead { // nobody closes it
			l.leave()
		}
	}
}

// ended ends the client's side of the lines of a port, or of all of them. Nothing more of them is executed.
func (n *network) ended(of *port) (lines []*line) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range n.lines {
		if of == nil || l.port == of {
			l.end()
			l.deaf = true
			lines = append(lines, l)
		}
	}
	return lines
}

// kill ends a process's lines as its system does. With flush what it has written is still executed.
func (p *port) kill(flush bool) {
	p.n.mu.Lock()
	p.dead = true
	p.own = cable{}
	p.n.mu.Unlock()
	if !flush {
		p.n.cut(p)
		return
	}
	p.n.mu.Lock()
	var lines []*line
	for _, l := range p.n.lines {
		if l.port == p {
			l.end()
			l.closing = true
			lines = append(lines, l)
		}
	}
	p.n.mu.Unlock()
	for _, l := range lines {
		l.pump()
	}
}
