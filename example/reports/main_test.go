package main

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/redistest"
)

// asProgram makes of the test binary the program itself, and of what that starts, too.
const asProgram = "REPORTS_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(redistest.Main(m))
}

// execute runs the program; at the first line that contains at, if that is not empty, it sends the first process a
// signal. It returns the output of both processes, line by line, when both have ended.
func execute(t *testing.T, at string, sig os.Signal, args ...string) []string {
	t.Helper()
	c := exec.Command(os.Args[0], args...)
	c.Env = append(
		slices.DeleteFunc(os.Environ(), func(s string) bool { return strings.HasPrefix(s, "REDIS_URL=") }),
		asProgram+"=1",
	)
	var stderr bytes.Buffer
	c.Stderr, c.WaitDelay = &stderr, time.Second // the second process may hold it open, too
	stdout, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	stop := time.AfterFunc(30*time.Second, func() {
		_ = c.Process.Kill()
		_ = stdout.Close() // which the second process may still hold open
	})
	var lines []string
	for in := bufio.NewScanner(stdout); in.Scan(); {
		lines = append(lines, in.Text())
		if at != "" && strings.Contains(in.Text(), at) {
			at = ""
			if err := c.Process.Signal(sig); err != nil {
				t.Error(err)
			}
		}
	}
	inTime := stop.Stop()
	err = c.Wait()
	if !inTime || err != nil && sig != os.Kill || stderr.Len() > 0 {
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

// times checks how many lines match.
func times(t *testing.T, lines []string, want int, pattern string) {
	t.Helper()
	r := regexp.MustCompile(pattern)
	got := 0
	for _, l := range lines {
		if r.MatchString(l) {
			got++
		}
	}
	if got != want {
		t.Errorf("%d lines match %q: want %d", got, pattern, want)
	}
}

func whole(t *testing.T, lines []string) {
	t.Helper()
	inOrder(
		t,
		lines,
		"1. ",
		"east  open",
		"east  · tick",
		"west  open",
		"east  left",
		"west  · tick",
		"east  paused",
		"east  counted",
		"2. ",
	)
	ticks(t, lines)

	inOrder(t, lines, "2. ", "began      stock", "made       stock", "got        stock", "3. ")
	times(t, lines, 2, "asks +for stock")
	times(t, lines, 1, "told +stock was asked for at .* and is in state (prepare|doing)")
	times(t, lines, 1, "  made +stock$")
	times(t, lines, 1, "east  got +stock .acked.: 50 pages from")
	times(t, lines, 1, "west  got +stock .acked.: 50 pages from")

	inOrder(
		t,
		lines,
		"3. ",
		"east  closed",
		"east  asks       for sales",
		"west  made       sales",
		"east  got        sales (acked): 50 pages from west",
		"east  asks       for sales, a second time",
		"east  got        sales (acked): 50 pages from west",
		"4. ",
	)
	times(t, lines, 1, "  made +sales$")
	times(t, lines, 1, "east  filed +sales, made in west")

	inOrder(
		t,
		lines,
		"4. ",
		"west  began      year",
		"east  asks       for decade",
		"east  cancelled  decade, which was in state prepare",
		"east  cancelled  year, which was in state doing",
		"west  made       week",
		"All done",
	)
	inOrder(
		t,
		lines,
		"4. ",
		"west  stopped    year, because: shunt: the message was cancelled",
		"west  began      week",
	)
	inOrder(t, lines, "east  cancelled  decade", "west  · dropped  decade")
	times(t, lines, 0, "(began|made) +decade$")
	inOrder(t, lines[len(lines)-1:], "All done after ")
	inOrder(t, lines[len(lines)-1:], "to order: made stock, sales, week; cancelled 2; left over 0")
	if slices.ContainsFunc(lines, func(l string) bool {
		return strings.Contains(l, "· ") && !strings.Contains(l, "· tick") && !strings.Contains(l, "· dropped")
	}) {
		t.Error("there was trouble")
	}
}

// ticks checks that there is one report for each second of act 1, and that the program has counted so.
func ticks(t *testing.T, lines []string) {
	t.Helper()
	counted := regexp.MustCompile(`seconds (\d+), ticks (\d+), reports (\d+), doubles 0`)
	made := regexp.MustCompile(`(?:east|west)  made +takings of the shop at (\d\d:\d\d:\d\d)`)
	var at []time.Time
	var counts []string
	for _, l := range lines {
		if m := made.FindStringSubmatch(l); m != nil {
			tick, err := time.Parse(time.TimeOnly, m[1])
			if err != nil {
				t.Fatal(err)
			}
			at = append(at, tick)
		}
		if m := counted.FindStringSubmatch(l); m != nil {
			counts = append(counts, m[1:]...)
		}
	}
	slices.SortFunc(at, time.Time.Compare)
	for i := range at {
		// The day may change meanwhile.
		if i > 0 && at[i].Sub(at[i-1]) != time.Second && at[i].Sub(at[i-1]) < 23*time.Hour {
			t.Errorf("after the tick of %s comes %s", at[i-1].Format(time.TimeOnly), at[i].Format(time.TimeOnly))
		}
	}
	// Once in the act and once in the summary.
	want := strconv.Itoa(len(at))
	if len(at) < 7 || len(counts) != 6 || slices.ContainsFunc(counts, func(s string) bool { return s != want }) {
		t.Errorf("%s takings were made, at least 7 were to be, and the counts are %q", want, counts)
	}
}

func TestReports(t *testing.T) {
	t.Parallel()
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		lines := execute(t, "", nil)
		inOrder(t, lines, "a server inside this process")
		whole(t, lines)
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		s := redistest.Start(t)
		whole(t, execute(t, "", nil, "-redis", s.URL()))
		clean(t, s)
	})
}

func TestInterrupt(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("there is no interrupt to send")
	}
	s := redistest.Start(t)
	lines := execute(t, "began      year", os.Interrupt, "-redis", s.URL())
	inOrder(t, lines, "4. ", "west  began      year", "east  Ctrl-C", "Interrupted in act 4 and shut down; left over ")
	times(t, lines, 0, "All done")
	clean(t, s)
}

// Whatever becomes of the first process, the second does not stay.
func TestKill(t *testing.T) {
	t.Parallel()
	lines := execute(t, "west  open", os.Kill, "-redis", redistest.Start(t).URL())
	times(t, lines, 0, `^2\. `)
}

// clean checks that only the names of the channels are left, what was counted, and what time removes. That is until
// when something was kept, and the receipts of enqueues that Ctrl-C has cut short.
func clean(t *testing.T, s *redistest.Server) {
	t.Helper()
	keys, _ := redis.Strings(s.Do("KEYS", "*"), nil)
	keys = slices.DeleteFunc(keys, func(k string) bool {
		return strings.HasSuffix(k, "}.kept") || strings.HasSuffix(k, "}.receipts") || strings.HasSuffix(k, "}.counts")
	})
	if !slices.Equal(keys, []string{"shunt.channels"}) {
		t.Errorf("left in Redis: %q", keys)
	}
}
