package shuntprom

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shuntmq/shunt"
)

func TestOptionsOutOfBounds(t *testing.T) {
	t.Parallel()
	q := new(shunt.Queue)
	for _, c := range []struct {
		q    *shunt.Queue
		o    Options
		want []string // parts of the error; none: it is nil
	}{
		{q, Options{}, nil},
		{nil, Options{Local: true}, nil},
		{q, Options{MaxChannels: 10_000, Timeout: time.Minute, Fleet: true}, nil},
		{nil, Options{}, []string{"the Queue is nil"}},
		{q, Options{MaxChannels: -1, Timeout: time.Hour}, []string{"MaxChannels is -1", "Timeout is 1h0m0s"}},
		{q, Options{MaxChannels: 10_001, Timeout: 1}, []string{"MaxChannels is 10001", "Timeout is 1ns"}},
		{q, Options{Local: true, Fleet: true}, []string{"Local and Options.Fleet"}},
	} {
		_, err := New(c.q, c.o)
		if (err == nil) != (c.want == nil) {
			t.Errorf("New(%v): %v", c.o, err)
		}
		for _, part := range c.want {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("New(%v): %v, want one with %q", c.o, err, part)
			}
		}
	}
}

func TestBoundedNames(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 201)
	given := []string{"c", "b", "", "a", "b", "a b", "x\xff", "{a}", long, long[:200], "ü"}
	o := Options{MaxChannels: 3}
	some, rest := o.bounded(given)
	if want := []string{"a", long[:200], "b"}; !slices.Equal(some, want) || rest != 7 {
		t.Errorf("%q and %d more, want %q and 7", some, rest, want)
	}
	if given[0] != "c" {
		t.Error("the caller's slice was sorted")
	}
}
