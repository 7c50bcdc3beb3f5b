package serve

import (
	"net/netip"
	"sync/atomic"
)

// Networks say from where clients may come. The zero value lets all in. Its methods may be called by many goroutines at
// once.
type Networks struct {
	of atomic.Pointer[[]netip.Prefix]
}

// Set takes other networks in; without any, clients may come from everywhere.
func (n *Networks) Set(networks []netip.Prefix) { n.of.Store(&networks) }

// Allows says whether a client may come from an address, as net.Addr writes it. Those of a unix socket always may.
func (n *Networks) Allows(remote string) bool {
	networks := n.of.Load()
	if networks == nil || len(*networks) == 0 {
		return true
	}
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return remote == "" || remote == "@"
	}
	for _, network := range *networks {
		if network.Contains(at.Addr().Unmap().WithZone("")) {
			return true
		}
	}
	return false
}
