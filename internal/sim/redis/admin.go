package redis

import (
	"strconv"
	"strings"
	"time"
)

func ping(_ *Server, c *Session, a []string) any {
	switch {
	case len(a) > 2:
		return wrongNumber("ping")
	case c.subscribed() > 0 && len(a) == 1:
		return []string{"pong", ""}
	case c.subscribed() > 0:
		return []string{"pong", a[1]}
	case len(a) == 2:
		return a[1]
	}
	return status("PONG")
}

func echo(_ *Server, _ *Session, a []string) any { return a[1] }

func timeNow(s *Server, _ *Session, _ []string) any {
	us := s.clock().UnixMicro()
	return []string{strconv.FormatInt(us/1e6, 10), strconv.FormatInt(us%1e6, 10)}
}

func role(s *Server, _ *Session, _ []string) any {
	if s.readOnly {
		return []any{"slave", "127.0.0.1", 6379, "connected", 0}
	}
	return []any{"master", 0, []any{}}
}

func waitReplicas(s *Server, _ *Session, a []string) any {
	_, is1 := integer(a[1])
	n, is2 := integer(a[2])
	switch {
	case s.readOnly:
		return failure("ERR WAIT cannot be used with replica instances. Please also note that since Redis 4.0 if a " +
			"replica is configured to be writable (which is not the default) writes to replicas are just local and " +
			"are not propagated.")
	case !is1:
		return notInteger
	case !is2:
		return failure("ERR timeout is not an integer or out of range")
	case n < 0:
		return failure("ERR timeout is negative")
	}
	return 0
}

func selectDB(_ *Server, _ *Session, a []string) any {
	n, is := integer(a[1])
	switch {
	case !is:
		return notInteger
	case n != 0:
		return failure("ERR DB index is out of range")
	}
	return ok
}

const wrongPassword = failure("WRONGPASS invalid username-password pair or user is disabled.")

// auth knows but one user, default.
func auth(s *Server, c *Session, a []string) any {
	switch {
	case len(a) > 3:
		return syntax
	case len(a) == 2 && s.password == "":
		return failure("ERR AUTH <password> called without any password configured for the default user. " +
			"Are you sure your configuration is correct?")
	case s.password != "" && a[len(a)-1] != s.password || len(a) == 3 && a[1] != "default":
		return wrongPassword
	}
	c.authed = true
	return ok
}

// hello speaks RESP2 alone.
func hello(s *Server, c *Session, a []string) any {
	if len(a) > 1 {
		n, is := integer(a[1])
		switch {
		case !is:
			return failure("ERR Protocol version is not an integer or out of range")
		case n != 2:
			return failure("NOPROTO unsupported protocol version")
		}
	}
	for i := 2; i < len(a); i++ {
		switch {
		case strings.EqualFold(a[i], "auth") && i+2 < len(a):
			if v := auth(s, c, a[i:i+3]); v != any(ok) {
				return v
			}
			i += 2
		case strings.EqualFold(a[i], "setname") && i+1 < len(a):
			c.name = a[i+1]
			i++
		default:
			return failure("ERR Syntax error in HELLO option '" + a[i] + "'")
		}
	}
	if !c.authed {
		return failure("NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO " +
			"<proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol " +
			"version at the same time")
	}
	return []any{"server", "redis", "version", version, "proto", 2, "id", c.id, "mode", "standalone",
		"role", s.roleName("replica"), "modules", []any{}}
}

func quit(_ *Server, _ *Session, _ []string) any { return lastReply{ok} }

// replicaOf makes the server read-only, or takes that back.
func replicaOf(s *Server, _ *Session, a []string) any {
	s.readOnly = !strings.EqualFold(a[1], "no") || !strings.EqualFold(a[2], "one")
	return ok
}

// settings are what CONFIG knows.
func (s *Server) settings() []string {
	return []string{"maxmemory", strconv.Itoa(s.most), "maxmemory-policy", "noeviction", "requirepass", s.password}
}

func configGet(s *Server, _ *Session, a []string) any {
	all := []string{}
	for i, set := 0, s.settings(); i < len(set); i += 2 {
		for _, pattern := range a[2:] {
			if glob(strings.ToLower(pattern), set[i]) {
				all = append(all, set[i], set[i+1])
				break
			}
		}
	}
	return all
}

func configSet(s *Server, _ *Session, a []string) any {
	if len(a)%2 == 1 {
		return syntax
	}
	for i := 2; i < len(a); i += 2 {
		switch strings.ToLower(a[i]) {
		case "maxmemory":
			n, is := memory(a[i+1])
			if !is {
				return failure("ERR CONFIG SET failed (possibly related to argument 'maxmemory') - " +
					"argument must be a memory value")
			}
			s.most = n
		case "requirepass":
			s.password = a[i+1]
		default:
			return failure("ERR Unknown option or number of arguments for CONFIG SET - '" + a[i] + "'")
		}
	}
	return ok
}

// memory reads a number of bytes, which may have a unit.
func memory(a string) (int, bool) {
	number := strings.TrimRight(strings.ToLower(a), "bkmg")
	unit, is := map[string]int{"": 1, "b": 1, "k": 1e3, "kb": 1 << 10, "m": 1e6, "mb": 1 << 20, "g": 1e9,
		"gb": 1 << 30}[strings.ToLower(a)[len(number):]]
	n, err := strconv.ParseUint(number, 10, 40)
	return int(n) * unit, is && err == nil
}

const version = "7.0.15"

func (s *Server) roleName(replica string) string {
	if s.readOnly {
		return replica
	}
	return "master"
}

// sections are those of INFO, as lines of names and values.
func (s *Server) sections() []struct{ name, text string } {
	lines := func(pairs ...any) string {
		var b strings.Builder
		for i := 0; i < len(pairs); i += 2 {
			b.WriteString(pairs[i].(string) + ":")
			switch v := pairs[i+1].(type) {
			case string:
				b.WriteString(v)
			case int:
				b.WriteString(strconv.Itoa(v))
			}
			b.WriteString("\r\n")
		}
		return b.String()
	}
	blocked := 0
	for _, c := range s.sessions.all() {
		blocked += bit(c.wait != nil)
	}
	up := s.now().Sub(s.started)
	return []struct{ name, text string }{
		{"Server", lines("redis_version", version, "redis_mode", "standalone", "run_id", s.id(),
			"uptime_in_seconds", int(up/time.Second), "uptime_in_days", int(up/(24*time.Hour)))},
		{"Clients", lines("connected_clients", s.sessions.len(), "blocked_clients", blocked)},
		{"Memory", lines("used_memory", s.used(), "maxmemory", s.most, "maxmemory_policy", "noeviction")},
		{"Persistence", lines("loading", bit(s.loading), "rdb_last_bgsave_status", "ok", "aof_enabled", 1,
			"aof_last_bgrewrite_status", "ok", "aof_last_write_status", "ok")},
		{"Stats", lines("total_connections_received", s.lastID, "total_commands_processed", s.executed(),
			"pubsub_channels", s.topics.channels.len(), "pubsub_patterns", s.topics.patterns.len())},
		{"Replication", lines("role", s.roleName("slave"), "connected_slaves", 0)},
		{"Commandstats", s.commandStats()},
		{"Keyspace", lines("db0", "keys="+strconv.Itoa(s.keys.len()))},
	}
}

func (s *Server) commandStats() string {
	var b strings.Builder
	for i, n := range s.calls {
		if n > 0 {
			b.WriteString("cmdstat_" + names[i] + ":calls=" + strconv.Itoa(n) +
				",usec=0,usec_per_call=0.00,rejected_calls=0,failed_calls=0\r\n")
		}
	}
	return b.String()
}

func info(s *Server, _ *Session, a []string) any {
	wanted := func(name string) bool {
		for _, arg := range a[1:] {
			switch arg = strings.ToLower(arg); {
			case arg == strings.ToLower(name), arg == "all", arg == "everything",
				arg == "default" && name != "Commandstats":
				return true
			}
		}
		return len(a) == 1 && name != "Commandstats"
	}
	var b strings.Builder
	for _, section := range s.sections() {
		if wanted(section.name) {
			if b.Len() > 0 {
				b.WriteString("\r\n")
			}
			b.WriteString("# " + section.name + "\r\n" + section.text)
		}
	}
	return b.String()
}
