package redisd

import (
	"context"
	"os"
	"os/exec"
	"runtime"
	"runtime/pprof"
	"syscall"
)

// What the operating system can do; each stays nil where it cannot.
var (
	// ChildAttr ends a child with the thread that has started it. Spawn sets it, on a thread that lasts.
	ChildAttr *syscall.SysProcAttr
	// SigStop and SigCont freeze a process and let it run on.
	SigStop, SigCont os.Signal
)

// Spawn starts cmd so that it ends with this process, however that ends, where the system can do so. exited is closed
// once cmd has been waited for: nobody else waits for it.
func Spawn(cmd *exec.Cmd) (exited <-chan struct{}, err error) {
	cmd.SysProcAttr = ChildAttr
	ended, started := make(chan struct{}), make(chan error, 1)
	// This goroutine keeps its thread, because the kernel's death signal follows the thread that started the child,
	// not the process. A child may outlive the test that starts it, and so the goroutine sheds that test's labels.
	go func() {
		defer close(ended)
		pprof.SetGoroutineLabels(context.Background())
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // the status is in cmd.ProcessState; children are killed as a matter of course
		}
	}()
	return ended, <-started
}
