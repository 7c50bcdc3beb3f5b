package main

import (
	"context"
	"errors"
	"time"

	"github.com/hibiken/asynq"
)

type asynqQueue struct {
	opt       asynq.RedisClientOpt
	client    *asynq.Client
	inspector *asynq.Inspector
	check     time.Duration // TaskCheckInterval
	delayed   time.Duration // DelayedTaskCheckInterval
	name      string        // of asynq's queue
}

func openAsynq(check, delayed time.Duration) func(task) (queue, error) {
	return func(t task) (queue, error) {
		opt := asynq.RedisClientOpt{Addr: t.srv.addr}
		if check > 0 {
			opt.PoolSize = t.workers // the default, 10 a core, makes them wait for each other
		}
		return asynqQueue{opt, asynq.NewClient(opt), asynq.NewInspector(opt), check, delayed, "default"}, nil
	}
}

func (a asynqQueue) sender() func(context.Context, []byte) error {
	options := []asynq.Option{asynq.Queue(a.name)}
	return func(ctx context.Context, payload []byte) error {
		_, err := a.client.EnqueueContext(ctx, asynq.NewTask("bench", payload), options...)
		return err
	}
}

func (a asynqQueue) laterSender() func(context.Context, [][]byte, time.Time) error {
	return func(ctx context.Context, payloads [][]byte, due time.Time) error {
		for _, payload := range payloads {
			if _, err := a.client.EnqueueContext(ctx, asynq.NewTask("bench", payload), asynq.Queue(a.name),
				asynq.ProcessAt(due)); err != nil {
				return err
			}
		}
		return nil
	}
}

// asynqIDs gives every task an id of ours; one of asynq's own it has anyway.
type asynqIDs struct{ asynqQueue }

func (a asynqQueue) ids() queue { return asynqIDs{a} }

func (a asynqIDs) sender() func(context.Context, []byte) error {
	return func(ctx context.Context, payload []byte) error {
		_, err := a.client.EnqueueContext(ctx, asynq.NewTask("bench", payload), asynq.Queue(a.name),
			asynq.TaskID(idOf(payload)))
		return err
	}
}

func (a asynqIDs) laterSender() func(context.Context, [][]byte, time.Time) error {
	return func(ctx context.Context, payloads [][]byte, due time.Time) error {
		for _, p := range payloads {
			_, err := a.client.EnqueueContext(ctx, asynq.NewTask("bench", p), asynq.Queue(a.name),
				asynq.TaskID(idOf(p)), asynq.ProcessAt(due))
			if err != nil {
				return err
			}
		}
		return nil
	}
}

// taken: an id is a part of its task's key.
func (a asynqQueue) taken(ctx context.Context) (int, error) { return a.left(ctx) }

func (a asynqQueue) status(_ context.Context, id string) (due time.Time, found bool, err error) {
	info, err := a.inspector.GetTaskInfo(a.name, id)
	switch {
	case errors.Is(err, asynq.ErrTaskNotFound):
		return due, false, nil
	case err != nil:
		return due, false, err
	case info.State == asynq.TaskStateScheduled:
		due = info.NextProcessAt
	}
	return due, info.ID == id, nil
}

func (a asynqQueue) cancel(_ context.Context, id string) error {
	return a.inspector.DeleteTask(a.name, id)
}

func (a asynqQueue) receive(_ context.Context, workers int, handle func([]byte)) (func() error, error) {
	srv := asynq.NewServer(a.opt, asynq.Config{Concurrency: workers, Queues: map[string]int{a.name: 1},
		TaskCheckInterval: a.check, DelayedTaskCheckInterval: a.delayed, LogLevel: asynq.FatalLevel})
	err := srv.Start(asynq.HandlerFunc(func(_ context.Context, t *asynq.Task) error {
		handle(t.Payload())
		return nil
	}))
	return func() error { srv.Shutdown(); return nil }, err
}

func (a asynqQueue) channel(name string) queue {
	a.name = name
	return a
}

func (a asynqQueue) left(context.Context) (int, error) {
	names, err := a.inspector.Queues()
	n := 0
	for _, name := range names {
		info, err := a.inspector.GetQueueInfo(name)
		if err != nil {
			return 0, err
		}
		n += info.Size
	}
	return n, err
}

func (a asynqQueue) close() error { return errors.Join(a.client.Close(), a.inspector.Close()) }
