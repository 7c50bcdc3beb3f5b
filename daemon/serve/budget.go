package serve

import "sync/atomic"

// Budget bounds the bytes that all requests of a listener hold together. Its methods may be called by many goroutines
// at once.
type Budget struct {
	Most int64 // 0: no bound

	held atomic.Int64
}

// Take counts n more bytes. Where that is too much it counts none, and says false.
func (b *Budget) Take(n int) bool {
	if held := b.held.Add(int64(n)); b.Most > 0 && held > b.Most {
		b.held.Add(-int64(n))
		return false
	}
	return true
}

// Return takes back what Take has counted.
func (b *Budget) Return(n int) { b.held.Add(-int64(n)) }

// Held is how many bytes are counted now.
func (b *Budget) Held() int64 { return b.held.Load() }
