package main

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/redistest"
)

// asProgram makes of the test binary the program itself.
const asProgram = "ORDERS_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(redistest.Main(m))
}

// execute runs the program; at the first line that contains interrupt, if that is not empty, it sends one. It returns
// the output, line by line.
func execute(t *testing.T, interrupt string, args ...string) []string {
	t.Helper()
	c := exec.Command(os.Args[0], args...)
	c.Env = append(
		slices.DeleteFunc(os.Environ(), func(s string) bool { return strings.HasPrefix(s, "REDIS_URL=") }),
		asProgram+"=1",
	)
	var stderr bytes.Buffer
	c.Stderr = &stderr
	stdout, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	stop := time.AfterFunc(30*time.Second, func() { _ = c.Process.Kill() })
	var lines []string
	for in := bufio.NewScanner(stdout); in.Scan(); {
		lines = append(lines, in.Text())
		if interrupt != "" && strings.Contains(in.Text(), interrupt) {
			interrupt = ""
			if err := c.Process.Signal(os.Interrupt); err != nil {
				t.Error(err)
			}
		}
	}
	err = c.Wait()
	if !stop.Stop() || err != nil || stderr.Len() > 0 {
		t.Errorf("it ended with %v, or after more than 30 s; stderr:\n%s", err, &stderr)
	}
	t.Log(strings.Join(lines, "\n"))
	return lines
}

// inOrder checks that lines with these texts come one after the other, whatever stands between.
func inOrder(t *testing.T, lines []string, texts ...string) {
	t.Helper()
	at := 0
	for _, text := range texts {
		i := slices.IndexFunc(lines[at:], func(l string) bool { return strings.Contains(l, text) })
		if i < 0 {
			t.Errorf("there is no %q after line %d", text, at)
			return
		}
		at += i + 1
	}
}

func whole(t *testing.T, lines []string) {
	t.Helper()
	inOrder(t, lines, "1. ", "paid       order 1", "paid       order 3", "2. ")
	inOrder(t, lines, "closed     order 2", "2. ")
	inOrder(t, lines, "closed     order 4", "2. ")
	inOrder(t, lines, "kept       order 1", "2. ")
	inOrder(
		t,
		lines,
		"2. ",
		"came in    bulk",
		"came in    VIP",
		"pearls",
		"violin",
		"a book",
		"a lamp",
		"a late ring",
		"bricks",
		"gravel",
		"sand",
		"3. ",
	)
	inOrder(
		t,
		lines,
		"3. ",
		"ann@example.org: the server does not answer (attempt 1",
		"come back in 1.5 s (attempt 2; again in 1.5 s)",
		"mailed     ann@example.org",
		"4. ",
	)
	inOrder(
		t,
		lines,
		"3. ",
		"dan@example.org: no such mailbox (attempt 1",
		"dan@example.org: no such mailbox (attempt 3, the last)",
		"4. ",
		"in dead",
		"mended",
		"mailed     dan@example.org",
		"All done",
	)
	inOrder(t, lines, "closed 2, packed 9, mailed 3, retried 4, given up 1, left over 0")
}

func TestOrders(t *testing.T) {
	t.Parallel()
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		lines := execute(t, "")
		inOrder(t, lines, "inside this process")
		whole(t, lines)
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		s := redistest.Start(t)
		whole(t, execute(t, "", "-redis", s.URL()))
		clean(t, s)
	})
}

func TestInterrupt(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("there is no interrupt to send")
	}
	s := redistest.Start(t)
	lines := execute(t, "packed", "-redis", s.URL())
	inOrder(t, lines, "2. ", "packed", "Ctrl-C", "Interrupted in act 2 and shut down")
	if last := lines[len(lines)-1]; !strings.Contains(last, "closed 2, packed ") ||
		strings.Contains(last, "left over 0") {
		t.Error("the summary does not say what was done, and that something was left over")
	}
	if slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, "3. ") }) {
		t.Error("it went on after Ctrl-C")
	}
	clean(t, s)
}

// clean checks that only the names of the channels are left, and what was counted.
func clean(t *testing.T, s *redistest.Server) {
	t.Helper()
	keys, _ := redis.Strings(s.Do("KEYS", "*"), nil)
	keys = slices.DeleteFunc(keys, func(k string) bool { return strings.HasSuffix(k, "}.counts") })
	if !slices.Equal(keys, []string{"shunt.channels"}) {
		t.Errorf("left in Redis: %q", keys)
	}
}
