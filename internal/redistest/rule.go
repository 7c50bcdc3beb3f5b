package redistest

import (
	"bytes"
	"context"
	"crypto/sha1"
	"fmt"
	"slices"
	"time"
)

// Match says whether a rule means a command; args[0] is its name. It runs under the proxy's lock: it must not call the
// proxy, nor keep args.
type Match func(args [][]byte) bool

// Command matches commands by name, in any case, of which each of more occurs within some argument. An empty name
// matches all.
func Command(name string, more ...string) Match {
	return func(args [][]byte) bool {
		if name != "" && !bytes.EqualFold(args[0], []byte(name)) {
			return false
		}
		for _, want := range more {
			if !slices.ContainsFunc(args[1:], func(a []byte) bool { return bytes.Contains(a, []byte(want)) }) {
				return false
			}
		}
		return true
	}
}

// ByName is Command for one of a channel's keys, as far as suffix goes, where the channel is named later: in tables.
func ByName(name, suffix string) func(channel string) Match {
	return func(channel string) Match { return Command(name, "{"+channel+"}"+suffix) }
}

// ByScript likewise matches a script, by its SHA-1, however it is sent: with EVAL or with EVALSHA. Its first key is the
// channel's.
func ByScript(s interface{ Digest() string }) func(channel string) Match {
	return func(channel string) Match {
		key := []byte("{" + channel + "}")
		return func(args [][]byte) bool {
			if len(args) < 4 || !bytes.HasPrefix(args[3], key) {
				return false
			}
			switch string(bytes.ToUpper(args[0])) {
			case "EVALSHA":
				return string(args[1]) == s.Digest()
			case "EVAL":
				return fmt.Sprintf("%x", sha1.Sum(args[1])) == s.Digest()
			}
			return false
		}
	}
}

// Either matches what one of two does.
func Either(a, b func(channel string) Match) func(channel string) Match {
	return func(channel string) Match {
		one, other := a(channel), b(channel)
		return func(args [][]byte) bool { return one(args) || other(args) }
	}
}

// Action is what a rule does to a command. The zero value is Pass.
type Action struct {
	kind  kind
	hold  time.Duration
	reply string
	hook  func()
}

type kind int

const (
	pass kind = iota
	call
	cutBefore
	cutUnread
	cutAfter
	replyError
	dropReply
	delay
)

var (
	// Pass forwards the command; its rule counts, exactly and for any number of commands.
	Pass = Action{}

	// CutBefore does not forward the command: once the commands before it are answered, both sides are closed.
	CutBefore = Action{kind: cutBefore}

	// CutUnread forwards the command and closes the client's side at once. The server's side stays open until the
	// answer, so the command is surely executed, perhaps much later: a server that saw the end of the connection would
	// forget a blocked one.
	CutUnread = Action{kind: cutUnread}

	// CutAfter forwards the command, waits for the whole reply, discards it and closes both sides: executed, and the
	// client cannot know. Replies to commands before it are delivered; commands behind it are not forwarded.
	CutAfter = Action{kind: cutAfter}

	// DropReply forwards the command and swallows its reply and all later ones of that connection, which stays open. A
	// reply alone cannot be lost on TCP: the client would take the next one for it.
	DropReply = Action{kind: dropReply}
)

// ReplyError does not forward the command and answers it with an error such as "OOM command not allowed", in its turn.
func ReplyError(message string) Action {
	return Action{kind: replyError, reply: "-" + message + "\r\n"}
}

// Delay forwards the command and holds its reply back for d; later replies of the connection wait behind it.
func Delay(d time.Duration) Action { return Action{kind: delay, hold: d} }

// Call runs hook before it forwards the command, after the replies to the connection's earlier commands have come. hook
// runs on a goroutine of the proxy, so it must not end the test; it may use the proxy, but not Close it.
func Call(hook func()) Action { return Action{kind: call, hook: hook} }

// Rule is an Action waiting for its command. Its methods may be called from any goroutine.
type Rule struct {
	p     *Proxy
	match Match
	nth   int
	act   Action

	// Guarded by p.mu.
	seen, struck int
	changed      chan struct{} // closed when struck rises; nil while no one waits
}

// Struck returns how often the rule has done its work. A cut counts as soon as it is certain, just before the client
// can see it: for CutAfter, when the reply has come.
func (r *Rule) Struck() int {
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	return r.struck
}

// Wait returns once the rule has struck n times, or with an error when ctx ends.
func (r *Rule) Wait(ctx context.Context, n int) error {
	for {
		r.p.mu.Lock()
		struck := r.struck
		if r.changed == nil {
			r.changed = make(chan struct{})
		}
		changed := r.changed
		r.p.mu.Unlock()
		if struck >= n {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("redistest: rule struck %d times of %d: %w", struck, n, context.Cause(ctx))
		}
	}
}

// Remove ends the rule; a command that it has already met still takes its course.
func (r *Rule) Remove() {
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	r.p.rules = slices.DeleteFunc(r.p.rules, func(o *Rule) bool { return o == r })
}

// strike counts.
func (r *Rule) strike() {
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	r.strikeLocked()
}

func (r *Rule) strikeLocked() {
	r.struck++
	if r.changed != nil {
		close(r.changed)
		r.changed = nil
	}
}
