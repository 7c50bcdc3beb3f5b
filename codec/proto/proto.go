// Package proto has messages of shunt carry Protocol Buffers.
//
//	q := &shunt.Queue{Pool: pool, Codec: proto.Codec}
//	order := shunt.Define("order", func(ctx context.Context, o *shop.Order) error { … })
//	err := q.Enqueue(ctx, order.Message(&shop.Order{Number: 7}))
//
// The message's type name is that of the Go type, such as shop.Order.
package proto

import (
	"encoding/json"
	"fmt"
	"reflect"

	"google.golang.org/protobuf/proto"

	"github.com/shuntmq/shunt"
)

// Codec is a Queue's Codec. It writes a T of Define that is a pointer to a generated message in the binary form of
// Protocol Buffers, deterministic within one build. Fields that a receiver does not know are kept. Any other T is JSON,
// as without the Codec, so that a Queue may have both. A payload is not marked: to move a channel from JSON to Protocol
// Buffers, give the new type a channel or a type name of its own.
var Codec = shunt.Codec{Marshal: marshal, Unmarshal: unmarshal}

func marshal(v any) ([]byte, error) {
	m, ok := v.(proto.Message)
	if !ok {
		return shunt.ToJSON(v)
	}
	if r := reflect.ValueOf(m); r.Kind() == reflect.Pointer && r.IsNil() {
		return nil, fmt.Errorf("proto: the %T is nil: enqueue a message", v)
	}
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("proto: marshal a %T: %w", v, err)
	}
	return b, nil
}

// unmarshal gets a pointer to a T of Define, in which a T that is a pointer is nil yet.
func unmarshal(data []byte, v any) error {
	to := reflect.ValueOf(v)
	if to.Kind() != reflect.Pointer || to.IsNil() {
		return fmt.Errorf("proto: unmarshal into a %T: want a pointer", v)
	}
	if m, ok := v.(proto.Message); ok {
		return read(data, m)
	}
	if t := to.Elem().Type(); t.Kind() == reflect.Pointer {
		made := reflect.New(t.Elem())
		if m, ok := made.Interface().(proto.Message); ok {
			if err := read(data, m); err != nil {
				return err
			}
			to.Elem().Set(made)
			return nil
		}
	}
	return json.Unmarshal(data, v)
}

func read(data []byte, m proto.Message) error {
	if err := proto.Unmarshal(data, m); err != nil {
		return fmt.Errorf("proto: the payload is no %s: %w", m.ProtoReflect().Descriptor().FullName(), err)
	}
	return nil
}
