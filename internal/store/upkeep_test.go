package store

import (
	"context"
	"maps"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/link"
)

// Upkeep removes marks of nobody and receipts of long ago, and nothing else.
func TestUpkeep(t *testing.T) {
	each(t, func(f *fixture) {
		ctx, now := context.Background(), time.Now()
		f.must(Upkeep(ctx, f.l, f.k, new(Scan), now))
		f.enqueue(Now, 0, named("a"))
		f.start(0, f.take(0, 1), false)
		stale, old := element.NewSerial(), element.NewSerialAt(now.Add(-48*time.Hour))
		f.s.Do("HSET", f.k.Running, stale[:], string(Mark(NewIncarnation(1, time.Second), 0, 1, now)))
		f.s.Do("SADD", f.k.Receipts, old[:], "x"+string(old[:]), "?")
		var at Scan
		for range 4 {
			f.must(Upkeep(ctx, f.l, f.k, &at, now))
		}
		if n := f.length("HLEN", f.k.Running); n != 1 || f.status("a").Holder == (Handling{}) {
			f.Fatalf("%d marks are left", n)
		}
		if n := f.length("SCARD", f.k.Receipts); n != 1 { // that of a
			f.Fatalf("%d receipts are left", n)
		}
		f.must(Upkeep(ctx, f.l, f.k, &at, now))
	})
}

// The mark of a lease stays while its list is there, whether it is listed or over; and goes after it.
func TestUpkeepOfLeases(t *testing.T) {
	each(t, func(f *fixture) {
		ctx, now := context.Background(), time.Now()
		f.enqueue(Now, 0, named("a"), named("b"), named("c"), named("worker's"), named("dying one's"))
		one, two := NewLease(time.Minute, 0), NewLease(time.Minute, 0)
		f.lease(one, 2)
		last := f.lease(two, 1)
		f.start(0, f.take(0, 1), false)
		dying := NewIncarnation(1, time.Minute)
		f.s.Do("ZADD", f.k.DeadReceivers, 1, dying.Name+" 1 r")
		f.s.Do("HSET", f.k.Running, f.take(1, 1)[0].Serial[:], string(Mark(dying, 0, 1, now)))
		f.s.Do("RPOPLPUSH", f.k.Doing(f.i, 1), f.k.Doing(dying, 0))
		f.over(one)
		upkeep := func(want int) {
			f.Helper()
			f.must(Upkeep(ctx, f.l, f.k, new(Scan), now))
			if n := f.length("HLEN", f.k.Running); n != want {
				f.Errorf("%d marks are left, want %d", n, want)
			}
		}
		upkeep(5)
		gone := element.NewSerial()
		f.s.Do("HSET", f.k.Running, gone[:], leaseMark(NewLease(time.Minute, 0), 1))
		f.s.Do("HSET", f.k.Running, "x", "lease.", "y", "lease", "z", "")
		upkeep(5)
		f.s.Do("LPOP", f.k.LeaseList(two.Name)) // as an ack that forgot its mark
		upkeep(4)
		if h := f.status(last[0].ID()).Holder; h.Some() {
			f.Errorf("the mark of a message that is over says %+v", h)
		}
		if h := f.status("a").Holder; h.Lease != one.Name {
			f.Errorf("the mark of one that is leased says %+v", h)
		}
	})
}

// A mark is removed only as it was read: whoever has taken the message meanwhile keeps its own.
func TestUnmark(t *testing.T) {
	each(t, func(f *fixture) {
		now := time.Now()
		var serials [4][]byte
		var read [4][]byte
		for i := range serials {
			s := element.NewSerial()
			serials[i], read[i] = s[:], Mark(NewIncarnation(1, time.Minute), 0, i, now)
			f.s.Do("HSET", f.k.Running, serials[i], read[i])
		}
		lease := leaseMark(NewLease(time.Minute, 0), 2)
		f.s.Do("HSET", f.k.Running, serials[1], lease) // it was taken
		f.s.Do("HDEL", f.k.Running, serials[2])        // it is over
		unmark := func(pairs ...[]byte) (int, error) {
			return CountReply(f.run(func(c *link.Call) {
				c.AddScript(Unmark, 2, f.k.Receivers, f.k.Running)
				c.AddElements(pairs...)
			}))
		}
		for _, want := range []int{1, 0} { // sent again, it finds nothing
			n, err := unmark(serials[0], read[0], serials[1], read[1], serials[2], read[2])
			if n != want || err != nil {
				f.Errorf("%d are removed, %v; want %d", n, err, want)
			}
		}
		left, err := redis.StringMap(f.s.Do("HGETALL", f.k.Running), nil)
		f.must(err)
		want := map[string]string{string(serials[1]): lease, string(serials[3]): string(read[3])}
		if !maps.Equal(left, want) {
			f.Errorf("%q are left, want %q", left, want)
		}
		f.s.Do("DEL", f.k.Running)
		f.s.Do("SET", f.k.Running, "foreign")
		if n, err := unmark(serials[0], read[0]); err == nil {
			f.Errorf("%d of what is no hash", n)
		}
	})
}
