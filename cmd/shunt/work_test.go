package main

import (
	"strings"
	"testing"
)

// Each wrong flag is told by its name, all of them at once, and no password is.
func TestWorkWrongUsage(t *testing.T) {
	t.Parallel()
	right := []string{"work", "--redis", "redis://localhost", "--channel", "c"}
	with := func(more ...string) []string {
		return append(append(right[:len(right):len(right)], more...), "--", "cat")
	}
	for _, c := range []struct {
		args []string
		text []string
	}{
		{with("--wrokers", "3"), []string{"unknown flag: --wrokers", "shunt help work lists all flags"}},
		{with("--json"), []string{"--json: work writes a log"}},
		{with("--workers"), []string{`--workers: "--": want`}},
		{[]string{"work"}, []string{"--channel: there are 0", "COMMAND: it is missing"}},
		{right, []string{"COMMAND: it is missing"}}, {append(right, "--"), []string{"COMMAND: it is missing"}},
		{append(right, "--", ""), []string{"COMMAND: it is missing"}},
		{append(right, "--", "no-such-program"), []string{`COMMAND: start "no-such-program": it is not in PATH`}},
		{append(right, "no-such-program", "--bogus"), []string{`COMMAND: start "no-such-program"`}}, // its flag
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
			[]string{"--redis: the URL of Redis is none such as"}},
		{[]string{"work", "--redis", "redis://ann:hunter2/3@x", "--channel", "c", "cat"},
			[]string{"--redis: the URL of Redis is none such as"}},
	} {
		r := call{}.do(c.args...)
		if r.code != exitUsage || r.out != "" {
			t.Errorf("%q: exit %d, %s", c.args, r.code, r.out)
		}
		for _, want := range c.text {
			if !strings.Contains(r.err, want) {
				t.Errorf("%q: no %q in\n%s", c.args, want, r.err)
			}
		}
		if strings.Contains(r.err, "hunter2") {
			t.Errorf("%q: the password is told", c.args)
		}
	}
}

func TestSizes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{"0": 0, "5": 5, "7B": 7, "1k": 1 << 10, "2KB": 2 << 10, "256MB": 256 << 20,
		"3MiB": 3 << 20, "1 GB": 1 << 30, "4G": 4 << 30} {
		if got, err := parseSize(text); err != nil || got != want {
			t.Errorf("%q: %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "B", "-1", "1.5GB", "1TB", "GB1", "1MBB", "9223372036854775808", "9999999999GB"} {
		if got, err := parseSize(text); err == nil {
			t.Errorf("%q: %d", text, got)
		}
	}
}
