// Package shunt enqueues messages through Redis lists and handles each at least once.
//
// A message is moved, never popped: RPOPLPUSH takes it from its channel's list into a list of the worker that handles
// it, and it leaves Redis when its handler has succeeded. What a dead worker held is put back by others.
//
//	pool, err := shunt.NewPool("redis://localhost:6379")
//	q := &shunt.Queue{Pool: pool}
//
//	welcome := shunt.Define("welcome", func(ctx context.Context, w Welcome) error {
//		return mail.Send(ctx, w.To) // nil acks, an error is tried again later
//	})
//	err = q.Enqueue(ctx, welcome.Message(Welcome{To: "ann@example.org"}), shunt.In(time.Minute))
//
//	shutdown, err := q.Receive(ctx, welcome, 8)
//	err = shutdown(ctx) // waits for handlers until ctx ends
//
// # The promise
//
// A message whose Enqueue returned nil is handled at least once, or ends in dead with its reason, for as long as Redis
// keeps its data. Without a fault it is handled exactly once. Handlers should be idempotent, because a killed process,
// a lost reply or a lost lease may have a message handled twice.
//
// # The words
//
//   - A message is what a user defines: a type with the methods of [IMessage], or a function given to [Define].
//   - An element is its bytes in Redis: a short header and the payload that Marshal made. A payload that came without a
//     header, by a plain LPUSH, is a bare payload.
//   - A channel is a named stream of messages of one kind. All its keys share one hash tag.
//   - The states of a message: prepare, ready to be taken; doing, in a worker's list; delay, due later; suspect, held
//     by dying processes twice or more; dead, given up on.
//   - Enqueue puts an element into prepare, or with [In] and [At] into delay. Take moves it from prepare into a
//     worker's doing list.
//   - A verdict is what becomes of it then. Ack: it is done and gone. Retry: to delay, with one attempt more. Reject:
//     to dead.
//   - Promote moves what is due from delay to prepare. Reap moves what a dead receiver held to the taking end of
//     prepare. Release puts what the receiver itself had taken, and not begun, back there. The taking end is the one
//     that is taken from next.
//   - A receiver is one call of [Queue.Receive], [Queue.ReceiveOrdered] or [Queue.ReceiveWeighted]; a worker is one of
//     its goroutines, each with a doing list of its own. A waiter is what wakes a receiver that has nothing to do.
//   - An incarnation is a receiver's hold on Redis: it ends, and another follows, when a connection breaks that owed it
//     an answer.
//   - A lease is how long an incarnation may be away: it is believed alive for a term of four thirds of it after its
//     last beat. A sweep looks after those whose term is over.
//   - A suspect is an element that was in the hands of dying processes twice or more. A receiver handles one at a time;
//     one that was there four times goes to dead.
//
// # Where to read on
//
// [Queue] is the configuration, [IMessage] what a message type is, [Event] what can be watched; [Queue.Stats],
// [Queue.List] and their neighbours are for operators. The README has the limits of the promise, the table of all
// that can be configured and the rights that a Redis user needs; docs/lifecycle.md every state, transition and key;
// docs/design.md the reasons; docs/operations.md how to run it.
package shunt
