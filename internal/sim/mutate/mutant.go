package main

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
)

// mutant is one mistake in one file.
type mutant struct {
	group, file string // file: from the root of the module
	kind        string
	in          string // the function; empty in Lua
	line        int
	edits       []edit // in order
	hash        string // of what it changes: see number
}

// edit replaces a part of a file's text.
type edit struct {
	from, to int
	text     string
}

// The kinds.
const (
	drop     = "drop"     // of a statement
	jump     = "jump"     // a break, continue or return that is dropped
	turn     = "turn"     // of a condition
	swap     = "swap"     // of two neighbouring statements
	exchange = "exchange" // of two arguments
	offByOne = "off-by-one"
)

// key is the mutant's name without its line, so that it stays when lines move.
func (m *mutant) key() string { return m.file + ":" + m.kind + ":" + m.hash }

func (m *mutant) id() string { return fmt.Sprintf("%s:%d:%s:%s", m.file, m.line, m.kind, m.hash) }

// keyOf is the key of an id.
func keyOf(id string) string {
	parts := strings.Split(id, ":")
	if len(parts) != 4 {
		return id
	}
	return parts[0] + ":" + parts[2] + ":" + parts[3]
}

// number gives the mutants of one file their hashes: of the function, the old text and the new one. Those that have all
// these in common are numbered.
func number(ms []*mutant, text []byte) {
	times := make(map[string]int)
	for _, m := range ms {
		what := m.kind + "\x00" + m.in
		for _, e := range m.edits {
			what += "\x00" + string(text[e.from:e.to]) + "\x00" + e.text
		}
		times[what]++
		m.hash = fmt.Sprintf("%x", sha256.Sum256(fmt.Appendf(nil, "%s\x00%d", what, times[what])))[:8]
	}
}

// apply is the text with the mistake.
func (m *mutant) apply(text []byte) []byte {
	var out []byte
	at := 0
	for _, e := range m.edits {
		out = append(append(out, text[at:e.from]...), e.text...)
		at = e.to
	}
	return append(out, text[at:]...)
}

// diff shows the lines that change, with one before and one behind them.
func (m *mutant) diff(text []byte) string {
	was, is := strings.Split(string(text), "\n"), strings.Split(string(m.apply(text)), "\n")
	head, tail := 0, 0
	for head < min(len(was), len(is)) && was[head] == is[head] {
		head++
	}
	for tail < min(len(was), len(is))-head && was[len(was)-1-tail] == is[len(is)-1-tail] {
		tail++
	}
	var b strings.Builder
	fmt.Fprintf(&b, "@@ %s:%d %s\n", m.file, head+1, m.in)
	lines := func(mark string, ls []string) {
		for _, l := range ls {
			if mark != "+" || strings.TrimSpace(l) != "" {
				b.WriteString(mark + l + "\n")
			}
		}
	}
	lines(" ", was[max(0, head-1):head])
	lines("-", was[head:len(was)-tail])
	lines("+", is[head:len(is)-tail])
	lines(" ", was[len(was)-tail:min(len(was), len(was)-tail+1)])
	return b.String()
}

// lineOf is the line of an offset, from 1.
func lineOf(text []byte, at int) int { return 1 + strings.Count(string(text[:at]), "\n") }

// exchanged are the edits that exchange two parts of a text.
func exchanged(text []byte, from, to, from2, to2 int) []edit {
	es := []edit{{from, to, string(text[from2:to2])}, {from2, to2, string(text[from:to])}}
	slices.SortFunc(es, func(a, b edit) int { return a.from - b.from })
	return es
}
