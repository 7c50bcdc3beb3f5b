package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/shuntmq/shunt"
)

// workers are those of each channel in this process. A second shop on the same Redis would share the work.
const workers = 8

// world plays what is outside a real shop: customers, payment provider, warehouse. Your program has no such file.
type world struct {
	began time.Time
	rate  float64 // orders a second, on average
	count atomic.Int64
}

// within says whether now is between two times of a cycle that repeats for as long as the shop runs.
func (w *world) within(cycle, from, to time.Duration) bool {
	t := time.Since(w.began) % cycle
	return t >= from && t < to
}

// work takes as long as keeps workers busy for that part of their time at the average rate, about 1 s at most. Like
// every handler that waits it heeds its context, which ends soon after the shop closes.
func (w *world) work(ctx context.Context, busy float64) error {
	mean := time.Duration(min(busy*workers/w.rate, 1) * float64(time.Second))
	select {
	case <-time.After(mean/2 + rand.N(mean)):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

var errDeclined = errors.New("card declined: insufficient funds")

// charge asks the payment provider, which is down for 40 s of every five minutes.
func (w *world) charge() error {
	chance, down := rand.Float64(), w.within(5*time.Minute, 45*time.Second, 85*time.Second)
	switch {
	case down && chance < 0.5:
		return fmt.Errorf("POST https://pay.example/charges: 503 Service Unavailable, request %08x", rand.Uint32())
	case down && chance < 0.75, chance < 0.08:
		return fmt.Errorf("dial tcp 10.0.3.%d:8443: i/o timeout, request %08x", 11+rand.IntN(2), rand.Uint32())
	case chance > 0.99:
		return fmt.Errorf("%w, request %08x", errDeclined, rand.Uint32())
	}
	return nil
}

// next makes up an order.
func (w *world) next() Order {
	id := fmt.Sprintf("S-%d", w.began.UnixMilli()+w.count.Add(1)) // another one in every run on the same Redis
	o := Order{id, "ann@example.org", []string{"teapot", "violin", "lamp"}[rand.IntN(3)]}
	if rand.IntN(500) == 0 {
		o.Item = "gift card" // the poison: see pack
	}
	return o
}

// customers order until ctx ends, at a rate that breathes with a period of four minutes.
func (s *shop) customers(ctx context.Context) {
	for {
		rate := s.rate * (1 + 0.6*math.Sin(2*math.Pi*time.Since(s.began).Minutes()/4))
		select {
		case <-time.After(time.Duration(rand.ExpFloat64() / rate * float64(time.Second))):
		case <-ctx.Done():
			return
		}
		// One of three customers is a VIP, and one of twenty clicks twice.
		order := []*shunt.Kind[Order]{s.web, s.web, s.vip}[rand.IntN(3)].Message(s.next())
		for range 1 + rand.IntN(20)/19 {
			// UniqueFor keeps the ID taken after the order was handled, too.
			err := s.q.Enqueue(ctx, order, shunt.UniqueFor(time.Minute))
			if err != nil && !errors.Is(err, shunt.ErrDuplicate) && ctx.Err() == nil {
				say("an order was not taken: %v", err)
			}
		}
	}
}
