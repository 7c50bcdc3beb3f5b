// Package msgpack has messages of shunt carry MessagePack.
//
//	q := &shunt.Queue{Pool: pool, Codec: msgpack.Codec}
//	order := shunt.Define("order", func(ctx context.Context, o Order) error { … })
//	err := q.Enqueue(ctx, order.Message(Order{Number: 7}))
//
// Other languages read and write the same: MessagePack never begins with the byte by which shunt tells its own header.
package msgpack

import (
	"bytes"
	"fmt"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/shuntmq/shunt"
)

// Codec is a Queue's Codec, by github.com/vmihailenco/msgpack. Names of fields are those of the tag msgpack, else those
// of the tag json, else those in Go. The keys of maps of strings are sorted. A payload with something behind its value
// is an error, as is one nested deeper than 10,000. A payload is not marked: to move a channel from JSON to
// MessagePack, give the new type a channel or a type name of its own.
var Codec = shunt.Codec{Marshal: marshal, Unmarshal: unmarshal}

// jsonTag names fields that have no tag of their own.
const jsonTag = "json"

func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := msgpack.NewEncoder(&b)
	e.SetCustomStructTag(jsonTag)
	e.SetSortMapKeys(true)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("msgpack: marshal a %T: %w", v, err)
	}
	return b.Bytes(), nil
}

func unmarshal(data []byte, v any) error {
	if err := check(data); err != nil {
		return fmt.Errorf("msgpack: the payload is no MessagePack: %w", err)
	}
	d := msgpack.NewDecoder(bytes.NewReader(data))
	d.SetCustomStructTag(jsonTag)
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("msgpack: the payload is no %T: %w", v, err)
	}
	return nil
}
