package shunt

import (
	"bytes"
	"encoding"
	stdjson "encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
	"unsafe"

	jsoniter "github.com/json-iterator/go"
	"github.com/modern-go/reflect2"
)

// Codec writes and reads the payloads of messages made by Define. Its funcs have the form of encoding/json's:
//
//	q := &shunt.Queue{Pool: pool, Codec: shunt.Codec{Marshal: json.Marshal, Unmarshal: json.Unmarshal}}
//
// They are called by many goroutines at once. Unmarshal may keep data.
type Codec struct {
	Marshal   func(v any) ([]byte, error)
	Unmarshal func(data []byte, v any) error
}

// json is json-iterator as encoding/json behaves, less the escaping of HTML. What it cannot do, encoding/json does: so
// its errors are encoding/json's, too. TestToJSONLikeTheStandard and FuzzFromJSON hold the two together.
var json = func() jsoniter.API {
	api := jsoniter.Config{SortMapKeys: true}.Froze()
	api.RegisterExtension(&standardForms{})
	return api
}()

// ToJSON is a Marshal in one line: return shunt.ToJSON(m). It writes what encoding/json does, less the escaping of
// HTML. Strings should be UTF-8: of other bytes each becomes U+FFFD, so what is no text belongs in a []byte.
func ToJSON(m any) ([]byte, error) {
	if m != nil && endless(reflect.TypeOf(m)) {
		return standard(m)
	}
	b, err := json.Marshal(m)
	if err != nil {
		return standard(m)
	}
	return validUTF8(b), nil
}

// endlessTypes has what endless has found: by type a bool.
var endlessTypes sync.Map

// endless says whether a value of a type may contain itself. json-iterator would take the process down with such a
// value, by a stack without bound; encoding/json gives an error.
func endless(t reflect.Type) bool {
	if known, ok := endlessTypes.Load(t); ok {
		return known.(bool)
	}
	found := reachesItself(t, make(map[reflect.Type]bool))
	endlessTypes.Store(t, found)
	return found
}

var (
	marshaler     = reflect.TypeFor[stdjson.Marshaler]()
	textMarshaler = reflect.TypeFor[encoding.TextMarshaler]()
)

// reachesItself follows a type. above has the types that it is a part of, as true, and as false those that have ended.
func reachesItself(t reflect.Type, above map[reflect.Type]bool) bool {
	if open, seen := above[t]; seen || t.Implements(marshaler) || t.Implements(textMarshaler) {
		return open
	}
	above[t] = true
	defer func() { above[t] = false }()
	switch t.Kind() {
	case reflect.Interface:
		return true
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		return reachesItself(t.Elem(), above)
	case reflect.Struct:
		for i := range t.NumField() {
			if f := t.Field(i); (f.IsExported() || f.Anonymous) && reachesItself(f.Type, above) {
				return true
			}
		}
	}
	return false
}

// standard is encoding/json's word on what json-iterator cannot write.
func standard(v any) ([]byte, error) {
	var b bytes.Buffer
	e := stdjson.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// validUTF8 is JSON with U+FFFD in place of each byte that is no text, as encoding/json has it. Such bytes stand in
// strings alone.
func validUTF8(b []byte) []byte {
	if utf8.Valid(b) {
		return b
	}
	var valid []byte
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		if r == utf8.RuneError && n == 1 {
			valid = append(valid, `\ufffd`...)
		} else {
			valid = append(valid, b[:n]...)
		}
		b = b[n:]
	}
	return valid
}

// fromJSON decodes a payload into v, which has what the prototype had.
func fromJSON[T any](payload []byte, v *T) error {
	if utf8.Valid(payload) {
		before := *v
		if json.Unmarshal(payload, v) == nil {
			return nil
		}
		*v = before
	}
	return stdjson.Unmarshal(payload, v)
}

// standardForms teaches json-iterator what encoding/json knows besides: the tag omitzero, and what is wrong with a
// RawMessage or a Number.
type standardForms struct{ jsoniter.DummyExtension }

func (*standardForms) CreateEncoder(t reflect2.Type) jsoniter.ValEncoder {
	switch t.Type1() {
	case reflect.TypeFor[stdjson.RawMessage](), reflect.TypeFor[stdjson.Number]():
		return standardEncoder{t}
	}
	return nil
}

func (*standardForms) UpdateStructDescriptor(d *jsoniter.StructDescriptor) {
	for _, b := range d.Fields {
		tag := b.Field.Tag().Get("json")
		options := strings.Split(tag, ",")[1:]
		if slices.Contains(options, "omitzero") {
			of := b.Field.Type().Type1()
			b.Encoder = &zeroEncoder{b.Encoder, of, isZero(of), slices.Contains(options, "omitempty")}
			b.Field = taggedField{b.Field, reflect.StructTag("json:" + strconv.Quote(tag+",omitempty"))}
		}
	}
}

// standardEncoder leaves values of its type to encoding/json.
type standardEncoder struct{ of reflect2.Type }

func (e standardEncoder) IsEmpty(p unsafe.Pointer) bool {
	return reflect.NewAt(e.of.Type1(), p).Elem().Len() == 0
}

func (e standardEncoder) Encode(p unsafe.Pointer, to *jsoniter.Stream) {
	b, err := standard(e.of.UnsafeIndirect(p))
	if err != nil && to.Error == nil {
		to.Error = err
	}
	to.Write(b)
}

// taggedField is a field with another tag.
type taggedField struct {
	reflect2.StructField
	tag reflect.StructTag
}

func (f taggedField) Tag() reflect.StructTag { return f.tag }

// zeroEncoder is empty where a field's value is zero.
type zeroEncoder struct {
	jsoniter.ValEncoder
	of     reflect.Type
	isZero func(reflect.Value) bool
	empty  bool // what is empty is left out, too
}

func (e *zeroEncoder) IsEmpty(p unsafe.Pointer) bool {
	return e.empty && e.ValEncoder.IsEmpty(p) || e.isZero(reflect.NewAt(e.of, p).Elem())
}

type zeroer interface{ IsZero() bool }

// isZero is what encoding/json asks for omitzero: the method IsZero where the type has one, but not of nil.
func isZero(t reflect.Type) func(reflect.Value) bool {
	zero := reflect.TypeFor[zeroer]()
	switch {
	case t.Implements(zero):
		return func(v reflect.Value) bool {
			for at := v; at.Kind() == reflect.Interface || at.Kind() == reflect.Pointer; at = at.Elem() {
				if at.IsNil() {
					return true
				}
			}
			return v.Interface().(zeroer).IsZero()
		}
	case reflect.PointerTo(t).Implements(zero):
		return func(v reflect.Value) bool { return v.Addr().Interface().(zeroer).IsZero() }
	}
	return reflect.Value.IsZero
}
