package shunt_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/shuntmq/shunt"
)

// open starts a Redis inside this process and makes a Queue on it. What the examples call besides the Queue is here:
// wait returns once n Events of a kind have come, end closes everything.
func open() (q *shunt.Queue, wait func(kind shunt.EventKind, n int), end func()) {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	pool, err := shunt.NewPool("redis://" + server.Addr())
	if err != nil {
		panic(err)
	}
	var mu sync.Mutex
	seen := make(map[shunt.EventKind]int)
	more := sync.NewCond(&mu)
	q = &shunt.Queue{Pool: pool, Events: func(e shunt.Event) {
		mu.Lock()
		seen[e.Kind]++
		mu.Unlock()
		more.Broadcast()
	}}
	wait = func(kind shunt.EventKind, n int) {
		mu.Lock()
		defer mu.Unlock()
		for seen[kind] < n {
			more.Wait()
		}
	}
	end = func() {
		if err := q.Close(); err != nil {
			fmt.Println(err)
		}
		pool.Close()
		server.Close()
	}
	return q, wait, end
}

// Welcome is a payload for Define.
type Welcome struct {
	To string
}

// Order is a message type written out: exported fields are the payload, and what its handler needs is handed on from
// the prototype.
type Order struct {
	ID int

	shop *Shop
}

// Shop is what handlers of orders need.
type Shop struct{ Name string }

func (o *Order) Channel() string                            { return "orders" }
func (o *Order) Marshal() ([]byte, error)                   { return shunt.ToJSON(o) }
func (o *Order) Unmarshal(b []byte) (shunt.IMessage, error) { return shunt.FromJSON(o, b) }

func (o *Order) Resolve(ctx context.Context) error {
	fmt.Printf("%s ships order %d\n", o.shop.Name, o.ID)
	return nil
}

// The optional methods: what all orders want in place of the Queue's defaults.

func (o *Order) Timeout() time.Duration            { return time.Minute }
func (o *Order) MaxAttempts() int                  { return 5 }
func (o *Order) Backoff(attempt int) time.Duration { return time.Duration(attempt) * time.Minute }

// A message type of one's own: fields are the payload, dependencies come with the prototype.
func Example() {
	q, wait, end := open()
	defer end()
	ctx := context.Background()

	if err := q.Enqueue(ctx, &Order{ID: 7}); err != nil {
		panic(err)
	}
	shutdown, err := q.Receive(ctx, &Order{shop: &Shop{Name: "Ann's"}}, 8)
	if err != nil {
		panic(err)
	}
	wait(shunt.EventAcked, 1)
	fmt.Println(shutdown(ctx))
	// Output:
	// Ann's ships order 7
	// <nil>
}

func ExampleQueue_Enqueue() {
	q, _, end := open()
	defer end()
	ctx := context.Background()

	err := q.Enqueue(ctx, &Order{ID: 7})
	switch {
	case err == nil:
		fmt.Println("Redis has it")
	case errors.Is(err, shunt.ErrUnknown):
		fmt.Println("sent, but the reply was lost: look whether it is there before you enqueue it again")
	default:
		fmt.Println("Redis does not have it:", err)
	}
	// Output: Redis has it
}

func ExampleQueue_EnqueueAll() {
	q, _, end := open()
	defer end()
	q.MaxSize = 100
	ctx := context.Background()

	err := q.EnqueueAll(ctx, []shunt.IMessage{
		&Order{ID: 1},
		shunt.Raw("orders", make([]byte, 1000)),
		&Order{ID: 3},
	})
	var failed *shunt.EnqueueError
	if errors.As(err, &failed) {
		for i, err := range failed.Failed {
			fmt.Println("surely not enqueued:", i, errors.Is(err, shunt.ErrTooLarge))
		}
		for i := range failed.Unknown {
			fmt.Println("perhaps enqueued:", i)
		}
	}
	stats, err := q.Stats(ctx, "orders")
	if err != nil {
		panic(err)
	}
	fmt.Println("ready to be taken:", stats[shunt.StatePrepare].Count)
	// Output:
	// surely not enqueued: 1 true
	// ready to be taken: 2
}

func ExampleIn() {
	q, wait, end := open()
	defer end()
	ctx := context.Background()

	began := time.Now()
	reminder := shunt.Define("reminder", func(context.Context, Welcome) error {
		fmt.Println("not before its time:", time.Since(began) >= 50*time.Millisecond)
		return nil
	})
	if _, err := q.Receive(ctx, reminder, 1); err != nil {
		panic(err)
	}
	if err := q.Enqueue(ctx, reminder.Message(Welcome{}), shunt.In(50*time.Millisecond)); err != nil {
		panic(err)
	}
	wait(shunt.EventAcked, 1)
	// Output: not before its time: true
}

func ExampleAt() {
	q, _, end := open()
	defer end()
	ctx := context.Background()

	due := time.Date(2100, 1, 1, 9, 0, 0, 0, time.UTC)
	if err := q.Enqueue(ctx, &Order{ID: 7}, shunt.At(due)); err != nil {
		panic(err)
	}
	delayed, err := q.List(ctx, "orders", shunt.StateDelay, 0, 0)
	if err != nil {
		panic(err)
	}
	for _, e := range delayed {
		fmt.Println(e.DueAt.UTC().Format(time.RFC3339))
	}
	// Output: 2100-01-01T09:00:00Z
}

// The first step of a shutdown is that nothing more is taken; what has begun may end.
func ExampleQueue_Receive() {
	q, _, end := open()
	defer end()
	ctx := context.Background()

	began, finish := make(chan bool), make(chan bool)
	slow := shunt.Define("slow", func(context.Context, int) error {
		close(began)
		<-finish
		fmt.Println("handled to its end")
		return nil
	})
	shutdown, err := q.Receive(ctx, slow, 8)
	if err != nil {
		panic(err)
	}
	if err := q.Enqueue(ctx, slow.Message(1)); err != nil {
		panic(err)
	}
	<-began
	time.AfterFunc(10*time.Millisecond, func() { close(finish) })

	limit, cancel := context.WithTimeout(ctx, time.Minute) // then handlers' contexts end
	defer cancel()
	var cut *shunt.ShutdownError
	switch err := shutdown(limit); {
	case err == nil:
		fmt.Println("all have ended")
	case errors.As(err, &cut):
		fmt.Println("handed back:", cut.Returned, "still running:", cut.Running)
	}
	// Output:
	// handled to its end
	// all have ended
}

// However they come in, no order starts while there is one of a channel named before its own.
func ExampleQueue_ReceiveOrdered() {
	q, wait, end := open()
	defer end()
	ctx := context.Background()

	show := func(_ context.Context, what string) error { fmt.Println(what); return nil }
	vip, bulk := shunt.Define("vip", show), shunt.Define("bulk", show)
	err := q.EnqueueAll(ctx, []shunt.IMessage{bulk.Message("gravel"), bulk.Message("sand"), vip.Message("pearls")})
	if err != nil {
		panic(err)
	}
	if _, err := q.ReceiveOrdered(ctx, 1, vip, bulk); err != nil {
		panic(err)
	}
	wait(shunt.EventAcked, 3)
	// Output:
	// pearls
	// gravel
	// sand
}

// While both channels have messages, two of three starts are the first one's.
func ExampleQueue_ReceiveWeighted() {
	q, wait, end := open()
	defer end()
	ctx := context.Background()

	show := func(_ context.Context, what string) error { fmt.Println(what); return nil }
	paying, free := shunt.Define("paying", show), shunt.Define("free", show)
	for range 4 {
		if err := q.EnqueueAll(ctx, []shunt.IMessage{paying.Message("paying"), free.Message("free")}); err != nil {
			panic(err)
		}
	}
	_, err := q.ReceiveWeighted(
		ctx,
		1,
		shunt.Share{Prototype: paying, Weight: 2},
		shunt.Share{Prototype: free, Weight: 1},
	)
	if err != nil {
		panic(err)
	}
	wait(shunt.EventAcked, 8)
	// Output:
	// paying
	// free
	// paying
	// paying
	// free
	// paying
	// free
	// free
}

func ExampleDefine() {
	q, wait, end := open()
	defer end()
	ctx := context.Background()

	welcome := shunt.Define("welcome", func(ctx context.Context, w Welcome) error {
		fmt.Println("welcome,", w.To)
		return nil
	})
	if err := q.Enqueue(ctx, welcome.Message(Welcome{To: "Ann"})); err != nil {
		panic(err)
	}
	if _, err := q.Receive(ctx, welcome, 8); err != nil {
		panic(err)
	}
	wait(shunt.EventAcked, 1)
	// Output: welcome, Ann
}

// A payload without a type, for a channel that somebody else receives.
func ExampleRaw() {
	q, wait, end := open()
	defer end()
	ctx := context.Background()

	if err := q.Enqueue(ctx, shunt.Raw("orders", []byte(`{"ID":7}`))); err != nil {
		panic(err)
	}
	if _, err := q.Receive(ctx, &Order{shop: &Shop{Name: "Ann's"}}, 1); err != nil {
		panic(err)
	}
	wait(shunt.EventAcked, 1)
	// Output: Ann's ships order 7
}

// ToJSON and FromJSON are Marshal and Unmarshal in one line; the new message has the prototype's dependencies.
func ExampleFromJSON() {
	payload, err := shunt.ToJSON(&Order{ID: 7})
	if err != nil {
		panic(err)
	}
	fmt.Printf("%s\n", payload)

	prototype := &Order{shop: &Shop{Name: "Ann's"}}
	m, err := shunt.FromJSON(prototype, payload)
	if err != nil {
		panic(err)
	}
	fmt.Println(m.(*Order).ID, m.(*Order).shop.Name, prototype.ID)
	// Output:
	// {"ID":7}
	// 7 Ann's 0
}

func ExampleReject() {
	q, wait, end := open()
	defer end()
	ctx := context.Background()

	mail := shunt.Define("mail", func(_ context.Context, to string) error {
		return shunt.Reject(fmt.Errorf("%q is no address", to)) // trying again would not help
	})
	if err := q.Enqueue(ctx, mail.Message("ann")); err != nil {
		panic(err)
	}
	if _, err := q.Receive(ctx, mail, 1); err != nil {
		panic(err)
	}
	wait(shunt.EventRejected, 1)
	dead, err := q.List(ctx, "mail", shunt.StateDead, 0, 0)
	if err != nil {
		panic(err)
	}
	for _, e := range dead {
		fmt.Printf("%s after %d attempt: %s\n", e.Payload, e.Attempts, e.Failure)
	}
	// Output: "ann" after 1 attempt: "ann" is no address
}

func ExampleRetryAfter() {
	q, wait, end := open()
	defer end()
	ctx := context.Background()

	mail := shunt.Define("mail", func(ctx context.Context, to string) error {
		info, _ := shunt.FromContext(ctx)
		fmt.Printf("attempt %d, failed so far with %q\n", info.Attempt, info.Failure)
		if info.Attempt == 1 {
			return shunt.RetryAfter(10*time.Millisecond, errors.New("too many requests"))
		}
		return nil
	})
	if err := q.Enqueue(ctx, mail.Message("ann@example.org")); err != nil {
		panic(err)
	}
	if _, err := q.Receive(ctx, mail, 1); err != nil {
		panic(err)
	}
	wait(shunt.EventAcked, 1)
	// Output:
	// attempt 1, failed so far with ""
	// attempt 2, failed so far with "too many requests"
}

func ExampleSnooze() {
	q, wait, end := open()
	defer end()
	ctx := context.Background()

	looks := 0
	report := shunt.Define("report", func(ctx context.Context, month string) error {
		looks++
		info, _ := shunt.FromContext(ctx)
		fmt.Printf("look %d, attempt %d\n", looks, info.Attempt)
		if looks == 1 { // the figures are not there yet, which is nobody's failure
			return shunt.Snooze(100 * time.Millisecond)
		}
		return nil
	})
	if err := q.Enqueue(ctx, report.Message("2026-11")); err != nil {
		panic(err)
	}
	if _, err := q.Receive(ctx, report, 1); err != nil {
		panic(err)
	}
	wait(shunt.EventAcked, 1)
	// Output:
	// look 1, attempt 1
	// look 2, attempt 1
}

func ExampleMux() {
	q, wait, end := open()
	defer end()
	ctx := context.Background()

	type Welcome struct{ To string }
	type Invoice struct{ Number int }
	welcome := shunt.Define("jobs", func(ctx context.Context, w Welcome) error {
		fmt.Println("welcome,", w.To)
		return nil
	})
	invoice := shunt.Define("jobs", func(ctx context.Context, i Invoice) error {
		fmt.Println("invoice", i.Number)
		return nil
	})
	for _, m := range []shunt.IMessage{welcome.Message(Welcome{"Ann"}), invoice.Message(Invoice{7})} {
		if err := q.Enqueue(ctx, m); err != nil {
			panic(err)
		}
	}
	if _, err := q.Receive(ctx, shunt.Mux(welcome, invoice), 1); err != nil {
		panic(err)
	}
	wait(shunt.EventAcked, 2)
	// Output:
	// welcome, Ann
	// invoice 7
}

func ExampleHeader() {
	q, wait, end := open()
	defer end()
	ctx := context.Background()

	show := shunt.Define("show", func(ctx context.Context, _ int) error {
		info, _ := shunt.FromContext(ctx)
		fmt.Println(info.Channel, info.Attempt, info.Headers["tenant"])
		return nil
	})
	err := q.Enqueue(
		ctx,
		show.Message(1),
		shunt.Header("tenant", "ann"),
		shunt.Timeout(time.Minute),
		shunt.MaxAttempts(3),
	)
	if err != nil {
		panic(err)
	}
	if _, err := q.Receive(ctx, show, 1); err != nil {
		panic(err)
	}
	wait(shunt.EventAcked, 1)
	// Output: show 1 ann
}

func ExampleFromContext() {
	_, ok := shunt.FromContext(context.Background())
	fmt.Println(ok) // not a handler's context
	// Output: false
}

// Middleware around every handler.
func ExampleQueue_wrap() {
	q, wait, end := open()
	defer end()
	q.Wrap = func(next shunt.Handler) shunt.Handler {
		return func(ctx context.Context, m shunt.IMessage) error {
			fmt.Println("before", m.Channel())
			err := next(ctx, m)
			fmt.Println("after", err)
			return err
		}
	}
	ctx := context.Background()

	if err := q.Enqueue(ctx, &Order{ID: 7}); err != nil {
		panic(err)
	}
	if _, err := q.Receive(ctx, &Order{shop: &Shop{Name: "Ann's"}}, 1); err != nil {
		panic(err)
	}
	wait(shunt.EventAcked, 1)
	// Output:
	// before orders
	// Ann's ships order 7
	// after <nil>
}

// Events are the one door for logs, metrics and tests.
func ExampleQueue_events() {
	q, _, end := open()
	defer end()
	acked := make(chan shunt.Event, 1)
	q.Events = func(e shunt.Event) { // on a goroutine of its own, one at a time
		if e.Kind == shunt.EventAcked {
			acked <- e
		}
	}
	ctx := context.Background()

	if err := q.Enqueue(ctx, &Order{ID: 7}); err != nil {
		panic(err)
	}
	if _, err := q.Receive(ctx, &Order{shop: &Shop{Name: "Ann's"}}, 1); err != nil {
		panic(err)
	}
	e := <-acked
	fmt.Println(e.Kind, e.Channel, "attempt", e.Attempt)
	// Output:
	// Ann's ships order 7
	// acked orders attempt 1
}

func ExampleLogEvents() {
	q, wait, end := open()
	defer end()
	log := shunt.LogEvents(slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		Level: slog.LevelWarn,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			switch a.Key {
			case slog.TimeKey, "serial", "receiver", "took":
				return slog.Attr{} // another each time
			}
			return a
		},
	})))
	count := q.Events
	q.Events = func(e shunt.Event) {
		log(e)
		count(e)
	}
	ctx := context.Background()

	mail := shunt.Define("mail", func(_ context.Context, to string) error {
		return shunt.Reject(errors.New("mailbox unknown"))
	})
	if err := q.Enqueue(ctx, mail.Message("ann@example.org")); err != nil {
		panic(err)
	}
	if _, err := q.Receive(ctx, mail, 1); err != nil {
		panic(err)
	}
	wait(shunt.EventRejected, 1)
	// Output: level=ERROR msg="shunt: rejected" channel=mail attempt=1 worker=0 error="mailbox unknown"
}

func ExampleQueue_Stats() {
	q, _, end := open()
	defer end()
	ctx := context.Background()

	err := errors.Join(
		q.EnqueueAll(ctx, []shunt.IMessage{&Order{ID: 1}, &Order{ID: 2}}),
		q.Enqueue(ctx, &Order{ID: 3}, shunt.In(time.Hour)),
	)
	if err != nil {
		panic(err)
	}
	stats, err := q.Stats(ctx, "orders")
	if err != nil {
		panic(err)
	}
	for _, state := range shunt.States {
		fmt.Println(state, stats[state].Count)
	}
	// Output:
	// prepare 2
	// doing 0
	// delay 1
	// suspect 0
	// dead 0
	// done 0
}

// dead gives up on three messages in the channel mail.
func dead(q *shunt.Queue, wait func(shunt.EventKind, int)) {
	ctx := context.Background()
	mail := shunt.Define("mail", func(_ context.Context, to string) error {
		return shunt.Reject(fmt.Errorf("no mailbox %s", to))
	})
	if err := q.EnqueueAll(ctx, []shunt.IMessage{mail.Message("ann"), mail.Message("ben"),
		mail.Message("cleo")}); err != nil {
		panic(err)
	}
	shutdown, err := q.Receive(ctx, mail, 1)
	if err != nil {
		panic(err)
	}
	wait(shunt.EventRejected, 3)
	if err := shutdown(ctx); err != nil {
		panic(err)
	}
}

func ExampleQueue_List() {
	q, wait, end := open()
	defer end()
	dead(q, wait) // ann, ben and cleo
	ctx := context.Background()

	entries, err := q.List(ctx, "mail", shunt.StateDead, 0, 0)
	if err != nil {
		panic(err)
	}
	for _, e := range entries {
		fmt.Printf("%s: %s\n", e.Payload, e.Failure)
	}
	// Unordered output:
	// "ann": no mailbox ann
	// "ben": no mailbox ben
	// "cleo": no mailbox cleo
}

func ExampleQueue_RetryDead() {
	q, wait, end := open()
	defer end()
	dead(q, wait) // ann, ben and cleo
	ctx := context.Background()

	entries, err := q.List(ctx, "mail", shunt.StateDead, 0, 0)
	if err != nil {
		panic(err)
	}
	n, err := q.RetryDead(ctx, "mail", entries...)
	fmt.Println("put back:", n, err)
	n, err = q.RetryDead(ctx, "mail", entries...)
	fmt.Println("again:", n, err)
	// Output:
	// put back: 3 <nil>
	// again: 0 <nil>
}

func ExampleQueue_DeleteDead() {
	q, wait, end := open()
	defer end()
	dead(q, wait) // ann, ben and cleo
	ctx := context.Background()

	entries, err := q.List(ctx, "mail", shunt.StateDead, 0, 0)
	if err != nil {
		panic(err)
	}
	for _, e := range entries {
		if string(e.Payload) != `"ben"` {
			continue
		}
		n, err := q.DeleteDead(ctx, "mail", e)
		fmt.Println("deleted:", n, err)
	}
	// Output: deleted: 1 <nil>
}

func ExampleQueue_Purge() {
	q, wait, end := open()
	defer end()
	dead(q, wait) // ann, ben and cleo
	ctx := context.Background()

	n, err := q.Purge(ctx, "mail", shunt.StateDead, shunt.StatePrepare)
	fmt.Println("purged:", n, err)
	_, err = q.Purge(ctx, "mail", shunt.StateDoing)
	fmt.Println(err)
	// Output:
	// purged: 3 <nil>
	// shunt: purge "mail": state "doing" cannot be purged: want prepare, delay, suspect, dead or done
}

func ExampleQueue_Channels() {
	q, _, end := open()
	defer end()
	ctx := context.Background()

	err := errors.Join(q.Enqueue(ctx, shunt.Raw("mail", nil)), q.Enqueue(ctx, &Order{}))
	if err != nil {
		panic(err)
	}
	fmt.Println(q.Channels(ctx))
	// Output: [mail orders] <nil>
}

func ExampleQueue_Receivers() {
	q, _, end := open()
	defer end()
	ctx := context.Background()

	if _, err := q.Receive(ctx, &Order{}, 8); err != nil {
		panic(err)
	}
	receivers, err := q.Receivers(ctx, "orders")
	if err != nil {
		panic(err)
	}
	for _, r := range receivers {
		fmt.Println("alive:", r.Alive, "workers:", r.Workers, "lease:", r.Lease, "holding:", r.Holding)
	}
	// Output: alive: true workers: 8 lease: 10s holding: 0
}

func ExampleQueue_Close() {
	q, _, end := open()
	defer end()
	ctx := context.Background()

	fmt.Println(q.Close())
	fmt.Println(errors.Is(q.Enqueue(ctx, &Order{ID: 7}), shunt.ErrClosed))
	// Output:
	// <nil>
	// true
}

func ExampleQueue_Validate() {
	q := &shunt.Queue{Lease: time.Millisecond, Prefetch: 5000}
	fmt.Println(q.Validate())
	// Output:
	// shunt: Queue.Pool is nil: make one with shunt.NewPool("redis://localhost:6379")
	// shunt: Queue.Lease is 1ms: want 1s to 10m, or 0 for 10s
	// shunt: Queue.Prefetch is 5000: want 1 to 1000, or 0 for 64
}
