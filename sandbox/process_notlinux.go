//go:build !linux

package sandbox

// reap waits for the process, and kills what is left of its group. Between the two its pid is nobody's. The systems
// give pids in turn, so that no other process has it that soon.
func (p *process) reap() {
	_ = p.cmd.Wait() // the status is in ProcessState
	p.kill()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reaped = true
}

// canLimit says whether limitMemory works.
const canLimit = false

// limitMemory does nothing: Validate has refused a limit.
func limitMemory(int, int64) error { return nil }

// unread is unknown: the writing end of a pipe does not tell.
func (p *process) unread() int { return -1 }
