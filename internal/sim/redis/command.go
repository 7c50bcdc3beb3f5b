package redis

import (
	"strconv"
	"strings"
)

// flag is a property of a command, by the name that Redis' COMMAND gives it.
type flag uint8

const (
	write flag = 1 << iota
	denyOOM
	noScript
	loading
	pubSub // allowed to a session that has subscribed
	noAuth
)

// command is one that the server knows. A container has only subcommands.
type command struct {
	name  string // as an error names it
	arity int    // with the name; negative: at least so many
	flags flag
	run   func(s *Server, c *Session, a []string) any
	place int                 // in Server.calls
	subs  map[string]*command // by their lower-case names
}

var (
	byName = make(map[string]*command) // by their names, in lower and in upper case
	names  []string                    // by their places
)

func init() {
	for i := range commands {
		cmd := &commands[i]
		cmd.place = i
		names = append(names, cmd.name)
		if container, sub, is := strings.Cut(cmd.name, "|"); is {
			byName[container].subs[sub] = cmd
			continue
		}
		if cmd.run == nil {
			cmd.subs = make(map[string]*command)
		}
		byName[cmd.name], byName[strings.ToUpper(cmd.name)] = cmd, cmd
	}
}

// find is the command of some arguments, or nil.
func find(a []string) *command {
	cmd := byName[a[0]]
	if cmd == nil {
		cmd = byName[strings.ToLower(a[0])]
	}
	if cmd != nil && cmd.subs != nil && len(a) > 1 {
		return cmd.subs[strings.ToLower(a[1])]
	}
	return cmd
}

func (cmd *command) takes(n int) bool {
	if cmd.arity < 0 {
		return n >= -cmd.arity
	}
	return n == cmd.arity
}

func (cmd *command) is(f flag) bool { return cmd.flags&f != 0 }

func wrongNumber(name string) failure {
	return failure("ERR wrong number of arguments for '" + name + "' command")
}

// unknown is the error for a command that find does not find.
func unknown(a []string) failure {
	if container := byName[strings.ToLower(a[0])]; container != nil {
		return failure("ERR unknown subcommand '" + cString(a[1],
			128) + "'. Try " + strings.ToUpper(container.name) + " HELP.")
	}
	var rest strings.Builder
	for _, arg := range a[1:] {
		if rest.Len() >= 128 {
			break
		}
		rest.WriteString("'" + cString(arg, 128-rest.Len()) + "' ")
	}
	text := "ERR unknown command '" + cString(a[0], 128) + "', with args beginning with: " + rest.String()
	return failure(strings.NewReplacer("\r", " ", "\n", " ").Replace(text))
}

// cString is the beginning of a text, up to a zero byte.
func cString(s string, most int) string {
	s, _, _ = strings.Cut(s[:min(most, len(s))], "\x00")
	return s
}

const (
	oom        = failure("OOM command not allowed when used memory > 'maxmemory'.")
	isReadOnly = failure("READONLY You can't write against a read only replica.")
	isLoading  = failure("LOADING Redis is loading the dataset in memory")
	noPassword = failure("NOAUTH Authentication required.")
)

// execute runs a command, unless it is refused, in the order in which Redis asks.
func (s *Server) execute(c *Session, a []string) any {
	cmd := find(a)
	switch {
	case cmd == nil:
		return unknown(a)
	case !cmd.takes(len(a)) || cmd.run == nil:
		return wrongNumber(cmd.name)
	case !c.authed && !cmd.is(noAuth):
		return noPassword
	case cmd.is(denyOOM) && s.over():
		return oom
	case cmd.is(write) && s.readOnly:
		return isReadOnly
	case c.subscribed() > 0 && !cmd.is(pubSub) && cmd.name != "ping" && cmd.name != "quit" && cmd.name != "reset":
		return failure("ERR Can't execute '" + cmd.name + "': only (P|S)SUBSCRIBE / " +
			"(P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context")
	case s.loading && !cmd.is(loading):
		return isLoading
	}
	c.last = cmd.name
	s.calls[cmd.place]++
	return cmd.run(s, c, a)
}

// over says whether the server has used up its memory.
func (s *Server) over() bool { return s.full || s.most > 0 && s.used() > s.most }

// used is about how many bytes the server uses.
func (s *Server) used() int {
	n := 1 << 20
	for key, e := range s.keys.all() {
		n += len(key) + 80 + e.value.size()
	}
	return n
}

// integer reads an integer as strictly as Redis does.
func integer(a string) (int, bool) {
	n, err := strconv.ParseInt(a, 10, 64)
	if err != nil || a[0] == '+' || (a[0] == '0' && len(a) > 1) || (a[0] == '-' && a[1] == '0') {
		return 0, false
	}
	return int(n), true
}
