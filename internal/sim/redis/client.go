package redis

import (
	"strconv"
	"strings"
)

func clientID(_ *Server, c *Session, _ []string) any { return c.id }

func clientGetName(_ *Server, c *Session, _ []string) any {
	if c.name == "" {
		return nil
	}
	return c.name
}

func clientSetName(_ *Server, c *Session, a []string) any {
	if strings.ContainsFunc(a[2], func(r rune) bool { return r < '!' || r > '~' }) {
		return failure("ERR Client names cannot contain spaces, newlines or special characters.")
	}
	c.name = a[2]
	return ok
}

func clientNoEvict(_ *Server, _ *Session, a []string) any {
	if !strings.EqualFold(a[2], "on") && !strings.EqualFold(a[2], "off") {
		return syntax
	}
	return ok
}

// typeName is what CLIENT KILL TYPE calls a session.
func (c *Session) typeName() string {
	if c.subscribed() > 0 {
		return "pubsub"
	}
	return "normal"
}

func clientList(s *Server, _ *Session, _ []string) any {
	var b strings.Builder
	for _, c := range s.sessions.all() {
		b.WriteString("id=" + c.key + " name=" + c.name + " db=0 sub=" + strconv.Itoa(c.channels.len()) +
			" psub=" + strconv.Itoa(c.patterns.len()) + " cmd=" + c.last + "\n")
	}
	return b.String()
}

// clientKill knows the filters ID, TYPE and SKIPME.
func clientKill(s *Server, c *Session, a []string) any {
	if len(a) == 3 { // an address, which no session has
		return failure("ERR No such client")
	}
	id, kind, skip := 0, "", true
	for i := 2; i < len(a); i += 2 {
		if i+1 == len(a) {
			return syntax
		}
		arg := strings.ToLower(a[i+1])
		switch strings.ToLower(a[i]) {
		case "id":
			n, is := integer(arg)
			if !is || n < 1 {
				return failure("ERR client-id should be greater than 0")
			}
			id = n
		case "type":
			switch arg {
			case "normal", "pubsub", "master", "replica", "slave":
				kind = arg
			default:
				return failure("ERR Unknown client type '" + a[i+1] + "'")
			}
		case "skipme":
			if arg != "yes" && arg != "no" {
				return syntax
			}
			skip = arg == "yes"
		default:
			return syntax
		}
	}
	n, self := 0, false
	for _, other := range s.sessions.all() {
		switch {
		case id != 0 && other.id != id, kind != "" && other.typeName() != kind, skip && other == c:
			continue
		case other == c:
			self = true
		default:
			s.hangUp(other)
		}
		n++
	}
	if self {
		return lastReply{n}
	}
	return n
}
