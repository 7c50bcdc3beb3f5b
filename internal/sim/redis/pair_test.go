package redis

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/resp"
)

// pair is a session of the model and a connection to a real redis-server, which are given the same commands.
type pair struct {
	t     fataler
	model *Session
	heard chan struct{} // the model has said something
	said  []byte        // by the model; guarded by its lock
	real  net.Conn
	in    *bufio.Reader
}

type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

func newPair(t testing.TB, s *Server, real *redistest.Server) *pair {
	c, err := net.Dial("tcp", real.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	p := &pair{t: t, real: c, in: bufio.NewReaderSize(c, 64<<10), heard: make(chan struct{}, 1)}
	p.model = s.Connect(func(b []byte) {
		p.said = append(p.said, b...)
		select {
		case p.heard <- struct{}{}:
		default:
		}
	}, nil)
	return p
}

func bytesOf(args []string) [][]byte {
	all := make([][]byte, len(args))
	for i, a := range args {
		all[i] = []byte(a)
	}
	return all
}

// send gives both a command, and waits for nothing.
func (p *pair) send(args ...string) {
	p.t.Helper()
	if _, err := p.real.Write(wire(args...)); err != nil {
		p.t.Fatalf("%q: %v", args, err)
	}
	p.model.Command(bytesOf(args))
}

func wire(args ...string) []byte {
	more := make([]any, len(args)-1)
	for i, a := range args[1:] {
		more[i] = a
	}
	return resp.AppendCommand(nil, args[0], more, 0)
}

// reply is the real server's next one.
func (p *pair) reply() string {
	p.t.Helper()
	_ = p.real.SetReadDeadline(time.Now().Add(20 * time.Second))
	b, err := resp.ReadReply(p.in)
	if err != nil {
		p.t.Fatalf("the real server: %v", err)
	}
	return string(b)
}

// ask gives both a command and returns the replies.
func (p *pair) ask(args ...string) (model, real string) {
	p.t.Helper()
	p.take()
	p.send(args...)
	real = p.reply()
	return p.answer(), real
}

// take is what the model has said since it was taken last.
func (p *pair) take() string {
	p.model.s.mu.Lock()
	defer p.model.s.mu.Unlock()
	said := string(p.said)
	p.said = p.said[:0]
	return said
}

// answer is what the model says, or will say soon: a blocked command's timeout is no longer than the real server's.
func (p *pair) answer() string {
	p.t.Helper()
	for {
		if said := p.take(); said != "" {
			return said
		}
		select {
		case <-p.heard:
		case <-time.After(5 * time.Second):
			p.t.Fatalf("the model says nothing")
		}
	}
}

// same gives both a command, whose replies must be alike.
func (p *pair) same(args ...string) string {
	p.t.Helper()
	model, real := p.ask(args...)
	a, b := plain(args, model), plain(args, real)
	if a != b {
		p.t.Fatalf("%.400q:\n the model %.1500q\n Redis     %.1500q", args, a, b)
	}
	return real
}

// unordered are the commands whose replies have no order.
var unordered = []string{"keys", "scan", "smembers", "sscan", "hkeys", "hvals", "hgetall", "hscan"}

// words are what Lua itself says of an error, which is not the same in all of its machines.
var words = regexp.MustCompile(`(?s)(ERR (?:Error compiling script \(new function\): )?user_script:\d*:?)` +
	`.*?( script: [0-9a-f]{40}, on|\r\n$)`)

// numbers are those of a reply. Lengths of two digits are among them, and come out alike.
var numbers = regexp.MustCompile(`\b\d{2,}\b`)

// plain is a reply without what may differ.
func plain(args []string, reply string) string {
	if strings.HasPrefix(reply, "-ERR user_script:") || strings.HasPrefix(reply, "-ERR Error compiling") {
		return words.ReplaceAllString(reply, "$1$2")
	}
	name := strings.ToLower(args[0])
	for _, a := range args[1:] { // a script that calls a command has its name as an argument
		if slices.Contains(unordered, a) && strings.HasPrefix(name, "eval") {
			name = a
		}
		if (a == "pttl" || a == "ttl") && strings.HasPrefix(name, "eval") {
			name = a
		}
	}
	switch {
	case slices.Contains(unordered, name):
		parts := strings.Split(reply, "\r\n")
		slices.Sort(parts)
		return strings.Join(parts, "\r\n")
	case name == "pttl" || name == "ttl":
		return numbers.ReplaceAllStringFunc(reply, func(n string) string { // scripts give them as strings too
			ms, _ := strconv.Atoi(n)
			if name == "ttl" {
				ms *= 1000
			}
			return fmt.Sprint("about ", (ms+10_000)/30_000*30_000) // no time to live here is near a bound
		})
	}
	return reply
}

// sameKeys compares all that both have.
func (p *pair) sameKeys() {
	p.t.Helper()
	p.same("keys", "*")
	_, real := p.ask("keys", "*")
	for i, key := range strings.Split(real, "\r\n") {
		if i == 0 || i%2 == 1 {
			continue
		}
		if key == "" {
			continue
		}
		kind := p.same("type", key)
		p.same("pttl", key)
		switch strings.TrimSpace(kind[1:]) {
		case "string":
			p.same("get", key)
		case "list":
			p.same("lrange", key, "0", "-1")
		case "hash":
			p.same("hgetall", key)
		case "set":
			p.same("smembers", key)
		case "zset":
			p.same("zrange", key, "0", "-1", "withscores")
		case "stream":
			p.same("xrange", key, "-", "+")
		default:
			p.t.Fatalf("%q is a %q", key, kind)
		}
	}
}

// drained are the replies of both up to that of an ECHO, sent last to a session that is not blocked.
func (p *pair) drained() (model, real []string) {
	p.t.Helper()
	end := string(appendReply(nil, "the end"))
	for len(real) == 0 || real[len(real)-1] != end {
		real = append(real, p.reply())
	}
	in := bufio.NewReader(strings.NewReader(p.take()))
	for {
		b, err := resp.ReadReply(in)
		if errors.Is(err, io.EOF) {
			return model, real
		}
		if err != nil {
			p.t.Fatalf("the model: %v", err)
		}
		model = append(model, string(b))
	}
}

// A time to live goes on while the second server is asked, whichever way a script gives it.
func TestPlainTimeToLive(t *testing.T) {
	for _, args := range [][]string{{"pttl", "k"}, {"eval", "return redis.call('pttl', 'k')", "0", "pttl", "k"}} {
		for _, reply := range []string{":299999991\r\n", "*2\r\n$6\r\nnumber\r\n$9\r\n299999991\r\n"} {
			later := strings.Replace(reply, "91", "89", 1)
			if a, b := plain(args, reply), plain(args, later); a != b {
				t.Errorf("%v: %q, and 2 ms later %q", args, a, b)
			}
			if a, b := plain(args, reply), plain(args, strings.Replace(reply, "29", "19", 1)); a == b {
				t.Errorf("%v: %q for times that are far apart", args, a)
			}
		}
	}
}
