package main

import "syscall"

func init() {
	setNice = func(pid, niceness int) error { return syscall.Setpriority(syscall.PRIO_PROCESS, pid, niceness) }
}
