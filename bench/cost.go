package main

import (
	"fmt"
	"runtime"
	"strconv"
	"time"

	"github.com/gomodule/redigo/redis"
)

// cost is what one message cost: µs of a core, and allocations on the client's heap, less than none where unknown.
type cost struct{ redis, client, allocs float64 }

// addAllocs adds them where they are known: Node does not tell.
func (c cost) addAllocs(samples []sample, name string) []sample {
	if c.allocs < 0 {
		return samples
	}
	return append(samples, sample{name, c.allocs, perMessage})
}

// cpuTime is what this process has used, where the system can tell.
var cpuTime = func() time.Duration { return 0 }

// meter has the readings from when it was started.
type meter struct {
	srv           *server
	redis, client time.Duration
	mallocs       uint64
	err           error
}

func (s *server) meter() meter {
	m := meter{srv: s}
	m.redis, m.err = s.cpu()
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	m.mallocs, m.client = mem.Mallocs, cpuTime()
	return m
}

func (m meter) stop(messages int) (cost, error) {
	client := cpuTime() - m.client
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	used, err := m.srv.cpu()
	if m.err != nil {
		err = m.err
	}
	n := float64(messages)
	return cost{micros(used-m.redis) / n, micros(client) / n, float64(mem.Mallocs-m.mallocs) / n}, err
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// cpu is what the server has used.
func (s *server) cpu() (time.Duration, error) {
	sum := 0.0
	for _, name := range []string{"used_cpu_user", "used_cpu_sys"} {
		v, err := s.info("cpu", name)
		if err != nil {
			return 0, err
		}
		sum += v
	}
	return time.Duration(sum * float64(time.Second)), nil
}

// info is a number that INFO tells.
func (s *server) info(section, name string) (float64, error) {
	text, err := redis.String(s.conn.Do("INFO", section))
	if err != nil {
		return 0, fmt.Errorf("ask redis-server for its %s: %w", name, err)
	}
	v, err := strconv.ParseFloat(field(text, name), 64)
	if err != nil {
		return 0, fmt.Errorf("redis-server's %s: %w", name, err)
	}
	return v, nil
}
