package doctor

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/redistest"
)

// fault is one thing that is planted on a live Redis.
type fault struct {
	kind     Kind
	severity shunt.Severity
	number   float64 // 0: any
	says     string  // is in Text
	fix      Fix
	also     string // kinds that come with it, separated by blanks
	conf     []string
	plant    func(b *bench)
	kept     func(b *bench) // what must be there after it was mended
}

const c = "{c}." // of the channel at fault

// serverFaults are planted one at a time. Names are those of kinds, with a word more where there are several.
var serverFaults = map[string]fault{
	"eviction": {kind: "eviction", severity: shunt.Critical, says: "allkeys-lru", fix: Setting, plant: func(b *bench) {
		b.set("maxmemory", "1gb")
		b.set("maxmemory-policy", "allkeys-lru")
	}},
	"eviction-later": {kind: EvictionLater, severity: shunt.Notice, says: "volatile-ttl", fix: Setting,
		plant: func(b *bench) { b.set("maxmemory-policy", "volatile-ttl") }},
	"memory": {kind: "memory", severity: shunt.Warning, plant: func(b *bench) {
		b.set("maxmemory", strconv.Itoa(b.s.Memory()*105/100))
	}},
	"no-aof": {kind: "no-aof", severity: shunt.Notice, fix: Setting, conf: []string{"appendonly no"},
		plant: func(*bench) {}},
	"fsync": {kind: Fsync, severity: shunt.Warning, fix: Setting,
		plant: func(b *bench) { b.set("appendfsync", "no") }},
	"persistence": {kind: "persistence", severity: shunt.Critical, conf: []string{"enable-protected-configs yes"},
		plant: func(b *bench) {
			dir := filepath.Join(b.t.TempDir(), "gone")
			if err := os.Mkdir(dir, 0o700); err != nil {
				b.t.Fatal(err)
			}
			b.set("dir", dir)
			if err := os.RemoveAll(dir); err != nil {
				b.t.Fatal(err)
			}
			b.do("BGSAVE")
			redistest.Until(b.t, 5*time.Second, "the snapshot fails", func() bool {
				return strings.Contains(string(b.do("INFO", "persistence").([]byte)), "rdb_last_bgsave_status:err")
			})
		}},
	"replica": {kind: "replica", severity: shunt.Critical, also: string(ReplicaDown),
		plant: func(b *bench) { b.do("REPLICAOF", "127.0.0.1", "1") }},
	"replication-lag": {kind: Lag, severity: shunt.Warning, says: "bytes behind", plant: func(b *bench) {
		replica := redistest.Start(b.t)
		host, port, _ := strings.Cut(b.s.Addr(), ":")
		replica.Do("REPLICAOF", host, port)
		redistest.Until(b.t, 10*time.Second, "the replica is there", func() bool {
			return strings.Contains(string(b.do("INFO", "replication").([]byte)), "state=online")
		})
		replica.Stop()
		b.do("SET", "large", strings.Repeat("x", 2<<20))
	}},
	"timeout": {kind: Timeout, severity: shunt.Notice, number: 5, fix: Setting,
		plant: func(b *bench) { b.set("timeout", "5") }},
	"tcp-keepalive": {kind: KeepAlive, severity: shunt.Notice, fix: Setting,
		plant: func(b *bench) { b.set("tcp-keepalive", "0") }},
	"buffer-pubsub": {kind: BufferPubSub, severity: shunt.Warning, number: 1000, fix: Setting,
		plant: func(b *bench) { b.set("client-output-buffer-limit", "pubsub 1000 0 0") }},
	"buffer-normal": {kind: BufferNormal, severity: shunt.Warning, number: 1 << 20, fix: Setting,
		plant: func(b *bench) { b.set("client-output-buffer-limit", "normal 0 1mb 10") }},
	"bulk-length": {kind: BulkLength, severity: shunt.Warning, number: 1 << 20, fix: Setting,
		plant: func(b *bench) { b.set("proto-max-bulk-len", "1mb") }},
	"clients": {kind: Clients, severity: shunt.Warning, plant: func(b *bench) {
		b.set("maxclients", "20")
		for range 16 {
			c := b.pool.Get()
			if _, err := c.Do("PING"); err != nil {
				b.t.Fatal(err)
			}
			b.t.Cleanup(func() { _ = c.Close() })
		}
	}},
	"rights-needed": {kind: RightsNeeded, severity: shunt.Critical, says: "+lpush", plant: func(b *bench) {
		b.o.User = "app"
		b.do("ACL", "SETUSER", "app", "on", ">p", "~*", "&*", "+@all", "-lpush")
	}},
	"rights-needed by its own": {kind: RightsNeeded, severity: shunt.Critical, says: "+rpoplpush",
		plant: func(b *bench) {
			b.do("ACL", "SETUSER", "app", "on", ">p", "~*", "&*", "+@all", "-acl", "-rpoplpush")
			b.connect("redis://app:p@" + b.s.Addr())
		}},
	"rights-needed without scripts": {kind: RightsNeeded, severity: shunt.Critical, says: "+eval +evalsha",
		also: "any", plant: func(b *bench) {
			b.do("ACL", "SETUSER", "app", "on", ">p", "~*", "&*", "+@all", "-acl", "-eval", "-evalsha")
			b.connect("redis://app:p@" + b.s.Addr())
		}},
	"rights-lacking": {kind: RightsLacking, severity: shunt.Notice, says: "+publish", plant: func(b *bench) {
		b.do("ACL", "SETUSER", "app", "on", ">p", "~*", "&*", "+@all", "-acl", "-publish")
		b.connect("redis://app:p@" + b.s.Addr())
	}},
	"rights-lacking for ids": {kind: RightsLacking, severity: shunt.Warning, says: "+hsetnx", plant: func(b *bench) {
		b.enqueue("c", shunt.ID("one"))
		b.o.User = "app"
		b.do("ACL", "SETUSER", "app", "on", ">p", "~*", "&*", "+@all", "-hsetnx")
	}},
	"clock-skew": {kind: Skew, severity: shunt.Warning, says: "-1m",
		plant: func(b *bench) { b.o.Now = func() time.Time { return time.Now().Add(90 * time.Second) } }},
	"round-trip": {kind: RoundTrip, severity: shunt.Warning, plant: func(b *bench) {
		p := redistest.NewProxy(b.t, b.s.Addr())
		b.connect(p.URL())
		b.q.Lease = time.Second
		p.On(redistest.Command("TIME"), 0, redistest.Delay(100*time.Millisecond))
	}},
	"slow-scripts": {kind: SlowScripts, severity: shunt.Warning, number: 6, says: "c}.prepare", plant: func(b *bench) {
		b.set("slowlog-log-slower-than", "10000")
		for range 6 {
			b.do("EVAL", "local a = redis.call('TIME') repeat local n = redis.call('TIME') until "+
				"(n[1] - a[1]) * 1000000 + n[2] - a[2] > 12000", 1, c+"prepare")
		}
	}},
}

// has fails the test unless a key of the channel has so many.
func (b *bench) has(state string, n int64) {
	b.t.Helper()
	count := map[string]string{"list": "LLEN", "zset": "ZCARD", "hash": "HLEN"}[types[state]]
	if got := b.do(count, c+state); got != n {
		b.t.Errorf("%s has %v, want %d", state, got, n)
	}
}

// keeper keeps the time of the channel, so that delayed messages need nobody.
func (b *bench) keeper() { b.do("HSET", c+"keeper", "name", "test", "until", b.now(time.Hour)) }

// Each fault is found and named, alone; and where that is safe it is mended, and then gone.
func TestFaults(t *testing.T) {
	t.Parallel()
	slots := make(chan struct{}, 8) // of servers at a time
	faults := maps.Clone(serverFaults)
	maps.Copy(faults, channelFaults)
	for name, f := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			slots <- struct{}{}
			defer func() { <-slots }()
			redistest.Leaks(t)
			b := start(t, f.conf...)
			f.plant(b)
			r := b.examine()
			got := find(r, f.kind)
			if got == nil {
				t.Fatalf("not found. What is:\n%s\nLimits: %q", kinds(r), r.Limits)
			}
			if got.Severity != f.severity || !strings.Contains(got.Text, f.says) || got.Why == "" || got.Do == "" ||
				got.Fix != f.fix || f.number != 0 && got.Number != f.number {
				t.Errorf("wrong: %+v", *got)
			}
			for _, g := range r.Findings {
				if g.Kind != f.kind && f.also != "any" && !strings.Contains(" "+f.also+" ", " "+string(g.Kind)+" ") {
					t.Errorf("false alarm: %+v", g)
				}
			}
			f.mend(t, b, *got)
		})
	}
}

// mend checks that a finding is mended, or why it is not.
func (f *fault) mend(t *testing.T, b *bench, got Finding) {
	ctx := context.Background()
	err := Mend(ctx, b.q, b.pool, got, b.o)
	if f.fix == ByHand {
		if !errors.Is(err, ErrByHand) {
			t.Errorf("Mend: %v", err)
		}
		return
	}
	if f.fix == Setting {
		if !errors.Is(err, ErrSetting) {
			t.Errorf("Mend without Config: %v", err)
		}
		b.o.Config = true
		err = Mend(ctx, b.q, b.pool, got, b.o)
	}
	if err != nil {
		t.Fatalf("Mend: %v", err)
	}
	if r := b.examine(); find(r, f.kind) != nil {
		t.Errorf("still there after Mend:\n%s", kinds(r))
	}
	if f.kept != nil {
		f.kept(b)
	}
}
