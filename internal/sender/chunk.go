package sender

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/store"
)

const (
	chunkElements = 1000    // of one command
	chunkTracked  = 100     // of one script: some 0.5 ms
	chunkBytes    = 1 << 20 // of either, unless one element alone is larger
	chunkChannels = 8       // that Batch sends to at once
)

// Batch gathers messages for their channels, and sends them in chunks. One goroutine uses it.
type Batch struct {
	s      *Sender
	chunks map[string][]*Chunk // by channel
}

// Chunk is what one command carries: messages of one channel that are due at the same time.
type Chunk struct {
	Keys    *store.Keys
	Due     store.Due
	Indexes []int // of its messages, as they were added

	tracked  bool
	raws     [][]byte // the elements, parts of bytes
	bytes    []byte
	elements []*element.Element // where they are tracked
}

// Batch makes a Batch.
func (s *Sender) Batch() *Batch { return &Batch{s: s, chunks: make(map[string][]*Chunk, 1)} }

// Add takes in a message under a number of the caller's.
func (b *Batch) Add(index int, m *Message) {
	of := b.chunks[m.Keys.Name]
	if n := len(of); n == 0 || !of[n-1].add(index, m) {
		c := newChunk(m)
		c.add(index, m)
		b.chunks[m.Keys.Name] = append(of, c)
	}
}

// Send sends all, the chunks of a channel one after another, to eight channels at once. It calls sent with the result
// of each chunk, from several goroutines. refused has an entry for each of its messages, or is nil where none can be
// refused.
func (b *Batch) Send(ctx context.Context, sent func(c *Chunk, due time.Time, refused []Refused, err error)) {
	var g errgroup.Group
	g.SetLimit(chunkChannels)
	for _, of := range b.chunks {
		g.Go(func() error {
			for _, c := range of {
				due, refused, err := b.s.sendChunk(ctx, c)
				sent(c, due, refused, err)
				if err == nil && !c.tracked && !c.Due.Later() { // others may have been sent more than once
					c.free()
				}
			}
			return nil
		})
	}
	_ = g.Wait()
}

// Tracked says that a script brings the chunk.
func (c *Chunk) Tracked() bool { return c.tracked }

// ID is that of the ith message of a tracked chunk.
func (c *Chunk) ID(i int) string { return c.elements[i].ID() }

// Size is that of all its elements in bytes.
func (c *Chunk) Size() (n int) {
	for _, raw := range c.raws {
		n += len(raw)
	}
	return n
}

// SizeOf is that of the ith element.
func (c *Chunk) SizeOf(i int) int { return len(c.raws[i]) }

func (s *Sender) sendChunk(ctx context.Context, c *Chunk) (due time.Time, refused []Refused, err error) {
	if c.tracked {
		return s.pushTracked(ctx, c.Keys, c.Due, c.elements, c.raws)
	}
	due, err = s.push(ctx, c.Keys, c.Due, c.raws)
	return due, nil, err
}

// chunks are those that the link is done with.
var chunks = sync.Pool{New: func() any { return new(Chunk) }}

func newChunk(first *Message) *Chunk {
	c := chunks.Get().(*Chunk)
	c.Keys, c.Due, c.tracked = first.Keys, first.Due, first.Tracked()
	return c
}

func (c *Chunk) free() {
	if cap(c.bytes) > 2*chunkBytes {
		return
	}
	clear(c.raws)
	*c = Chunk{Indexes: c.Indexes[:0], raws: c.raws[:0], bytes: c.bytes[:0]}
	chunks.Put(c)
}

// add takes in a message, if it goes with the others and there is room.
func (c *Chunk) add(index int, m *Message) bool {
	e, from := &m.Element, len(c.bytes)
	if len(c.raws) >= chunkElements || from > 0 && from+e.Size() > chunkBytes ||
		m.Due.In != c.Due.In || !m.Due.At.Equal(c.Due.At) || m.Tracked() != c.tracked {
		return false
	}
	if c.tracked {
		if len(c.raws) >= chunkTracked {
			return false
		}
		own := *e
		c.elements = append(c.elements, &own)
	}
	c.bytes = e.Append(c.bytes) // what it outgrows stays whole for the elements before
	c.Indexes, c.raws = append(c.Indexes, index), append(c.raws, c.bytes[from:])
	return true
}
