package store

import (
	"strings"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/link"
)

// ServerRun is the run_id of a Redis process: it differs after each restart and at each replica. It is empty where
// the server does not say, as one whose ACL refuses INFO.
type ServerRun string

// AddServerRun asks which process answers.
func AddServerRun(c *link.Call) { c.Add("INFO", "server") }

// ServerRunReply reads the reply to AddServerRun.
func ServerRunReply(rep link.Reply) (ServerRun, error) {
	text, err := redis.String(rep.Any(), rep.Err)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(text) {
		if id, is := strings.CutPrefix(line, "run_id:"); is {
			return ServerRun(strings.TrimSpace(id)), nil
		}
	}
	return "", nil
}
