package shunt

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/shuntmq/shunt/internal/element"
)

const (
	chunkElements = 1000    // of one command of EnqueueAll
	chunkTracked  = 100     // of one script: some 0.5 ms
	chunkBytes    = 1 << 20 // likewise, unless one element alone is larger
	chunkChannels = 8       // channels that EnqueueAll enqueues to at once
)

// EnqueueAll puts many messages into their channels, of which there may be several, with the same options for each. Those of
// one channel keep their order and go in chunks of up to 1,000 elements or 1 MB, of those with an ID or Expire up to 100, to 8 channels at
// once; each chunk is there as a whole or not at all, but for those whose ID is taken. All are marshalled before the first is sent, so it
// takes the memory of all payloads.
// Its error is a *EnqueueError that says what became of each message by its index, or what Enqueue says of a closed or
// misconfigured Queue. Where ctx has no deadline each chunk has EnqueueTimeout.
func (q *Queue) EnqueueAll(ctx context.Context, ms []IMessage, opts ...Option) error {
	if err := q.open(ctx); err != nil {
		return err
	}
	var failed failures
	byChannel := make(map[string][]*chunk, 1)
	now := time.Now()
	for i, m := range ms {
		d, err := q.newDraft(m, opts, now)
		if err != nil {
			failed.add(err, i)
			continue
		}
		of := byChannel[d.channel]
		if n := len(of); n == 0 || !of[n-1].add(i, &d) {
			c := newChunk(d)
			c.add(i, &d)
			byChannel[d.channel] = append(of, c)
		}
	}
	var g errgroup.Group
	g.SetLimit(chunkChannels)
	for _, of := range byChannel {
		g.Go(func() error {
			for _, c := range of {
				n := len(c.raws)
				var due time.Time
				var taken []error
				var err error
				if c.elements != nil {
					due, taken, err = q.enqueueTracked(ctx, &c.draft, c.elements, c.raws)
				} else {
					due, err = q.put(ctx, &c.draft, c.raws)
				}
				if err != nil {
					failed.add(err, c.indexes...)
					continue
				}
				for j, err := range taken {
					if err != nil {
						failed.add(err, c.indexes[j])
						n--
					}
				}
				if n > 0 {
					q.events.emit(Event{Kind: EventEnqueued, Channel: c.channel, N: n, Due: due})
				}
				if !c.later && c.elements == nil { // which may have been sent more than once
					c.free()
				}
			}
			return nil
		})
	}
	g.Wait()
	return failed.err()
}

// failures gathers what becomes an EnqueueError.
type failures struct {
	mu  sync.Mutex
	all *EnqueueError
}

func (f *failures) add(err error, indexes ...int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.all == nil {
		f.all = &EnqueueError{Failed: make(map[int]error), Unknown: make(map[int]error)}
	}
	of := f.all.Failed
	if errors.Is(err, ErrUnknown) {
		of = f.all.Unknown
	}
	for _, i := range indexes {
		of[i] = err
	}
}

func (f *failures) err() error {
	if f.all == nil {
		return nil
	}
	return f.all
}

// chunk is what one command of EnqueueAll carries; its enqueue is its first message's.
type chunk struct {
	draft
	indexes  []int
	raws     [][]byte // the elements, parts of bytes
	bytes    []byte
	elements []*element.Element // likewise, where they are tracked
}

// chunks are those that the link is done with.
var chunks = sync.Pool{New: func() any { return new(chunk) }}

func newChunk(first draft) *chunk {
	c := chunks.Get().(*chunk)
	c.draft = first
	return c
}

func (c *chunk) free() {
	if cap(c.bytes) > 2*chunkBytes {
		return
	}
	clear(c.raws)
	*c = chunk{indexes: c.indexes[:0], raws: c.raws[:0], bytes: c.bytes[:0]}
	chunks.Put(c)
}

func (c *chunk) add(i int, d *draft) bool {
	e, from := &d.element, len(c.bytes)
	if len(c.raws) >= chunkElements || from > 0 && from+e.Size() > chunkBytes || d.in != c.in || !d.at.Equal(c.at) || d.tracked() != c.tracked() {
		return false
	}
	if d.tracked() {
		if len(c.raws) >= chunkTracked {
			return false
		}
		own := *e
		c.elements = append(c.elements, &own)
	}
	c.bytes = e.Append(c.bytes) // what it outgrows stays whole for the elements before
	c.indexes, c.raws = append(c.indexes, i), append(c.raws, c.bytes[from:])
	return true
}
