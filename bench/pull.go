package main

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/shuntmq/shunt"
)

// pullers pull, whatever -workers says, in batches of pullBatch.
const (
	pullers   = 16
	pullBatch = 32
)

// shuntPull is a channel that is pulled from.
type shuntPull struct{ shuntQueue }

func openPull(t task) (queue, error) {
	q, err := openShunt(0)(t)
	if err != nil {
		return nil, err
	}
	return plain{shuntPull{q.(shuntQueue)}}, nil
}

// receive pulls and acks, each batch as a whole.
func (s shuntPull) receive(ctx context.Context, _ int, handle func([]byte)) (func() error, error) {
	ctx, cancel := context.WithCancel(ctx)
	var all errgroup.Group
	for range pullers {
		all.Go(func() error {
			o := shunt.PullOptions{Channels: []string{s.name}, Max: pullBatch, Wait: time.Minute, Lease: time.Minute}
			receipts := make([]shunt.Receipt, 0, pullBatch)
			for ctx.Err() == nil {
				ms, err := s.q.Pull(ctx, o)
				if err != nil && !errors.Is(err, context.Canceled) {
					return err
				}
				receipts = receipts[:0]
				for _, m := range ms {
					handle(m.Payload)
					receipts = append(receipts, m.Receipt)
				}
				if len(receipts) == 0 {
					continue
				}
				if err := s.q.Ack(context.WithoutCancel(ctx), receipts...); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return func() error {
		cancel()
		return all.Wait()
	}, nil
}
