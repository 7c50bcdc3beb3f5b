//go:build unix

package sandbox

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/redistest"
)

// alive says whether a process runs: a zombie that init has not reaped yet does not.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return !os.IsNotExist(err) || !hasProc
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(state, "Z")
}

var hasProc = func() bool { _, err := os.Stat("/proc/self/stat"); return err == nil }()

// ends waits for the end of a process that is not the test's child.
func ends(t testing.TB, pid string) {
	t.Helper()
	n, err := strconv.Atoi(pid)
	if err != nil || n < 2 {
		t.Fatalf("no pid: %q", pid)
	}
	redistest.Until(t, 10*time.Second, "the end of process "+pid, func() bool { return !alive(n) })
}

func atoi(t testing.TB, pid string) int {
	t.Helper()
	n, err := strconv.Atoi(pid)
	if err != nil || n < 2 {
		t.Fatalf("no pid: %q", pid)
	}
	return n
}

// livesOn ends a process that a child has left behind.
func livesOn(t testing.TB, pid string) {
	t.Helper()
	if !alive(atoi(t, pid)) {
		t.Error("the test proves nothing: the grandchild is gone")
	}
	_ = syscall.Kill(atoi(t, pid), syscall.SIGKILL)
}
