package redis

import (
	"strconv"

	lua "github.com/yuin/gopher-lua"
)

// newScripts makes the state in which all scripts of a server run.
func newScripts(s *Server) *scripts {
	l := &scripts{state: lua.NewState(lua.Options{SkipOpenLibs: true, RegistrySize: 1 << 12, RegistryMaxSize: 1 << 18,
		RegistryGrowStep: 1 << 12})}
	l.flush()
	openLibraries(l.state)
	l.redis = l.state.NewTable()
	l.state.SetFuncs(l.redis, map[string]lua.LGFunction{
		"call":         func(L *lua.LState) int { return s.callFrom(L, true) },
		"pcall":        func(L *lua.LState) int { return s.callFrom(L, false) },
		"sha1hex":      sha1hex,
		"error_reply":  errorReply,
		"status_reply": statusReply,
		"log":          func(*lua.LState) int { return 0 },
		"setresp":      func(*lua.LState) int { return 0 },
	})
	for i, level := range []string{"LOG_DEBUG", "LOG_VERBOSE", "LOG_NOTICE", "LOG_WARNING"} {
		l.redis.RawSetString(level, lua.LNumber(i))
	}
	l.state.G.Global.RawSetString("redis", l.redis)
	protect(l.state)
	l.onFail = l.state.NewFunction(func(L *lua.LState) int {
		l.line = failedAt(L)
		return 1
	})
	return l
}

// runScript runs a script, and gives its reply.
func (s *Server) runScript(c *Session, p *lua.FunctionProto, sha string, keys, argv []string) any {
	l := s.scripts
	l.c, l.full, l.wrote = c, s.over(), false
	g := l.state.G.Global
	g.RawSetString("KEYS", texts(l.state, keys))
	g.RawSetString("ARGV", texts(l.state, argv))
	l.state.Push(l.state.NewFunctionFromProto(p))
	err := l.state.PCall(0, 1, l.onFail)
	defer l.state.SetTop(0)
	if err == nil {
		return fromLua(l.state.Get(-1))
	}
	text := "ERR " + err.Error()
	if e, is := err.(*lua.ApiError); is {
		text = "ERR " + e.Object.String()
		if t, is := e.Object.(*lua.LTable); is {
			text = "ERR unknown error"
			if said, is := t.RawGetString("err").(lua.LString); is {
				text = string(said)
			}
		}
	}
	return failure(oneLine(text) + " script: " + sha + ", on @user_script:" + strconv.Itoa(l.line) + ".")
}

func texts(L *lua.LState, of []string) *lua.LTable {
	t := L.CreateTable(len(of), 0)
	for i, text := range of {
		t.RawSetInt(i+1, lua.LString(text))
	}
	return t
}

// failedAt is the line of the script at which an error was raised, for a function that handles it.
func failedAt(L *lua.LState) int {
	for level := 1; ; level++ {
		at, is := L.GetStack(level)
		if !is {
			return 0
		}
		if _, err := L.GetInfo("Sl", at, lua.LNil); err != nil {
			return 0
		}
		if at.What != "Go" && at.What != "G" && at.CurrentLine > 0 {
			return at.CurrentLine
		}
	}
}

// callFrom is redis.call, which raises an error, and redis.pcall, which returns it.
func (s *Server) callFrom(L *lua.LState, raise bool) int {
	l := s.scripts
	v := any(nil)
	if l.args, v = commandOf(L, l.args[:0]); v == nil {
		v = s.call(l.args)
	}
	if f, is := v.(failure); is && raise {
		L.Error(failed(L, string(f)), 0)
	}
	L.Push(toLua(L, v))
	return 1
}

// commandOf reads the arguments of redis.call.
func commandOf(L *lua.LState, a []string) ([]string, any) {
	n := L.GetTop()
	if n == 0 {
		return a, failure("ERR Please specify at least one argument for this redis lib call")
	}
	for i := 1; i <= n; i++ {
		switch v := L.Get(i).(type) {
		case lua.LString:
			a = append(a, string(v))
		case lua.LNumber:
			a = append(a, printed(float64(v)))
		default:
			return a, failure("ERR Lua redis lib command arguments must be strings or integers")
		}
	}
	return a, nil
}

// failed is an error as a script sees it.
func failed(L *lua.LState, text string) *lua.LTable {
	t := L.CreateTable(0, 1)
	t.RawSetString("err", lua.LString(text))
	return t
}

// toLua is a reply as a script sees it.
func toLua(L *lua.LState, v any) lua.LValue {
	switch v := v.(type) {
	case int:
		return lua.LNumber(v)
	case string:
		return lua.LString(v)
	case status:
		t := L.CreateTable(0, 1)
		t.RawSetString("ok", lua.LString(v))
		return t
	case failure:
		return failed(L, string(v))
	case []string:
		return texts(L, v)
	case []any:
		t := L.CreateTable(len(v), 0)
		for i, e := range v {
			t.RawSetInt(i+1, toLua(L, e))
		}
		return t
	}
	return lua.LFalse
}

// fromLua is what a script returns as a reply.
func fromLua(v lua.LValue) any {
	switch v := v.(type) {
	case lua.LString:
		return string(v)
	case lua.LNumber:
		return int(v)
	case lua.LBool:
		if v {
			return 1
		}
	case *lua.LTable:
		if text, is := v.RawGetString("err").(lua.LString); is {
			return failure(oneLine(string(text)))
		}
		if text, is := v.RawGetString("ok").(lua.LString); is {
			return status(oneLine(string(text)))
		}
		all := []any{}
		for i := 1; ; i++ {
			e := v.RawGetInt(i)
			if e == lua.LNil {
				return all
			}
			all = append(all, fromLua(e))
		}
	}
	return nil
}
