package main

import "syscall"

func init() {
	childAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	setNice = func(pid, niceness int) error { return syscall.Setpriority(syscall.PRIO_PROCESS, pid, niceness) }
}
