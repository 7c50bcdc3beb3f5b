package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/shuntmq/shunt"
)

// A failure is a line with what follows it indented, and nothing that a terminal obeys.
func TestLines(t *testing.T) {
	t.Parallel()
	failed := shunt.Event{Kind: shunt.EventRetried, Channel: "c", ID: "an id", Attempt: 2,
		Err: errors.New("sandbox: h: exit status 3:\nfirst\x1b[2J\n\tsecond")}
	for whole, want := range map[bool]string{
		true: `c: message "an id" failed at attempt 2, and is tried again in 0s: sandbox: h: exit status 3:` +
			"\n    | first\\x1b[2J\n    | \tsecond\n",
		false: `c: message "an id" failed at attempt 2, and is tried again in 0s: sandbox: h: exit status 3` + "\n",
	} {
		var out bytes.Buffer
		(&logLines{to: &out, whole: whole}).event(failed)
		if _, got, _ := strings.Cut(out.String(), " "); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
