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
// message; but what has such a mark, and waits again, is taken for one in hand. What a dead incarnation has lies in its
// lists yet, so its mark is nobody's where its worker's list is empty.
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
	living, dead := names(c.Replies[2]), names(c.Replies[3])
	held := page(c.Replies[0], &at.marks)
	some, err := holders(ctx, l, k, held, dead)
	if err != nil {
		return err
	}
	marks := staleMarks(held, func(mark []byte) bool { return living[holderOf(mark)] || some[listOf(k, mark)] })
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

// names are the incarnations that a set of receivers has.
func names(rep link.Reply) map[string]bool {
	all := make(map[string]bool)
	members, _ := redis.Strings(rep.Value, nil)
	for _, m := range members {
		name, _, _ := strings.Cut(m, " ") // empty where others have put it there
		all[name] = true
	}
	return all
}

// holders are the lists that have something, of those leases and workers of dead incarnations that some marks name.
func holders(ctx context.Context, l *link.Link, k *Keys, held [][]byte, dead map[string]bool) (map[string]bool, error) {
	var lists []string
	some := make(map[string]bool)
	c := link.NewCall()
	for i := 0; i+1 < len(held); i += 2 {
		mark := held[i+1]
		list := listOf(k, mark)
		_, asked := some[list]
		if holder := holderOf(mark); !asked && (dead[holder] || strings.HasPrefix(holder, leaseHolder)) {
			lists, some[list] = append(lists, list), false
			c.Add("EXISTS", list)
		}
	}
	if len(lists) == 0 {
		return some, nil
	}
	if err := l.Run(ctx, c); err != nil {
		return nil, err
	}
	for i, list := range lists {
		n, _ := redis.Int(c.Replies[i].Value, nil)
		some[list] = n == 1
	}
	return some, nil
}

// listOf is the list in which a message lies whose mark this is.
func listOf(k *Keys, mark []byte) string {
	h := ParseMark(mark)
	if h.Lease != "" {
		return k.LeaseList(h.Lease)
	}
	return k.Doing(Incarnation{Name: h.Receiver}, h.Worker)
}

// holderOf is the incarnation, or the lease, that a mark names.
func holderOf(mark []byte) string {
	name, _, _ := strings.Cut(string(mark), " ")
	name, _, _ = strings.Cut(name, "/")
	return name
}

// staleMarks are the serials that nobody has, each with its mark.
func staleMarks(held [][]byte, has func(mark []byte) bool) (stale [][]byte) {
	for i := 0; i+1 < len(held); i += 2 {
		if !has(held[i+1]) {
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
