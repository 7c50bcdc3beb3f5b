package shunt

import (
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
)

// configured is a Queue with a value of its own in each exported field. It fails at a field of a new type.
func configured(t *testing.T) *Queue {
	t.Helper()
	q := new(Queue)
	v := reflect.ValueOf(q).Elem()
	for i := range v.NumField() {
		f := v.Field(i)
		switch {
		case !f.CanSet():
		case f.CanInt():
			f.SetInt(int64(1000 + i))
		case f.Type() == reflect.TypeFor[*redis.Pool]():
			q.Pool = new(redis.Pool)
		case f.Type() == reflect.TypeFor[[]string]():
			f.Set(reflect.ValueOf([]string{"a"}))
		case f.Type() == reflect.TypeFor[Codec]():
			q.Codec = Codec{ToJSON, func([]byte, any) error { return nil }}
		case f.Type() == reflect.TypeFor[Payloads]():
			q.Payloads = new(turner).payloads()
		case f.Kind() == reflect.Bool:
			f.SetBool(true)
		case f.Kind() == reflect.Func:
			f.Set(reflect.MakeFunc(f.Type(), func([]reflect.Value) []reflect.Value { return nil }))
		default:
			t.Fatalf("the field %s has a type that this test does not know", v.Type().Field(i).Name)
		}
	}
	return q
}

// same says whether two fields have the same value; funcs are told apart by their code alone.
func same(a, b reflect.Value) bool {
	if a.Kind() == reflect.Func {
		return a.Pointer() == b.Pointer()
	}
	if a.Type() == reflect.TypeFor[Codec]() || a.Type() == reflect.TypeFor[Payloads]() {
		for i := range a.NumField() {
			if !same(a.Field(i), b.Field(i)) {
				return false
			}
		}
		return true
	}
	return reflect.DeepEqual(a.Interface(), b.Interface())
}

// Every exported field is copied to an unused Queue, and is part of the resolved configuration: a new one cannot be
// forgotten.
func TestConfigurationIsWhole(t *testing.T) {
	t.Parallel()
	q := configured(t)
	from, unused, conf := reflect.ValueOf(q).Elem(), reflect.ValueOf(q.unused()).Elem(),
		reflect.ValueOf(q.config()).Elem()
	n := 0
	for i := range from.NumField() {
		name := from.Type().Field(i).Name
		if !from.Type().Field(i).IsExported() {
			continue
		}
		n++
		if !same(from.Field(i), unused.Field(i)) {
			t.Errorf("%s is not copied", name)
		}
		switch name {
		case "Pool", "Events", "Quiet", "NoCounts": // the node, the stream and the counter are made of them
			continue
		}
		if f := conf.FieldByName(name); !f.IsValid() || !same(from.Field(i), f) {
			t.Errorf("%s is not part of the resolved configuration", name)
		}
	}
	if n < 15 {
		t.Errorf("%d fields are configuration: this test sees too few", n)
	}
}

// The zero Queue has a default for everything but its funcs, and a negative bound stays.
func TestDefaults(t *testing.T) {
	t.Parallel()
	conf := reflect.ValueOf(new(Queue).config()).Elem()
	for _, f := range reflect.VisibleFields(conf.Type()) {
		if v := conf.FieldByIndex(f.Index); v.IsZero() && v.Kind() != reflect.Func && v.Kind() != reflect.Slice &&
			f.Name != "Codec" && f.Name != "Payloads" { // which are funcs
			t.Errorf("%s has no default", f.Name)
		}
	}
	if c := (&Queue{Timeout: -1, MaxAttempts: -1, MaxDead: -1}).config(); c.Timeout != -1 || c.MaxAttempts != -1 ||
		c.MaxDead != -1 {
		t.Errorf("no bound became %v", c)
	}
	if c := (&Queue{Lease: time.Minute}).config(); c.Lease != time.Minute {
		t.Errorf("a lease of a minute became %v", c.Lease)
	}
}

// A Grace that wraps gave up a handler as soon as its timeout fired. A DeadFor that is less than what Redis counts was
// no bound.
func TestValidateDurations(t *testing.T) {
	t.Parallel()
	const year = 365 * 24 * time.Hour
	pool, err := NewPool("redis://localhost:1")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		field string
		q     *Queue
		bad   bool
	}{
		{"Grace", &Queue{Grace: math.MaxInt64}, true},
		{"Grace", &Queue{Grace: year + 1}, true},
		{"Grace", &Queue{Grace: year}, false},
		{"ReplyTimeout", &Queue{ReplyTimeout: math.MaxInt64}, true},
		{"ReplyTimeout", &Queue{ReplyTimeout: year}, false},
		{"DeadFor", &Queue{DeadFor: time.Millisecond / 2}, true},
		{"DeadFor", &Queue{DeadFor: time.Millisecond}, false},
		{"DeadFor", &Queue{DeadFor: -1}, false},
		{"DeadFor", &Queue{}, false},
	} {
		c.q.Pool = pool
		err := c.q.Validate()
		if !c.bad && err != nil ||
			c.bad && (err == nil || !strings.HasPrefix(err.Error(), "shunt: Queue."+c.field+" is ")) {
			t.Errorf("%v, %v, %v: %v", c.q.Grace, c.q.ReplyTimeout, c.q.DeadFor, err)
		}
	}
}
