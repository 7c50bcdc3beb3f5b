package push

import (
	"fmt"
	"net/netip"
	"syscall"
)

// prefixes are networks by their texts.
func prefixes(texts ...string) (all []netip.Prefix) {
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

// refused are the addresses that nobody reaches on the internet, after IANA's registries of special-purpose addresses,
// with those of cloud metadata. Of IPv6, all outside of global is refused, too.
var (
	refused = prefixes(
		"0.0.0.0/8",         // this host
		"10.0.0.0/8",        // private
		"100.64.0.0/10",     // shared; Alibaba's metadata
		"127.0.0.0/8",       // loopback
		"168.63.129.16/32",  // Azure's metadata, on a public address
		"169.254.0.0/16",    // link-local; metadata of most clouds
		"172.16.0.0/12",     // private
		"192.0.0.0/24",      // IETF protocols; Oracle's metadata
		"192.0.2.0/24",      // documentation
		"192.88.99.0/24",    // 6to4 relays
		"192.168.0.0/16",    // private
		"198.18.0.0/15",     // benchmarks
		"198.51.100.0/24",   // documentation
		"203.0.113.0/24",    // documentation
		"224.0.0.0/3",       // multicast, reserved, broadcast
		"2001::/23",         // IETF protocols, with Teredo, which has IPv4 addresses within
		"2001:db8::/32",     // documentation
		"2002::/16",         // 6to4, which has IPv4 addresses within
		"2620:4f:8000::/48", // AS112
		"3fff::/20",         // documentation
	)
	global = netip.MustParsePrefix("2000::/3")
)

// public says whether an address is on the internet.
func public(a netip.Addr) bool {
	if a.Is6() && !global.Contains(a) {
		return false
	}
	for _, p := range refused {
		if p.Contains(a) {
			return false
		}
	}
	return true
}

// reachable says whether a request may go to an address.
func reachable(a netip.Addr, allowed ...[]netip.Prefix) error {
	a = a.Unmap().WithZone("")
	if public(a) {
		return nil
	}
	for _, networks := range allowed {
		for _, p := range networks {
			if p.Contains(a) {
				return nil
			}
		}
	}
	return fmt.Errorf("push: the address %v is not public, and neither the group nor the configuration allows it", a)
}

// control is a net.Dialer.Control that lets only permitted addresses be dialled. It sees what the name was resolved to.
func control(allowed ...[]netip.Prefix) func(network, address string, c syscall.RawConn) error {
	return func(network, address string, _ syscall.RawConn) error {
		at, err := netip.ParseAddrPort(address)
		if err != nil || network != "tcp4" && network != "tcp6" {
			return fmt.Errorf("push: %s %.60q is no address to dial", network, address)
		}
		return reachable(at.Addr(), allowed...)
	}
}
