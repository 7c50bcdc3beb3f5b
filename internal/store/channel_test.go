package store

import (
	"strings"
	"testing"
)

func TestCheckChannel(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		ok   bool
	}{
		{"a", true},
		{"orders", true},
		{"orders.eu-west:1/high_*?[x]", true},
		{"приказы", true},
		{"注文", true},
		{`"quoted"\`, true},
		{strings.Repeat("c", 200), true},
		{strings.Repeat("é", 100), true},

		{"", false},
		{strings.Repeat("c", 201), false},
		{strings.Repeat("é", 101), false}, // 200 is a bound of bytes
		{"{a}", false},
		{"a{", false},
		{"}a", false},
		{" a", false},
		{"a b", false},
		{"a\tb", false},
		{"a\n", false},
		{"a\x00", false},
		{"a\x1f", false},
		{"a\x7f", false},
		{"a\u0085", false}, // next line
		{"a\u00a0b", false},
		{"a\u2028", false},
		{"a\u3000b", false},
		{"a\xff", false},
		{"\xc3", false},
	} {
		err := CheckChannel(c.name)
		if (err == nil) != c.ok {
			t.Errorf("%q: %v", c.name, err)
		}
		if err != nil && (!strings.HasPrefix(err.Error(), "shunt: the channel's name") || len(err.Error()) > 500) {
			t.Errorf("%q: %v", c.name, err)
		}
	}
}
