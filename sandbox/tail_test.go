package sandbox

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestTail(t *testing.T) {
	t.Parallel()
	var all strings.Builder
	for i := range 10000 {
		fmt.Fprintln(&all, "line", i)
	}
	for _, c := range []struct{ in, want string }{
		{"", ""},
		{"one\ntwo\n\n", "one\ntwo"},
		{"no end", "no end"},
		{"bytes \xff", "bytes \uFFFD"},
	} {
		tl := &tail{most: 1 << 20, log: &logger{}}
		if err := tl.fill(strings.NewReader(c.in)); err != nil {
			t.Error(err)
		}
		if got, _ := tl.text(); got != c.want {
			t.Errorf("%q: %q", c.in, got)
		}
	}
	tl := &tail{most: 1 << 20, log: &logger{}}
	tl.fill(strings.NewReader(all.String()))
	got, flooded := tl.text()
	if flooded || len(got) > lastLines || len(got) < lastLines-20 || !strings.HasPrefix(got, "line ") ||
		!strings.HasSuffix(got, "\nline 9999") {
		t.Errorf("%d bytes: %q…", len(got), got[:20])
	}
	tl.settle()
	if got, _ := tl.text(); got != "" {
		t.Errorf("after a verdict: %q", got)
	}
	tl = &tail{most: 1 << 20, log: &logger{}}
	tl.fill(strings.NewReader(strings.Repeat("x", 10000))) // one line
	if got, _ := tl.text(); len(got) != lastLines {
		t.Errorf("%d bytes of a long line", len(got))
	}
}

func TestTailBound(t *testing.T) {
	t.Parallel()
	tl := &tail{most: 10000, log: &logger{}}
	if err := tl.fill(strings.NewReader(strings.Repeat("x", 10000))); err != nil {
		t.Error(err)
	}
	tl.settle()
	if err := tl.fill(strings.NewReader(strings.Repeat("x", 10000))); err != nil {
		t.Error(err)
	}
	if err := tl.fill(strings.NewReader("x")); err == nil {
		t.Error("no bound")
	}
	if _, flooded := tl.text(); !flooded {
		t.Error("it does not say so")
	}
}

// writes keeps what was written at once.
type writes struct{ all []string }

func (w *writes) Write(b []byte) (int, error) { w.all = append(w.all, string(b)); return len(b), nil }

func TestTailLog(t *testing.T) {
	t.Parallel()
	var w writes
	tl := &tail{most: 1 << 20, log: &logger{to: &w}}
	long := strings.Repeat("x", 5000)
	tl.fill(iotest{strings.NewReader("one\ntwo\n" + long + "\nend")})
	tl.end()
	want := []string{"one\n", "two\n", long[:4096], long[4096:] + "\n", "end\n"}
	if fmt.Sprint(w.all) != fmt.Sprint(want) {
		t.Errorf("%d writes: %.60q", len(w.all), w.all)
	}
}

// iotest gives seven bytes at a time.
type iotest struct{ r *strings.Reader }

func (r iotest) Read(b []byte) (int, error) { return r.r.Read(b[:min(len(b), 7)]) }

func TestShort(t *testing.T) {
	t.Parallel()
	for n := range 8 {
		line := []byte(strings.Repeat("a", n) + strings.Repeat("𝄞", 50))
		got := short(line)
		if !utf8.ValidString(got) || strings.Contains(got, `\x`) || !strings.Contains(got, fmt.Sprint(len(line))) {
			t.Errorf("%s", got)
		}
	}
	if got := short(bytes.Repeat([]byte{0xbf}, 200)); !strings.HasPrefix(got, `"\xbf`) {
		t.Errorf("%s", got)
	}
}

// What a child wrote for one message and what comes late of it is not the fault of the next one.
func TestTailOfTheLastMessage(t *testing.T) {
	tl := &tail{most: 10, log: &logger{}}
	if tl.add(make([]byte, 4)) {
		t.Error("4 of 10 are too much")
	}
	tl.settle()
	if tl.add(make([]byte, 16)) { // 6 may be of the first message
		t.Error("what comes late counts for the next message")
	}
	if !tl.add(make([]byte, 1)) {
		t.Error("a child may write without end")
	}
}
