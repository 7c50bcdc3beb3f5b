package redis

import (
	"fmt"

	"github.com/gomodule/redigo/redis"
)

// Do executes a command for a checker or an operator's hand, and replies as redigo does: nil, int64, []byte, string,
// []any, or a redis.Error. It never blocks; a blocking command that finds nothing has a nil reply.
func (s *Server) Do(command string, args ...any) (any, error) {
	own := append(make([]string, 0, 1+len(args)), command)
	for _, a := range args {
		switch a := a.(type) {
		case string:
			own = append(own, a)
		case []byte:
			own = append(own, string(a))
		default:
			own = append(own, fmt.Sprint(a))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = 0
	v := s.execute(s.hand, own)
	s.settle()
	if f, is := v.(failure); is {
		return nil, redis.Error(f)
	}
	return given(v), nil
}

// given is a reply as redigo gives it.
func given(v any) any {
	switch v := v.(type) {
	case int:
		return int64(v)
	case string:
		return []byte(v)
	case status:
		return string(v)
	case failure:
		return redis.Error(v)
	case []string:
		all := make([]any, len(v))
		for i, e := range v {
			all[i] = []byte(e)
		}
		return all
	case []any:
		all := make([]any, len(v))
		for i, e := range v {
			all[i] = given(e)
		}
		return all
	case lastReply:
		return given(v.v)
	}
	return nil
}
