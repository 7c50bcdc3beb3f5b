package lmstfy

import (
	"sync"

	"github.com/shuntmq/shunt"
)

// keptReceipts is how many receipts are kept at least, of what was delivered last; at most it is twice as many, some
// 20 MB.
const keptReceipts = 50_000

// receipts are those of jobs that this process has delivered and that nobody has acked here. They are a short cut and
// hold nothing: an ack whose receipt is not here, or has ended, finds the job by its id, at the price of two looks.
type receipts struct {
	mu       sync.Mutex
	now, old map[receiptKey]shunt.Receipt
}

type receiptKey struct{ pool, channel, id string }

func (r *receipts) keep(pool string, jobs []*shunt.Leased) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range jobs {
		if r.now == nil || len(r.now) >= keptReceipts {
			r.now, r.old = make(map[receiptKey]shunt.Receipt), r.now
		}
		r.now[receiptKey{pool, l.Channel, jobID(l.ID, l.Serial)}] = l.Receipt
	}
}

// take gives a receipt away, empty where it is not here.
func (r *receipts) take(pool, channel, id string) shunt.Receipt {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := receiptKey{pool, channel, id}
	receipt := r.now[key]
	if receipt == "" {
		receipt = r.old[key]
	}
	delete(r.now, key)
	delete(r.old, key)
	return receipt
}
