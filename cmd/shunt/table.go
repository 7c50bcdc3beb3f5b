package main

import (
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/mattn/go-runewidth"
)

// table is rows under a head. A column whose head begins with > is aligned to the right.
type table struct {
	head []string
	rows [][]string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

var escapes = regexp.MustCompile("\x1b\\[[0-9;]*m")

func width(s string) int { return runewidth.StringWidth(escapes.ReplaceAllString(s, "")) }

// print writes the table. Columns in which nothing stands are left out.
func (a *app) print(t table) {
	widths := make([]int, len(t.head))
	for _, row := range t.rows {
		for i, cell := range row {
			widths[i] = max(widths[i], width(cell))
		}
	}
	var b strings.Builder
	line := func(cells []string, paint func(string) string) {
		var l strings.Builder
		for i, cell := range cells {
			if widths[i] == 0 {
				continue
			}
			name, right := strings.CutPrefix(t.head[i], ">")
			space := strings.Repeat(" ", max(0, max(widths[i], len(name))-width(cell)))
			if cell = paint(cell); right {
				cell = space + cell
			} else {
				cell += space
			}
			if l.Len() > 0 {
				l.WriteString("  ")
			}
			l.WriteString(cell)
		}
		b.WriteString(strings.TrimRight(l.String(), " ") + "\n")
	}
	head := make([]string, len(t.head))
	for i, name := range t.head {
		head[i] = strings.TrimPrefix(name, ">")
	}
	line(head, a.dim)
	for _, row := range t.rows {
		line(row, func(s string) string { return s })
	}
	a.put(b.String())
}

// document prints v as one JSON document, or one line of a stream.
func (a *app) document(v any) error {
	e := json.NewEncoder(a.out)
	e.SetEscapeHTML(false)
	if !a.lines {
		e.SetIndent("", "  ")
	}
	return e.Encode(v)
}

// say tells a person something beside the output.
func (a *app) say(format string, args ...any) {
	fmt.Fprintln(a.err, "shunt: "+printable(fmt.Sprintf(format, args...)))
}

func (a *app) tell(format string, args ...any) { a.put(fmt.Sprintf(format+"\n", args...)) }

// put writes text to standard output. run ends with the first error of a write.
func (a *app) put(text string) {
	if _, err := io.WriteString(a.out, text); err != nil && a.unwritten == nil {
		a.unwritten = fmt.Errorf("the output could not be written: %w", err)
	}
}

func (a *app) paint(code, s string) string {
	if s == "" || !a.paints || a.getenv("NO_COLOR") != "" || a.getenv("TERM") == "dumb" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

func (a *app) red(s string) string    { return a.paint("31", s) }
func (a *app) yellow(s string) string { return a.paint("33", s) }
func (a *app) bold(s string) string   { return a.paint("1", s) }
func (a *app) dim(s string) string    { return a.paint("2", s) }

// printable escapes what would move a terminal's cursor or colour it: what comes from messages is not trusted.
func printable(s string) string {
	if s = strings.ToValidUTF8(s, "\uFFFD"); strings.IndexFunc(s, control) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if control(r) {
			q := strconv.QuoteRuneToASCII(r)
			b.WriteString(q[1 : len(q)-1])
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

func control(r rune) bool {
	return unicode.IsControl(r) || r == '\u2028' || r == '\u2029' || unicode.Is(unicode.Bidi_Control, r)
}

// cut is a text of a message for one cell.
func cut(s string, to int) string { return runewidth.Truncate(printable(s), to, "…") }

// ago is a length of time with two units at most.
func ago(d time.Duration) string {
	sign := ""
	if d < 0 {
		sign, d = "-", -d
	}
	switch {
	case d == 0:
		return ""
	case d < time.Millisecond:
		return sign + d.Round(time.Microsecond).String()
	case d < time.Second:
		return sign + d.Round(time.Millisecond).String()
	case d < time.Minute:
		return sign + d.Round(100*time.Millisecond).String()
	case d < time.Hour:
		return sign + d.Round(time.Second).String()
	case d < 24*time.Hour:
		return sign + strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	}
	hours := int(d.Round(time.Hour).Hours())
	return fmt.Sprintf("%s%dd%dh", sign, hours/24, hours%24)
}

// clock is a time for people, by the clock of this machine.
func clock(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format("2006-01-02 15:04:05")
}

// number is a count, and empty for none.
func number[N int | int64](n N) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(int64(n), 10)
}

func messages(n int) string { return many(n, "message") }

// many is a number with its noun.
func many(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// size is a number of bytes.
func size(n int) string {
	switch {
	case n < 1<<10:
		return fmt.Sprintf("%d B", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1f KB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%.1f MB", float64(n)/(1<<20))
}
