package link

import "sync"

// callQueue holds the calls that are to be sent.
type callQueue struct {
	mu     sync.Mutex
	calls  []*Call
	closed bool
}

// push appends a call, unless the queue is closed. It reports whether the call is the only one.
func (q *callQueue) push(c *Call) (first, open bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false, false
	}
	q.calls = append(q.calls, c)
	return len(q.calls) == 1, true
}

// takeAll empties the queue, which goes on with the memory of spare.
func (q *callQueue) takeAll(spare []*Call) (calls []*Call, closed bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	calls, q.calls = q.calls, spare
	return calls, q.closed
}

// putBack puts calls before those that have come since.
func (q *callQueue) putBack(calls []*Call) {
	q.mu.Lock()
	q.calls = append(calls, q.calls...)
	q.mu.Unlock()
}

func (q *callQueue) len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.calls)
}

func (q *callQueue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
}
