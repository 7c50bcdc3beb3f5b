package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/shuntmq/shunt"
)

// channelFaults are faults of keys and channels.
var channelFaults = map[string]fault{
	"wrong-type": {kind: WrongType, severity: shunt.Critical, says: c + "prepare is a string", also: "unreadable",
		plant: func(b *bench) { b.list("c"); b.do("SET", c+"prepare", "x") }},
	"wrong-type of the audit": {kind: WrongType, severity: shunt.Critical, says: "shunt.audit is a hash",
		plant: func(b *bench) { b.do("HSET", auditKey, "a", "b") }},
	"unreadable": {kind: "unreadable", severity: shunt.Critical, plant: func(b *bench) { b.list("a {b}") }},
	"expires": {kind: Expires, severity: shunt.Critical, says: c + "prepare is gone in", fix: Safe,
		plant: func(b *bench) { b.enqueue("c"); b.do("EXPIRE", c+"prepare", 1000) },
		kept:  func(b *bench) { b.has("prepare", 1) }},
	"unlisted": {kind: Unlisted, severity: shunt.Warning, fix: Safe,
		plant: func(b *bench) { b.do("LPUSH", c+"prepare", element(0, "x")) }},
	"empty-channels": {kind: Empty, severity: shunt.Notice, number: 120, plant: func(b *bench) {
		for i := range 120 {
			b.list(fmt.Sprint("gone", i))
		}
	}},
	"doing-of-nobody": {kind: DoingOfNobody, severity: shunt.Critical, number: 3, fix: Safe, plant: func(b *bench) {
		b.list("c")
		b.do("LPUSH", c+"doing."+somebody+".0", element(0, "a"), element(0, "b"))
		b.do("LPUSH", c+"doing."+somebody+".1", element(0, "a"))
	}, kept: func(b *bench) { b.has("prepare", 3) }},
	"doing-of-nobody of another name": {kind: DoingOfNobody, severity: shunt.Critical, number: 1,
		plant: func(b *bench) {
			b.list("c")
			b.do("LPUSH", c+"doing.me.0", element(0, "a"))
		}},
	"dead-unswept": {kind: DeadUnswept, severity: shunt.Critical, number: 1, fix: Safe, plant: func(b *bench) {
		b.list("c")
		b.do("ZADD", c+"receivers.dead", b.now(-time.Minute), fmt.Sprint(somebody, " ", b.now(-2*time.Minute), " r"))
		b.do("LPUSH", c+"doing."+somebody+".0", element(0, "a"))
	}, kept: func(b *bench) { b.has("prepare", 1) }},
	"dead-unswept that nobody found": {kind: DeadUnswept, severity: shunt.Notice, fix: Safe, plant: func(b *bench) {
		b.list("c")
		b.do("ZADD", c+"receivers", b.now(-time.Minute), somebody)
	}},
	"lease-of-nobody": {kind: LeaseOfNobody, severity: shunt.Critical, number: 1, fix: Safe, plant: func(b *bench) {
		b.list("c")
		b.do("LPUSH", c+"leased."+someLease, element(0, "a"))
	}, kept: func(b *bench) { b.has("prepare", 1) }},
	"lease-overdue": {kind: "lease-overdue", severity: shunt.Warning, fix: Safe, plant: func(b *bench) {
		b.list("c")
		b.do("ZADD", c+"leased", b.now(-time.Minute), someLease)
		b.do("LPUSH", c+"leased."+someLease, element(0, "a"))
	}, kept: func(b *bench) { b.has("prepare", 1) }},
	"lease-of-nobody of another name": {kind: LeaseOfNobody, severity: shunt.Critical, number: 1,
		plant: func(b *bench) {
			b.list("c")
			b.do("LPUSH", c+"leased.mine", element(0, "a"))
		}},
	"registry-malformed": {kind: Registry, severity: shunt.Warning, says: "nonsense", plant: func(b *bench) {
		b.list("c")
		b.do("ZADD", c+"receivers", b.now(time.Hour), "nonsense")
	}},
	"ids-without-messages": {kind: IDs, severity: shunt.Warning, number: 3, says: "3 IDs", fix: Safe,
		plant: func(b *bench) {
			for i := range 3 {
				b.enqueue("c", shunt.ID(fmt.Sprint("lost", i)))
			}
			b.do("DEL", c+"prepare", c+"receipts")
			b.enqueue("c", shunt.ID("there"))
			b.enqueue("c", shunt.ID("later"), shunt.In(time.Hour))
			b.keeper()
		}, kept: func(b *bench) { b.has("ids", 2); b.enqueue("c", shunt.ID("lost0")) }},
	"marks-without-messages": {kind: Marks, severity: shunt.Notice, number: 3, fix: Safe, plant: func(b *bench) {
		b.list("c")
		b.do("HSET", c+"running", strings.Repeat("a", 16), somebody+" 0 1 1234")
		b.do("SADD", c+"cancelled", strings.Repeat("b", 16))
		b.do("SADD", c+"waited", strings.Repeat("d", 16))
	}},
	"unforgotten": {kind: Unforgotten, severity: shunt.Notice, number: 1, fix: Safe, plant: func(b *bench) {
		b.list("c")
		b.do("ZADD", c+"kept", b.now(-2*time.Minute), "rone")
	}},
	"overdue": {kind: "overdue", severity: shunt.Critical, fix: Safe, plant: func(b *bench) {
		b.list("c")
		b.do("ZADD", c+"delay", b.now(-time.Minute), element(0, "a"))
	}, kept: func(b *bench) { b.has("prepare", 1) }},
	"no-keeper": {kind: NoKeeper, severity: shunt.Warning, plant: func(b *bench) {
		b.enqueue("c", shunt.In(time.Hour))
	}},
	"nobody-takes": {kind: "nobody-takes", severity: shunt.Critical, number: 1, plant: func(b *bench) {
		b.list("c")
		b.do("LPUSH", c+"prepare", element(time.Hour, "a"))
	}},
	"starving": {kind: Starving, severity: shunt.Warning, number: 1, plant: func(b *bench) {
		b.list("c")
		b.do("LPUSH", c+"prepare", element(10*time.Second, "a"))
		b.do("ZADD", c+"receivers", b.now(time.Minute), somebody)
	}},
	"suspects": {kind: "suspects", severity: shunt.Warning, number: 1, plant: func(b *bench) {
		b.list("c")
		b.do("LPUSH", c+"suspect", element(0, "a"))
	}},
	"huge": {kind: HugeChannel, severity: shunt.Notice, number: 5000, plant: func(b *bench) {
		b.o.Huge = 5000
		b.list("c")
		b.do("EVAL", "for i = 1, 5000 do redis.call('LPUSH', KEYS[1], ARGV[1] .. i) end", 1, c+"prepare", element(0,
			""))
	}},
	"hot": {kind: HotChannel, severity: shunt.Notice, plant: func(b *bench) {
		b.o.Hot = 1
		ms := make([]shunt.IMessage, 2000)
		for i := range ms {
			ms[i] = shunt.Raw("c", []byte("x"))
		}
		q := &shunt.Queue{Pool: b.pool, Quiet: true}
		if err := errors.Join(q.EnqueueAll(context.Background(), ms), q.Close()); err != nil {
			b.t.Fatal(err)
		}
	}},
	"near-size": {kind: NearSize, severity: shunt.Warning, says: "{c}.prepare has 90", plant: func(b *bench) {
		b.o.MaxSize = 100_000
		b.list("c")
		b.do("LPUSH", c+"prepare", element(0, strings.Repeat("x", 90_000)))
	}},
	"newer-elements": {kind: Newer, severity: shunt.Warning, number: 1, also: "nobody-takes", plant: func(b *bench) {
		b.list("c")
		b.do("LPUSH", c+"prepare", "\xc1\x20"+element(0, "x")[2:])
	}},
	"dead-unbounded": {kind: DeadUnbounded, severity: shunt.Warning, number: 152, also: "dying dead-full",
		plant: func(b *bench) {
			b.o.MaxDead = 50
			b.list("c")
			b.do("EVAL", "for i = 1, 151 do redis.call('ZADD', KEYS[1], i, ARGV[1] .. i) end", 1, c+"dead", element(0,
				""))
			q := &shunt.Queue{Pool: b.pool, Quiet: true, MaxDead: -1, DeadFor: -1}
			dead := make(chan struct{}, 1)
			q.Events = func(e shunt.Event) {
				if e.Kind == shunt.EventRejected {
					dead <- struct{}{}
				}
			}
			refuse := shunt.Define("c", func(context.Context, string) error { return shunt.Reject(errors.New("no")) })
			if _, err := q.Receive(context.Background(), refuse, 1); err != nil {
				b.t.Fatal(err)
			}
			b.t.Cleanup(func() { _ = q.Close() })
			if err := q.Enqueue(context.Background(), refuse.Message("x")); err != nil {
				b.t.Fatal(err)
			}
			<-dead
			if err := q.Close(); err != nil {
				b.t.Fatal(err)
			}
		}},
}
