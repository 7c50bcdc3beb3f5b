package shunt

import (
	"bytes"
	"context"
	"encoding/gob"
	stdjson "encoding/json"
	"fmt"
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/redistest"
)

// nought says of itself when it is zero.
type nought struct{ N int }

func (n nought) IsZero() bool { return n.N == 7 }

// noughtByPointer does so by its pointer.
type noughtByPointer struct{ N int }

func (n *noughtByPointer) IsZero() bool { return n.N == 7 }

type embedded struct {
	At  time.Time `json:"at,omitzero"`
	Own int       `json:"own,omitzero"`
}

// zeroes has fields of each form that omitzero knows.
type zeroes struct {
	embedded

	Int      int              `json:"int,omitzero"`
	Slice    []int            `json:"slice,omitzero"`
	Both     []int            `json:"both,omitzero,omitempty"`
	Time     time.Time        `json:"time,omitzero"`
	Pointer  *time.Time       `json:"pointer,omitzero"`
	Nought   nought           `json:"nought,omitzero"`
	ByRef    noughtByPointer  `json:"by_ref,omitzero"`
	NoughtTo *nought          `json:"nought_to,omitzero"`
	Struct   struct{ A int }  `json:"struct,omitzero"`
	Any      any              `json:"any,omitzero"`
	Is       zeroer           `json:"is,omitzero"`
	Quoted   int              `json:"quoted,omitzero,string"`
	Array    [2]int           `json:",omitzero"`
	Map      map[string][]int `json:"map,omitzero"`
	Empty    string           `json:"empty,omitempty"`
	Kept     int              `json:"kept"`
}

// What ToJSON writes is what encoding/json writes, less the escaping of HTML.
func TestToJSONLikeTheStandard(t *testing.T) {
	t.Parallel()
	now := time.Unix(1, 0).UTC()
	var noNought *nought
	for i, v := range []any{
		zeroes{}, &zeroes{}, zeroes{Slice: []int{}, Both: []int{}, Map: map[string][]int{}}, zeroes{Time: now,
			Pointer: &now},
		zeroes{Nought: nought{7}, ByRef: noughtByPointer{7}, NoughtTo: &nought{7}},
		zeroes{Nought: nought{1}, ByRef: noughtByPointer{1}, NoughtTo: &nought{1}, Is: nought{1}, Any: nought{}},
		zeroes{NoughtTo: new(nought), Is: noNought, Any: noNought, Quoted: 3}, zeroes{Is: nought{7},
			Array: [2]int{0, 1}},
		zeroes{embedded: embedded{At: now, Own: 4}, Struct: struct{ A int }{1}, Int: 1, Kept: 1, Empty: "x"},
		"plain <b> & ü 日本 😀", "\xff", "a\xc3(\xe2\x82z", map[string]string{"b\xff": "\xfe", "a": "x"},
		[]string{"\xed\xa0\x80", "\xf8"}, struct{ S string }{"\x80"}, []byte{0xff, 0}, "tab\t\x00\x1f\\\"/",
		math.MaxInt64, 1e21, 1e20, 1e-6, 0.1, float32(0.1), math.SmallestNonzeroFloat64, uint8(3), nil, true,
		stdjson.RawMessage(`{"a": [1, 2]}`), stdjson.Number("12.50"), map[int]string{2: "b", 1: "a"}, [3]bool{true},
		now, time.Second, map[string]any{"z": nil, "a": []any{1, "x", 2.5}}, struct{}{}, []int(nil),
		map[string]int(nil),
		struct {
			A *int `json:"a"`
			b int
			C func() `json:"-"`
			D string
			E []byte `json:",omitempty"`
			F any    `json:",omitempty"`
		}{b: 1, D: "d", E: []byte{}},
	} {
		got, err := ToJSON(v)
		want, err2 := standard(v)
		if err != nil || err2 != nil || !bytes.Equal(got, want) {
			t.Errorf("%d: %s, %v; encoding/json says %s, %v", i, got, err, want, err2)
		}
	}
	for _, v := range []any{make(chan int), math.NaN(), math.Inf(1), func() {}, stdjson.RawMessage("{"),
		struct{ C complex64 }{}, stdjson.Number("x")} {
		got, err := ToJSON(v)
		_, want := standard(v)
		if err == nil || want == nil || err.Error() != want.Error() {
			t.Errorf("%T: %s, %v; encoding/json says %v", v, got, err, want)
		}
	}
}

// decoded is a type of each form that a payload may have.
type decoded struct {
	I    int                `json:"i"`
	U8   uint8              `json:"u8"`
	F    float64            `json:"f"`
	S    string             `json:"s"`
	B    bool               `json:"b"`
	P    *int               `json:"p"`
	L    []string           `json:"l"`
	M    map[string]int     `json:"m"`
	In   struct{ X int }    `json:"in"`
	Any  any                `json:"any"`
	Raw  stdjson.RawMessage `json:"raw"`
	T    time.Time          `json:"t"`
	Data []byte             `json:"data"`
	Arr  [2]int             `json:"arr"`
	Str  int                `json:"str,string"`
}

// likeStandard compares what fromJSON makes of a payload with encoding/json's word.
func likeStandard(payload []byte) (got, want decoded, err, err2 error) {
	err = fromJSON(bytes.Clone(payload), &got)
	err2 = stdjson.Unmarshal(payload, &want)
	return got, want, err, err2
}

// What cannot be decoded has the error of encoding/json.
func TestFromJSONLikeTheStandard(t *testing.T) {
	t.Parallel()
	for _, payload := range []string{
		`{}`, `null`, `{"i":1,"s":"x","l":["a",null],"m":{"a":1},"in":{"X":2},"any":{"a":[1,2.5]},"raw":{"z":1}}`,
		`{"I":3,"S":"case"}`, `{"t":"2026-01-02T03:04:05Z","data":"AP8="}`, "{\"s\":\"\xff\"}", `{"s":"\ud800"}`,
		`{"unknown":[{"a":"b"}],"i":4}`, `{"p":5}`, `{"p":null}`, `{"arr":[1]}`, `{"arr":[1,2,3]}`, `{"str":"7"}`,
		`{"i":1,"i":2}`, ` { "i" : 1 } `, `{"f":1e3}`, `{"f":-0}`,
		``, ` `, `nope`, `nul`, `{`, `{"i"}`, `{"i":}`, `{"i":1,}`, `{"i":"x"}`, `{"u8":256}`, `{"u8":-1}`, `{"i":1.5}`,
		`{"i":1e2}`, `{"s":1}`, `{"b":1}`, `{"l":{}}`, `{"m":[]}`, `{"in":7}`, `{"t":"yesterday"}`, `{"data":"%"}`,
		`{"i":01}`, `{"f":.5}`, `{"f":1.}`, `{"s":"a` + "\n" + `b"}`, `{"s":"\x"}`, `{"i":1} x`, `[1]`, `7`,
		`"s"`, `true`,
		`{'i':1}`, `{"raw":}`, `{"raw":nope}`, `{"unknown":nope}`, `{"unknown":01}`, `{"any":01}`,
		`{"any":"\q"}`, "\xc1",
		`{"unknown":"a` + "\n" + `"}`, `{"unknown":1.}`, `{"unknown":-}`, `{"unknown":[1,]}`, `{"unknown":{"a":1,}}`,
		`{"str":7}`, `{"str":"x"}`, `{"f":1e999}`, `{"any":1e999}`, `{"i":9223372036854775808}`, `{"i":null}`,
	} {
		got, want, err, err2 := likeStandard([]byte(payload))
		switch {
		case fmt.Sprint(err) != fmt.Sprint(err2):
			t.Errorf("%q: %v; encoding/json says %v", payload, err, err2)
		case err == nil && !reflect.DeepEqual(got, want):
			t.Errorf("%q: %+v; encoding/json says %+v", payload, got, want)
		}
	}
}

// FuzzFromJSON: what encoding/json decodes is decoded to the same, and an error is encoding/json's. json-iterator alone
// takes some more for JSON, such as a NUL behind it.
func FuzzFromJSON(f *testing.F) {
	for _, seed := range []string{`{"i":1,"s":"x","any":[1,{"a":null}]}`, `{"unknown":[1,{"a":"b"}],"i":-4}`,
		`{"raw":{"z":1.5e3},"m":{"a":1}}`, `{"str":"7","arr":[1,2,3]}`, "{}\x00"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		got, want, err, err2 := likeStandard(payload)
		if err != nil && fmt.Sprint(err) != fmt.Sprint(err2) {
			t.Fatalf("%q: %v; encoding/json says %v", payload, err, err2)
		}
		if err2 == nil && !reflect.DeepEqual(got, want) {
			t.Fatalf("%q: %+v; encoding/json says %+v", payload, got, want)
		}
	})
}

// A Queue's codec writes and reads what Define made, in receivers, batches and follow-ups.
func TestQueueCodec(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	q := newBench(t, s.URL(), func(q *Queue) {
		q.Codec = Codec{
			Marshal: func(v any) ([]byte, error) {
				var b bytes.Buffer
				err := gob.NewEncoder(&b).Encode(v)
				return b.Bytes(), err
			},
			Unmarshal: func(data []byte, v any) error { return gob.NewDecoder(bytes.NewReader(data)).Decode(v) },
		}
	})
	type order struct{ ID int }
	got := make(chan int, 3)
	var orders *Kind[order]
	orders = Define(q.name, func(ctx context.Context, o order) error {
		got <- o.ID
		if o.ID == 1 {
			return Then(ctx, orders.Message(order{2}))
		}
		return nil
	})
	_, err := q.Receive(t.Context(), orders, 1)
	q.must(err)
	q.must(q.Enqueue(t.Context(), orders.Message(order{1})))
	if a, b := <-got, <-got; a != 1 || b != 2 {
		t.Error(a, b)
	}
	q.must(q.Enqueue(t.Context(), Raw(q.name, []byte(`{"ID":3}`))))
	q.wait(EventUndecodable, 1, 5*time.Second)
	if err := (&Queue{Pool: q.Pool, Codec: Codec{Marshal: stdjson.Marshal}}).Validate(); err == nil {
		t.Error("a Codec of one func has no error")
	}
}

// node may contain itself.
type node struct {
	Name string         `json:"name"`
	Next *node          `json:"next,omitempty"`
	Any  any            `json:"any,omitempty"`
	Map  map[string]any `json:"map,omitempty"`
	List []*node        `json:"list,omitempty"`
}

// A value that contains itself is an error, as encoding/json's: no stack grows without bound.
func TestToJSONOfACycle(t *testing.T) {
	t.Parallel()
	var byPointer, byAny, byMap, byList node
	byPointer.Next, byAny.Any, byMap.Map = &byPointer, &byAny, map[string]any{}
	byMap.Map["a"] = byMap.Map
	byList.List = []*node{&byList}
	self := []any{nil}
	self[0] = self
	for _, v := range []any{byPointer, &byPointer, byAny, byMap, byMap.Map, byList, self} {
		if b, err := ToJSON(v); err == nil {
			t.Errorf("%T: %d bytes", v, len(b))
		}
	}
	fine := node{Name: "<a>", Next: &node{Name: "b"}, Any: 1, Map: map[string]any{"c": []int{1}}}
	want := `{"name":"<a>","next":{"name":"b"},"any":1,"map":{"c":[1]}}`
	if b, err := ToJSON(fine); err != nil || string(b) != want {
		t.Errorf("%s, %v", b, err)
	}
	for _, v := range []any{embedded{}, time.Time{}, 1, "", [2]*[]string{}, map[string]embedded{}, struct {
		A, B *embedded
	}{}} {
		if endless(reflect.TypeOf(v)) {
			t.Errorf("%T is left to encoding/json", v)
		}
	}
}
