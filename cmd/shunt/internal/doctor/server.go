package doctor

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/shuntmq/shunt"
)

// The bounds beyond which a setting or a figure of Redis is worth a word.
const (
	shortTimeout  = 10               // s of timeout
	longKeepAlive = 300              // s, the default of Redis
	leastPubSub   = 1 << 20          // bytes that a subscriber may be behind
	mostMemory    = 0.8              // of the machine's, where there is no maxmemory
	mostClients   = 0.8              // of maxclients
	fragmented    = 1.5              // memory of the process by memory that is used
	swapped       = 0.8              // the same
	fragmentedBy  = 100 << 20        // bytes; less is no matter
	longFork      = time.Second      // of the last snapshot
	lagTime       = 10 * time.Second // of a replica
	lagBytes      = 1 << 20
	mostSkew      = time.Second
	slowScript    = 10 * time.Millisecond
	slowScripts   = 5 // in the last hour
	oldest        = "5.0"
)

var settings = []string{"maxmemory-policy", "maxmemory", "appendonly", "appendfsync", "timeout", "tcp-keepalive",
	"client-output-buffer-limit", "proto-max-bulk-len", "maxclients"}

// server reads and judges Redis itself. What Queue.Health says of it is not said again.
func (e *examination) server() error {
	var skews []time.Duration
	var trip time.Duration
	for range 5 { // the fastest of some tells most
		asked, sent := e.o.Now(), time.Now()
		all, err := e.ask(command{"TIME"})
		if err != nil {
			return err
		}
		took := time.Since(sent)
		if now := all[0].time(); !now.IsZero() && (len(skews) == 0 || took < trip) {
			skews, trip = append(skews, now.Sub(asked.Add(took/2))), took
		}
	}
	if len(skews) > 0 {
		e.skew = skews[len(skews)-1]
	} else {
		e.limit("the clock of Redis: TIME is refused")
	}
	cmds := []command{{"INFO", "default"}, {"SLOWLOG", "GET", 128}}
	for _, name := range settings {
		cmds = append(cmds, command{"CONFIG", "GET", name})
	}
	all, err := e.ask(cmds...)
	if err != nil {
		return err
	}
	e.info, e.config = make(map[string]string), make(map[string]string)
	if all[0].err != nil {
		e.limit("Redis itself: INFO is refused: %v", all[0].err)
	}
	for line := range strings.Lines(all[0].text()) {
		if key, value, is := strings.Cut(strings.TrimSpace(line), ":"); is {
			e.info[key] = value
		}
	}
	for _, r := range all[2:] {
		if r.err != nil {
			e.limit("settings of Redis: CONFIG GET is refused: %v", r.err)
			break
		}
		if kv := r.strings(); len(kv) == 2 {
			e.config[kv[0]] = kv[1]
		}
	}
	e.report.Versions = map[string]string{"redis": e.info["redis_version"], "os": e.info["os"]}
	for _, name := range []string{"valkey_version", "dragonfly_version"} {
		if v := e.info[name]; v != "" {
			e.report.Versions[strings.TrimSuffix(name, "_version")] = v
		}
	}
	e.judgeInfo()
	e.judgeConfig()
	e.judgeClock(trip)
	e.slowLog(all[1])
	return nil
}

func (e *examination) judgeInfo() {
	used, rss := number(e.info, "used_memory"), number(e.info, "used_memory_rss")
	if total := number(e.info, "total_system_memory"); number(e.info, "maxmemory") == 0 && total > 0 &&
		used > mostMemory*total {
		e.found(shunt.Warning, HostMemory, Finding{Number: used / total, Do: "CONFIG SET maxmemory BYTES"},
			"Redis uses %.0f %% of the machine's memory, and has no maxmemory", 100*used/total)
	}
	switch waste := rss - used; {
	case used < fragmentedBy:
	case rss > fragmented*used && waste > fragmentedBy:
		e.found(shunt.Notice, Fragmented, Finding{Number: rss / used,
			Do: "CONFIG SET activedefrag yes, or MEMORY PURGE"},
			"Redis holds %.1f times the memory that it uses", rss/used)
	case rss > 0 && rss < swapped*used && number(e.info, "used_memory_startup") > 0:
		e.found(shunt.Warning, Swapped, Finding{Number: 1 - rss/used,
			Do: "give the machine more memory, or set maxmemory"},
			"%.0f %% of the memory of Redis is swapped out", 100*(1-rss/used))
	}
	if fork := time.Duration(number(e.info, "latest_fork_usec")) * time.Microsecond; fork > longFork {
		e.found(shunt.Warning, SlowFork, Finding{Number: fork.Seconds(),
			Do: "save less often, or give Redis less data"},
			"Redis stood still for %v when it forked last", fork.Round(time.Millisecond))
	}
	if e.info["loading"] == "1" {
		e.found(shunt.Critical, Loading, Finding{Do: "wait: INFO persistence says how long"}, "Redis loads its data")
	}
	if e.info["cluster_enabled"] == "1" {
		e.found(shunt.Warning, Cluster, Finding{Do: "use a Redis without Cluster"}, "Redis runs in cluster mode")
	}
	if v := e.info["redis_version"]; v != "" && before(v, oldest) {
		e.found(shunt.Critical, TooOld, Finding{Do: "upgrade Redis to 7"}, "Redis is %s; shunt needs %s or later", v,
			oldest)
	}
	if most := number(e.config, "maxclients"); most > 0 && number(e.info, "connected_clients") > mostClients*most {
		n := number(e.info, "connected_clients")
		e.found(shunt.Warning, Clients, Finding{Number: n, Do: fmt.Sprintf("CONFIG SET maxclients %.0f", 2*most)},
			"%.0f clients are connected, of %.0f at most", n, most)
	}
	e.replicas()
}

// replicas judges the lines slave0, slave1 and so on of INFO.
func (e *examination) replicas() {
	offset := number(e.info, "master_repl_offset")
	for i := range int(min(64, number(e.info, "connected_slaves"))) {
		of := make(map[string]string)
		for field := range strings.SplitSeq(e.info["slave"+strconv.Itoa(i)], ",") {
			if key, value, is := strings.Cut(field, "="); is {
				of[key] = value
			}
		}
		addr := of["ip"] + ":" + of["port"]
		f := Finding{Key: addr, Do: "look at the replica's log, and at the network between"}
		behind, lag := offset-number(of, "offset"), time.Duration(number(of, "lag"))*time.Second
		switch {
		case of["state"] != "online":
			e.found(shunt.Warning, ReplicaDown, f, "replica %s is not there yet: %s", addr, of["state"])
		case behind > lagBytes || lag > lagTime:
			f.Number = behind
			e.found(shunt.Warning, Lag, f, "replica %s is %.0f bytes behind, and spoke %v ago", addr, behind, lag)
		}
	}
	if e.info["role"] == "slave" && e.info["master_link_status"] == "down" {
		e.found(shunt.Warning, ReplicaDown, Finding{Do: "look at the log of this Redis"},
			"this Redis is a replica, and has lost its master")
	}
}

// judgeConfig judges settings. What CONFIG GET does not give is not judged.
func (e *examination) judgeConfig() {
	if p := e.config["maxmemory-policy"]; p != "" && p != "noeviction" && number(e.config, "maxmemory") == 0 {
		e.found(shunt.Notice, EvictionLater, setting(EvictionLater, 0),
			"Redis would drop keys when it is full (%s); it has no maxmemory yet", p)
	}
	if e.config["appendonly"] == "yes" && e.config["appendfsync"] == "no" {
		e.found(shunt.Warning, Fsync, setting(Fsync, 0), "the operating system decides when data go to the disk")
	}
	if n := number(e.config, "timeout"); n > 0 && n < shortTimeout {
		e.found(shunt.Notice, Timeout, setting(Timeout, n), "Redis closes connections that were idle for %.0f s", n)
	}
	if n, is := e.config["tcp-keepalive"]; is && (n == "0" || number(e.config, "tcp-keepalive") > longKeepAlive) {
		e.found(shunt.Notice, KeepAlive, setting(KeepAlive, number(e.config, "tcp-keepalive")), "tcp-keepalive is %s",
			n)
	}
	words := strings.Fields(e.config["client-output-buffer-limit"])
	for i := 0; i+3 < len(words); i += 4 {
		hard, _ := strconv.ParseFloat(words[i+1], 64)
		soft, _ := strconv.ParseFloat(words[i+2], 64)
		least, limit := hard, float64(0)
		if soft > 0 && (least == 0 || soft < least) {
			least = soft
		}
		kind := BufferPubSub
		switch words[i] {
		case "pubsub":
			limit = leastPubSub
		case "normal":
			kind, limit = BufferNormal, float64(2*e.o.MaxSize)
		}
		if least > 0 && least < limit {
			e.found(shunt.Warning, kind, setting(kind, least),
				"Redis closes a %s connection whose replies take %.0f bytes; %.0f may be needed",
				words[i], least, limit)
		}
	}
	if n := number(e.config, "proto-max-bulk-len"); n > 0 && n < float64(e.o.MaxSize) {
		e.found(shunt.Warning, BulkLength, setting(BulkLength, n),
			"Redis takes arguments of %.0f bytes, and MaxSize is %d", n, e.o.MaxSize)
	}
}

func (e *examination) judgeClock(trip time.Duration) {
	if off := e.skew.Abs() - trip/2; off > mostSkew {
		e.found(shunt.Warning, Skew, Finding{Number: e.skew.Seconds(),
			Do: "run an NTP client on both, which slews the clock"},
			"the clock of Redis is %v ahead of this host's", e.skew.Round(time.Millisecond))
	}
	lease := e.q.Lease
	if lease == 0 {
		lease = 10 * time.Second
	}
	if trip > lease/12 {
		e.found(shunt.Warning, RoundTrip, Finding{Number: trip.Seconds(),
			Do: "run programs nearer to Redis, or raise Lease"},
			"a round trip takes %v at least; with a Lease of %v it must stay below %v", trip.Round(time.Millisecond),
			lease, (lease / 6).Round(time.Millisecond))
	}
}

// slowLog counts what is ours among the slow commands of the last hour.
func (e *examination) slowLog(r reply) {
	if r.err != nil {
		e.limit("the slow log: %v", r.err)
		return
	}
	var n int
	var worst time.Duration
	var example string
	for _, v := range r.values() {
		entry := reply{v: v}.values()
		if len(entry) < 4 {
			continue
		}
		at, took := reply{v: entry[1]}.int(), time.Duration(reply{v: entry[2]}.int())*time.Microsecond
		if took < slowScript || e.o.Now().Add(e.skew).Sub(time.Unix(int64(at), 0)) > time.Hour {
			continue
		}
		words := reply{v: entry[3]}.strings()
		for _, w := range words {
			if k := parseKey(w); k.state != "" {
				if n++; took > worst {
					worst, example = took, words[0]+" "+w
				}
				break
			}
		}
	}
	if n >= slowScripts {
		e.found(shunt.Warning, SlowScripts, Finding{Number: float64(n),
			Do: "SLOWLOG GET 128; see large elements, long lists that are listed whole, and the load of the machine"},
			"%d slow commands of the last hour are shunt's; the slowest took %v: %s", n,
			worst.Round(time.Millisecond), example)
	}
}

// before compares versions such as 6.2.14.
func before(v, other string) bool {
	a, b := strings.Split(v, "."), strings.Split(other, ".")
	for i := range min(len(a), len(b)) {
		x, _ := strconv.Atoi(a[i])
		y, _ := strconv.Atoi(b[i])
		if x != y {
			return x < y
		}
	}
	return false
}
