package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/redistest"
)

var update = flag.Bool("update", false, "write the golden files")

// changing is what differs from run to run, and what stands for it in golden files.
var changing = []struct {
	is *regexp.Regexp
	as string
}{
	{regexp.MustCompile(`\b[0-9A-HJKMNP-TV-Z]{26}\b`), "SERIAL"},
	{regexp.MustCompile(`@\d{13}\b`), "@AT"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)?`), "TIME"},
	{regexp.MustCompile(`"head":"[0-9A-Za-z+/]{24,}=*"`), `"head":"HEAD"`}, // it has the serial
	{regexp.MustCompile(`run-\d{8}-\d{6}\.\d+`), "RUN"},
	{regexp.MustCompile(`--(from|before) \S+`), "--$1 PLACE"},
	{regexp.MustCompile(`"(next|id|name)": "[0-9a-zA-Z_.:+-]{12,}"`), `"$1": "PLACE"`},
	{regexp.MustCompile(`"next":"([a-z]+):[^"]+"`), `"next":"$1:PLACE"`},
	{regexp.MustCompile(`"(\w+_ns|p\d+\w*|at)": [-\d.]+`), `"$1": N`},
	{regexp.MustCompile(`(?m)^(go|shunt|redis)  .*$`), "$1  VERSION"},
	{regexp.MustCompile(`(?m)^os .*, redis [\d.]+$`), "VERSIONS"},
	{regexp.MustCompile(`-?\b(\d+h)?(\d+m)?\d+(\.\d+)?(ms|µs|s)\b|\b59m\d+s\b`), "AGE"},
	{regexp.MustCompile(`\b\d+\.\d+ {2}`), "RATE  "},
	{regexp.MustCompile(` {2,}`), "  "},
}

func golden(text string) string {
	for _, c := range changing {
		text = c.is.ReplaceAllString(text, c.as)
	}
	return text
}

// world fills a server: channel mail has messages in every state but doing and leased.
func world(t *testing.T, s *redistest.Server) {
	t.Helper()
	q := &shunt.Queue{Pool: s.Pool(t), Quiet: true}
	put := func(payload string, opts ...shunt.Option) {
		t.Helper()
		if err := q.Enqueue(t.Context(), shunt.Raw("mail", []byte(payload)), opts...); err != nil {
			t.Fatal(err)
		}
	}
	put("done", shunt.ID("first"), shunt.Retain(time.Hour))
	put("again", shunt.ID("busy"))
	handle(t, s, "mail", 2)
	for i, payload := range []string{"die order 10001 refused", "die order 10002 refused", "die no such user"} {
		put(payload, shunt.ID(fmt.Sprintf("dead-%d", i)))
		handle(t, s, "mail", 1)
	}
	put(`{"to":"ann@example.org","n":[1,2]}`, shunt.ID("welcome-1"), shunt.Type("mails.Welcome"),
		shunt.Header("trace", "abc"))
	put("plain text\nof two lines")
	put("\x00\x01\xff binary")
	put("later", shunt.ID("later-1"), shunt.In(time.Hour))
	if err := q.Close(); err != nil { // sends what was counted
		t.Fatal(err)
	}
}

const exportOfTwo = `{"v":1,"channel":"from","state":"prepare","id":"a","type":"T","payload":"text"}
{"v":1,"channel":"from","state":"dead","failure":"f","payload":{"base64":"/w=="}}
{"v":1,"end":2}
`

// The rows run in their order, each on what the ones before have left.
var goldens = []struct {
	file string
	rows [][]string // the first word "<…" is standard input
}{
	{"look", [][]string{
		{"channels"}, {"channels", "mail"}, {"stats", "mail"}, {"receivers"}, {"ls", "mail"},
		{"ls", "mail", "--limit", "1"}, {"ls", "mail", "--latest", "--payload", "0"},
		{"ls", "mail", "--type", "mails.Welcome"},
		{"ls", "mail", "--state", "delay", "--min-attempts", "1"}, {"ls", "mail", "-s", "dead", "--failure", "refused"},
		{"ls", "mail", "-s", "done"}, {"ls", "mail", "-s", "suspect"}, {"ls", "mail", "--header", "trace=abc"},
		{"ls", "mail", "--id-prefix", "nobody"}, {"ls", "mail", "--since", "+1h"},
		{"show", "mail", "--id", "welcome-1"}, {"show", "mail", "--id", "dead-2"}, {"show", "mail", "--id", "first"},
		{"show", "mail", "--id", "later-1"}, {"peek", "mail", "-n", "3"}, {"dead", "mail"}, {"dead", "groups", "mail"},
		{"dead", "groups", "mail", "-s", "delay"}, {"counts", "mail"}, {"health"}, {"version"}, {"audit"},
		{"export", "mail"},
	}},
	{"move", [][]string{
		{"retry", "--all", "mail", "--failure", "refused", "--dry-run"},
		{"retry", "--all", "mail", "--failure", "refused"},
		{"dead", "retry", "mail", "--like", "order # refused", "--yes"}, {"retry", "mail", "--id", "dead-2"},
		{"stats", "mail"}, {"promote", "mail", "--id", "later-1"}, {"postpone", "mail", "--id", "busy", "--in", "2h"},
		{"postpone", "--all", "mail", "--in", "7d", "--yes"}, {"promote", "--all", "mail", "--min-attempts", "1", "-y"},
		{"cancel", "mail", "--id", "welcome-1"}, {"cancel", "mail", "--id", "welcome-1", "--yes"},
		{"cancel", "--all", "mail", "-s", "prepare", "--id-prefix", "dead-", "--limit", "1", "-y"},
		{"delete", "mail", "--id", "first", "--yes"}, {"delete", "--all", "mail", "--yes"},
		{"purge", "mail", "-s", "prepare,delay", "--dry-run"}, {"purge", "mail", "-s", "prepare,delay", "--yes"},
		{"stats", "mail"}, {"audit"},
	}},
	{"doctor", [][]string{
		{"doctor"}, {"doctor", "mail"}, {"doctor", "--fix"}, {"doctor", "--fix", "-y"}, {"doctor", "--fix-config"},
		{"doctor", "--fix-config", "-y"}, {"doctor"}, {"audit"},
	}},
	{"deliver", [][]string{
		{"deliver", "jobs", "hello", "--in", "1h", "--header", "a=b"}, {"<from stdin", "deliver", "jobs", "-"},
		{"deliver", "jobs", "one", "--id", "x"}, {"deliver", "jobs", "two", "--id", "x"},
		{"<{\"o\":{\"id\":7}}\n\n{\"o\":{\"id\":7}}\n{\"o\":{\"id\":\"eight\"}}\n", "deliver", "jobs", "--lines",
			"--id-from", "o.id"},
		{"<a\nb\n", "deliver", "jobs", "--text", "--resume", "r"},
		{"<a\nb\nc\n", "deliver", "jobs", "--text", "--resume", "r"},
		{"<a\nB\nc\n", "deliver", "jobs", "--text", "--resume", "r"},
		{"<1\nno\n", "deliver", "jobs", "--lines", "--resume", "j"},
		{"<" + exportOfTwo, "import", "--resume", "i"}, {"<" + exportOfTwo, "import", "--resume", "i"}, {"ls", "from"},
		{"<testdata/payload.txt\n", "deliver", "files", "--files"}, {"ls", "jobs"}, {"ls", "files"}, {"audit"},
	}},
}

func TestGolden(t *testing.T) {
	t.Parallel()
	for _, g := range goldens {
		t.Run(g.file, func(t *testing.T) {
			t.Parallel()
			appends := "no"
			if g.file == "doctor" {
				appends = "yes"
			}
			s := redistest.Start(t, "appendonly "+appends)
			switch g.file {
			case "look", "move":
				world(t, s)
			case "doctor":
				faults(t, s)
			}
			var b strings.Builder
			for _, row := range g.rows {
				var in io.Reader
				if text, has := strings.CutPrefix(row[0], "<"); has {
					in, row = strings.NewReader(text), row[1:]
				}
				r := call{url: s.URL(), in: in}.do(append([]string{"--as", "tester"}, row...)...)
				fmt.Fprintf(&b, "$ shunt %s\n%s", strings.Join(row, " "), r.out)
				for line := range strings.Lines(r.err) {
					b.WriteString("! " + line)
				}
				fmt.Fprintf(&b, "= %d\n\n", r.code)
			}
			compare(t, g.file, golden(b.String()))
		})
	}
}

func compare(t *testing.T, file, got string) {
	t.Helper()
	name := filepath.Join("testdata", file+".golden")
	if *update {
		if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if got == string(want) {
		return
	}
	gots, wants := strings.Split(got, "\n"), strings.Split(string(want), "\n")
	for i := range gots {
		if i >= len(wants) || gots[i] != wants[i] {
			t.Fatalf("%s:%d: go test -update writes it anew\n got %q\nwant %q", name, i+1, gots[i],
				append(wants, "the end")[min(i, len(wants))])
		}
	}
	t.Fatalf("%s: the end is missing", name)
}

// With --json each command prints one document, with the same exit status.
func TestJSON(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	world(t, s)
	for _, row := range [][]string{
		{"channels"}, {"stats", "mail"}, {"receivers"}, {"receivers", "mail"}, {"ls", "mail"},
		{"ls", "mail", "-s", "dead"},
		{"ls", "mail", "-s", "suspect"}, {"show", "mail", "--id", "welcome-1"}, {"peek", "mail", "-n", "9"},
		{"peek", "mail", "-s", "suspect"}, {"dead", "mail"}, {"dead", "groups", "mail"}, {"counts"},
		{"counts", "mail", "--step", "20m"}, {"health"}, {"doctor"}, {"doctor", "mail", "--fix", "-y"},
		{"audit"}, {"version"},
		{"retry", "--all", "mail", "--dry-run"}, {"retry", "--all", "mail", "--limit", "1", "-y"},
		{"retry", "mail", "--id", "dead-2"}, {"dead", "delete", "mail", "-y"}, {"dead", "delete", "mail"},
		{"promote", "--all", "mail", "-y"}, {"cancel", "mail", "--id", "later-1", "-y"},
		{"purge", "mail", "-s", "prepare", "--dry-run"}, {"purge", "mail", "-s", "prepare", "-y"},
		{"purge", "mail", "-s", "prepare", "-y"}, {"deliver", "mail", "x"}, {"<1\n2\n", "deliver", "mail", "--lines"},
		{"export", "mail", "--file", filepath.Join(t.TempDir(), "x")}, {"bench", "-n", "1000", "-y"}, {"audit"},
	} {
		c := call{url: s.URL()}
		if text, has := strings.CutPrefix(row[0], "<"); has {
			c.in, row = strings.NewReader(text), row[1:]
		}
		r := c.good(t, append(row, "--json")...)
		d := json.NewDecoder(strings.NewReader(r.out))
		var v any
		if err := d.Decode(&v); err != nil || v == nil {
			t.Errorf("shunt %v: %v: %.200s", row, err, r.out)
		}
		if rest, _ := io.ReadAll(d.Buffered()); strings.TrimSpace(string(rest)) != "" {
			t.Errorf("shunt %v prints more than a document: %.200s", row, rest)
		}
	}
}

// The figures beside which bench puts its own are those of the documentation.
func TestBenchFigures(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/performance.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{
		"enqueued, one a call": "enqueued, one a call", "enqueued, 100 a call": "enqueued, 100 a call",
		"handled": "handled, messages a second", "wake-up, median": "wake-up, median, ms",
		"wake-up, 99th percentile": "wake-up, 99th percentile, ms",
	}
	for _, m := range measures() {
		var cell string
		for line := range strings.Lines(string(page)) {
			if cells := strings.Split(line, "|"); len(cells) > 2 && strings.TrimSpace(cells[1]) == rows[m.Name] {
				cell = strings.ReplaceAll(strings.TrimSpace(cells[2]), ",", "")
				break
			}
		}
		if want := strings.TrimSuffix(fmt.Sprintf("%.2f", m.Documented), ".00"); cell != want {
			t.Errorf("%s: docs/performance.md has %q, bench %s", m.Name, cell, want)
		}
	}
}
