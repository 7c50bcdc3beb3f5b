package msgpack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/shunttest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

type item struct {
	Name  string            `json:"name"`
	Price float64           `msgpack:"price" json:"other"`
	Tags  map[string]string `json:"tags,omitempty"`
	At    time.Time
	Data  []byte
	Any   any
	Next  *item `json:"next,omitempty"`
}

// What is enqueued is handled, and lies in Redis as MessagePack with the names of the tags.
func TestCodec(t *testing.T) {
	t.Parallel()
	q := shunttest.New(t, func(q *shunt.Queue) { q.Codec = Codec })
	want := item{Name: "tea", Price: 2.5, Tags: map[string]string{"b": "2", "a": "1"}, At: time.Unix(7, 0).UTC(),
		Data: []byte{0xff}, Any: []any{"x", int8(1)}, Next: &item{Name: "cup"}}
	var got item
	k := shunt.Define("items", func(_ context.Context, i item) error { got = i; return nil })
	if out := q.Handle(k, k.Message(want)); out.Verdict != shunt.EventAcked {
		t.Fatal(out.Verdict, out.Err)
	}
	got.At, got.Next.At = got.At.UTC(), want.Next.At
	if !reflect.DeepEqual(got, want) {
		t.Errorf("handled %+v, want %+v", got, want)
	}
	b, err := marshal(want)
	if err != nil || !bytes.Contains(b, []byte("\xa4name\xa3tea")) || !bytes.Contains(b, []byte("price")) ||
		bytes.Contains(b, []byte("other")) || bytes.Index(b, []byte("\xa1a")) > bytes.Index(b, []byte("\xa1b\xa12")) {
		t.Errorf("%q, %v", b, err)
	}
	if _, err := marshal(make(chan int)); err == nil || !strings.HasPrefix(err.Error(), "msgpack: ") {
		t.Errorf("a channel: %v", err)
	}
}

// What is no MessagePack, or lies about its size, is an error, and takes neither the stack nor much memory.
func TestBadPayloads(t *testing.T) {
	t.Parallel()
	deep := bytes.Repeat([]byte{0x91}, maxDepth+2)
	huge := bytes.Repeat([]byte{0xdf, 0x00, 0x0f, 0x00, 0x00, 0xa0}, 2000)
	for name, b := range map[string][]byte{
		"empty": {}, "cut": {0x92, 1}, "behind": {1, 2}, "never": {0xc1}, "deep": append(deep, 0xc0), "huge": huge,
		"array32": {0xdd, 0xff, 0xff, 0xff, 0xff, 1}, "string": {0xdb, 0xff, 0xff, 0xff, 0xff},
		"binary": {0xc6, 0, 0, 0, 9, 1}, "extension": {0xc9, 0, 0, 0, 1, 5}, "JSON": []byte(`{"a":1}`),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		var v any
		err := unmarshal(b, &v)
		runtime.ReadMemStats(&after)
		if err == nil || !strings.HasPrefix(err.Error(), "msgpack: ") {
			t.Errorf("%s: %v, %v", name, v, err)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > 64<<20 { // other tests allocate, too
			t.Errorf("%s takes %d bytes", name, n)
		}
	}
	var v any
	if err := unmarshal(append(bytes.Repeat([]byte{0x91}, maxDepth), 0xc0), &v); err != nil {
		t.Errorf("a depth of %d: %v", maxDepth, err)
	}
	var i item
	if err := unmarshal([]byte{0x01}, &i); err == nil {
		t.Error("a number is no item")
	}
}

// A payload that cannot be read ends in dead with its reason.
func TestDead(t *testing.T) {
	t.Parallel()
	q := shunttest.New(t, func(q *shunt.Queue) { q.Codec = Codec })
	k := shunt.Define("items", func(context.Context, item) error { return errors.New("it is handled") })
	out := q.Handle(k, shunt.Raw("items", []byte(`{"name":"tea"}`)))
	if out.Verdict != shunt.EventUndecodable || !strings.Contains(fmt.Sprint(out.Err), "no MessagePack") {
		t.Error(out.Verdict, out.Err)
	}
}

// FuzzUnmarshal holds check to the decoder: what check lets through as one value has its length there, too.
func FuzzUnmarshal(f *testing.F) {
	for _, v := range []any{1, "a", []byte{1}, item{Name: "a"}, []any{nil, true, 2.5, -1}, map[string]int{"a": 1}} {
		b, err := marshal(v)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte{0xde, 0, 1, 1, 1})
	f.Add([]byte{0xd8, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		var i item
		_ = unmarshal(b, &i)
		var v any
		err := unmarshal(b, &v)
		whole := check(b) == nil
		if err == nil && !whole {
			t.Fatalf("%x is decoded and not checked", b)
		}
		r := bytes.NewReader(b)
		if skipped := msgpack.NewDecoder(r).Skip(); len(b) < 1000 && whole && skipped == nil && r.Len() > 0 {
			t.Fatalf("%x: the decoder leaves %d bytes of what is whole", b, r.Len())
		}
		again, err2 := marshal(v)
		if err == nil && err2 == nil {
			if err := check(again); err != nil {
				t.Fatalf("%x: %v", again, err)
			}
		}
	})
}
