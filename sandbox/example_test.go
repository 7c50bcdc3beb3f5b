//go:build unix

package sandbox_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/alicebob/miniredis/v2"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/sandbox"
)

// A command that reads standard input is a handler, and what it writes is the result.
func Example() {
	ctx := context.Background()
	server, err := miniredis.Run() // a Redis inside this process
	check(err)
	defer server.Close()
	redis, err := shunt.NewPool("redis://" + server.Addr())
	check(err)
	defer redis.Close()
	q := &shunt.Queue{Pool: redis}

	p := &sandbox.Pool{Command: []string{"tr", "a-z", "A-Z"}, Protocol: sandbox.Exec, Children: 2}
	check(p.Validate())
	shutdown, err := q.Receive(ctx, p.Message("shouts"), 2)
	check(err)

	out, err := q.EnqueueAndWait(ctx, shunt.Raw("shouts", []byte("hello")))
	check(err)
	fmt.Printf("%s: %s\n", out.Kind, out.Result)

	check(shutdown(ctx))
	check(p.Close(ctx)) // after the receiver
	check(q.Close())
	// Output:
	// acked: HELLO
}

// The protocol Lines keeps a process for many messages, and middleware can tell how one failed.
func Example_lines() {
	ctx := context.Background()
	server, err := miniredis.Run()
	check(err)
	defer server.Close()
	redis, err := shunt.NewPool("redis://" + server.Addr())
	check(err)
	defer redis.Close()
	q := &shunt.Queue{Pool: redis, Quiet: true, MaxAttempts: 1}
	q.Wrap = func(next shunt.Handler) shunt.Handler {
		return func(ctx context.Context, m shunt.IMessage) error {
			err := next(ctx, m)
			for _, kind := range []error{sandbox.ErrStart, sandbox.ErrExit, sandbox.ErrAnswer, sandbox.ErrOutput} {
				if errors.Is(err, kind) {
					fmt.Println(kind)
				}
			}
			return err
		}
	}

	const handler = `while read line; do echo '{"n":1,"ok":true,"result":"done"}'; done` // wrong for the second message
	p := &sandbox.Pool{Command: []string{"sh", "-c", handler}, Children: 1}
	shutdown, err := q.Receive(ctx, p.Message("orders"), 1)
	check(err)
	for range 2 {
		out, err := q.EnqueueAndWait(ctx, shunt.Raw("orders", []byte("7")))
		check(err)
		fmt.Println(out.Kind, string(out.Result))
	}
	check(shutdown(ctx))
	check(p.Close(ctx))
	check(q.Close())
	// Output:
	// acked done
	// sandbox: the child's answer is no verdict
	// rejected
}

// The exit status is the verdict of a process that handles one message.
func ExampleExitReject() {
	ctx := context.Background()
	server, err := miniredis.Run()
	check(err)
	defer server.Close()
	redis, err := shunt.NewPool("redis://" + server.Addr())
	check(err)
	defer redis.Close()
	q := &shunt.Queue{Pool: redis, Quiet: true}

	script := fmt.Sprintf(`grep -q '^[0-9]*$' || { echo "no number" >&2; exit %d; }`, sandbox.ExitReject)
	p := &sandbox.Pool{Command: []string{"sh", "-c", script}, Protocol: sandbox.Exec}
	shutdown, err := q.Receive(ctx, p.Message("numbers"), 1)
	check(err)
	out, err := q.EnqueueAndWait(ctx, shunt.Raw("numbers", []byte("seven")))
	check(err)
	fmt.Printf("%s: %s\n", out.Kind, out.Failure)
	check(shutdown(ctx))
	check(p.Close(ctx))
	check(q.Close())
	// Output:
	// rejected: no number
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
