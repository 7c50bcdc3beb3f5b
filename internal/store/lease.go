package store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/link"
)

// Lease is a hold on messages that ends at a time, and not with a process. What it holds lies in a list of its own, so
// whoever knows its name may settle that, by AddLeave; a name that is over finds nothing there. The name has all that
// who ends it must know: a random text, the most attempts of a message that names none, and its length in ms.
type Lease struct {
	Name        string
	MaxAttempts int // 1 to 255; 0: no bound
	Length      time.Duration
}

// Grace is by how much Lapse may put off the end of a lease.
func (l Lease) Grace() time.Duration { return min(l.Length/4, 5*time.Second) }

// NewLease makes the name of a lease, which nobody guesses. Attempts saturate at 255, so a larger bound is none.
func NewLease(length time.Duration, maxAttempts int) Lease {
	if maxAttempts < 0 || maxAttempts > 255 {
		maxAttempts = 0
	}
	length = length.Truncate(time.Millisecond)
	return Lease{fmt.Sprintf("%s-%d-%d", rand.Text(), maxAttempts, length.Milliseconds()), maxAttempts, length}
}

var errLease = errors.New("shunt: that is no lease of shunt's")

// ParseLease reads a lease's name.
func ParseLease(name string) (Lease, error) {
	random, rest, _ := strings.Cut(name, "-")
	bound, term, _ := strings.Cut(rest, "-")
	most, ok := written(bound, 8)
	length, ok2 := written(term, 40)
	if !ok || !ok2 || length == 0 || len(random) != 26 ||
		strings.Trim(random, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") != "" {
		return Lease{}, errLease
	}
	return Lease{name, int(most), time.Duration(length) * time.Millisecond}, nil
}

// written is a number as NewLease writes it.
func written(text string, bits int) (uint64, bool) {
	n, err := strconv.ParseUint(text, 10, bits)
	return n, err == nil && (text[0] != '0' || text == "0")
}

// LeaseList is the list of what a lease holds.
func (k *Keys) LeaseList(name string) string { return k.Leased + "." + name }

// AddExtend puts the end of a lease to d from now, unless it is later already; ExtendReply reads it. It may be sent
// again. of are the serials of messages of the lease.
func AddExtend(c *link.Call, k *Keys, name string, d time.Duration, of ...string) {
	c.AddScript(Extend, 4, k.Receivers, k.Leased, k.LeaseList(name), k.Cancelled, name, d.Milliseconds())
	for _, serial := range of {
		c.AddElements([]byte(serial))
	}
}

// ExtendReply says whether something of the lease is left, and gives the places of those serials that were cancelled.
func ExtendReply(rep link.Reply) (left bool, cancelled []int, err error) {
	ns, err := redis.Ints(rep.Value, rep.Err)
	if err != nil || len(ns) == 0 {
		return false, nil, err
	}
	for _, n := range ns[1:] {
		cancelled = append(cancelled, n-1)
	}
	return ns[0] == 1, cancelled, nil
}

// givenUp is how long a lease that was given up stays known, so that a take of it that comes that late takes nothing.
const givenUp = time.Minute

// AddGiveBack gives a lease up: all that it holds is released, and a take of it that is still on its way takes nothing.
// GiveBackReply reads the reply. It may be sent again.
func AddGiveBack(c *link.Call, k *Keys, name string) {
	c.AddScript(Abandon, 6, k.Receivers, k.Leased, k.LeaseList(name), k.Prepare, k.IDs, k.Running, name,
		givenUp.Milliseconds())
}

// GiveBackReply is how many elements AddGiveBack has released.
func GiveBackReply(rep link.Reply) (int, error) { return redis.Int(rep.Value, rep.Err) }

// AddLeased adds the question what a lease holds; LeasedReply reads it.
func AddLeased(c *link.Call, k *Keys, name string) { c.Add("LRANGE", k.LeaseList(name), 0, -1) }

// LeasedReply is what a lease holds, what was taken first first.
func LeasedReply(rep link.Reply) ([][]byte, error) {
	raws, err := redis.ByteSlices(rep.Value, rep.Err)
	slices.Reverse(raws)
	return raws, err
}

// HeldByLease is what a lease holds, what was taken first first.
func HeldByLease(ctx context.Context, a Asker, k *Keys, name string) ([][]byte, error) {
	replies, _, err := a.Ask(ctx, k.Name, func(c *link.Call) { AddLeased(c, k, name) })
	if err != nil {
		return nil, err
	}
	return LeasedReply(replies[0])
}

// AddUnlease forgets those of some leases of which nothing is left; CountReply gives how many. It may be sent again,
// and need not be: a lease is forgotten at its end besides.
func AddUnlease(c *link.Call, k *Keys, names ...string) {
	keys := make([]any, 0, 1+2*len(names))
	keys = append(keys, k.Leased)
	for _, n := range names {
		keys = append(keys, k.LeaseList(n))
	}
	c.AddScript(Unlease, len(keys), append(keys, args(names)...)...)
}

// OverLeases are up to n leases that are over. What is no lease's name is dropped.
func OverLeases(ctx context.Context, l *link.Link, k *Keys, n int) (leases []Lease, err error) {
	c := link.NewCall()
	c.Add("TIME")
	c.Add("ZRANGE", k.Leased, 0, n-1, "WITHSCORES")
	if err := l.Run(ctx, c); err != nil {
		return nil, err
	}
	now := ServerTime(c.Replies[0].Value).UnixMilli()
	held, err := redis.Strings(c.Replies[1].Value, nil)
	c.Reset()
	for i := 0; i+1 < len(held); i += 2 {
		ends, _ := strconv.ParseFloat(held[i+1], 64)
		lease, bad := ParseLease(held[i])
		switch {
		case ends > float64(now):
		case bad != nil:
			c.Add("ZREM", k.Leased, held[i])
		default:
			leases = append(leases, lease)
		}
	}
	if err == nil && c.Len() > 0 {
		err = l.Run(ctx, c)
	}
	return leases, err
}

// PutOff puts the ends of some leases off, where they are there.
func PutOff(ctx context.Context, l *link.Link, k *Keys, leases []Lease, d time.Duration) error {
	now, err := Clock(ctx, l)
	if err != nil {
		return err
	}
	args := []any{k.Leased, "XX"}
	for _, lease := range leases {
		args = append(args, now.Add(d).UnixMilli(), lease.Name)
	}
	c := link.NewCall()
	c.Add("ZADD", args...)
	return l.Run(ctx, c)
}

// LapseAnswer is the reply to the end of a lease.
type LapseAnswer struct {
	Early                  bool // it is not over, or was put off: nothing was moved
	Prepare, Dead, Dropped int  // messages that went there, and that were cancelled
	Trimmed, Left          int  // dropped from dead; still in the list
}

var lapsedReason = element.FailureField("shunt: its lease ended, and with that its attempts were used up")

// AddLapse ends a lease that is over, up to n elements or some more than so many bytes of it. Each has had an attempt.
// Where the fence's row is younger than a quarter of the lease, or 5 s, the end is put off by that, once. It may be
// sent again.
func AddLapse(c *link.Call, k *Keys, l Lease, f Fence, n, bytes int, b *Bounds) {
	c.AddScript(Lapse, 11, k.Receivers, k.Leased, k.LeaseList(l.Name), k.Prepare, k.Dead, k.IDs, k.Cancelled, k.Done,
		k.Kept, k.Running, k.Waited, l.Name, l.Length.Milliseconds(), l.MaxAttempts, ms(f.At), f.Age.Milliseconds(),
		ms(f.Since), bytes, max(0, b.MaxDead), max(0, b.DeadFor.Milliseconds()), lapsedReason, max(0, b.MaxDone),
		max(0, b.MaxDoneBytes), n)
}

// LapseReply reads the reply to AddLapse.
func LapseReply(rep link.Reply) (a LapseAnswer, err error) {
	ns, err := redis.Ints(rep.Value, rep.Err)
	if err != nil {
		return a, err
	}
	if len(ns) < 5 {
		return LapseAnswer{Early: true}, nil
	}
	return LapseAnswer{Prepare: ns[0], Dead: ns[1], Dropped: ns[2], Trimmed: ns[3], Left: ns[4]}, nil
}

// leasesAt is how many leases one pipeline looks at.
const leasesAt = 500

// leaseEnd is a lease and when it ends.
type leaseEnd struct {
	name string
	ends time.Time
}

// leasePage gives a page of the leases of a channel, after from others, the first to end first.
func leasePage(ctx context.Context, a Asker, k *Keys, from int) (ls []leaseEnd, lists []string, err error) {
	v, err := askOne(ctx, a, k.Name,
		func(c *link.Call) { c.Add("ZRANGE", k.Leased, from, from+leasesAt-1, "WITHSCORES") })
	held, err := redis.Strings(v, err)
	for i := 0; i+1 < len(held); i += 2 {
		ends, _ := strconv.ParseFloat(held[i+1], 64)
		ls = append(ls, leaseEnd{held[i], time.UnixMilli(int64(ends))})
		lists = append(lists, k.LeaseList(held[i]))
	}
	return ls, lists, err
}

// EachLeased gives what the leases of a channel hold within a Span, the first to end first. They are not of one moment.
func EachLeased(
	ctx context.Context, a Asker, k *Keys, s *Span, give func(name string, ends time.Time, raws [][]byte),
) error {
	for from := 0; s.Left != 0; from += leasesAt {
		ls, lists, err := leasePage(ctx, a, k, from)
		if err != nil || len(ls) == 0 {
			return err
		}
		all, err := s.of(ctx, a, k, lists)
		if err != nil {
			return err
		}
		for i, l := range ls {
			give(l.name, l.ends, all[i])
		}
	}
	return nil
}

// LeasedCount is how many messages are leased, and when the first lease ends that has one.
type LeasedCount struct {
	N     int
	First time.Time
}

// CountLeased counts the leased messages of a channel.
func CountLeased(ctx context.Context, a Asker, k *Keys) (count LeasedCount, err error) {
	for from := 0; ; from += leasesAt {
		ls, lists, err := leasePage(ctx, a, k, from)
		if err != nil || len(ls) == 0 {
			return count, err
		}
		ns, err := lengths(ctx, a, k, lists)
		if err != nil {
			return count, err
		}
		for i, n := range ns {
			if count.N == 0 && n > 0 {
				count.First = ls[i].ends
			}
			count.N += n
		}
	}
}
