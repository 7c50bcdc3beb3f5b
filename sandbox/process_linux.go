package sandbox

import (
	"syscall"
	"unsafe"
)

// groupAttr gives a child a process group of its own, and ends it with the forker's thread: at the latest with this
// process, however that ends.
func groupAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// Of <linux/wait.h> and <linux/resource.h>.
const (
	idTypePid = 1         // P_PID
	noReap    = 0x1000000 // WNOWAIT
)

// reap waits for the process, and kills its group while its pid is still its own: a pid that has been waited for may be
// a foreign group's the next moment.
func (p *process) reap() {
	for {
		var info [128]byte // a siginfo_t, which is not looked at
		_, _, errno := syscall.Syscall6(syscall.SYS_WAITID, idTypePid, uintptr(p.cmd.Process.Pid),
			uintptr(unsafe.Pointer(&info)), syscall.WEXITED|noReap, 0, 0)
		if errno != syscall.EINTR {
			break
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.signal(syscall.SIGKILL)
	_ = p.cmd.Wait() // at once; the status is in ProcessState
	p.reaped = true
}

// canLimit says whether limitMemory works.
const canLimit = true

// limitMemory sets RLIMIT_DATA, soft and hard, of a process: its heap and its private writable mappings. RLIMIT_AS
// would also count address space that is merely reserved, of which Go, Java and Node take gigabytes. 0 sets nothing.
func limitMemory(pid int, bytes int64) error {
	if bytes == 0 {
		return nil
	}
	limit := struct{ soft, hard uint64 }{uint64(bytes), uint64(bytes)} // a struct rlimit64 on every architecture
	_, _, errno := syscall.RawSyscall6(syscall.SYS_PRLIMIT64, uintptr(pid), syscall.RLIMIT_DATA,
		uintptr(unsafe.Pointer(&limit)), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// unread is how many bytes nobody has read of what was written to the process's standard input. It is gone.
func (p *process) unread() (n int) {
	raw, err := p.stdin.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(pipe uintptr) {
		var left int32
		if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, pipe, syscall.TIOCINQ,
			uintptr(unsafe.Pointer(&left))); errno == 0 {
			n = int(left)
		}
	})
	return n
}
