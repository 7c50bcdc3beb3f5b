package redisd

import "syscall"

// A process that is killed or panics runs no cleanup; the kernel ends its children for it.
func init() { ChildAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
