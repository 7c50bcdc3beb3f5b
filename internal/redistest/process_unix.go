//go:build unix

package redistest

import "syscall"

func init() { sigStop, sigCont = syscall.SIGSTOP, syscall.SIGCONT }
