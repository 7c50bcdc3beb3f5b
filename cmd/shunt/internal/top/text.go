package top

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/charmbracelet/x/ansi"
)

// Styles of a terminal. Reverse and bold are no colours.
const (
	bold    = "\x1b[1m"
	reverse = "\x1b[7m"
	dim     = "\x1b[2m"
	red     = "\x1b[31m"
	yellow  = "\x1b[33m"
	green   = "\x1b[32m"
	plain   = "\x1b[0m"
)

// paint gives a text a style.
func (m *model) paint(style, text string) string {
	if m.o.NoColor && (style == red || style == yellow || style == green || style == dim) {
		return text
	}
	return style + text + plain
}

// clean is a text in one line, without what a terminal would obey: payloads and failures come from anywhere.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case r == unicode.ReplacementChar || !unicode.IsPrint(r):
			return '.'
		}
		return r
	}, text)
}

// fit is a text of just so many cells.
func fit(text string, width int) string {
	if width <= 0 {
		return ""
	}
	text = ansi.Truncate(text, width, "~")
	return text + strings.Repeat(" ", max(0, width-ansi.StringWidth(text)))
}

// right is fit at the right side.
func right(text string, width int) string {
	if width <= 0 {
		return ""
	}
	text = ansi.Truncate(text, width, "~")
	return strings.Repeat(" ", max(0, width-ansi.StringWidth(text))) + text
}

// count is a number in up to 5 cells.
func count(n int) string {
	switch {
	case n < 10_000:
		return strconv.Itoa(n)
	case n < 1_000_000:
		return short(float64(n)/1000) + "k"
	case n < 1_000_000_000:
		return short(float64(n)/1e6) + "M"
	}
	return short(float64(n)/1e9) + "G"
}

func short(n float64) string {
	if n < 10 {
		return strconv.FormatFloat(n, 'f', 1, 64)
	}
	return strconv.FormatFloat(n, 'f', 0, 64)
}

// rate is a number a second; a dash is none.
func rate(n float64) string {
	switch {
	case n == 0:
		return "-"
	case n < 10:
		return strconv.FormatFloat(n, 'f', 1, 64)
	}
	return count(int(n))
}

// span is a time in up to 5 cells; a dash is none.
func span(d time.Duration) string {
	sign := ""
	if d < 0 {
		sign, d = "-", -d
	}
	switch {
	case d == 0:
		return "-"
	case d < time.Millisecond:
		return sign + strconv.FormatInt(d.Microseconds(), 10) + "us"
	case d < time.Second:
		return sign + strconv.FormatInt(d.Milliseconds(), 10) + "ms"
	case d < 100*time.Second:
		return sign + short(d.Seconds()) + "s"
	case d < 100*time.Minute:
		return sign + short(d.Minutes()) + "m"
	case d < 48*time.Hour:
		return sign + short(d.Hours()) + "h"
	case d < 1000*24*time.Hour:
		return sign + short(d.Hours()/24) + "d"
	}
	return sign + short(d.Hours()/24/365) + "y"
}

// size is a number of bytes.
func size(n int) string {
	if n < 10_000 {
		return fmt.Sprint(n, "B")
	}
	return count(n) + "B"
}
