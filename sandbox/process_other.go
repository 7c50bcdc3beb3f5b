//go:build !unix

package sandbox

import "syscall"

// groupAttr is nothing: there are no process groups.
func groupAttr() *syscall.SysProcAttr { return nil }

// terminate ends the standard input, for there is no SIGTERM.
func (p *process) terminate() { _ = p.stdin.Close() }

// kill ends the process alone.
func (p *process) kill() { p.signalled(func() { _ = p.cmd.Process.Kill() }) }
