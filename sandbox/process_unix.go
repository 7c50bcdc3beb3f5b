//go:build unix

package sandbox

import "syscall"

// terminate asks the group to end.
func (p *process) terminate() { p.signalled(func() { p.signal(syscall.SIGTERM) }) }

// kill ends the group. What another process has stopped is ended, too.
func (p *process) kill() { p.signalled(func() { p.signal(syscall.SIGKILL) }) }

// signal reaches every process of the group; an error means that none is left. mu is held.
func (p *process) signal(s syscall.Signal) { _ = syscall.Kill(-p.cmd.Process.Pid, s) }
