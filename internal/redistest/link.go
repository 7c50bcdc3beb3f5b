package redistest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/shuntmq/shunt/internal/resp"
)

// link is one client connection through a Proxy. Three goroutines carry it:
//
//	requests  client → rules → server, and a slot for each command
//	answers   server → the first slot that waits for an answer
//	replies   slots, in the order of their commands → client
//
// answers never waits for the client, just as Redis does not, so a client that sends a long pipeline before it reads
// cannot lock up the link.
type link struct {
	p      *Proxy
	id     int
	client net.Conn
	server net.Conn // set by run before the goroutines start
	ctx    context.Context
	cancel context.CancelFunc
	asked  chan struct{} // closed when requests has ended
	gone   sync.Once     // closes client

	mu      sync.Mutex // guards what follows
	changed *sync.Cond // slots, waiting or ended
	slots   []*slot    // not yet taken by replies
	waiting []*slot    // those of them without an answer
	ended   bool       // no further answer will come
}

// slot is a command's place in the order of replies.
type slot struct {
	rule  *Rule // nil for a plain command
	act   Action
	reply []byte
	ready bool
	at    time.Time // when it became ready
}

func newLink(p *Proxy, id int, client net.Conn) *link {
	l := &link{p: p, id: id, client: client, asked: make(chan struct{})}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.changed = sync.NewCond(&l.mu)
	return l
}

// run lives as long as the connection, and its server's side longer than its client's where an action asks for it.
func (l *link) run() {
	defer func() {
		l.cut()
		l.p.mu.Lock()
		delete(l.p.links, l)
		l.p.mu.Unlock()
	}()
	if !l.gate() {
		return
	}
	d := net.Dialer{Timeout: 5 * time.Second}
	server, err := d.DialContext(l.ctx, "tcp", l.p.server)
	if err != nil {
		return // a client sees what a dead server's kernel would show it: an end
	}
	defer server.Close()
	l.server = server
	defer context.AfterFunc(l.ctx, func() { _ = server.Close() })()

	var work sync.WaitGroup
	work.Go(l.answers)
	work.Go(l.replies)
	l.requests()
	work.Wait()
}

// flushFirst is a client's input that sends on what came before it when it must wait for more.
type flushFirst struct {
	l     *link
	out   *bufio.Writer
	burst bool // the next command is the first of what came together
}

func (f *flushFirst) Read(b []byte) (int, error) {
	if err := f.out.Flush(); err != nil {
		return 0, err
	}
	f.burst = true
	return f.l.client.Read(b)
}

// requests owns the client's input and the server's output.
func (l *link) requests() {
	defer close(l.asked)
	out := bufio.NewWriterSize(&paced{l: l, to: l.server}, 64<<10)
	in := &flushFirst{l: l, out: out}
	r := bufio.NewReaderSize(in, 64<<10)
	var raw []byte
	unmatched := false
	for {
		if cap(raw) > 1<<20 {
			raw = nil
		}
		var args [][]byte
		var err error
		if raw, args, err = resp.ReadCommand(r, raw[:0]); err != nil {
			if errors.Is(err, resp.ErrProtocol) {
				l.note(err)
				l.cut()
				return
			}
			// The server shall execute what the client had sent, and then see the end itself: it forgets a blocked
			// command. A hole hides the end, too.
			if l.gate() && out.Flush() == nil {
				l.closeClient()
				_ = l.server.(*net.TCPConn).CloseWrite()
			}
			return
		}
		if !l.gate() {
			return
		}
		if s := l.p.slow.Load(); s != nil && in.burst && !l.sleep(s.latency) {
			return
		}
		in.burst = false

		rule, calls := l.p.see(l.id, args, unmatched)
		if len(calls) > 0 {
			if out.Flush() != nil || !l.settle() {
				return
			}
			for _, c := range calls {
				c.strike()
				c.act.hook()
			}
		}
		s := &slot{rule: rule}
		if rule != nil {
			s.act = rule.act
		}
		switch s.act.kind {
		case cutBefore:
			_ = out.Flush()
			l.push(s, true)
			return
		case replyError:
			s.reply = []byte(s.act.reply)
			l.push(s, true)
			continue
		}
		if !unmatched {
			l.push(s, false)
			unmatched = subscribes(args[0])
		}
		if _, err = out.Write(raw); err != nil {
			return // answers meets the same end
		}
		switch s.act.kind {
		case cutUnread:
			if out.Flush() == nil {
				rule.strike()
			}
			l.closeClient()
			return
		case cutAfter:
			_ = out.Flush()
			return
		}
	}
}

// subscribes says whether replies can no longer be matched after the first one to this command.
func subscribes(name []byte) bool {
	for _, s := range []string{"SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "MONITOR"} {
		if bytes.EqualFold(name, []byte(s)) {
			return true
		}
	}
	return false
}

// push gives a command its place; a command must have it before the server can answer.
func (l *link) push(s *slot, ready bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.slots = append(l.slots, s)
	if ready {
		s.ready, s.at = true, time.Now()
		l.changed.Broadcast()
		return
	}
	l.waiting = append(l.waiting, s)
}

// settle waits until each command so far has its answer; false when the link ends first.
func (l *link) settle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.waiting) > 0 && !l.ended {
		l.changed.Wait()
	}
	return !l.ended
}

// answers owns the server's input.
func (l *link) answers() {
	r := bufio.NewReaderSize(l.server, 64<<10)
	for {
		reply, err := resp.ReadReply(r)
		if err != nil {
			if errors.Is(err, resp.ErrProtocol) {
				l.note(err)
			}
			l.end()
			return
		}
		l.fill(reply)
	}
}

// fill gives the reply to the first command without one; when there is none, it is a message to a subscriber.
func (l *link) fill(reply []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var s *slot
	if len(l.waiting) > 0 {
		s = l.waiting[0]
		l.waiting[0], l.waiting = nil, l.waiting[1:] // nil: a large reply must not stay in memory
	} else {
		s = &slot{}
		l.slots = append(l.slots, s)
	}
	s.reply, s.ready, s.at = reply, true, time.Now()
	l.changed.Broadcast()
}

// end says that the server has nothing more to say.
func (l *link) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	l.changed.Broadcast()
}

// take returns the next slot once it is ready; nil when none is and wait is false, or none will be.
func (l *link) take(wait bool) *slot {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.slots) == 0 || !l.slots[0].ready {
		if !wait || l.ended {
			return nil
		}
		l.changed.Wait()
	}
	s := l.slots[0]
	l.slots[0], l.slots = nil, l.slots[1:]
	return s
}

// replies owns the client's output, and decides when the link is over. It goes on without the client, since the
// server's side may have to stay.
func (l *link) replies() {
	defer l.cut()
	out := bufio.NewWriterSize(&paced{l: l, to: l.client}, 64<<10)
	mute := false
	for {
		s := l.take(false)
		if s == nil {
			_ = out.Flush() // an error stays in out; without a client all that is left is to wait
			if s = l.take(true); s == nil {
				l.gate() // a hole hides the end
				return
			}
		}
		if !l.gate() {
			return
		}
		wait := s.act.hold
		if slow := l.p.slow.Load(); slow != nil {
			wait += slow.latency
		}
		if s.act.kind == delay {
			s.rule.strike()
		}
		if wait > 0 {
			_ = out.Flush()
			if !l.sleep(time.Until(s.at.Add(wait))) {
				return
			}
		}
		switch s.act.kind {
		case cutBefore, cutAfter:
			_ = out.Flush()
			s.rule.strike()
			return
		case cutUnread:
			<-l.asked // the answer may come before requests has counted the cut
			return
		case dropReply:
			s.rule.strike()
			mute = true
		case replyError:
			s.rule.strike()
		}
		mute = mute || l.p.drop.Load()
		if !mute {
			_, _ = out.Write(s.reply)
		}
	}
}

// paced writes as fast as the proxy's switches allow.
type paced struct {
	l    *link
	to   net.Conn
	free time.Time // when the line may be used again
}

func (w *paced) Write(b []byte) (n int, err error) {
	for n < len(b) {
		if !w.l.gate() {
			return n, net.ErrClosed
		}
		part := min(len(b)-n, 256<<10) // so that a hole opens within a large element, too
		s := w.l.p.slow.Load()
		if s != nil && s.slice > 0 {
			part = min(part, s.slice)
		}
		if s != nil && s.rate > 0 {
			part = min(part, max(1, s.rate/50)) // a steady trickle: 20 ms each
		}
		m, err := w.to.Write(b[n : n+part])
		n += m
		if err != nil {
			return n, err
		}
		if s == nil || s.rate == 0 {
			continue
		}
		if now := time.Now(); w.free.Before(now) {
			w.free = now
		}
		w.free = w.free.Add(time.Duration(m) * time.Second / time.Duration(s.rate))
		if d := time.Until(w.free); d > time.Millisecond && !w.l.sleep(d) { // shorter sleeps would last longer
			return n, net.ErrClosed
		}
	}
	return n, nil
}

// gate waits while there is a hole; false when the link ends.
func (l *link) gate() bool {
	for {
		hole := l.p.hole.Load()
		if hole == nil {
			return l.ctx.Err() == nil
		}
		select {
		case <-*hole:
		case <-l.ctx.Done():
			return false
		}
	}
}

// sleep waits for d; false when the link ends.
func (l *link) sleep(d time.Duration) bool {
	if d <= 0 {
		return l.ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-l.ctx.Done():
		return false
	}
}

func (l *link) closeClient() {
	l.gone.Do(func() {
		l.p.mu.Lock()
		l.p.open--
		l.p.mu.Unlock()
		_ = l.client.Close()
	})
}

// cut ends the link on both sides; any goroutine may.
func (l *link) cut() {
	l.closeClient()
	l.cancel() // closes the server's side
	l.end()
}

func (l *link) note(err error) {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	l.p.noteLocked(l.id, err)
}
