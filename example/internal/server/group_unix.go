//go:build unix

package server

import (
	"syscall"

	"github.com/shuntmq/shunt/internal/redisd"
)

// A terminal sends Ctrl-C to all processes of its group. In a group of its own the redis-server serves until the
// example has closed.
func init() {
	if redisd.ChildAttr == nil {
		redisd.ChildAttr = new(syscall.SysProcAttr)
	}
	redisd.ChildAttr.Setpgid = true
}
