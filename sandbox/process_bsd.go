//go:build unix && !linux

package sandbox

import "syscall"

// groupAttr gives a child a process group of its own. It does not end with this process, unless it looks at the end of
// its standard input.
func groupAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
