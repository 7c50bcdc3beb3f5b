package sim

import (
	"io"
	"net"
	"os"
	"slices"
	"time"

	"github.com/shuntmq/shunt/internal/sim/redis"
)

// line is a process's connection to Redis, as its net.Conn. Commands are executed on the goroutine that writes them, or
// on a timer's where the line takes time for them; replies wait in it until they are due. One goroutine reads and one
// writes. The network's mutex guards all that follows the session.
type line struct {
	*port
	id      int
	session *redis.Session

	// To the server.
	out     []byte   // not executed yet
	slow    bool     // commands take time, too
	flows   bool     // a goroutine executes what is in out
	sent    []parcel // on the way
	deaf    bool     // nothing more of it is executed
	closing bool     // the client has closed it, and what is in out comes first
	gone    bool     // the session was closed
	used    time.Time

	// To the client.
	slots     []*slot // commands whose replies have not gone on, in order
	unmatched bool    // it subscribes: replies cannot be told apart
	mute      bool
	in        []parcel
	last      time.Time // when the last parcel is due
	err       error     // after what is in in
	told      bool      // err came while nothing held it up
	readable  chan struct{}
	reading   time.Time // deadlines
	writing   time.Time
	closed    bool // by the client
}

// slot is a command's place in the order of replies.
type slot struct {
	rule  *rule
	reply []byte
	ready bool
}

// outlives says whether the server's side stays open for the command although the client's has ended.
func (s *slot) outlives() bool { return s.rule != nil && !s.ready && s.rule.act != pass }

// parcel is a part of a reply, and when it is there.
type parcel struct {
	at    time.Time
	bytes []byte
}

// lineRoom is how many bytes may wait to be executed, as in the buffers of two sockets.
const lineRoom = 512 << 10

func newLine(p *port, id int) *line {
	return &line{port: p, id: id, used: time.Now(), slow: p.draw.IntN(2) == 0, readable: make(chan struct{}, 1)}
}

func (l *line) wake() {
	select {
	case l.readable <- struct{}{}:
	default:
	}
}

// Read gives what is due.
func (l *line) Read(b []byte) (int, error) {
	var timer *time.Timer
	for {
		l.n.mu.Lock()
		now := time.Now()
		var next time.Time
		switch held := l.stopped(); {
		case l.closed:
			l.n.mu.Unlock()
			return 0, net.ErrClosed
		case len(l.in) > 0 && !held && !l.in[0].at.After(now):
			n := l.take(b, now)
			l.n.mu.Unlock()
			return n, nil
		case len(l.in) > 0 && !held:
			next = l.in[0].at
		case len(l.in) == 0 && l.err != nil && (!held || l.told || l.dead):
			l.n.mu.Unlock()
			return 0, l.err
		}
		if !l.reading.IsZero() && !l.reading.After(now) {
			l.n.mu.Unlock()
			return 0, os.ErrDeadlineExceeded
		}
		if next.IsZero() || !l.reading.IsZero() && l.reading.Before(next) {
			next = l.reading
		}
		l.n.mu.Unlock()
		if next.IsZero() {
			<-l.readable
			continue
		}
		if timer == nil {
			timer = time.NewTimer(next.Sub(now))
			defer timer.Stop()
		} else {
			timer.Reset(next.Sub(now))
		}
		select {
		case <-l.readable:
		case <-timer.C:
		}
	}
}

// take reads what has arrived. In slices one comes a millisecond.
func (l *line) take(b []byte, now time.Time) int {
	first := &l.in[0]
	if slice := max(l.own.quality.slice, l.n.trunk.quality.slice); slice > 0 {
		b, first.at = b[:min(slice, len(b))], now.Add(time.Millisecond)
	}
	n := copy(b, first.bytes)
	if first.bytes = first.bytes[n:]; len(first.bytes) == 0 {
		l.in = l.in[1:]
	}
	return n
}

// Write takes all of b, unless there is no room until the deadline.
func (l *line) Write(b []byte) (int, error) {
	for {
		l.n.mu.Lock()
		switch {
		case l.closed, l.dead: // one that was killed writes nothing more, also while the server stands still
			l.n.mu.Unlock()
			return 0, net.ErrClosed
		case l.err != nil && !l.stopped():
			l.n.mu.Unlock()
			return 0, l.err
		case len(l.out) > lineRoom && l.stopped():
			over := !l.writing.IsZero() && !l.writing.After(time.Now())
			l.n.mu.Unlock()
			if over {
				return 0, os.ErrDeadlineExceeded
			}
			time.Sleep(10 * time.Millisecond)
			continue
		}
		break
	}
	if l.slow {
		now := time.Now()
		at := now.Add(l.latency())
		if n := len(l.sent); n > 0 && l.sent[n-1].at.After(at) {
			at = l.sent[n-1].at
		}
		l.sent = append(l.sent, parcel{at, slices.Clone(b)})
		l.n.mu.Unlock()
		time.AfterFunc(at.Sub(now), l.pump)
		return len(b), nil
	}
	l.out = append(l.out, b...)
	l.n.mu.Unlock()
	l.pump()
	return len(b), nil
}

// Close is the client's. The server executes what was written before.
func (l *line) Close() error {
	l.n.mu.Lock()
	if l.closed {
		l.n.mu.Unlock()
		return net.ErrClosed
	}
	l.closed, l.closing = true, true
	l.inUse--
	l.in = nil
	l.n.mu.Unlock()
	l.wake()
	l.pump()
	return nil
}

// cutIdle ends the lines that the server has had nothing of for so long, nor owes a reply.
func (n *network) cutIdle(than time.Duration) (of []*port) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range n.lines {
		if !l.unmatched && !l.deaf && !l.stopped() && len(l.slots) == 0 && len(l.sent) == 0 && len(l.out) == 0 &&
			time.Since(l.used) > than {
			l.finish(io.EOF)
			of = append(of, l.port)
		}
	}
	return of
}

// leave takes a line off the network's list.
func (l *line) leave() {
	l.n.mu.Lock()
	defer l.n.mu.Unlock()
	l.n.lines = slices.DeleteFunc(l.n.lines, func(o *line) bool { return o == l })
}

func (l *line) SetDeadline(t time.Time) error {
	_ = l.SetReadDeadline(t)
	return l.SetWriteDeadline(t)
}

func (l *line) SetReadDeadline(t time.Time) error {
	l.n.mu.Lock()
	l.reading = t
	l.n.mu.Unlock()
	l.wake()
	return nil
}

func (l *line) SetWriteDeadline(t time.Time) error {
	l.n.mu.Lock()
	l.writing = t
	l.n.mu.Unlock()
	return nil
}

func (l *line) LocalAddr() net.Addr  { return &net.UnixAddr{Name: "sim", Net: "unix"} }
func (l *line) RemoteAddr() net.Addr { return l.LocalAddr() }
