package lists

import (
	"fmt"
	"slices"
	"testing"

	"github.com/gomodule/redigo/redis"
	"pgregory.net/rapid"

	"github.com/shuntmq/shunt/internal/redistest"
)

// Whatever lies in a list, and whoever has taken something out of it, the script takes away all of what it is told of, or nothing: where
// these are no more, or not there, or something else lies among them.
func TestAckTakesAllOrNothing(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		t.Parallel()
		c := redistest.Pool(t, b.Addr()).Get()
		defer c.Close()
		script := redis.NewScript(1, source(t, "first", "ack"))
		k := KeysOf(redistest.Name(t))
		list := k.List(NewIncarnation(1, 0), 0)
		rapid.Check(t, func(t *rapid.T) {
			element := func(i int) (raw []byte, serial string) {
				e := Element{Serial: fixed, Payload: fmt.Append(nil, i)}
				e.Serial[15] = byte(i)
				return e.Encode(), string(e.Serial[:])
			}
			n := rapid.IntRange(0, 120).Draw(t, "in hand")
			there := make([]int, n) // by when they were taken
			for i := range there {
				there[i] = i
			}
			acked := rapid.IntRange(1, 128).Draw(t, "acked")
			switch rapid.SampledFrom([]string{"", "", "one", "oldest", "newest", "all", "alien", "first", "last"}).Draw(t, "gone") {
			case "one":
				if n > 0 {
					i := rapid.IntRange(0, n-1).Draw(t, "which")
					there = slices.Delete(there, i, i+1)
				}
			case "oldest":
				there = there[rapid.IntRange(0, n).Draw(t, "so many"):]
			case "newest":
				there = there[:n-rapid.IntRange(0, n).Draw(t, "so many")]
			case "all":
				there = nil
			case "alien": // something of which the worker does not know
				there = slices.Insert(there, rapid.IntRange(0, n).Draw(t, "where"), 200)
			case "first": // and something else in its place
				if n > 0 {
					there[0] = 200
				}
			case "last": // of the acked, likewise
				if acked <= n {
					there[acked-1] = 200
				}
			}
			c.Do("DEL", list)
			for _, i := range there {
				raw, _ := element(i)
				c.Do("LPUSH", list, raw)
			}
			_, from := element(0)
			_, to := element(acked - 1)
			first := acked <= len(there)
			for i := range acked {
				first = first && there[i] == i
			}
			got, err := redis.Int(script.Do(c, list, acked, from, to))
			want := -1
			if first {
				want, there = 1, there[acked:]
			}
			if err != nil || got != want {
				t.Fatalf("reply %d, %v, want %d", got, err, want)
			}
			left, err := redis.ByteSlices(c.Do("LRANGE", list, 0, -1))
			if err != nil || len(left) != len(there) {
				t.Fatalf("%d left, %v, want %d", len(left), err, len(there))
			}
			for i, raw := range left {
				if want, _ := element(there[len(there)-1-i]); string(raw) != string(want) {
					t.Fatalf("%q is left in place %d, want %q", raw, i, want)
				}
			}
		})
	})
}
