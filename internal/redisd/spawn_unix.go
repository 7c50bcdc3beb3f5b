//go:build unix

package redisd

import "syscall"

func init() { SigStop, SigCont = syscall.SIGSTOP, syscall.SIGCONT }
