package main

import (
	"fmt"
	"strings"
	"time"
)

// progress tells on standard error how far something has come: a line that is drawn again on a terminal, else a line
// in ten seconds.
type progress struct {
	a     *app
	what  string
	began time.Time
	drawn time.Time
	done  int
	// part tells how much of all is done, from 0 to 1; nil where nobody knows.
	part func() float64
}

func (a *app) progress(what string) *progress {
	now := time.Now()
	return &progress{a: a, what: what, began: now, drawn: now}
}

func (p *progress) add(n int) {
	p.done += n
	every := 10 * time.Second
	if p.a.redraws {
		every = 200 * time.Millisecond
	}
	if p.a.draws > 0 {
		every = p.a.draws
	}
	now := time.Now()
	if now.Sub(p.drawn) < every {
		return
	}
	p.drawn = now
	bar := ""
	if p.part != nil {
		part := min(1, max(0, p.part()))
		bar = fmt.Sprintf(" [%-20s] %3.0f%%", strings.Repeat("#", int(20*part)), 100*part)
	}
	text := fmt.Sprintf("%s:%s %d messages, %.0f/s", p.what, bar, p.done, float64(p.done)/now.Sub(p.began).Seconds())
	if p.a.redraws {
		fmt.Fprintf(p.a.err, "\r\x1b[K%s", text)
		return
	}
	p.a.say("%s", text)
}

// end takes the line away.
func (p *progress) end() {
	if p.a.redraws && p.drawn != p.began {
		fmt.Fprint(p.a.err, "\r\x1b[K")
	}
}
