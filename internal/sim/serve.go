package sim

import (
	"bytes"
	"io"
	"slices"
	"time"
)

// pump executes what has arrived, unless another goroutine does or the line is stopped.
func (l *line) pump() {
	l.n.mu.Lock()
	if l.flows {
		l.n.mu.Unlock()
		return
	}
	l.flows = true
	for {
		l.arrive()
		if l.deaf || l.gone || l.stopped() {
			break
		}
		args, n := command(l.out)
		if n == 0 {
			break
		}
		l.out, l.used = l.out[n:], time.Now()
		r := l.see(args, l.unmatched)
		s := &slot{rule: r}
		execute := true
		switch {
		case r == nil:
		case r.act == cutBefore:
			s.ready, l.deaf, execute = true, true, false
		case r.act == replyError:
			s.ready, s.reply, execute = true, []byte("-"+r.text+"\r\n"), false
		case r.act == cutUnread:
			l.err, l.told, l.deaf = errReset, true, true
			l.in = nil
			l.wake()
		case r.act == cutAfter, r.act == cutWithin:
			l.deaf = true
		}
		if !l.unmatched || !execute {
			l.slots = append(l.slots, s)
		}
		if !execute {
			l.pass()
			continue
		}
		l.unmatched = l.unmatched || subscribes(args[0])
		l.n.mu.Unlock()
		l.session.Command(args)
		l.n.mu.Lock()
	}
	l.flows = false
	over := l.closing && !l.stopped() && (l.deaf || len(l.sent) == 0) && !slices.ContainsFunc(l.slots, (*slot).outlives)
	l.n.mu.Unlock()
	if over {
		l.session.Close()
		l.leave()
	}
}

// arrive takes in what a slow line has brought by now.
func (l *line) arrive() {
	for now := time.Now(); len(l.sent) > 0 && !l.sent[0].at.After(now); l.sent = l.sent[1:] {
		l.out = append(l.out, l.sent[0].bytes...)
	}
}

// answer takes in a reply, or a message to a subscriber. The server's lock is held.
func (l *line) answer(reply []byte) {
	l.n.mu.Lock()
	defer l.n.mu.Unlock()
	own := slices.Clone(reply)
	i := slices.IndexFunc(l.slots, func(s *slot) bool { return !s.ready })
	if i < 0 {
		l.slots = append(l.slots, &slot{ready: true, reply: own})
	} else {
		l.slots[i].ready, l.slots[i].reply = true, own
	}
	l.pass()
}

// pass sends on the replies whose turn it is.
func (l *line) pass() {
	for len(l.slots) > 0 && l.slots[0].ready {
		s := l.slots[0]
		l.slots = l.slots[1:]
		what := pass
		if s.rule != nil {
			what = s.rule.act
		}
		switch what {
		case cutWithin:
			l.deliver(s.reply[:len(s.reply)/2])
			fallthrough
		case cutBefore, cutAfter:
			l.finish(io.EOF)
			return
		case cutUnread:
			l.finish(errReset)
			return
		case dropReply:
			l.mute = true
		}
		if !l.mute && !l.own.mute && !l.n.trunk.mute {
			l.deliver(s.reply)
		} else {
			l.mute = true // the client would take a later reply for this one
		}
	}
}

// deliver puts bytes on the way to the client.
func (l *line) deliver(b []byte) {
	if l.err != nil || l.closed || len(b) == 0 {
		return
	}
	if b[0] == '-' && !bytes.HasPrefix(b, []byte("-NOSCRIPT")) {
		l.refused.add(time.Now().UnixMilli())
	}
	at := time.Now().Add(l.latency())
	if at.Before(l.last) {
		at = l.last
	}
	l.in = append(l.in, parcel{at, b})
	l.last = at
	l.wake()
}

// end ends the client's side at once.
func (l *line) end() {
	if l.err == nil {
		l.err, l.told = errReset, !l.stopped()
	}
	l.in = nil
	l.wake()
}

// finish ends the line after what is on the way to the client. It may be called under the server's lock, so the session
// ends a moment later.
func (l *line) finish(err error) {
	if l.err == nil {
		l.err, l.told = err, !l.stopped()
	}
	l.deaf = true
	l.wake()
	time.AfterFunc(0, l.session.Close)
}

// hungUp is the end that the server makes, of a command or a reply that is too large for it perhaps. Its lock is held.
func (l *line) hungUp() {
	l.n.struck(l.port)
	l.n.mu.Lock()
	defer l.n.mu.Unlock()
	l.gone = true
	if l.err == nil {
		l.err, l.told = io.EOF, !l.stopped()
	}
	l.deaf = true
	l.wake()
}
