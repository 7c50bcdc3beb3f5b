package main

import (
	"context"

	"github.com/hibiken/asynq"
)

type asynqQueue struct {
	opt    asynq.RedisClientOpt
	client *asynq.Client
}

func openAsynq(addr string) (queue, error) {
	opt := asynq.RedisClientOpt{Addr: addr}
	return asynqQueue{opt, asynq.NewClient(opt)}, nil
}

func (a asynqQueue) deliver(ctx context.Context, payload []byte) error {
	_, err := a.client.EnqueueContext(ctx, asynq.NewTask("bench", payload))
	return err
}

func (a asynqQueue) receive(_ context.Context, workers int, handle func([]byte)) (func() error, error) {
	srv := asynq.NewServer(a.opt, asynq.Config{Concurrency: workers, LogLevel: asynq.FatalLevel})
	err := srv.Start(asynq.HandlerFunc(func(_ context.Context, t *asynq.Task) error {
		handle(t.Payload())
		return nil
	}))
	return func() error { srv.Shutdown(); return nil }, err
}

func (a asynqQueue) left(context.Context) (int, error) {
	inspector := asynq.NewInspector(a.opt)
	defer inspector.Close()
	info, err := inspector.GetQueueInfo("default")
	if err != nil {
		return 0, err
	}
	return info.Size, nil
}

func (a asynqQueue) close() error { return a.client.Close() }
