package shunt_test

import (
	"bytes"
	"compress/flate"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/shuntmq/shunt"
)

// compressed compresses what is large. Module codec has layers that do more.
var compressed = shunt.Payloads{
	Encode: func(_ context.Context, p shunt.Payload) (string, []byte, error) {
		if len(p.Bytes) < 1000 {
			return "", nil, nil // as it is
		}
		var b bytes.Buffer
		w, _ := flate.NewWriter(&b, flate.BestSpeed)
		_, _ = w.Write(p.Bytes)
		if err := w.Close(); err != nil {
			return "", nil, err
		}
		return "flate", b.Bytes(), nil
	},
	Decode: func(_ context.Context, p shunt.Payload) ([]byte, error) {
		if p.Encoding == "" {
			return p.Bytes, nil
		}
		b, err := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(p.Bytes)), 1<<20))
		if err != nil {
			return nil, shunt.Reject(err) // to dead: it will never be read
		}
		return b, nil
	},
}

// Payloads change the payloads of all messages on their way to Redis, and back.
func ExampleQueue_payloads() {
	q, wait, end := open()
	defer end()
	q.Payloads = compressed
	ctx := context.Background()

	post := shunt.Define("post", func(_ context.Context, text string) error {
		fmt.Println("handled", len(text), "bytes")
		return nil
	})
	check(q.Enqueue(ctx, post.Message(strings.Repeat("text ", 1000))))
	there, err := q.List(ctx, "post", shunt.StatePrepare, 0, 0)
	check(err)
	fmt.Println(there[0].Headers[shunt.EncodingHeader], len(there[0].Payload) < 200)
	payload, err := q.PayloadOf(ctx, there[0])
	check(err)
	fmt.Println(len(payload), "bytes with the quotes of JSON")
	_, err = q.Receive(ctx, post, 1)
	check(err)
	wait(shunt.EventAcked, 1)
	// Output:
	// flate true
	// 5002 bytes with the quotes of JSON
	// handled 5000 bytes
}
