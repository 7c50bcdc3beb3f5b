package sender

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/store"
)

// receiptLedger has the receipts of tracked enqueues whose replies have come. Redis needs them no more, and drops some
// at a time with another enqueue to their channel. It leaves out the receipt of an enqueue that was ever in doubt. A
// command of a broken connection may be executed late, and has to find its receipt. The upkeep drops such a receipt
// after a day.
type receiptLedger struct {
	mu  sync.Mutex
	had map[string][]store.Receipt // by channel
}

const (
	fewReceipts  = 32    // that wait before some are dropped
	someReceipts = 200   // dropped at once, at most: more than a chunk leaves
	mostReceipts = 10000 // that wait of a channel: those beyond go in a day
)

// take gives receipts to be dropped now, if there are enough.
func (r *receiptLedger) take(channel string) []store.Receipt {
	r.mu.Lock()
	defer r.mu.Unlock()
	had := r.had[channel]
	if len(had) < fewReceipts {
		return nil
	}
	n := max(0, len(had)-someReceipts)
	r.had[channel] = had[:n]
	return slices.Clone(had[n:])
}

// put takes in receipts that are to be dropped.
func (r *receiptLedger) put(channel string, had ...store.Receipt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.had == nil {
		r.had = make(map[string][]store.Receipt)
	}
	all := r.had[channel]
	r.had[channel] = append(all, had[:min(len(had), max(0, mostReceipts-len(all)))]...)
}

// flush has Redis drop what is left, if that can be done at once.
func (r *receiptLedger) flush(ctx context.Context, router *link.Router) {
	r.mu.Lock()
	had := r.had
	r.had = nil
	r.mu.Unlock() // enqueues under way put theirs, which go in a day
	ctx, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	for channel, all := range had {
		c, k := link.NewCall(), store.KeysOf(channel)
		for some := range slices.Chunk(all, 1000) {
			store.AddDropReceipts(c, k, some...)
		}
		if c.Len() > 0 {
			_ = router.For(channel).Data.Run(ctx, c) // else they go in a day
		}
	}
}

// receiptsOf are the receipts of messages that were sent in one step: the first one's and the refusals, or none where
// none was enqueued.
func receiptsOf(es []*element.Element, refused []Refused) (all []store.Receipt) {
	for i, e := range es {
		if refused[i].Record != nil {
			all = append(all, store.RefusalOf(e))
		}
	}
	if len(all) == len(es) {
		return nil
	}
	return append(all, bytes.Clone(store.ReceiptOf(es[0])))
}
