package redis

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	lua "github.com/yuin/gopher-lua"
)

// openLibraries gives a state what scripts may use.
func openLibraries(L *lua.LState) {
	for _, lib := range []struct {
		name string
		open lua.LGFunction
	}{
		{lua.BaseLibName, lua.OpenBase}, {lua.TabLibName, lua.OpenTable}, {lua.StringLibName, lua.OpenString},
		{lua.MathLibName, lua.OpenMath},
	} {
		L.Push(L.NewFunction(lib.open))
		L.Push(lua.LString(lib.name))
		L.Call(1, 0)
	}
	g := L.G.Global
	for _, name := range []string{"print", "dofile", "loadfile", "module", "require", "newproxy", "_printregs"} {
		g.RawSetString(name, lua.LNil)
	}
	g.RawSetString("tonumber", L.NewFunction(toNumber))
	g.RawSetString("unpack", L.NewFunction(unpack))
	g.RawSetString("pcall", L.NewFunction(protectedCall))
	g.RawGetString("string").(*lua.LTable).RawSetString("format", L.NewFunction(format))
}

// protect keeps scripts from reading globals that are not there, and from making any.
func protect(L *lua.LState) {
	meta := L.NewTable()
	meta.RawSetString("__index", L.NewFunction(func(L *lua.LState) int {
		L.RaiseError("Script attempted to access nonexistent global variable '%s'", L.Get(2).String())
		return 0
	}))
	meta.RawSetString("__newindex", L.NewFunction(func(L *lua.LState) int {
		L.RaiseError("Attempt to modify a readonly table")
		return 0
	}))
	L.G.Global.Metatable = meta
}

// toNumber is tonumber. That of gopher-lua reads a leading 0 as octal.
func toNumber(L *lua.LState) int {
	v := L.CheckAny(1)
	base := L.OptInt(2, 10)
	switch text := v.(type) {
	case lua.LNumber:
		L.Push(text)
		return 1
	case lua.LString:
		L.Push(numberOf(string(text), base))
		return 1
	}
	L.Push(lua.LNil)
	return 1
}

func numberOf(text string, base int) lua.LValue {
	text = strings.Trim(text, " \t\n\r\v\f")
	if strings.Contains(text, "_") {
		return lua.LNil
	}
	if base != 10 {
		if n, err := strconv.ParseUint(text, base, 64); err == nil {
			return lua.LNumber(n)
		}
		return lua.LNil
	}
	if len(text) < 16 { // most are short integers
		if n, err := strconv.Atoi(text); err == nil {
			return lua.LNumber(n)
		}
	}
	if len(text) > 2 && text[0] == '0' && (text[1] == 'x' || text[1] == 'X') {
		if n, err := strconv.ParseUint(text[2:], 16, 64); err == nil {
			return lua.LNumber(n)
		}
	}
	if n, err := strconv.ParseFloat(text, 64); err == nil || math.IsInf(n, 0) {
		return lua.LNumber(n)
	}
	return lua.LNil
}

// protectedCall is pcall, which in Redis gives the text of a command's error, and not its table.
func protectedCall(L *lua.LState) int {
	L.CheckAny(1)
	if err := L.PCall(L.GetTop()-1, lua.MultRet, nil); err != nil {
		said := lua.LValue(lua.LString(err.Error()))
		if e, is := err.(*lua.ApiError); is {
			said = e.Object
		}
		if t, is := said.(*lua.LTable); is && t.RawGetString("err").Type() == lua.LTString {
			said = t.RawGetString("err")
		}
		L.Push(lua.LFalse)
		L.Push(said)
		return 2
	}
	L.Insert(lua.LTrue, 1)
	return L.GetTop()
}

// unpack is unpack, with the bound of Redis' Lua.
func unpack(L *lua.LState) int {
	t := L.CheckTable(1)
	from, to := L.OptInt(2, 1), L.OptInt(3, 0)
	if L.GetTop() < 3 || L.Get(3) == lua.LNil {
		to = t.Len()
	}
	if from > to {
		return 0
	}
	if to-from+1 >= 7999 {
		L.RaiseError("too many results to unpack")
	}
	for i := from; i <= to; i++ {
		L.Push(t.RawGetInt(i))
	}
	return to - from + 1
}

// format is string.format, for d, i, u, x, X, c, s, q, e, f and g. Its common forms need no fmt.
func format(L *lua.LState) int {
	form := L.CheckString(1)
	b := make([]byte, 0, len(form)+32)
	arg := 1
	for i := 0; i < len(form); i++ {
		if form[i] != '%' {
			b = append(b, form[i])
			continue
		}
		j := i + 1
		for j < len(form) && strings.IndexByte("-+ #0123456789.", form[j]) >= 0 {
			j++
		}
		if j == len(form) {
			L.RaiseError("invalid option '%%' to 'format'")
		}
		spec, verb := form[i:j], form[j]
		i = j
		if verb == '%' {
			b = append(b, '%')
			continue
		}
		arg++
		switch verb {
		case 'd', 'i', 'u':
			n := int64(L.CheckNumber(arg))
			if spec == "%" {
				b = strconv.AppendInt(b, n, 10)
			} else {
				b = fmt.Appendf(b, spec+"d", n)
			}
		case 'x', 'X', 'o':
			b = fmt.Appendf(b, spec+string(verb), uint64(int64(L.CheckNumber(arg))))
		case 'c':
			b = append(b, byte(L.CheckNumber(arg)))
		case 'e', 'E', 'f', 'g', 'G':
			f := float64(L.CheckNumber(arg))
			if spec == "%.0" && verb == 'f' {
				b = strconv.AppendFloat(b, f, 'f', 0, 64)
			} else {
				b = fmt.Appendf(b, spec+string(verb), f)
			}
		case 's':
			b = fmt.Appendf(b, spec+"s", L.ToStringMeta(L.CheckAny(arg)).String())
		case 'q':
			b = append(b, quoted(L.CheckString(arg))...)
		default:
			L.RaiseError("invalid option '%%%s' to 'format'", string(verb))
		}
	}
	L.Push(lua.LString(b))
	return 1
}

func quoted(s string) string {
	return `"` + strings.NewReplacer(`"`, `\"`, `\`, `\\`, "\n", "\\\n", "\r", `\r`, "\x00", `\000`).Replace(s) + `"`
}

func sha1hex(L *lua.LState) int {
	if L.GetTop() != 1 {
		L.Error(failed(L, "ERR wrong number of arguments"), 0)
	}
	L.Push(lua.LString(shaOf(L.CheckString(1))))
	return 1
}

func errorReply(L *lua.LState) int {
	text, is := L.Get(1).(lua.LString)
	if L.GetTop() != 1 || !is {
		L.Push(failed(L, "ERR wrong number or type of arguments"))
		return 1
	}
	said := strings.TrimPrefix(string(text), "-")
	if !strings.Contains(said, " ") {
		said = "ERR " + said
	}
	L.Push(failed(L, said))
	return 1
}

func statusReply(L *lua.LState) int {
	text, is := L.Get(1).(lua.LString)
	if L.GetTop() != 1 || !is {
		L.Push(failed(L, "ERR wrong number or type of arguments"))
		return 1
	}
	t := L.NewTable()
	t.RawSetString("ok", text)
	L.Push(t)
	return 1
}
