package store

import (
	"context"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/oklog/ulid/v2"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/link"
)

// AreCancelled are those of some messages that were cancelled.
func AreCancelled(ctx context.Context, l *link.Link, k *Keys, serials []ulid.ULID) (cancelled []ulid.ULID, err error) {
	c := link.NewCall()
	for _, serial := range serials {
		c.Add("SISMEMBER", k.Cancelled, serial[:])
	}
	if err := l.Run(ctx, c); err != nil {
		return nil, err
	}
	for i, serial := range serials {
		if n, _ := redis.Int(c.Replies[i].Value, nil); n == 1 {
			cancelled = append(cancelled, serial)
		}
	}
	return cancelled, nil
}

const (
	receiptFor = 24 * time.Hour // by the producer's clock: the one place where that counts
	scanCount  = 1000           // members that one command looks at, more or less
)

// Scan is where the upkeep of a channel goes on. The zero Scan begins.
type Scan struct{ marks, receipts string }

// Upkeep removes what faults have left of messages with an id, a page at a time. That is marks in running that a
// command of a broken connection set late, and receipts whose producer never came back. Neither holds an id or a
// message.
func Upkeep(ctx context.Context, l *link.Link, k *Keys, at *Scan, now time.Time) error {
	c := link.NewCall()
	c.Add("EXISTS", k.Running, k.Receipts)
	if err := l.Run(ctx, c); err != nil {
		return err
	}
	if n, _ := redis.Int(c.Replies[0].Value, nil); n == 0 {
		return nil
	}
	c = link.NewCall()
	c.Add("HSCAN", k.Running, start(at.marks), "COUNT", scanCount)
	c.Add("SSCAN", k.Receipts, start(at.receipts), "COUNT", scanCount)
	c.Add("ZRANGE", k.Receivers, 0, -1)
	c.Add("ZRANGE", k.DeadReceivers, 0, -1)
	if err := l.Run(ctx, c); err != nil {
		return err
	}
	known := make(map[string]bool) // incarnations
	for _, rep := range c.Replies[2:] {
		names, _ := redis.Strings(rep.Value, nil)
		for _, n := range names {
			name, _, _ := strings.Cut(n, " ") // empty where others have put it there
			known[name] = true
		}
	}
	held := page(c.Replies[0], &at.marks)
	if err := addLeases(ctx, l, k, held, known); err != nil {
		return err
	}
	marks := staleMarks(held, known)
	receipts := oldReceipts(page(c.Replies[1], &at.receipts), now)
	if len(marks)+len(receipts) == 0 {
		return nil
	}
	c = link.NewCall()
	if len(marks) > 0 {
		c.AddScript(Unmark, 2, k.Receivers, k.Running) // another may have taken a message meanwhile
		c.AddElements(marks...)
	}
	if len(receipts) > 0 {
		c.Add("SREM", k.Receipts)
		c.AddElements(receipts...)
	}
	return l.Run(ctx, c)
}

func start(cursor string) string {
	if cursor == "" {
		return "0"
	}
	return cursor
}

// page is the members of a scan's reply; cursor becomes its own.
func page(rep link.Reply, cursor *string) [][]byte {
	vs, _ := redis.Values(rep.Value, nil)
	if len(vs) < 2 {
		return nil
	}
	*cursor, _ = redis.String(vs[0], nil)
	members, _ := redis.ByteSlices(vs[1], nil)
	return members
}

// addLeases adds to the known holders those leases that some marks name and that there are.
func addLeases(ctx context.Context, l *link.Link, k *Keys, held [][]byte, known map[string]bool) error {
	var holders []string
	c := link.NewCall()
	for i := 0; i+1 < len(held); i += 2 {
		if name, leased := strings.CutPrefix(holderOf(held[i+1]), leaseHolder); leased {
			holders = append(holders, leaseHolder+name)
			c.Add("EXISTS", k.LeaseList(name))
		}
	}
	if len(holders) == 0 {
		return nil
	}
	if err := l.Run(ctx, c); err != nil {
		return err
	}
	for i, holder := range holders {
		n, _ := redis.Int(c.Replies[i].Value, nil)
		known[holder] = n == 1
	}
	return nil
}

// holderOf is the incarnation, or the lease, that a mark names.
func holderOf(mark []byte) string {
	name, _, _ := strings.Cut(string(mark), " ")
	name, _, _ = strings.Cut(name, "/")
	return name
}

// staleMarks are the serials whose holder is neither an incarnation nor a lease, each with its mark.
func staleMarks(held [][]byte, known map[string]bool) (stale [][]byte) {
	for i := 0; i+1 < len(held); i += 2 {
		if !known[holderOf(held[i+1])] {
			stale = append(stale, held[i], held[i+1])
		}
	}
	return stale
}

// oldReceipts are those of more than a day ago, and what is none.
func oldReceipts(receipts [][]byte, now time.Time) (old [][]byte) {
	for _, r := range receipts {
		serial := r[max(0, len(r)-len(ulid.ULID{})):]
		if len(serial) != len(ulid.ULID{}) || now.Sub(element.EnqueuedAt(ulid.ULID(serial))).Abs() > receiptFor {
			old = append(old, r)
		}
	}
	return old
}
