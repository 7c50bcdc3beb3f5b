package main

import (
	"bytes"
	"regexp"
	"strconv"
	"strings"

	"github.com/yuin/gopher-lua/ast"
	"github.com/yuin/gopher-lua/parse"
)

// luaToken is a token of a Lua file: a name, a number, a string with its quotes, or a mark.
type luaToken struct {
	from, to int
	text     string
}

// tokenOf also matches comments, which are no tokens. Long strings are not used.
var tokenOf = regexp.MustCompile(`--[^\n]*|'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*"|[A-Za-z_]\w*|\d[\w.]*|` +
	`\.\.\.?|[<>=~]=|[^\s\w]`)

func luaTokens(text []byte) (ts []luaToken) {
	for _, at := range tokenOf.FindAllIndex(text, -1) {
		if t := string(text[at[0]:at[1]]); !strings.HasPrefix(t, "--") {
			ts = append(ts, luaToken{at[0], at[1], t})
		}
	}
	return ts
}

// luaFile gathers the mutants of one Lua file.
type luaFile struct {
	name  string
	text  []byte
	found []*mutant
}

// luaMutants are all mutants of a Lua file, whether they parse or not.
func luaMutants(name string, text []byte, group string) []*mutant {
	l := &luaFile{name: name, text: text}
	l.statements()
	l.tokens(luaTokens(text))
	for _, m := range l.found {
		m.group = group
	}
	number(l.found, text)
	return l.found
}

func (l *luaFile) add(kind string, edits ...edit) {
	l.found = append(l.found, &mutant{file: l.name, kind: kind, line: lineOf(l.text, edits[0].from), edits: edits})
}

// luaLine is a line that is one whole statement.
type luaLine struct {
	from, to int // without blanks and comment
	ast.Stmt
}

// statements drops and swaps whole lines.
func (l *luaFile) statements() {
	at, last := 0, luaLine{}
	for line := range bytes.Lines(l.text) {
		s := l.statement(at, at+len(line))
		at += len(line)
		switch s.Stmt.(type) {
		case *ast.FuncCallStmt, *ast.AssignStmt, *ast.IfStmt:
			l.add(drop, edit{s.from, s.to, ""})
		case *ast.ReturnStmt, *ast.BreakStmt:
			l.add(jump, edit{s.from, s.to, ""})
		}
		if l.canSwap(last, s) {
			l.add(swap, exchanged(l.text, last.from, last.to, s.from, s.to)...)
		}
		last = s
	}
}

func (l *luaFile) statement(from, to int) luaLine {
	ts := luaTokens(l.text[from:to])
	if len(ts) == 0 {
		return luaLine{}
	}
	from, to = from+ts[0].from, from+ts[len(ts)-1].to
	stmts, err := parse.Parse(bytes.NewReader(l.text[from:to]), l.name)
	if err != nil || len(stmts) != 1 {
		return luaLine{}
	}
	return luaLine{from, to, stmts[0]}
}

// canSwap says whether two statements may change places: one asks Redis, and neither needs what the other declares.
func (l *luaFile) canSwap(a, b luaLine) bool {
	text := func(s luaLine) string { return string(l.text[s.from:s.to]) }
	for _, s := range []luaLine{a, b} {
		switch s.Stmt.(type) {
		case *ast.FuncCallStmt, *ast.AssignStmt, *ast.IfStmt, *ast.LocalAssignStmt:
		default:
			return false
		}
		if d, is := s.Stmt.(*ast.LocalAssignStmt); is {
			for _, name := range d.Names {
				word := regexp.MustCompile(`\b` + name + `\b`)
				if word.MatchString(text(a)) && word.MatchString(text(b)) {
					return false
				}
			}
		}
	}
	return text(a) != text(b) && strings.Contains(text(a)+text(b), "redis.")
}

var luaBounds = map[string]string{"<": "<=", "<=": "<", ">": ">=", ">=": ">"}

// tokens turns conditions, exchanges indexes of KEYS and ARGV, and misses by one.
func (l *luaFile) tokens(ts []luaToken) {
	for i, t := range ts {
		if end := map[string]string{"if": "then", "elseif": "then", "while": "do"}[t.text]; end != "" {
			for j := i + 1; j < len(ts); j++ {
				if ts[j].text == end {
					from, to := ts[i+1].from, ts[j-1].to
					l.add(turn, edit{from, to, "not (" + string(l.text[from:to]) + ")"})
					break
				}
			}
		}
		if other, is := luaBounds[t.text]; is {
			l.add(offByOne, edit{t.from, t.to, other})
		}
		quote := ""
		if strings.HasPrefix(t.text, "'") {
			quote = "'"
		}
		if n, err := strconv.Atoi(strings.Trim(t.text, quote)); err == nil {
			l.add(offByOne, edit{t.from, t.to, quote + strconv.Itoa(n+1) + quote})
		}
		if is := l.index(ts, i); is {
			for j := i + 4; j < len(ts) && lineOf(l.text, ts[j].from) == lineOf(l.text, t.from); j++ {
				if ts[j].text == t.text && l.index(ts, j) && ts[j+2].text != ts[i+2].text {
					a, b := ts[i+2], ts[j+2]
					l.add(exchange, exchanged(l.text, a.from, a.to, b.from, b.to)...)
					break
				}
			}
		}
	}
}

// index says whether KEYS[n] or ARGV[n] begins there.
func (l *luaFile) index(ts []luaToken, i int) bool {
	if i+3 >= len(ts) || ts[i].text != "KEYS" && ts[i].text != "ARGV" {
		return false
	}
	_, err := strconv.Atoi(ts[i+2].text)
	return ts[i+1].text == "[" && ts[i+3].text == "]" && err == nil
}

// parses says why a Lua text does not parse.
func parses(name string, text []byte) error {
	_, err := parse.Parse(bytes.NewReader(text), name)
	return err
}
