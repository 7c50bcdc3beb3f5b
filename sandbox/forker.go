package sandbox

import "runtime"

// forker starts all children of a pool on one thread, which lasts as long as they do: Linux sends a child its death
// signal at the end of the thread that started it, not of the process.
type forker struct{ calls chan func() }

func newForker() *forker { return &forker{make(chan func())} }

// run lives until calls is closed. The pool waits for it.
func (f *forker) run() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread() // no child is left by then
	for call := range f.calls {
		call()
	}
}

// do runs f on the thread. The caller owns a place, so that calls is open.
func (f *forker) do(call func()) {
	done := make(chan struct{})
	f.calls <- func() { defer close(done); call() }
	<-done
}
