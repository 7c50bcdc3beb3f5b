package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/redistest"
)

// asProcess has this test binary run main.
const asProcess = "TEST_SHUNT_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asProcess) != "" {
		main()
		return
	}
	os.Exit(redistest.Main(m))
}

// Each wrong flag is told by its name, all of them at once, and no password is.
func TestWrongUsage(t *testing.T) {
	right := []string{"work", "--redis", "redis://localhost", "--channel", "c"}
	with := func(more ...string) []string {
		return append(append(right[:len(right):len(right)], more...), "--", "cat")
	}
	for _, c := range []struct {
		args []string
		text []string
	}{
		{[]string{"wrk"}, []string{"unexpected argument wrk"}}, {[]string{"--bogus"}, []string{"unknown flag --bogus"}},
		{with("--wrokers", "3"), []string{"unknown flag --wrokers", "--workers"}},
		{with("--workers"), []string{`--workers: "--": want`}},
		{[]string{"work"}, []string{"--redis: it is missing", "--channel: there are 0", "COMMAND: it is missing"}},
		{right, []string{"COMMAND: it is missing"}}, {append(right, "--"), []string{"COMMAND: it is missing"}},
		{append(right, "--", ""), []string{"COMMAND: it is missing"}},
		{append(right, "--", "no-such-program"), []string{`COMMAND: start "no-such-program": it is not in PATH`}},
		{append(right, "--", "./main.go"), []string{`COMMAND: start "./main.go": it may not be executed`}},
		{with("--workers", "0", "--timeout", "5", "--grace", "-1s", "--protocol", "xml", "--stderr", "some",
			"--max-memory", "12QB", "--max-messages", "0", "--channel", "c", "--channel", "a b"), []string{
			`--workers: "0": want 1 to 10000`, `--timeout: "5": want`, `--grace: "-1s": want`,
			`--protocol: "xml": want`,
			`--stderr: "some": want`, `--max-memory: "12QB": want`, `--max-messages: "0": want`,
			`--channel: "c" is there twice`,
			`--channel: "a b": want 1 to 200 bytes`}},
		{with("--workers", "10001"), []string{"--workers"}}, {with("--workers", "x"), []string{"--workers"}},
		{with("--timeout", "-5s"), []string{"--timeout"}}, {with("--grace", "25h"), []string{"--grace"}},
		{with("--max-memory", "99999999999GB"), []string{"--max-memory"}},
		{with("--max-memory", "MB"), []string{"--max-memory"}},
		{with("--max-memory", "1KB"), []string{"--max-memory: it is 1024: want 1 MB or more"}},
		{with("--max-messages", "-2"), []string{"--max-messages"}}, {with("--channel", ""), []string{`--channel: ""`}},
		{with("--channel", "{x}"), []string{"--channel"}},
		{[]string{"work", "--redis", "http://x", "--channel", "c", "--", "cat"}, []string{"--redis: redis URL"}},
		{[]string{"work", "--redis", "redis://ann:hunter2@x:y", "--channel", "c", "cat"},
			[]string{"--redis: it is no URL"}},
	} {
		var out bytes.Buffer
		if code := command(context.Background(), func() {}, c.args, &out, &out); code != exitUsage {
			t.Errorf("%q: %d", c.args, code)
		}
		for _, want := range c.text {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%q: no %q in\n%s", c.args, want, out.String())
			}
		}
		if strings.Contains(out.String(), "hunter2") {
			t.Errorf("%q: the password is told", c.args)
		}
	}
}

func TestHelp(t *testing.T) {
	for _, args := range [][]string{nil, {"help"}, {"--help"}, {"help", "work"}, {"work", "--help"}, {"version"}} {
		var out, complain bytes.Buffer
		code := command(context.Background(), func() {}, args, &out, &complain)
		if code != exitOK || complain.Len() > 0 || !strings.Contains(out.String(), "shunt") ||
			len(args) == 2 && !strings.Contains(out.String(), "--max-memory") {
			t.Errorf("%q: %d\n%s%s", args, code, out.String(), complain.String())
		}
	}
}

func TestSizes(t *testing.T) {
	for text, want := range map[string]int64{"0": 0, "5": 5, "7B": 7, "1k": 1 << 10, "2KB": 2 << 10, "256MB": 256 << 20,
		"3MiB": 3 << 20, "1 GB": 1 << 30, "4G": 4 << 30} {
		if got, err := size(text); err != nil || got != want {
			t.Errorf("%q: %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "B", "-1", "1.5GB", "1TB", "GB1", "1MBB", "9223372036854775808", "9999999999GB"} {
		if got, err := size(text); err == nil {
			t.Errorf("%q: %d", text, got)
		}
	}
}

// A failure is a line with what follows it indented, and nothing that a terminal obeys.
func TestLines(t *testing.T) {
	failed := shunt.Event{Kind: shunt.EventRetried, Channel: "c", ID: "an id", Attempt: 2,
		Err: errors.New("sandbox: h: exit status 3:\nfirst\x1b[2J\n\tsecond")}
	for whole, want := range map[bool]string{
		true: `c: message "an id" failed at attempt 2, and is tried again in 0s: sandbox: h: exit status 3:` +
			"\n    | first\uFFFD[2J\n    | \tsecond\n",
		false: `c: message "an id" failed at attempt 2, and is tried again in 0s: sandbox: h: exit status 3` + "\n",
	} {
		var out bytes.Buffer
		(&lines{to: &out, whole: whole}).event(failed)
		if _, got, _ := strings.Cut(out.String(), " "); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
