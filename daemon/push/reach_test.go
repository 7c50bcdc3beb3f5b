package push

import (
	"encoding/json"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/shuntmq/shunt/internal/redistest"
)

func TestReachable(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"8.8.8.8": true, "1.1.1.1": true, "172.15.0.1": true, "172.32.0.1": true, "100.128.0.1": true,
		"192.0.1.1": true, "223.255.255.255": true, "2606:4700::1111": true, "2a00:1450::1": true,
		"::ffff:8.8.8.8": true,

		"127.0.0.1": false, "127.255.255.254": false, "::1": false, "0.0.0.0": false, "0.1.2.3": false, "::": false,
		"169.254.169.254": false, "169.254.0.1": false, "fe80::1": false, "fe80::1%eth0": false, "fd00:ec2::254": false,
		"100.100.100.200": false, "168.63.129.16": false, "192.0.0.192": false,
		"10.0.0.1": false, "10.255.255.255": false, "172.16.0.1": false, "172.31.255.255": false, "192.168.1.1": false,
		"100.64.0.1": false, "fc00::1": false, "fdff::1": false, "fec0::1": false,
		"192.0.2.1": false, "198.18.0.1": false, "198.51.100.1": false, "203.0.113.1": false, "192.88.99.1": false,
		"224.0.0.1": false, "239.255.255.255": false, "240.0.0.1": false, "255.255.255.255": false, "ff02::1": false,
		"::ffff:127.0.0.1": false, "::ffff:169.254.169.254": false, "::ffff:10.0.0.1": false, "::127.0.0.1": false,
		"64:ff9b::7f00:1": false, "64:ff9b:1::1": false, "100::1": false, "2001::1": false, "2001:db8::1": false,
		"2002:7f00:1::1": false, "3fff::1": false, "5f00::1": false, "4000::1": false,
	} {
		if err := reachable(netip.MustParseAddr(text)); (err == nil) != want {
			t.Errorf("%s: %v", text, err)
		}
	}
	some, err := Networks([]string{"10.1.0.0/16", "::1", "169.254.169.254", "fe80::/64"})
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{
		"10.1.2.3": true, "::ffff:10.1.2.3": true, "::1": true, "169.254.169.254": true, "fe80::1%eth0": true,
		"10.2.0.1":  false,
		"127.0.0.1": false, "169.254.169.253": false,
	} {
		if err := reachable(netip.MustParseAddr(text), nil, some); (err == nil) != want {
			t.Errorf("%s, of which some are allowed: %v", text, err)
		}
	}
	check := control()
	for _, at := range []string{"127.0.0.1:80", "[::1]:80", "[::ffff:127.0.0.1]:80", "[fe80::1%lo]:80", "name:80", ""} {
		if check("tcp4", at, nil) == nil {
			t.Errorf("%s may be dialled", at)
		}
	}
	if check("udp4", "8.8.8.8:53", nil) == nil || check("tcp4", "8.8.8.8:443", nil) != nil {
		t.Error("want TCP, and only that")
	}
}

// aliases are URLs that reach a server on 127.0.0.1, or try to.
func aliases(t *testing.T, server string) (all []string) {
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"127.0.0.1", "localhost", "localhost.", "127.1", "2130706433", "0x7f000001",
		"0177.0.0.1",
		"0", "0.0.0.0", "[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "127.0.0.2", "%31%32%37.0.0.1",
		"①②⑦.0.0.1"} {
		all = append(all, "http://"+host+":"+u.Port()+"/")
	}
	return all
}

// No form of an address, and no name, leads to a server on this machine; nor does a redirect.
func TestNothingInsideIsReached(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	e := newEndpoint(t, nil)
	s := shared(t, nothingAllowed)
	tried := 0
	for i, at := range aliases(t, e.URL) {
		name := "g" + string(rune('a'+i))
		body, _ := json.Marshal(map[string]any{"queues": []string{name}, "endpoint": at, "secrets": []string{secret},
			"backoff_ms": 1, "max_backoff_ms": 1, "attempts": 2, "timeout_ms": 5000})
		status, text := s.do("POST", "/push/"+s.ns()+"/"+name, string(body))
		if status == 400 && strings.Contains(text, "endpoint: ") || strings.Contains(text, "is not public") {
			continue // it is an address, so that can be told at once
		}
		if status != 201 {
			t.Errorf("%s: %d %s", at, status, text)
			continue
		}
		tried++
		s.publish(name, "x")
		until(t, at+" is given up", func() bool { return s.count(name, "dead") == 1 })
		s.want(200, `"error":"`, "POST", "/push/"+s.ns()+"/"+name+"/test", "x")
	}
	if tried < 4 {
		t.Errorf("only %d were tried", tried)
	}
	if n := len(e.all()); n > 0 {
		t.Errorf("%d requests went to this machine", n)
	}
	hop := newEndpoint(t, func(w http.ResponseWriter, r *http.Request, _ string) {
		http.Redirect(w, r, e.URL, http.StatusTemporaryRedirect)
	})
	s.group("hop", hop.URL, map[string]any{"allow": []string{"127.0.0.1"}})
	s.want(200, `"status":307`, "POST", "/push/"+s.ns()+"/hop/test", "x")
	if n := len(e.all()); n > 0 {
		t.Error("a redirect was followed")
	}
}

// What neither the name's check at the creation nor anything before the dial can see: a name that resolves to loopback.
// It also shows that the same requests arrive once that is allowed, by the group or by the configuration.
func TestNameThatResolvesInside(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	addrs, err := net.LookupHost("localhost")
	if err != nil {
		t.Skip(err)
	}
	e := newEndpoint(t, nil)
	at := strings.Replace(e.URL, "127.0.0.1", "localhost", 1)
	s := shared(t, nothingAllowed)
	s.group("g", at, nil)
	s.want(200, "is not public", "POST", "/push/"+s.ns()+"/g/test", "x")
	s.want(200, "", "PATCH", "/push/"+s.ns()+"/g", `{"allow":["127.0.0.1","::1"]}`)
	s.want(200, `"status":200`, "POST", "/push/"+s.ns()+"/g/test", "by the group")
	s.want(200, "", "PATCH", "/push/"+s.ns()+"/g", `{"allow":[]}`)
	s.want(200, "is not public", "POST", "/push/"+s.ns()+"/g/test", "x")
	s.push.SetAllow(loopback)
	s.want(200, `"status":200`, "POST", "/push/"+s.ns()+"/g/test", "by the configuration")
	s.publish("q", "a message")
	until(t, "it is there", func() bool { return len(e.of("a message")) == 1 })
	s.push.SetAllow(nil)
	s.publish("q", "another")
	s.want(200, "is not public", "POST", "/push/"+s.ns()+"/g/test", "x")
	if len(e.of("x")) > 0 {
		t.Errorf("%v: reached though it was not allowed", addrs)
	}
}
