package recur

import (
	"github.com/shuntmq/shunt/internal/link"
)

// recurrence is a recurring message as a runner knows it.
type recurrence struct {
	name string
	record
	firedHere bool // this runner enqueued the latest tick
	// nextWriter is the writer of this runner's next write, however often that is tried. A head with this writer says
	// that one of the tries was executed.
	nextWriter string
	tried      bool // a try of that write may have been executed
	missed     bool // and if so, its ticks were missed

	due     int64 // ms by the server's clock: when to fire
	index   int   // in the heap; -1: not in it
	holdoff link.Holdoff
}

// dueHeap is a heap of recurrences by due, for container/heap.
type dueHeap []*recurrence

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].due < h[j].due }
func (h dueHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *dueHeap) Push(x any) {
	e := x.(*recurrence)
	e.index = len(*h)
	*h = append(*h, e)
}

func (h *dueHeap) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	e.index = -1
	return e
}
