package dashboard

import (
	"fmt"
	"html/template"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/shuntmq/shunt"
)

var funcs = template.FuncMap{
	"cut":   cut,
	"clip":  clip,
	"bytes": byteSize,
	"stamp": stamp,
	"iso":   func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
	"ms":    func(d time.Duration) string { return strconv.FormatFloat(float64(d)/1e6, 'f', 3, 64) },
	"text":  func(b []byte) string { return string(b) },
	"state": func(s string) shunt.State { return shunt.State(s) },
}

func atoi(s string) int {
	n, _ := strconv.Atoi(s)
	return n
}

// Num is a number with its thousands apart.
func (q *request) Num(n int) string { return thousands(int64(n)) }

func thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// rate is how many a second.
func rate(n int64, d time.Duration) string {
	if n == 0 || d <= 0 {
		return "0"
	}
	r := float64(n) / d.Seconds()
	switch {
	case r >= 1000:
		return thousands(int64(r + 0.5))
	case r >= 10:
		return strconv.FormatFloat(r, 'f', 0, 64)
	case r >= 0.1:
		return strconv.FormatFloat(r, 'f', 1, 64)
	}
	return "<0.1"
}

func byteSize(n int) string {
	units := []string{"B", "KB", "MB", "GB", "TB"}
	f, i := float64(n), 0
	for ; f >= 1024 && i < len(units)-1; i++ {
		f /= 1024
	}
	if i == 0 || f >= 100 {
		return fmt.Sprintf("%.0f %s", f, units[i])
	}
	return fmt.Sprintf("%.1f %s", f, units[i])
}

// cut is the first n bytes of a text or some less, with invalid bytes replaced, on one line.
func cut(n int, s string) string { return strings.Join(strings.Fields(clip(n, s)), " ") }

// clip is cut that keeps lines.
func clip(n int, s string) string {
	if len(s) > n {
		for n > 0 && !utf8.RuneStart(s[n]) {
			n--
		}
		s = s[:n] + "…"
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return "–"
	}
	return t.UTC().Format("2006-01-02 15:04:05 UTC")
}

var units = [2][5]string{{"ms", "s", "m", "h", "d"}, {"毫秒", "秒", "分", "小时", "天"}}

// duration is a length of time in its two largest units.
func duration(d time.Duration, lang int) string {
	u := &units[lang]
	if d < 0 {
		return "−" + duration(-d, lang)
	}
	of := func(a time.Duration, ua string, b time.Duration, ub string) string {
		if rest := d % a / b; rest > 0 {
			return fmt.Sprintf("%d%s %d%s", d/a, ua, rest, ub)
		}
		return fmt.Sprintf("%d%s", d/a, ua)
	}
	const day = 24 * time.Hour
	switch {
	case d == 0:
		return "0"
	case d < time.Millisecond:
		return fmt.Sprintf("%.2f%s", float64(d)/1e6, u[0])
	case d < time.Second:
		return fmt.Sprintf("%d%s", d.Milliseconds(), u[0])
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f%s", d.Seconds(), u[1])
	case d < time.Minute:
		return fmt.Sprintf("%d%s", d/time.Second, u[1])
	case d < time.Hour:
		return of(time.Minute, u[2], time.Second, u[1])
	case d < day:
		return of(time.Hour, u[3], time.Minute, u[2])
	}
	return of(day, u[4], time.Hour, u[3])
}

// Dur is a length of time; 0 is a dash.
func (q *request) Dur(d time.Duration) string {
	if d == 0 {
		return "–"
	}
	return duration(d, q.Lang)
}

// Ago says how long ago, or in how long, a time is.
func (q *request) Ago(t time.Time) string {
	if t.IsZero() {
		return "–"
	}
	d := time.Since(t)
	if d < 0 {
		return q.T("in", duration(-d.Truncate(time.Second), q.Lang))
	}
	return q.T("ago", duration(d, q.Lang))
}

// percent is a part of all, and a dash of none.
func percent(part, all int64) string {
	switch {
	case all == 0:
		return "–"
	case part == 0:
		return "0%"
	}
	p := 100 * float64(part) / float64(all)
	if p < 1 {
		return "<1%"
	}
	return fmt.Sprintf("%.0f%%", p)
}

// Num64 is Num.
func (q *request) Num64(n int64) string { return thousands(n) }
