package redistest

import (
	"bytes"
	"context"
	"fmt"
	"runtime/pprof"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

var leakID atomic.Int64

// Leaks fails the test when goroutines that it started, or that those started, are left 2 s after all of its later
// cleanups: call it first. Goroutines of tests that run in parallel are not mixed up, since a goroutine inherits its
// starter's profiler labels, and the test gets one of its own. What sheds its labels or is started by a timer escapes;
// Main finds that at the end.
func Leaks(t testing.TB) {
	t.Helper()
	watch(t)
	leaks(t, 2*time.Second)
}

func leaks(t testing.TB, patience time.Duration) {
	t.Helper()
	id := fmt.Sprint(leakID.Add(1))
	pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), pprof.Labels("redistest.leaks", id)))
	mark := fmt.Sprintf("%q:%q", "redistest.leaks", id)
	t.Cleanup(func() {
		t.Helper()
		pprof.SetGoroutineLabels(context.Background()) // this goroutine itself is none
		var left []string
		for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
			left = labelled(mark)
			if len(left) == 0 {
				return
			}
			if time.Now().After(deadline) {
				break
			}
		}
		t.Errorf("goroutines left behind:\n%s", strings.Join(left, "\n\n"))
	})
}

// labelled returns the stacks of the goroutines whose profiler labels contain mark.
func labelled(mark string) (stacks []string) {
	var b bytes.Buffer
	_ = pprof.Lookup("goroutine").WriteTo(&b, 1) // a bytes.Buffer takes everything
	for stack := range strings.SplitSeq(b.String(), "\n\n") {
		if strings.Contains(stack, mark) {
			stacks = append(stacks, stack)
		}
	}
	return stacks
}
