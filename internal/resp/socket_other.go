//go:build !linux

package resp

import "net"

// Direct is for Linux.
func Direct(c net.Conn) net.Conn { return c }
