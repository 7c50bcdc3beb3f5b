package serve

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
)

// firstFD is the first descriptor that systemd passes, as sd_listen_fds(3) has it.
const firstFD = 3

// inherited is the socket of a name that systemd has opened: that of FileDescriptorName= in its unit.
func inherited(name string) (net.Listener, error) {
	if pid := os.Getenv("LISTEN_PID"); pid != strconv.Itoa(os.Getpid()) {
		return nil, fmt.Errorf("systemd has passed no sockets to this process (LISTEN_PID=%q)", pid)
	}
	n, err := strconv.Atoi(os.Getenv("LISTEN_FDS"))
	if err != nil || n < 1 || n > 1000 {
		return nil, fmt.Errorf("LISTEN_FDS=%q: want the number of sockets", os.Getenv("LISTEN_FDS"))
	}
	names := strings.Split(os.Getenv("LISTEN_FDNAMES"), ":")
	for i := range n {
		if i < len(names) && names[i] == name || n == 1 && len(names) < 2 && names[0] == "" {
			f := os.NewFile(uintptr(firstFD+i), name)
			l, err := net.FileListener(f)
			_ = f.Close() // the listener has a copy
			return l, err
		}
	}
	return nil, fmt.Errorf("systemd has passed no socket of that name: LISTEN_FDNAMES=%q", names)
}

// Notify tells systemd a state, such as READY=1, STOPPING=1 or RELOADING=1, as sd_notify(3) has it. Without a
// NOTIFY_SOCKET it does nothing.
func Notify(state string) error {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return nil
	}
	c, err := net.Dial("unixgram", path) // of an abstract one Go reads the @ as systemd writes it
	if err != nil {
		return fmt.Errorf("serve: notify systemd: %w", err)
	}
	defer c.Close()
	if _, err := c.Write([]byte(state)); err != nil {
		return fmt.Errorf("serve: notify systemd: %w", err)
	}
	return nil
}
