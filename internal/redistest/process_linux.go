package redistest

import "syscall"

// A test binary that is killed or panics runs no cleanup; the kernel ends its servers for it.
func init() { childAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
