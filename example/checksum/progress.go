package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// progress writes to standard error: a bar that moves on a terminal, a line every second elsewhere.
type progress struct {
	out      io.Writer
	terminal bool

	mu    sync.Mutex
	drawn bool // there is a bar below the last line
	next  time.Time
	last  [2]int64 // done and bytes, as told last
}

// barEvery and lineEvery are how often progress is told.
const (
	barEvery  = 100 * time.Millisecond
	lineEvery = time.Second
)

func newProgress(out *os.File) *progress {
	info, err := out.Stat()
	return &progress{
		out:      out,
		terminal: err == nil && info.Mode()&os.ModeCharDevice != 0,
		next:     time.Now().Add(lineEvery),
	}
}

// say writes a line that stays.
func (p *progress) say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
	fmt.Fprintf(p.out, "checksum: "+format+"\n", args...)
}

// clear takes the bar away. p.mu is held.
func (p *progress) clear() {
	if p.drawn {
		fmt.Fprint(p.out, "\r\x1b[K")
		p.drawn = false
	}
}

// show tells how far the run is: done of all files that are known, with a + while there may be more. A line has to
// fit into 80 columns, or the bar could not be taken away.
func (p *progress) show(c counts, bytes int64, took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	done, known := c.closed, c.known
	more := ""
	if !c.whole {
		more = "+"
	}
	text := fmt.Sprintf("%d of %d%s files, %s, %s/s", done, known, more, size(bytes), size(perSecond(bytes, took)))
	if !p.terminal {
		if now := [2]int64{int64(done), bytes}; time.Now().After(p.next) && now != p.last {
			fmt.Fprintln(p.out, "checksum:", text)
			p.next, p.last = time.Now().Add(lineEvery), now
		}
		return
	}
	const width = 20
	full := 0
	if known > 0 {
		full = width * done / known
	}
	p.clear()
	fmt.Fprintf(p.out, "[%s%s] %3d%%  %s", strings.Repeat("#", full), strings.Repeat(".", width-full),
		100*done/max(1, known), text)
	p.drawn = true
}

func perSecond(n int64, took time.Duration) int64 {
	return int64(float64(n) / max(took, time.Millisecond).Seconds())
}

// size is a number of bytes for people.
func size(n int64) string {
	f, units := float64(n), []string{"B", "kB", "MB", "GB", "TB"}
	for f >= 999.5 && len(units) > 1 {
		f, units = f/1000, units[1:]
	}
	if units[0] == "B" || f >= 99.5 {
		return fmt.Sprintf("%.0f %s", f, units[0])
	}
	return fmt.Sprintf("%.1f %s", f, units[0])
}
