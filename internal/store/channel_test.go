package store

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/redistest"
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

// Whatever of a channel needs somebody makes it needy, and nothing else; whether it has receivers, living or dead, is
// told. What is listed and is no channel's name is passed over.
func TestEachNeedy(t *testing.T) {
	each(t, func(f *fixture) {
		ctx := context.Background()
		prefix := redistest.Name(f.T)
		c := link.NewCall()
		listed := []any{ChannelsKey, "", "{" + prefix, "a b" + prefix}
		for i := range needyAt + 500 { // more than one page
			listed = append(listed, fmt.Sprint(prefix, i))
		}
		c.Add("SADD", listed...)
		want := map[string]bool{}
		for i := range 8 {
			k := KeysOf(fmt.Sprint(prefix, i))
			needy := []string{k.Delay, k.Leased, k.Receivers, k.DeadReceivers, k.Kept}
			switch {
			case i < len(needy):
				c.Add("ZADD", needy[i], 1, "x")
			case i == 5:
				c.Add("HSET", k.Running, "x", "y")
			case i == 6:
				c.Add("SADD", k.Receipts, "x")
			default: // what waits to be taken needs nobody
				c.Add("LPUSH", k.Prepare, "x")
				c.Add("LPUSH", k.Suspect, "x")
				c.Add("ZADD", k.Dead, 1, "x")
				c.Add("HSET", k.IDs, "x", "y")
				continue
			}
			want[k.Name] = i >= 1 && i <= 3
		}
		f.must(f.l.Run(ctx, c))
		f.Cleanup(func() { f.s.Do("SREM", listed...) })
		got := map[string]bool{}
		f.must(EachNeedy(ctx, f.l, func(k *Keys, often bool) bool {
			if strings.HasPrefix(k.Name, prefix) { // other tests have channels there
				got[k.Name] = often
			}
			return true
		}))
		if !maps.Equal(got, want) {
			f.Errorf("needy are %v, want %v", got, want)
		}
		n := 0
		f.must(EachNeedy(ctx, f.l, func(*Keys, bool) bool { n++; return n < 2 }))
		if n != 2 {
			f.Errorf("%d are given to one who wants two", n)
		}
	})
}

func TestChannelOfHint(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]string{
		KeysOf("orders").Delay: "orders", "{a.delay}.delay": "a.delay", "{注文}.delay": "注文", "{*}.delay": "*",
		"": "", "{orders}.prepare": "", "orders.delay": "", "orders}.delay": "", "{orders.delay": "", "{}.delay": "",
		"{a}b}.delay": "", "{a b}.delay": "", "x{a}.delay": "", "{a}.delay.x": "", "{{a}}.delay": "",
		"{" + strings.Repeat("c", 201) + "}.delay": "",
	} {
		if got, is := ChannelOfHint(key); is != (want != "") || is && got != want {
			t.Errorf("%q: %q, %v", key, got, is)
		}
	}
}
