package shunt_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/shuntmq/shunt"
)

// open starts a Redis inside this process and makes a Queue on it. What the examples call besides the Queue is here:
// wait returns once n Events of a kind have come, end closes everything, and check ends the program on an error.
func open() (q *shunt.Queue, wait func(kind shunt.EventKind, n int), end func()) {
	server, err := miniredis.Run()
	check(err)
	pool, err := shunt.NewPool("redis://" + server.Addr())
	check(err)
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

func check(err error) {
	if err != nil {
		panic(err)
	}
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

// A message type of one's own has the payload in its fields, and gets its dependencies from the prototype.
func Example() {
	q, wait, end := open()
	defer end()
	ctx := context.Background()

	check(q.Enqueue(ctx, &Order{ID: 7}))
	shutdown, err := q.Receive(ctx, &Order{shop: &Shop{Name: "Ann's"}}, 8)
	check(err)
	wait(shunt.EventAcked, 1)
	fmt.Println(shutdown(ctx))
	// Output:
	// Ann's ships order 7
	// <nil>
}

// The fields of a Queue are its configuration, here that of a service that sends mails.
func ExampleQueue() {
	pool, err := shunt.NewPool("redis://localhost:6379")
	check(err)
	q := &shunt.Queue{
		Pool:        pool,
		Lease:       30 * time.Second, // the mails of a killed process are sent by others after 30 to 42 s
		Timeout:     time.Minute,      // a mail server that hangs
		Grace:       5 * time.Second,  // and a handler that does not notice
		MaxAttempts: 10,
		Backoff:     func(attempt int) time.Duration { return time.Duration(attempt) * time.Minute },

		Prefetch:      4, // a worker that hangs holds up at most three others
		PrefetchBytes: 1 << 20,
		MaxSize:       256 << 10, // no attachments

		MaxDead:      1000,
		DeadFor:      7 * 24 * time.Hour,
		MaxDone:      100_000, // outcomes, which the support looks up
		MaxDoneBytes: 16 << 20,

		EnqueueTimeout: 2 * time.Second, // the web page that enqueues waits no longer
		ReplyTimeout:   time.Second,
		Quiet:          true,
	}
	fmt.Println(q.Validate())
	// Output: <nil>
}

// Enqueue returns nil when Redis has the message, and tells apart whether it may have it or does not.
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
	case errors.Is(err, shunt.ErrFull):
		fmt.Println("Redis is full: enqueue it again when receivers have drained it")
	default:
		fmt.Println("Redis does not have it:", err)
	}
	// Output: Redis has it
}

// EnqueueAll enqueues what it can, and its error has the fault of each other message by its index.
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
	check(err)
	fmt.Println("ready to be taken:", stats[shunt.StatePrepare].Count)
	// Output:
	// surely not enqueued: 1 true
	// ready to be taken: 2
}

// Close waits for all that the Queue has begun, after which it enqueues no more.
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

// Validate says of each field what is wrong with it, and asks Redis nothing.
func ExampleQueue_Validate() {
	q := &shunt.Queue{Lease: time.Millisecond, Prefetch: 5000}
	fmt.Println(q.Validate())
	// Output:
	// shunt: Queue.Pool is nil: make one with shunt.NewPool("redis://localhost:6379")
	// shunt: Queue.Lease is 1ms: want 1s to 10m, or 0 for 10s
	// shunt: Queue.Prefetch is 5000: want 1 to 1000, or 0 for 64
}
