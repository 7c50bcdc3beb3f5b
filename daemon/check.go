package daemon

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/gomodule/redigo/redis"
)

// check looks at what a Redis for queues should have. Each miss says what it may cost.
func (p *pool) check(ctx context.Context) (misses []error) {
	info, err := p.info(ctx)
	if err != nil {
		return []error{fmt.Errorf("daemon: pool %s: Redis cannot be asked, so nothing is served until it can: %w",
			p.name, err)}
	}
	for _, miss := range missesOf(info) {
		misses = append(misses, fmt.Errorf("daemon: pool %s: %w", p.name, miss))
	}
	return misses
}

// missesOf are what INFO tells. What a server does not tell is no miss.
func missesOf(info map[string]string) (misses []error) {
	miss := func(text string, args ...any) { misses = append(misses, fmt.Errorf(text, args...)) }
	if policy := info["maxmemory_policy"]; policy != "" && policy != "noeviction" {
		miss("maxmemory-policy is %s: when memory runs out Redis drops jobs, tokens or limits without a trace: "+
			"set noeviction", policy)
	}
	if info["aof_enabled"] == "0" {
		miss("the AOF is off: when Redis crashes, all that was published since its last snapshot is lost, and what " +
			"was acked since then is delivered again: set appendonly yes")
	}
	if info["role"] == "slave" {
		miss("it is a replica: it takes no writes: name its master")
	}
	if info["rdb_last_bgsave_status"] == "err" || info["aof_last_write_status"] == "err" {
		miss("it cannot write to its disk: it may refuse all writes, and a restart would lose them: free some space")
	}
	if version := info["redis_version"]; version != "" && older(version, 6, 2) {
		miss("it is version %s: before 6.2 a waiting consume is woken up to 100 ms late, and costs Redis more", version)
	}
	return misses
}

// info is what INFO tells: nothing where it is refused, or its section is unknown, while Redis answers.
func (p *pool) info(ctx context.Context) (map[string]string, error) {
	text, err := redis.String(p.do(ctx, "INFO", "default"))
	var refused redis.Error
	if errors.As(err, &refused) {
		_, err = p.do(ctx, "PING")
	}
	return parseInfo(text), err
}

func parseInfo(text string) map[string]string {
	info := make(map[string]string)
	for line := range strings.SplitSeq(text, "\n") {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[name] = value
		}
	}
	return info
}

func older(version string, major, minor int) bool {
	var at [2]int
	for i, part := range strings.SplitN(version, ".", 3) {
		n, err := strconv.Atoi(part)
		if i > 1 || err != nil {
			break
		}
		at[i] = n
	}
	return at[0] < major || at[0] == major && at[1] < minor
}

// Check does the start-up checks alone, and joins all misses: of the certificates, and of the Redis servers unless
// Config.Checks is off.
func (d *Daemon) Check(ctx context.Context) error {
	_, errAPI := certificate("api", &d.Config.API)
	_, errAdmin := certificate("admin", &d.Config.Admin.Listener)
	misses := []error{errAPI, errAdmin}
	for name, c := range d.Config.Pools {
		p, err := openPool(name, c)
		if err != nil {
			misses = append(misses, err)
			continue
		}
		if d.Config.Checks != "off" {
			misses = append(misses, p.check(ctx)...)
		}
		_ = p.queue.Pool.Close()
		_ = p.own.Close()
	}
	return errors.Join(misses...)
}
