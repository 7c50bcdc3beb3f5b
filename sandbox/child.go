package sandbox

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/shuntmq/shunt"
)

// child is a process of the Lines protocol. The owner of its place calls its methods.
type child struct {
	*process
	s     *state
	out   *bufio.Reader
	n     int64 // messages so far
	sent  int   // bytes of the last one that went into its standard input
	spent bool  // it takes no more
}

// errNotBegun says that a child was dead before its message. Another child takes that, and no attempt is counted.
var errNotBegun = errors.New("sandbox: the child was dead before its message")

// Why an exchange failed.
var (
	errClosedInput = errors.New("its standard input is closed")
	errTooLong     = errors.New("its line is too long")
)

// notVerdict is a line that is no verdict.
type notVerdict struct {
	line []byte
	why  error
}

func (e *notVerdict) Error() string { return e.why.Error() }

func (s *state) newChild() (*child, error) {
	p, err := s.start(nil)
	if err != nil {
		return nil, err
	}
	return &child{process: p, s: s, out: bufio.NewReaderSize(p.stdout, 16<<10)}, nil
}

// ask has the child handle a message. err is the child's fault, or errNotBegun. A child with a fault is gone.
func (c *child) ask(ctx context.Context, i *shunt.Info, payload []byte) (v verdict, err error) {
	line, err := encodeRequest(c.n+1, i, payload)
	if err != nil {
		return v, shunt.Reject(fmt.Errorf("sandbox: write the message as JSON: %w", err))
	}
	c.n++
	release := c.s.watch(ctx, c.stop)
	v, err = c.exchange(line)
	cause := release()
	if cause != nil || c.n == int64(c.conf.most) {
		c.spent = true
	}
	if err == nil {
		c.stderr.settle()
		if c.n == 1 {
			c.s.gate.pass()
		}
		return v, nil
	}
	c.spent = true
	if cause == nil && (err == errNotBegun || died(err) && c.endedBefore()) {
		return v, errNotBegun
	}
	if err = c.fault(err, cause); cause == nil && c.n == 1 {
		c.s.gate.fail(time.Now())
	}
	return v, err
}

// endedBefore says whether a child that dies, or has closed its output, has read nothing of its message: it was ending
// while that came into its pipe.
func (c *child) endedBefore() bool {
	if c.n == 1 {
		return false
	}
	c.killLate() // most often it is about to end by itself
	return c.unread() >= c.sent
}

// exchange writes a line and reads the answer. An answer that a dying child has left counts.
func (c *child) exchange(line []byte) (v verdict, err error) {
	if c.sent, err = c.stdin.Write(line); err != nil {
		if c.sent == 0 && c.n > 1 {
			return v, errNotBegun
		}
		return v, errClosedInput
	}
	answer, err := c.readLine()
	if err != nil {
		return v, err
	}
	if v, err = decodeAnswer(answer, c.n); err != nil {
		return v, &notVerdict{answer, err}
	}
	if c.out.Buffered() > 0 {
		c.spent = true // more than its answer: the next message must not meet that
	}
	return v, nil
}

// readLine returns a line without its end, which is valid until the next call. Before an error it may be a part.
func (c *child) readLine() ([]byte, error) {
	line, err := c.out.ReadSlice('\n')
	if err == bufio.ErrBufferFull {
		whole := append([]byte(nil), line...)
		for err == bufio.ErrBufferFull && len(whole) <= c.conf.output {
			line, err = c.out.ReadSlice('\n')
			whole = append(whole, line...)
		}
		line = whole
	}
	if len(line) > c.conf.output {
		return line, errTooLong
	}
	if err != nil {
		return line, err
	}
	return line[:len(line)-1], nil
}

// died says whether an exchange has failed because the child has ended, or is about to.
func died(err error) bool { return err == io.EOF || err == errClosedInput || err == errNotBegun }

// fault ends the child, and says what was wrong. cause is why it was ended already; nil where it was not.
func (c *child) fault(err, cause error) error {
	if died(err) {
		c.killLate() // most often it is about to end by itself
	} else {
		c.kill()
	}
	<-c.gone
	c.join()
	name := c.conf.name
	var bad *notVerdict
	switch {
	case cause != nil:
		return c.failed(cause, "%s was ended before it answered, because %v", name, cause)
	case err == errTooLong:
		return c.failed(ErrOutput, "%s answered with a line of more than %d bytes: raise Pool.MaxOutput, or have it "+
			"answer less", name, c.conf.output)
	case errors.As(err, &bad):
		return c.failed(ErrAnswer, `%s answered %s, which is no verdict: %v. It must print to standard error what is `+
			`none, and answer with one line such as {"n":%d,"ok":true}`, name, short(bad.line), bad.why, c.n)
	case died(err) && c.n == 1:
		return c.failed(ErrExit, "%s ended before it answered its first message (%s). A command of the protocol Lines "+
			"reads messages until its standard input ends; one that reads a payload needs Protocol: sandbox.Exec",
			name, c.status())
	case died(err):
		return c.failed(ErrExit, "%s ended before it answered (%s)", name, c.status())
	}
	return c.failed(ErrExit, "%s: %v (%s)", name, err, c.status())
}
