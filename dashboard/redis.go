package dashboard

import (
	"strconv"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt"
)

type redisPage struct {
	Findings []shunt.Finding
	Groups   []infoGroup
	Slow     []slow
	Error    string
	SlowErr  string
	NoPool   bool
}

type infoGroup struct {
	Key   string
	Pairs [][2]string
}

// slow is an entry of Redis' slow log.
type slow struct {
	At      time.Time
	Took    time.Duration
	Command string
	Client  string
}

// infoShown are the fields of INFO that matter to a queue, by the headings of the page.
var infoShown = []struct {
	key    string
	fields []string
}{
	{"redis.server", []string{"redis_version", "role", "uptime_in_seconds", "instantaneous_ops_per_sec",
		"total_commands_processed", "connected_slaves", "master_link_status"}},
	{"redis.memory", []string{"used_memory_human", "used_memory_peak_human", "maxmemory_human", "maxmemory_policy",
		"mem_fragmentation_ratio", "evicted_keys"}},
	{"redis.clients", []string{"connected_clients", "blocked_clients", "maxclients", "rejected_connections",
		"pubsub_channels", "instantaneous_input_kbps", "instantaneous_output_kbps"}},
	{"redis.persistence", []string{"loading", "aof_enabled", "aof_last_write_status", "aof_last_bgrewrite_status",
		"rdb_last_bgsave_status", "rdb_changes_since_last_save", "rdb_last_save_time"}},
}

// redis shows the server.
func (q *request) redis() error {
	var p redisPage
	var err error
	if p.Findings, err = q.q.HealthOf(q.r.Context(), nil); err != nil {
		p.Error = err.Error()
	}
	if p.NoPool = q.o.Pool == nil; !p.NoPool {
		q.ask(&p)
	}
	return q.show("redis", "Redis", p)
}

func (q *request) ask(p *redisPage) {
	const patience = 3 * time.Second
	c, err := q.o.Pool.GetContext(q.r.Context())
	if err != nil {
		p.Error = err.Error()
		return
	}
	defer c.Close()
	text, err := redis.String(redis.DoWithTimeout(c, patience, "INFO", "default"))
	if err != nil {
		p.Error = err.Error()
	}
	info := make(map[string]string)
	for line := range strings.Lines(text) {
		if key, value, is := strings.Cut(strings.TrimSpace(line), ":"); is {
			info[key] = value
		}
	}
	for _, g := range infoShown {
		group := infoGroup{Key: g.key}
		for _, f := range g.fields {
			if v := info[f]; v != "" {
				group.Pairs = append(group.Pairs, [2]string{f, q.infoValue(f, v)})
			}
		}
		if len(group.Pairs) > 0 {
			p.Groups = append(p.Groups, group)
		}
	}
	list, err := redis.Values(redis.DoWithTimeout(c, patience, "SLOWLOG", "GET", 25))
	if err != nil {
		p.SlowErr = err.Error()
	}
	for _, one := range list {
		v, _ := redis.Values(one, nil)
		if len(v) < 4 {
			continue
		}
		at, _ := redis.Int64(v[1], nil)
		micros, _ := redis.Int64(v[2], nil)
		s := slow{At: time.Unix(at, 0), Took: time.Duration(micros) * time.Microsecond}
		// Arguments may be payloads, so no more than the command and its key is shown.
		args, _ := redis.Strings(v[3], nil)
		s.Command = commandOf(args)
		if len(v) > 4 {
			s.Client, _ = redis.String(v[4], nil)
		}
		p.Slow = append(p.Slow, s)
	}
}

func (q *request) infoValue(field, v string) string {
	switch n, err := strconv.ParseInt(v, 10, 64); {
	case err != nil:
		return v
	case field == "uptime_in_seconds":
		return duration(time.Duration(n)*time.Second, q.Lang)
	case field == "rdb_last_save_time":
		return stamp(time.Unix(n, 0))
	default:
		return thousands(n)
	}
}

// commandOf is a command with the key, or the keys of a script.
func commandOf(args []string) string {
	if len(args) == 0 {
		return ""
	}
	n := 2
	if strings.HasPrefix(strings.ToUpper(args[0]), "EVAL") && len(args) > 3 {
		args = append([]string{args[0], cut(12, args[1])}, args[3:]...)
		n = 3
	}
	text := strings.Join(args[:min(n, len(args))], " ")
	if len(args) > n {
		text += " …"
	}
	return cut(200, text)
}
