package proto

import (
	"context"
	"os"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/shunttest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// What is enqueued is handled, and lies in Redis in the binary form; any other type is JSON.
func TestCodec(t *testing.T) {
	t.Parallel()
	q := shunttest.New(t, func(q *shunt.Queue) { q.Codec = Codec })
	want, err := structpb.NewStruct(map[string]any{"to": "ann", "tags": []any{"a", 1.5, nil}, "b": true})
	if err != nil {
		t.Fatal(err)
	}
	var got *structpb.Struct
	k := shunt.Define("mail", func(_ context.Context, s *structpb.Struct) error { got = s; return nil })
	if k.MessageType() != "structpb.Struct" {
		t.Errorf("the type is named %q", k.MessageType())
	}
	if err := q.Enqueue(t.Context(), k.Message(want)); err != nil {
		t.Fatal(err)
	}
	var there structpb.Struct
	if ds := q.Enqueued("mail"); len(ds) != 1 || proto.Unmarshal(ds[0].Payload, &there) != nil ||
		!proto.Equal(&there, want) {
		t.Errorf("enqueued %v", ds)
	}
	if out := q.Handle(k, k.Message(want)); out.Verdict != shunt.EventAcked || !proto.Equal(got, want) {
		t.Errorf("handled %v, want %v: %v", got, want, out.Err)
	}
	type plain struct{ To string }
	var to string
	j := shunt.Define("plain", func(_ context.Context, p plain) error { to = p.To; return nil })
	if out := q.Handle(j, j.Message(plain{"<bob>"})); out.Verdict != shunt.EventAcked || to != "<bob>" {
		t.Errorf("handled %q: %v", to, out.Err)
	}
	p := shunt.Define("pointer", func(_ context.Context, p *plain) error { to = p.To; return nil })
	if out := q.Handle(p, p.Message(&plain{"cid"})); out.Verdict != shunt.EventAcked || to != "cid" {
		t.Errorf("handled %q: %v", to, out.Err)
	}
}

// A nil message is an error of its enqueue, and a payload that is none ends in dead with its reason.
func TestBadPayloads(t *testing.T) {
	t.Parallel()
	q := shunttest.New(t, func(q *shunt.Queue) { q.Codec = Codec })
	k := shunt.Define("mail", func(context.Context, *structpb.Struct) error { return nil })
	if err := q.Enqueue(t.Context(), k.Message(nil)); err == nil || !strings.Contains(err.Error(), "is nil") {
		t.Errorf("enqueued a nil: %v", err)
	}
	out := q.Handle(k, shunt.Raw("mail", []byte("\xff\xff")))
	if out.Verdict != shunt.EventUndecodable || !strings.Contains(out.Err.Error(), "no google.protobuf.Struct") {
		t.Error(out.Verdict, out.Err)
	}
	if err := unmarshal(nil, structpb.Struct{}.Fields); err == nil {
		t.Error("unmarshalled into what is no pointer")
	}
	var w wrapperspb.StringValue
	if err := unmarshal([]byte("\x0a\x01a"), &w); err != nil || w.Value != "a" {
		t.Errorf("a message itself: %v, %v", &w, err)
	}
}

func FuzzUnmarshal(f *testing.F) {
	s, _ := structpb.NewStruct(map[string]any{"to": "ann", "tags": []any{"a", 1.5, nil}})
	b, err := marshal(s)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		var s *structpb.Struct
		if unmarshal(b, &s) != nil {
			return
		}
		again, err := marshal(s)
		var same *structpb.Struct
		if err != nil || unmarshal(again, &same) != nil {
			t.Fatalf("%x is read and %x is not, %v", b, again, err)
		}
	})
}
