package link

import (
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"net"
	"sync/atomic"
	"time"

	"github.com/shuntmq/shunt/internal/resp"
)

// Script is a Lua script that the link sends by its digest once the connection has seen its text.
type Script struct {
	text, digest any // boxed once
}

// NewScript makes a Script of the whole text.
func NewScript(text string) *Script {
	sum := sha1.Sum([]byte(text))
	return &Script{text: text, digest: hex.EncodeToString(sum[:])}
}

// Digest is the SHA-1 by which the server knows the script.
func (s *Script) Digest() string { return s.digest.(string) }

// Command is a command that is sent often: all that comes before its elements is rendered once.
type Command struct {
	name     string
	args     []any
	elements int
	wire     []byte
}

// NewCommand renders a command that has so many elements.
func NewCommand(elements int, name string, args ...any) *Command {
	return &Command{name: name, args: args, elements: elements, wire: resp.AppendCommand(nil, name, args, elements)}
}

// Call is one or more commands that are sent together. Its owner fills it, passes it to Link.Do, reads Replies, and
// may then Reset and use it again. A Call whose Do returned early, because its context ended, belongs to the link for
// ever.
type Call struct {
	Replies []Reply // one a command, in order, once Do has returned
	// Answered means that Do waited to the end: only then may Replies be read.
	Answered bool
	Order    int64 // calls of one link ascend by when their replies came

	// KeepWhileDown keeps the call while the server is away, unless waiting for it is hopeless: then the call ends at
	// once. Without it a failed dial ends the call. Both end as NotExecuted.
	KeepWhileDown bool

	// Repeats means that the commands may be executed twice. Where their connection ends before the first reply, Run
	// sends them once more, and sets Repeated.
	Repeats, Repeated bool

	// Before keeps the call from a connection that was made later: it ends with ErrYoung. Zero: any will do.
	Before time.Time

	Into *Memory // of replies that are strings; nil: each has its own

	Timed bool      // Sent is wanted
	Sent  time.Time // when the call was written, which may be long after Do began: no connection may have been there

	cmds  []command
	n     int // of all commands
	args  []any
	elems [][]byte
	size  int64 // bytes that were sent
	state atomic.Int32
	done  chan struct{} // of capacity 1
	timer *time.Timer   // of Within, kept for its next use
}

var order atomic.Int64

// Order gives a reply that came on another connection its number among the replies of calls.
func Order() int64 { return order.Add(1) }

// Reply is the outcome of one command.
type Reply struct {
	Value any
	Bulk  []byte // in place of Value: a string that is the whole reply; nil if it is none
	Err   error
}

// Any is the reply as redigo would give it.
func (r Reply) Any() any {
	if r.Bulk != nil {
		return r.Bulk
	}
	return r.Value
}

// Memory is shared by the short strings of replies.
type Memory = resp.Memory

type command struct {
	name     string
	script   *Script
	ready    *Command
	times    int // a ready one stands for so many in a row, each with its own elements
	from, to int // of its arguments in args
	first, n int // of its elements in elems, where they need no memory as an any
}

const (
	queued int32 = iota
	sent
	cancelled
)

// NewCall makes an empty Call.
func NewCall() *Call { return &Call{done: make(chan struct{}, 1)} }

// Reset empties the Call for its next use and keeps its memory.
func (c *Call) Reset() {
	clear(c.args)
	clear(c.cmds)
	clear(c.elems)
	c.cmds, c.args, c.elems, c.Replies, c.Into, c.n = c.cmds[:0], c.args[:0], c.elems[:0], c.Replies[:0], nil, 0
	c.Timed, c.Sent = false, time.Time{}
	c.Before = time.Time{}
	c.state.Store(queued)
}

// Drop is Reset for a Call that is not used for a while: it keeps neither elements nor replies in memory.
func (c *Call) Drop() {
	c.Reset()
	clear(c.Replies[:cap(c.Replies)])
}

// Only is a new Call of some of the commands, as they were added; is ascends.
func (c *Call) Only(is []int) *Call {
	o := NewCall()
	o.KeepWhileDown = c.KeepWhileDown
	at := 0
	for _, cmd := range c.cmds {
		if cmd.script != nil {
			c.args[cmd.from] = cmd.script.digest
		}
		for i := range cmd.times {
			if len(is) == 0 || is[0] != at+i {
				continue
			}
			is = is[1:]
			if cmd.ready != nil {
				o.AddReady(cmd.ready, c.elementsOf(cmd, i)...)
				continue
			}
			o.Add(cmd.name, c.args[cmd.from:cmd.to]...)
			o.cmds[len(o.cmds)-1].script = cmd.script
			o.AddElements(c.elements(cmd)...)
		}
		at += cmd.times
	}
	return o
}

// again is a new Call of all the commands.
func (c *Call) again() *Call {
	all := make([]int, c.n)
	for i := range all {
		all[i] = i
	}
	return c.Only(all)
}

// hungUp says that the connection ended before the call's first reply, and not because that took too long.
func (c *Call) hungUp() bool {
	if !c.Answered || len(c.Replies) == 0 {
		return false
	}
	var own *Error
	var slow net.Error
	err := c.Replies[0].Err
	return errors.As(err, &own) && own.Class == Unknown && !errors.Is(err, ErrClosed) &&
		!(errors.As(err, &slow) && slow.Timeout())
}

// Len counts the commands.
func (c *Call) Len() int { return c.n }

// Add appends a command.
func (c *Call) Add(name string, args ...any) {
	from := len(c.args)
	c.args = append(c.args, args...)
	c.cmds = append(c.cmds, command{name: name, times: 1, from: from, to: len(c.args), first: len(c.elems)})
	c.n++
}

// AddReady appends a command that is rendered already, with its elements.
func (c *Call) AddReady(r *Command, elements ...[]byte) {
	if len(elements) != r.elements {
		panic("a ready command with another number of elements")
	}
	if i := len(c.cmds) - 1; i < 0 || c.cmds[i].ready != r {
		c.cmds = append(c.cmds, command{ready: r, first: len(c.elems)})
	}
	cmd := &c.cmds[len(c.cmds)-1]
	cmd.times++
	cmd.n += len(elements)
	c.elems = append(c.elems, elements...)
	c.n++
}

// AddScript appends a run of a script; keys is how many of its arguments are keys.
func (c *Call) AddScript(s *Script, keys int, args ...any) {
	c.Add("EVALSHA", s.digest, keys)
	c.args = append(c.args, args...)
	cmd := &c.cmds[len(c.cmds)-1]
	cmd.script, cmd.to = s, len(c.args)
}

// AddElements appends elements to the arguments of the last command.
func (c *Call) AddElements(elements ...[]byte) {
	c.elems = append(c.elems, elements...)
	c.cmds[len(c.cmds)-1].n += len(elements)
}

func (c *Call) elements(cmd command) [][]byte { return c.elems[cmd.first : cmd.first+cmd.n] }

// elementsOf are the elements of the ith run of a ready command.
func (c *Call) elementsOf(cmd command, i int) [][]byte {
	n := cmd.ready.elements
	return c.elems[cmd.first+i*n : cmd.first+(i+1)*n]
}

// fail ends the call with the same error for every command without a reply.
func (c *Call) fail(class Class, err error) {
	e := &Error{class, err}
	for len(c.Replies) < c.n {
		c.Replies = append(c.Replies, Reply{Err: e})
	}
	c.done <- struct{}{}
}
