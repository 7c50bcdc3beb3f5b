package store

import (
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/oklog/ulid/v2"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/link"
)

// keeperLooks is within what time a keeper finds a lease that it was not told of.
const keeperLooks = 7 * time.Second

// AddLease adds the take of up to n elements, or some more than so many bytes, from the first of the channels that has
// any, and notes who has those with an id. A suspect comes alone. EachLeasedTaken reads it. Sent again it gives what it
// had taken, and the lease begins anew. A full Redis does not refuse it.
func AddLease(c *link.Call, from []*Keys, l Lease, n, bytes int) {
	serials := make([]ulid.ULID, n)
	now := time.Now()
	for i := range serials {
		serials[i] = element.NewSerialAt(now)
	}
	addLease(c, from, l, bytes, now, serials)
}

// addLease is AddLease with the serials for elements that are bare.
func addLease(c *link.Call, from []*Keys, l Lease, bytes int, now time.Time, serials []ulid.ULID) {
	args := make([]any, 0, 10*len(from)+6)
	for _, k := range from {
		a := &k.arg
		args = append(args, a.Receivers, a.Prepare, k.Suspect, k.Leased, k.LeaseList(l.Name), a.Delay, k.Keeper,
			a.IDs, a.Running, a.Cancelled)
	}
	c.AddScript(TakeLease, 10*len(from), append(args, l.Name, l.Length.Milliseconds(), bytes,
		keeperLooks.Milliseconds(), leaseHolder+l.Name, now.UnixMilli())...)
	for i := range serials {
		c.AddElements(serials[i][:])
	}
}

// AddLeaseEach adds the take of one element of a channel for each of several leases, of some more than so many bytes at
// most; EachLeasedOne reads it. It is sent but once: where its reply is lost, AddLease follows for each of them.
func AddLeaseEach(c *link.Call, k *Keys, ls []Lease, bytes int) {
	a, now := &k.arg, time.Now()
	args := make([]any, 0, 12+4*len(ls))
	args = append(args, a.Receivers, a.Prepare, k.Suspect, k.Leased, a.Delay, k.Keeper, a.IDs, a.Running, a.Cancelled)
	for _, l := range ls {
		args = append(args, k.LeaseList(l.Name))
	}
	args = append(args, keeperLooks.Milliseconds(), leaseHolder, now.UnixMilli(), bytes)
	for _, l := range ls {
		serial := element.NewSerialAt(now)
		args = append(args, l.Name, l.Length.Milliseconds(), serial[:])
	}
	c.AddScript(LeaseEach, 9+len(ls), args...)
}

// EachLeasedOne gives what AddLeaseEach came to, by the place of the lease. empty: those that have nothing would find
// nothing.
func EachLeasedOne(rep link.Reply, give func(lease int, t LeasedTaken)) (empty bool, err error) {
	vs, err := redis.Values(rep.Value, rep.Err)
	if err != nil || len(vs) < 2 {
		return false, err
	}
	n, _ := redis.Int(vs[1], nil)
	eachTaken(vs[0], vs[0], vs[2:], func(place int, t LeasedTaken, _ error) { give(place, t) })
	return n == 1, nil
}

// LeasedTaken is one element that AddLease took, with what Redis knows of its id.
type LeasedTaken struct {
	Raw       []byte
	Now       int64  // ms, by the server's clock
	Taken     int64  // ms, by the server's clock: not before then was it taken
	Read      bool   // it has an id, whose record was read
	Record    []byte // of its id, if it has one
	Cancelled bool
}

// EachLeasedTaken gives what AddLease came to, by the number of the channel: an element, or why the channel could not
// be read.
func EachLeasedTaken(rep link.Reply, give func(source int, t LeasedTaken, err error)) error {
	vs, err := redis.Values(rep.Value, rep.Err)
	if err == nil && len(vs) > 1 {
		eachTaken(vs[0], vs[1], vs[2:], give)
	}
	return err
}

// eachTaken gives what was taken: a place, an element, and where that has an id what is known of it.
func eachTaken(at, since any, vs []any, give func(place int, t LeasedTaken, err error)) {
	now, _ := redis.Int64(at, nil)
	taken, _ := redis.Int64(since, nil)
	for i := 0; i+1 < len(vs); i += 2 {
		n, _ := redis.Int(vs[i], nil)
		raw, _ := vs[i+1].([]byte)
		if n < 0 {
			give(-n-1, LeasedTaken{}, redis.Error(raw))
			continue
		}
		t := LeasedTaken{Raw: raw, Now: now, Taken: taken}
		if i+2 < len(vs) {
			if said, is := vs[i+2].([]byte); is && len(said) > 0 {
				t.Read, t.Record, t.Cancelled = true, said[1:], said[0] == '1'
				i++
			}
		}
		give(n-1, t, nil)
	}
}
