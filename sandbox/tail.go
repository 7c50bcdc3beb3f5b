package sandbox

import (
	"bytes"
	"io"
	"strings"
	"sync"
)

// A failure's text travels in its message with up to 2 KB. So much of that is for standard error; the reason comes
// before it.
const lastLines = 1400

// chunk is how many bytes of standard error are read at once, and the longest line that Pool.Stderr gets.
const chunk = 4 << 10

// tail keeps the last lines that a child has written to standard error since its last verdict. The process's goroutine
// for standard error calls fill and end.
type tail struct {
	most int // bytes for one message
	log  *logger
	line []byte // without an end yet, for the log; owned by fill and end

	mu      sync.Mutex // guards what follows
	last    []byte
	since   int // bytes since the last verdict
	spare   int // beyond most: what the last message may have written that comes only now
	flooded bool
}

// fill reads until the end, which is no error, or until the child has written more than it may.
func (t *tail) fill(from io.Reader) error {
	b := make([]byte, chunk)
	for {
		n, err := from.Read(b)
		t.logged(b[:n])
		if t.add(b[:n]) {
			return ErrOutput
		}
		if err != nil {
			return nil
		}
	}
}

// add says whether there is too much.
func (t *tail) add(b []byte) (flooded bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = append(t.last, b...)
	if over := len(t.last) - lastLines; over > 2*chunk {
		t.last = append(t.last[:0], t.last[over:]...)
	}
	t.since += len(b)
	t.flooded = t.since > t.most+t.spare
	return t.flooded
}

// settle forgets what was written: the child has given a verdict. What it wrote before that may still be on its way,
// and is not to be the fault of the next message.
func (t *tail) settle() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.spare = min(t.most, max(0, t.most+t.spare-t.since))
	t.last, t.since = t.last[:0], 0
}

// text is the last lines, and whether the child was ended for writing too much.
func (t *tail) text() (lines string, flooded bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	last := t.last
	if over := len(last) - lastLines; over > 0 {
		last = last[over:]
		if _, rest, found := bytes.Cut(last, []byte("\n")); found && len(bytes.TrimSpace(rest)) > 0 {
			last = rest
		}
	}
	return strings.TrimSpace(strings.ToValidUTF8(string(last), "\uFFFD")), t.flooded
}

// logged passes whole lines on, and keeps the rest.
func (t *tail) logged(b []byte) {
	if t.log.to == nil {
		return
	}
	t.line = append(t.line, b...)
	for {
		n := bytes.IndexByte(t.line, '\n') + 1
		if n == 0 && len(t.line) >= chunk {
			n = chunk
		}
		if n == 0 {
			return
		}
		t.log.write(t.line[:n])
		t.line = t.line[n:]
	}
}

// end logs what has no end of line.
func (t *tail) end() {
	if t.log.to != nil && len(t.line) > 0 {
		t.log.write(append(t.line, '\n'))
	}
}

// logger is Pool.Stderr, for one child at a time.
type logger struct {
	mu sync.Mutex
	to io.Writer // nil: nowhere
}

func (l *logger) write(line []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, _ = l.to.Write(line) // as documented
}
