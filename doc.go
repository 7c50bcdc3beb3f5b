// Package shunt enqueues messages through Redis lists and handles each at least once.
//
// A producer enqueues a message into a channel, which is what other packages call a queue. A receiver has workers,
// goroutines that take messages from a channel and call their handler. A message is moved, never popped: RPOPLPUSH
// takes it from its channel's list into a list of the worker that handles it, and it leaves Redis when its handler has
// succeeded. What a dead worker held is put back by others.
//
//	pool, err := shunt.NewPool("redis://localhost:6379")
//	q := &shunt.Queue{Pool: pool} // the client, one in each process
//
//	welcome := shunt.Define("welcome", func(ctx context.Context, w Welcome) error {
//		return mail.Send(ctx, w.To) // nil: it is done; an error: it is tried again, by default after 15 s or more
//	})
//	err = q.Enqueue(ctx, welcome.Message(Welcome{To: "ann@example.org"}), shunt.In(time.Minute))
//
//	shutdown, err := q.Receive(ctx, welcome, 8) // 8 workers
//	err = shutdown(ctx)                         // waits for handlers until ctx ends
//
// Failures are logged by slog.Default, as in
//
//	WARN shunt: retried channel=welcome serial=01KAV9… attempt=1 due=… error="the mail server is busy"
//
// until [Queue].Events is set, to [LogEvents] for a logger of your own, or Quiet.
//
// # The promise
//
// A message whose Enqueue returned nil is handled at least once, or ends in dead with its reason. That holds for as
// long as Redis keeps its data. Without a fault a message is handled exactly once. Handlers should be idempotent,
// because a killed process, a lost reply or a lost lease may have a message handled twice.
//
// # The words
//
//   - A message is what a user defines: a type with the methods of [IMessage], or a function given to [Define].
//   - A channel is a named stream of messages of one type, or of several that a [Mux] receives. All its keys in Redis
//     share one hash tag.
//   - An element is a message's bytes in Redis: a short header, and the payload that Marshal made. The header has the
//     message's serial, a ULID. A payload that came without a header, by LPUSH {channel}.prepare from
//     any language, is a bare payload.
//   - A receiver is one call of [Queue.Receive], [Queue.ReceiveOrdered], [Queue.ReceiveWeighted] or
//     [Queue.ReceiveBatch]. A worker is one of its goroutines, with a list of its own in Redis. A waiter wakes a
//     receiver that is idle.
//   - A message has one of six states. In prepare it is ready to be taken. In doing it lies in a worker's list. In
//     delay it is due later. In suspect it waits after dying processes held it twice or more. In dead it lies after its
//     last attempt, or because it must not be handled. In done only its outcome is kept.
//   - Enqueue puts an element into prepare, or with [In] and [At] into delay. Take moves it from prepare into a
//     worker's doing list.
//   - A verdict says where a message goes after its handling. Ack removes it. Retry moves it to delay, with one attempt
//     more. Snooze does so and counts none. Reject moves it to dead.
//   - The taking end of prepare is the end from which the next message is taken. Promote moves due messages from delay
//     to prepare. Reap moves the messages of a dead receiver to the taking end. Release puts messages that a receiver
//     has taken, and not begun, back there.
//   - An incarnation is the entry of a receiver in Redis, with its doing lists. It ends when a connection breaks that
//     owed it a reply, when its lease is lost or when Redis was restarted, and another one follows. Fields named
//     Receiver have its name.
//   - A lease is how long an incarnation may be away. Others believe it alive for its term, four thirds of a lease,
//     after its last beat, a write that extends it. After that a sweep, a look that receivers take every few seconds,
//     finds it, and its messages go back.
//   - A suspect is an element that dying processes held twice or more. A receiver handles one suspect at a time. After
//     the fourth such death the element goes to dead.
//
// # Where to read on
//
// [Queue] is the configuration, [IMessage] is a message type, and [Event] reports what happens. [Queue.Stats],
// [Queue.List], [Queue.Status] and their like are for operators; a [Ref] names one message for them. The README has the
// limits of the promise, and names the pages of docs: guides for those who come from other packages, all configuration,
// the rights that a Redis user needs, every state and key, the reasons, and how to run it.
package shunt
