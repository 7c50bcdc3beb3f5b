package redis

import (
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"strconv"
	"strings"
	"sync"

	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/parse"
)

// scripts are the server's scripts, and the one that runs.
type scripts struct {
	state  *lua.LState
	redis  *lua.LTable
	onFail *lua.LFunction
	bySHA  map[string]*lua.FunctionProto
	args   []string // of the command that a script calls

	// Of the script that runs.
	c     *Session
	full  bool // the server was over its memory when the script began
	wrote bool // it has called a command that writes: from then on none is refused
	line  int  // where it failed
}

func (l *scripts) flush() { l.bySHA = make(map[string]*lua.FunctionProto) }

// protos are what was compiled from the texts that this process has seen, by any of its servers.
var protos sync.Map

func shaOf(text string) string {
	sum := sha1.Sum([]byte(text))
	return hex.EncodeToString(sum[:])
}

// compiled is a script's function, or an error.
func (l *scripts) compiled(text, sha string) (*lua.FunctionProto, any) {
	if p := l.bySHA[sha]; p != nil {
		return p, nil
	}
	if p, is := protos.Load(sha); is {
		l.bySHA[sha] = p.(*lua.FunctionProto)
		return l.bySHA[sha], nil
	}
	chunk, err := parse.Parse(strings.NewReader(text), "user_script")
	var p *lua.FunctionProto
	if err == nil {
		p, err = lua.Compile(chunk, "user_script")
	}
	if err != nil {
		at, said := 1+strings.Count(text, "\n"), err.Error()
		var wrong *parse.Error
		if errors.As(err, &wrong) {
			said = wrong.Message
			if wrong.Pos.Line > 0 {
				at = wrong.Pos.Line
			}
		}
		return nil,
			failure("ERR Error compiling script (new function): user_script:" + strconv.Itoa(at) + ": " + oneLine(said))
	}
	p.IsVarArg &^= lua.VarArgNeedsArg // no script reads the table that would be made for it at each run
	protos.Store(sha, p)
	l.bySHA[sha] = p
	return p, nil
}

func oneLine(text string) string {
	return strings.TrimSpace(strings.NewReplacer("\r", " ", "\n", " ").Replace(text))
}

func scriptLoad(s *Server, _ *Session, a []string) any {
	sha := shaOf(a[2])
	_, bad := s.scripts.compiled(a[2], sha)
	return or(bad, sha)
}

func scriptExists(s *Server, _ *Session, a []string) any {
	all := make([]any, len(a)-2)
	for i, sha := range a[2:] {
		all[i] = bit(s.scripts.bySHA[strings.ToLower(sha)] != nil)
	}
	return all
}

func scriptFlush(s *Server, _ *Session, a []string) any {
	if len(a) > 3 || len(a) == 3 && !strings.EqualFold(a[2], "async") && !strings.EqualFold(a[2], "sync") {
		return failure("ERR SCRIPT FLUSH only support SYNC|ASYNC option")
	}
	s.scripts.flush()
	return ok
}

// keysOf are the KEYS and ARGV of EVAL's arguments.
func keysOf(a []string) (keys, argv []string, bad any) {
	n, is := integer(a[2])
	switch {
	case !is:
		return nil, nil, notInteger
	case n > len(a)-3:
		return nil, nil, failure("ERR Number of keys can't be greater than number of args")
	case n < 0:
		return nil, nil, failure("ERR Number of keys can't be negative")
	}
	return a[3 : 3+n], a[3+n:], nil
}

func eval(s *Server, c *Session, a []string) any {
	keys, argv, bad := keysOf(a)
	if bad != nil {
		return bad
	}
	sha := shaOf(a[1])
	p, bad := s.scripts.compiled(a[1], sha)
	if bad != nil {
		return bad
	}
	return s.runScript(c, p, sha, keys, argv)
}

func evalSHA(s *Server, c *Session, a []string) any {
	missing := failure("NOSCRIPT No matching script. Please use EVAL.")
	if len(a[1]) != 40 {
		return missing
	}
	keys, argv, bad := keysOf(a)
	if bad != nil {
		return bad
	}
	p := s.scripts.bySHA[a[1]]
	if p == nil {
		a[1] = strings.ToLower(a[1])
		p = s.scripts.bySHA[a[1]]
	}
	if p == nil {
		return missing
	}
	return s.runScript(c, p, a[1], keys, argv)
}

// call executes a command for a script, unless it is refused.
func (s *Server) call(a []string) any {
	l := s.scripts
	cmd := find(a)
	switch {
	case cmd == nil || cmd.run == nil:
		return failure("ERR Unknown Redis command called from script")
	case !cmd.takes(len(a)):
		return failure("ERR Wrong number of args calling Redis command from script")
	case cmd.is(noScript):
		return failure("ERR This Redis command is not allowed from script")
	case cmd.is(write) && !l.wrote && s.readOnly:
		return isReadOnly
	case cmd.is(denyOOM) && !l.wrote && l.full:
		return oom
	}
	l.wrote = l.wrote || cmd.is(write)
	s.calls[cmd.place]++
	return cmd.run(s, l.c, a)
}
