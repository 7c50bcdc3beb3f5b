package lmstfy

import (
	"sync"
	"time"

	"github.com/shuntmq/shunt"
)

const (
	// keptJobs and keptBytes are what now has at most, and old again: together some 30 MB.
	keptJobs  = 10_000
	keptBytes = 8 << 20
)

// delivered are the jobs that this process has delivered last and that nobody has acked here. They are a short cut and
// hold nothing: an ack whose job is not here, or whose lease has ended, finds it by its id, at the price of two looks.
// When now is full it becomes old, and what was old is forgotten.
type delivered struct {
	mu       sync.Mutex
	now, old map[jobKey]*shunt.Leased
	bytes    int // that came into now
}

type jobKey struct{ pool, channel, id string }

// keep takes in jobs that are about to be delivered.
func (d *delivered) keep(pool string, jobs []*shunt.Leased) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range jobs {
		size := sizeOf(l)
		if size > keptBytes/100 {
			continue // looks cost little beside so much
		}
		if d.now == nil || len(d.now) >= keptJobs || d.bytes+size > keptBytes {
			d.now, d.old, d.bytes = make(map[jobKey]*shunt.Leased), d.now, 0
		}
		d.now[jobKey{pool, l.Channel, jobID(l.ID, l.Serial)}] = l
		d.bytes += size
	}
}

// sizeOf is some bytes that a job holds, as it came and as it was read.
func sizeOf(l *shunt.Leased) int {
	n := len(l.Payload) + 2*len(l.Failure)
	for key, value := range l.Headers {
		n += 2 * (len(key) + len(value))
	}
	return n
}

// take gives a job away, nil where it is not here or its lease has ended by the clock here.
func (d *delivered) take(pool, channel, id string) *shunt.Leased {
	d.mu.Lock()
	defer d.mu.Unlock()
	key := jobKey{pool, channel, id}
	for _, some := range []map[jobKey]*shunt.Leased{d.now, d.old} {
		if l := some[key]; l != nil {
			delete(some, key)
			if time.Now().Before(l.EndsAt) {
				return l
			}
		}
	}
	return nil
}
