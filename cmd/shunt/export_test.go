package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/redistest"
)

// mixed fills a channel with n messages in each of three states, some of which are no text.
func mixed(t *testing.T, s *redistest.Server, n int) *shunt.Queue {
	t.Helper()
	q := queueOn(t, s)
	var ms []shunt.IMessage
	for i := range n {
		ms = append(ms, shunt.Raw("mail", fmt.Appendf(nil, "die %d", i)))
	}
	if err := q.EnqueueAll(t.Context(), ms); err != nil {
		t.Fatal(err)
	}
	handle(t, s, "mail", n)
	ms = ms[:0]
	for i := range n {
		ms = append(ms, shunt.With(shunt.Raw("mail", fmt.Appendf(nil, "ready %d \xff<&>\x00", i)),
			shunt.ID(fmt.Sprintf("r%d", i)), shunt.Header("k\xff", "v\xfe"), shunt.Type("t")),
			shunt.With(shunt.Raw("mail", fmt.Appendf(nil, "later %d ü", i)), shunt.In(24e12)))
	}
	if err := q.EnqueueAll(t.Context(), ms); err != nil {
		t.Fatal(err)
	}
	return q
}

// messagesOf are the lines of an export that are messages, without repetition, and whether it has an end.
func messagesOf(t *testing.T, text string) (all []string, ended bool) {
	t.Helper()
	for line := range strings.Lines(text) {
		r, err := parseRecord([]byte(line))
		if err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if ended = r.End != nil; r.Channel != "" {
			all = append(all, line)
		}
	}
	return all, ended
}

func TestExportInterrupted(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	const n = 1100 // two pages
	mixed(t, s, n)
	c := call{url: s.URL()}
	name := filepath.Join(t.TempDir(), "x")
	c.good(t, "export", "mail", "--file", name)
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	want, _ := messagesOf(t, string(text))
	whole(t, want, 3*n)
	r := c.do("export", "mail", "--file", name)
	if r.code != exitFailed || !strings.Contains(r.err, "is there already") {
		t.Errorf("a file is overwritten: exit %d, %s", r.code, r.err)
	}
	r = c.do("export", "mail", "--file", name, "--resume")
	if r.code != exitFailed || !strings.Contains(r.err, "whole") {
		t.Errorf("a whole export is resumed: exit %d, %s", r.code, r.err)
	}
	// A kill leaves any part of the file.
	for _, part := range []int{0, 1, len(text) / 4, len(text) * 3 / 4, len(text) - 1} {
		if err := os.WriteFile(name, text[:part], 0o600); err != nil {
			t.Fatal(err)
		}
		c.good(t, "export", "mail", "--file", name, "--resume")
		got, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, text) && !sameMessages(t, string(got), string(text)) {
			t.Errorf("cut at %d of %d, the resumed export differs", part, len(text))
		}
	}
	// What was handled meanwhile leaves nothing behind in the file.
	if err := os.WriteFile(name, text[:len(text)*3/4], 0o600); err != nil {
		t.Fatal(err)
	}
	emptied := redistest.Start(t)
	call{url: emptied.URL()}.good(t, "deliver", "mail", "x")
	call{url: emptied.URL()}.good(t, "purge", "mail", "-s", "prepare", "-y")
	call{url: emptied.URL()}.good(t, "export", "mail", "--file", name, "--resume")
	if text, err := os.ReadFile(name); err != nil {
		t.Fatal(err)
	} else if _, ended := messagesOf(t, string(text)); !ended {
		t.Error("there is more behind the end")
	}
	// On standard output.
	ctx, cancel := context.WithCancel(t.Context())
	c.ctx, c.draws = ctx, 1
	c.err = func(said string) {
		if strings.Contains(said, "export") {
			cancel()
		}
	}
	r = c.do("export", "mail")
	from := hinted(t, r)
	rest := call{url: s.URL()}.good(t, "export", "mail", "--from", from)
	got, ended := messagesOf(t, r.out+rest.out)
	whole(t, got, 3*n)
	if !ended {
		t.Error("no end")
	}
}

// sameMessages compares two exports; the headers of a message come in any order.
func sameMessages(t *testing.T, a, b string) bool {
	one, ended1 := messagesOf(t, a)
	other, ended2 := messagesOf(t, b)
	return ended1 && ended2 && slices.Equal(one, other)
}

// An import restores what it can, in its order, however often it is interrupted.
func TestImportInterrupted(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	const n = 600
	q := mixed(t, s, n)
	text := call{url: s.URL()}.good(t, "export", "mail").out
	to := redistest.Start(t)
	q2 := queueOn(t, to)
	args := []string{"import", "--resume", "i", "--dead", "enqueue"}
	for part := 1; part <= 3; part++ {
		ctx, cancel := context.WithCancel(t.Context())
		in := &ending{from: strings.NewReader(text), left: part * len(text) / 4, end: cancel, stop: ctx.Done()}
		r := call{url: to.URL(), in: in, ctx: ctx}.do(args...)
		if name := hinted(t, r); name != "i" {
			t.Errorf("it names the run %s", name)
		}
	}
	call{url: to.URL(), in: strings.NewReader(text)}.good(t, args...)
	prepared := append(payloads(t, q, "mail", shunt.StatePrepare), payloads(t, q, "mail", shunt.StateDead)...)
	if got := payloads(t, q2, "mail", shunt.StatePrepare); !slices.Equal(got, prepared) {
		t.Errorf("ready are %d messages: want the %d that were, in their order", len(got), len(prepared))
	}
	if got, want := payloads(t, q2, "mail", shunt.StateDelay), payloads(t, q, "mail", shunt.StateDelay); !slices.Equal(
		slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))) {
		t.Errorf("delayed are %d messages: want the %d that were", len(got), len(want))
	}
	was, err1 := q.Peek(t.Context(), shunt.ByID("mail", "r7"))
	is, err2 := q2.Peek(t.Context(), shunt.ByID("mail", "r7"))
	if err1 != nil || err2 != nil || was.Type != is.Type || !maps.Equal(was.Headers, is.Headers) ||
		!bytes.Equal(was.Payload, is.Payload) {
		t.Errorf("message r7 was %+v (%v), and is %+v (%v)", was, err1, is, err2)
	}

	third := redistest.Start(t)
	c := call{url: third.URL(), in: strings.NewReader(text)}
	r := c.good(t, "import", "--channel", "copy", "--mark")
	if !strings.Contains(r.out, fmt.Sprintf("delivered %d messages, put %d back into dead", 2*n, n)) {
		t.Errorf("%s%s", r.out, r.err)
	}
	q3 := queueOn(t, third)
	e, err := q3.Peek(t.Context(), shunt.ByID("copy", "r7"))
	if err != nil || e.Headers["shunt-import-serial"] != was.Serial {
		t.Errorf("--mark: %v, %v", e.Headers, err)
	}
	dead, err1 := q.List(t.Context(), "mail", shunt.StateDead, 0, 0)
	again, err2 := q3.List(t.Context(), "copy", shunt.StateDead, 0, 0)
	if err1 != nil || err2 != nil || !slices.EqualFunc(dead, again, func(a, b shunt.Entry) bool {
		return bytes.Equal(a.Element(), b.Element()) && a.DiedAt.Equal(b.DiedAt) && a.Failure != ""
	}) {
		t.Errorf("%d dead letters have become %d, %v, %v", len(dead), len(again), err1, err2)
	}
	c.in = strings.NewReader(text)
	if r := c.good(t, "import", "--channel", "skip", "--dead", "skip"); !strings.Contains(r.err,
		fmt.Sprintf("dead messages left out: %d", n)) {
		t.Errorf("%s%s", r.out, r.err)
	}
	c.in = strings.NewReader(text[:strings.LastIndex(text, "{")])
	if r := c.do("import", "--channel", "part"); r.code != exitFailed || !strings.Contains(r.err, "no last line") {
		t.Errorf("a part of an export is taken for all: exit %d, %s", r.code, r.err)
	}
}

// An import that fails counts the dead letters that it has put back, while its input is still read.
func TestImportFailsAmongDead(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	q := queueOn(t, s)
	var ms []shunt.IMessage
	for i := range 2000 {
		ms = append(ms, shunt.Raw("mail", fmt.Appendf(nil, "die %d", i)))
	}
	if err := q.EnqueueAll(t.Context(), ms); err != nil {
		t.Fatal(err)
	}
	handle(t, s, "mail", 2000)
	text := call{url: s.URL()}.good(t, "export", "mail").out
	bad := fmt.Sprintf(`{"v":1,"channel":"x","state":"prepare","payload":"","id":%q}`, strings.Repeat("i", 300))
	to := redistest.Start(t)
	r := call{url: to.URL(), in: strings.NewReader(bad + "\n" + text)}.do("import", "--json")
	var said struct{ Restored int }
	if err := json.Unmarshal([]byte(r.out), &said); err != nil || r.code != exitFailed {
		t.Fatalf("exit %d, %v: %s%s", r.code, err, r.out, r.err)
	}
	if back := payloads(t, queueOn(t, to), "mail", shunt.StateDead); len(back) < said.Restored {
		t.Errorf("%d are back, it says %d", len(back), said.Restored)
	}
}

// full is a disk that is full after so many bytes.
type full struct {
	buffer
	left int
}

func (f *full) Write(b []byte) (int, error) {
	if f.left -= len(b); f.left < 0 {
		return 0, errors.New("no space left")
	}
	return f.buffer.Write(b)
}

// An export to standard output that goes on by --from has no message twice, and what moved in between is imported once.
func TestExportOnStandardOutputGoesOn(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	q := queueOn(t, s)
	var ms []shunt.IMessage
	for i := range 2500 {
		ms = append(ms, shunt.Raw("mail", fmt.Appendf(nil, "ready %d %0100d", i, 0)))
	}
	late := shunt.With(shunt.Raw("mail", []byte("late")), shunt.In(24e12))
	if err := errors.Join(q.EnqueueAll(t.Context(), ms), q.Enqueue(t.Context(), late)); err != nil {
		t.Fatal(err)
	}
	var first full
	var said buffer
	first.left = 400_000 // the second page does not fit
	code := call{url: s.URL()}.app(&first, &said).run(t.Context(), []string{"export", "mail"})
	found := hint.FindStringSubmatch(said.String())
	if code != exitFailed || found == nil {
		t.Fatalf("exit %d: %s", code, said.String())
	}
	if _, err := q.PromoteAll(t.Context(), "mail", shunt.Filter{}); err != nil {
		t.Fatal(err)
	}
	text := first.String() + call{url: s.URL()}.good(t, "export", "mail", "--from", found[1]).out
	to := redistest.Start(t)
	call{url: to.URL(), in: strings.NewReader(text)}.good(t, "import")
	q2 := queueOn(t, to)
	whole(t, append(payloads(t, q2, "mail", shunt.StatePrepare), payloads(t, q2, "mail", shunt.StateDelay)...), 2501)
}

// What could not be decoded where it would lie is not imported unawares.
func TestImportOfEncoded(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	q := queueOn(t, s)
	for _, c := range []struct {
		encoding string
		dead     bool
		args     []string
		why      string // empty: it is imported
	}{
		{"zstd,aes=k1:any", false, nil, ""},
		{"zstd", false, []string{"--channel", "other"}, ""},
		{"claim=f/s/h", false, nil, ""},
		{"aes=k1", true, nil, ""},
		{"zstd,aes=k1", false, nil, "serial"},
		{"aes=k1", true, []string{"--dead", "enqueue"}, "serial"},
		{"aes=k1:any", false, []string{"--channel", "other"}, "channel"},
		{"aes=k1", true, []string{"--channel", "other"}, "channel"},
		{"claim=f/s/h", true, []string{"--channel", "other"}, "channel"},
	} {
		payload := "ready"
		if c.dead {
			payload = "die"
		}
		m := shunt.With(shunt.Raw("mail", []byte(payload)), shunt.Header(shunt.EncodingHeader, c.encoding))
		if err := q.Enqueue(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		text := call{url: s.URL()}.good(t, "export", "mail").out
		if c.dead {
			text = strings.Replace(text, `"state":"prepare"`, `"state":"dead"`, 1)
		}
		call{url: s.URL()}.good(t, "purge", "mail", "-s", "prepare", "-y")
		in := func(more ...string) result {
			call := call{url: s.URL(), in: strings.NewReader(text)}
			return call.do(append(append([]string{"import"}, c.args...), more...)...)
		}
		r := in()
		if (r.code == exitOK) != (c.why == "") || !strings.Contains(r.err, c.why) {
			t.Errorf("%q %v: exit %d, %s", c.encoding, c.args, r.code, r.err)
		}
		if c.why != "" {
			if r := in("--force"); r.code != exitOK {
				t.Errorf("%q %v --force: exit %d, %s", c.encoding, c.args, r.code, r.err)
			}
		}
		for _, state := range []string{"prepare", "dead"} {
			_ = call{url: s.URL()}.do("purge", "mail", "-s", state, "-y")
		}
	}
}

// A dead message that is imported to be handled again keeps what its enqueue said, as how long its outcome is kept.
func TestImportDeadToHandle(t *testing.T) {
	t.Parallel()
	s, to := redistest.Start(t), redistest.Start(t)
	q, ctx := queueOn(t, s), t.Context()
	m := shunt.With(shunt.Raw("mail", []byte("die")), shunt.ID("one"), shunt.Retain(time.Hour))
	if err := q.Enqueue(ctx, m); err != nil {
		t.Fatal(err)
	}
	handle(t, s, "mail", 1)
	text := call{url: s.URL()}.good(t, "export", "mail").out
	call{url: to.URL(), in: strings.NewReader(text)}.good(t, "import", "--dead", "enqueue")
	q2 := queueOn(t, to)
	ls, err := q2.Pull(ctx, shunt.PullOptions{Channels: []string{"mail"}, Lease: time.Minute})
	if err != nil || len(ls) != 1 || ls[0].Info.Attempt != 1 {
		t.Fatalf("%+v, %v", ls, err)
	}
	if err := ls[0].Ack(ctx); err != nil {
		t.Fatal(err)
	}
	if e, err := q2.Status(ctx, shunt.ByID("mail", "one")); err != nil || e.State != shunt.StateDone {
		t.Errorf("%+v, %v", e, err)
	}
}

// What an interrupted import says goes on with what it did, given as it stands: no message comes into another channel.
func TestImportHint(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	const n = 300
	q := mixed(t, s, n)
	text := call{url: s.URL()}.good(t, "export", "mail").out
	name := filepath.Join(t.TempDir(), "mail.jsonl")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	c := call{url: s.URL(), ctx: ctx, draws: 1}
	c.err = func(said string) {
		if strings.HasPrefix(said, "shunt: import:") {
			cancel()
		}
	}
	before := len(payloads(t, q, "mail", shunt.StateDelay))
	r := c.do("import", "--file", name, "--channel", "copy", "--dead", "skip", "--mark")
	hinted(t, r)
	_, line, _ := strings.Cut(r.err, "give the same input to: shunt ")
	line, _, _ = strings.Cut(line, "\n")
	call{url: s.URL()}.good(t, strings.Fields(line)...)
	if after := len(payloads(t, q, "mail", shunt.StateDelay)); after != before {
		t.Errorf("mail has %d delayed messages: want the %d that it had", after, before)
	}
	if got := len(payloads(t, q, "copy", shunt.StateDelay)); got != n {
		t.Errorf("copy has %d delayed messages, want %d", got, n)
	}
	es, err := q.List(t.Context(), "copy", shunt.StateDelay, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range es {
		if e.Headers["shunt-import-serial"] == "" {
			t.Fatal("what came later has no marks")
		}
	}
	if dead := len(payloads(t, q, "copy", shunt.StateDead)); dead != 0 {
		t.Errorf("%d dead messages were put back, which were to be left out", dead)
	}
}

// The command that goes on with an export or an import names the same Redis, and a file of any name.
func TestGoesOnInTheSameRedis(t *testing.T) {
	t.Parallel()
	s, other := redistest.Start(t), redistest.Start(t)
	q := queueOn(t, s)
	if err := q.Enqueue(t.Context(), shunt.Raw("mail", []byte("1"))); err != nil {
		t.Fatal(err)
	}
	whole := call{url: s.URL()}.good(t, "export", "mail").out
	for _, verb := range []string{"export mail", "import"} {
		name := filepath.Join(t.TempDir(), "all of it's mail")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		c := call{url: other.URL(), ctx: ctx, draws: time.Nanosecond}
		if verb == "import" {
			if err := os.WriteFile(name, []byte(whole+"broken\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		} else {
			c.err = func(string) { cancel() } // by its first progress
		}
		r := c.do(append(strings.Fields(verb), "--redis", s.URL(), "--file", name)...)
		for _, want := range []string{"--redis " + s.URL(), `--file '` + strings.ReplaceAll(name, "'", `'\''`) + `'`} {
			if _, again, _ := strings.Cut(r.err, "to go on"); !strings.Contains(again, want) {
				t.Errorf("%s: want %s in: %s", verb, want, r.err)
			}
		}
	}
}
