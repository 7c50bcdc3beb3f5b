// Package meter counts in a process what happens to the messages of a channel, until that is added to what Redis keeps.
package meter

import (
	"encoding/binary"
	"errors"
	"math/bits"
	"math/rand/v2"
	"sync"
	"time"
)

// Kind is what is counted. Its number is in Redis, so none is ever given to another.
type Kind uint8

const (
	Enqueued Kind = iota
	EnqueuedBytes
	Acked
	Retried
	Snoozed
	Died // went to dead
	Cancelled
	Expired
	Recovered // from a dead receiver, or after a lease that ended
	Released
	Trimmed  // dropped from dead
	TimedOut // handlings
	Late     // verdicts that came too late, or whose replies were lost
	kinds
)

// What lay in the channel when something was counted last: no sums.
const (
	Waiting Kind = 13 + iota // in prepare and suspect
	Delayed
	Dead
)

var _ [Waiting - kinds]struct{} // no number has two meanings

// The histograms. Their buckets have the numbers behind those of the kinds.
const (
	Wait     = 16 + iota*Buckets // from when a message was enqueued, or due, until its first handling
	Handling                     // of one attempt
	EndToEnd                     // from when a message was enqueued, or due, until it was acked
	numbers
)

const (
	// Buckets is how many a histogram has.
	Buckets = 32
	least   = 64 * time.Microsecond
)

// Bucket is the number of a duration's bucket: 0 for less than 64 µs, then 1 for less than twice as much, and so on;
// the last one is for 19 hours or more.
func Bucket(d time.Duration) int {
	return min(bits.Len64(uint64(max(0, d)/least)), Buckets-1)
}

// Bound is where a bucket ends: the least duration that is beyond it. The last one has no end, and gives twice its
// beginning.
func Bound(bucket int) time.Duration { return least << bucket }

// Adder counts for one channel.
type Adder interface {
	Add(k Kind, n int)                   // n of a kind
	Took(histogram int, d time.Duration) // a duration in a histogram
}

// Sums are what was counted, by number. They are an Adder of one goroutine.
type Sums [numbers]uint64

func (s *Sums) Add(k Kind, n int) { s[k] += uint64(n) }

func (s *Sums) Took(histogram int, d time.Duration) { s[histogram+Bucket(d)]++ }

// AddAll adds what another has counted.
func (s *Sums) AddAll(o *Sums) {
	for i, n := range o {
		s[i] += n
	}
}

// Append appends the sums that are not zero, as Redis keeps them: of each its number, and the sum as a varint.
func (s *Sums) Append(b []byte) []byte {
	for i, n := range s {
		if n > 0 {
			b = binary.AppendUvarint(append(b, byte(i)), n)
		}
	}
	return b
}

var errCut = errors.New("sums that are cut off")

// Read adds sums as Append wrote them, and passes over those of numbers that it does not know.
func (s *Sums) Read(b []byte) error {
	for len(b) > 0 {
		n, size := binary.Uvarint(b[1:])
		if size <= 0 {
			return errCut
		}
		if i := int(b[0]); i < numbers {
			s[i] += n
		}
		b = b[1+size:]
	}
	return nil
}

// Book has the sums of channels that many goroutines add to. Each core has a page of its own most of the time, so that
// they do not wait for each other.
type Book struct {
	pages [8]page
	own   sync.Pool // the page that this core had last
}

type page struct {
	mu sync.Mutex
	of map[string]*Sums
	_  [40]byte // no two pages are in one line of a cache
}

// Count has do count for a channel. A nil Book counts nothing.
func (b *Book) Count(channel string, do func(Adder)) {
	if b == nil {
		return
	}
	p, _ := b.own.Get().(*page)
	if p == nil {
		p = &b.pages[rand.IntN(len(b.pages))]
	}
	p.mu.Lock()
	s := p.of[channel]
	if s == nil {
		if p.of == nil {
			p.of = make(map[string]*Sums)
		}
		s = new(Sums)
		p.of[channel] = s
	}
	do(s)
	p.mu.Unlock()
	b.own.Put(p)
}

// Take gives the sums of each channel since it was called last, in parts.
func (b *Book) Take(give func(channel string, s *Sums)) {
	for i := range b.pages {
		p := &b.pages[i]
		p.mu.Lock()
		of := p.of
		p.of = nil
		p.mu.Unlock()
		for channel, s := range of {
			give(channel, s)
		}
	}
}
