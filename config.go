package shunt

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/store"
)

// config is the configuration of a Queue with its defaults, as Queue.open found it. It is not written to.
type config struct {
	Lease, Grace, Timeout time.Duration
	MaxAttempts           int
	Backoff               func(attempt int) time.Duration // nil: sidekiqBackoff

	Prefetch, PrefetchBytes, MaxSize int

	store.Bounds // on what a channel keeps of messages that are over

	EnqueueTimeout, ReplyTimeout time.Duration

	Wrap         func(next Handler) Handler               // nil: none
	WrapEnqueue  func(next EnqueueHandler) EnqueueHandler // nil: none
	CarryHeaders []string
	Codec        Codec    // without funcs: JSON
	Payloads     Payloads // without funcs: as they are
}

// config resolves the exported fields.
func (q *Queue) config() *config {
	return &config{
		Lease:         cmp.Or(q.Lease, 10*time.Second),
		Grace:         cmp.Or(q.Grace, time.Second),
		Timeout:       cmp.Or(q.Timeout, 30*time.Minute),
		MaxAttempts:   cmp.Or(q.MaxAttempts, 25),
		Backoff:       q.Backoff,
		Prefetch:      cmp.Or(q.Prefetch, 64),
		PrefetchBytes: cmp.Or(q.PrefetchBytes, 256<<10),
		MaxSize:       cmp.Or(q.MaxSize, 16<<20),
		Bounds: store.Bounds{
			MaxDead:      cmp.Or(q.MaxDead, 10000),
			DeadFor:      cmp.Or(q.DeadFor, 30*24*time.Hour),
			MaxDone:      cmp.Or(q.MaxDone, 10000),
			MaxDoneBytes: cmp.Or(q.MaxDoneBytes, 64<<20),
		},
		EnqueueTimeout: cmp.Or(q.EnqueueTimeout, 10*time.Second),
		ReplyTimeout:   cmp.Or(q.ReplyTimeout, 3*time.Second),
		Wrap:           q.Wrap,
		WrapEnqueue:    q.WrapEnqueue,
		CarryHeaders:   slices.Clone(q.CarryHeaders),
		Codec:          q.Codec,
		Payloads:       q.Payloads,
	}
}

// unused is a Queue with the same exported fields that has not been used.
func (q *Queue) unused() *Queue {
	return &Queue{
		Pool: q.Pool, Lease: q.Lease, Grace: q.Grace, Timeout: q.Timeout, MaxAttempts: q.MaxAttempts,
		Backoff:  q.Backoff,
		Prefetch: q.Prefetch, PrefetchBytes: q.PrefetchBytes, MaxSize: q.MaxSize,
		MaxDead: q.MaxDead, DeadFor: q.DeadFor, MaxDone: q.MaxDone, MaxDoneBytes: q.MaxDoneBytes,
		EnqueueTimeout: q.EnqueueTimeout, ReplyTimeout: q.ReplyTimeout, Wrap: q.Wrap,
		WrapEnqueue: q.WrapEnqueue, CarryHeaders: q.CarryHeaders, Events: q.Events,
		Quiet: q.Quiet, NoCounts: q.NoCounts, Codec: q.Codec, Payloads: q.Payloads,
	}
}

// Validate returns an error for each field that is out of its bounds, joined; nil if none is. It asks Redis nothing.
// The first use of a Queue calls it.
func (q *Queue) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("shunt: Queue."+format, args...))
		}
	}
	check(q.Pool != nil, "Pool is nil: make one with shunt.NewPool(\"redis://localhost:6379\")")
	check(q.Pool == nil || q.Pool.Dial != nil || q.Pool.DialContext != nil,
		"Pool has neither Dial nor DialContext: make one with shunt.NewPool(\"redis://localhost:6379\")")
	check((q.Codec.Marshal == nil) == (q.Codec.Unmarshal == nil), "Codec has one func: want both, or neither for JSON")
	check(q.Payloads.Decode != nil || q.Payloads.Encode == nil && q.Payloads.Over == nil,
		"Payloads has Encode or Over without Decode: what is encoded could not be read")
	check(q.Lease == 0 || q.Lease >= time.Second && q.Lease <= 10*time.Minute,
		"Lease is %v: want 1s to 10m, or 0 for 10s", q.Lease)
	const year = 365 * 24 * time.Hour // with what is added to it, it is far from what a Duration holds
	check(q.Grace >= 0 && q.Grace <= year, "Grace is %v: want up to 8760h, or 0 for 1s", q.Grace)
	check(q.MaxAttempts <= 255, "MaxAttempts is %d: want 1 to 255, 0 for 25, or negative for no bound", q.MaxAttempts)
	check(q.Prefetch >= 0 && q.Prefetch <= 1000, "Prefetch is %d: want 1 to 1000, or 0 for 64", q.Prefetch)
	check(q.PrefetchBytes >= 0, "PrefetchBytes is %d: want a positive number, or 0 for 256 KB", q.PrefetchBytes)
	check(q.MaxSize >= 0 && q.MaxSize <= 512<<20, "MaxSize is %d: want 1 to 512 MB, or 0 for 16 MB", q.MaxSize)
	check(q.DeadFor <= 0 || q.DeadFor >= time.Millisecond,
		"DeadFor is %v: want 1ms or more, 0 for 720h, or negative for no bound", q.DeadFor)
	check(q.EnqueueTimeout >= 0, "EnqueueTimeout is %v: want a positive time, or 0 for 10s", q.EnqueueTimeout)
	check(q.ReplyTimeout == 0 || q.ReplyTimeout >= 100*time.Millisecond && q.ReplyTimeout <= year,
		"ReplyTimeout is %v: want 100ms to 8760h, or 0 for 3s", q.ReplyTimeout)
	for _, name := range q.CarryHeaders {
		check(new(element.Element).SetHeader(name, "") == nil,
			"CarryHeaders has %.40q: want names of 1 to 255 bytes", name)
		check(name != EncodingHeader, "CarryHeaders has %q, which says how one payload is encoded: leave it out", name)
	}
	return errors.Join(errs...)
}
