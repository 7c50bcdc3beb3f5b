package doctor

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
)

// command is a name and its arguments.
type command []any

// reply is what Redis said to one command; err is its refusal.
type reply struct {
	v   any
	err error
}

const commandsAsk = 200 // most commands of one pipeline

// ask sends commands as pipelines. An error is that of the connection; what Redis refuses is in its reply.
func (e *examination) ask(cmds ...command) ([]reply, error) {
	all := make([]reply, 0, len(cmds))
	for len(cmds) > 0 {
		n := min(len(cmds), commandsAsk)
		some, err := e.pipeline(cmds[:n])
		if err != nil {
			return nil, err
		}
		all, cmds = append(all, some...), cmds[n:]
		if len(cmds) > 0 {
			e.rest(e.o.Pause)
		}
	}
	return all, nil
}

func (e *examination) pipeline(cmds []command) ([]reply, error) {
	conn, err := e.pool.GetContext(e.ctx)
	if err != nil {
		return nil, fmt.Errorf("doctor: reach Redis: %w", err)
	}
	defer conn.Close()
	for _, c := range cmds {
		if err := conn.Send(fmt.Sprint(c[0]), c[1:]...); err != nil {
			return nil, fmt.Errorf("doctor: send %v: %w", c[0], err)
		}
	}
	if err := conn.Flush(); err != nil {
		return nil, fmt.Errorf("doctor: send: %w", err)
	}
	all := make([]reply, len(cmds))
	for i := range all {
		v, err := redis.ReceiveWithTimeout(conn, e.o.Timeout)
		var refusal redis.Error
		if err != nil && !errors.As(err, &refusal) {
			return nil, fmt.Errorf("doctor: %v: %w", cmds[i][0], err)
		}
		all[i] = reply{v, err}
	}
	return all, nil
}

// one asks one command.
func (e *examination) one(cmd ...any) reply {
	all, err := e.ask(command(cmd))
	if err != nil {
		return reply{err: err}
	}
	return all[0]
}

func (r reply) text() string        { s, _ := redis.String(r.v, r.err); return s }
func (r reply) int() int            { n, _ := redis.Int(r.v, r.err); return n }
func (r reply) strings() []string   { ss, _ := redis.Strings(r.v, r.err); return ss }
func (r reply) values() []any       { vs, _ := redis.Values(r.v, r.err); return vs }
func (r reply) wrongType() bool     { return r.err != nil && strings.HasPrefix(r.err.Error(), "WRONGTYPE") }
func (r reply) time() (t time.Time) { return timeOf(r.strings()) }

// timeOf reads a reply to TIME.
func timeOf(parts []string) time.Time {
	if len(parts) != 2 {
		return time.Time{}
	}
	s, _ := strconv.ParseInt(parts[0], 10, 64)
	us, _ := strconv.ParseInt(parts[1], 10, 64)
	return time.Unix(s, us*1000)
}

// scored is a member of a sorted set.
type scored struct {
	member string
	score  float64
}

func (r reply) scored() (all []scored) {
	ss := r.strings()
	for i := 0; i+1 < len(ss); i += 2 {
		n, _ := strconv.ParseFloat(ss[i+1], 64)
		all = append(all, scored{ss[i], n})
	}
	return all
}

// number reads a number of INFO or CONFIG; 0 where there is none.
func number(of map[string]string, key string) float64 {
	n, _ := strconv.ParseFloat(strings.TrimSuffix(of[key], "%"), 64)
	return n
}

// many is a number with its noun, of which the plural has an s or is given.
func many(n int, one string, more ...string) string {
	switch {
	case n == 1:
		return "1 " + one
	case len(more) > 0:
		one = more[0]
	default:
		one += "s"
	}
	return strconv.Itoa(n) + " " + one
}
