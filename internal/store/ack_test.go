package store

import (
	"fmt"
	"slices"
	"testing"

	"github.com/gomodule/redigo/redis"
	"github.com/oklog/ulid/v2"
	"pgregory.net/rapid"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/redistest"
)

// Elements may have been taken out of a list, by its worker or by others, and others have come in. The script takes
// away all that it was asked to take, or nothing where these are no longer the first.
func TestAckTakesAllOrNothing(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		t.Parallel()
		c := redistest.Pool(t, b.Addr()).Get()
		defer c.Close()
		script := redis.NewScript(1, joined([]string{"leave", "first", "ack"}))
		list := KeysOf(redistest.Name(t)).Doing(NewIncarnation(1, 0), 0)
		rapid.Check(t, func(t *rapid.T) {
			element := func(i int) string {
				e := element.Element{
					Serial:     ulid.MustParse("01HZY5W3N4Q7R8S9T0V1W2X3Y4"),
					Payload:    fmt.Append(nil, i%1000),
					Recoveries: int16(i / 1000),
				}
				e.Serial[15] = byte(i % 1000)
				return string(e.Encode())
			}
			n := rapid.IntRange(0, 120).Draw(t, "in hand")
			acked := rapid.IntRange(1, 128).Draw(t, "acked")
			there := make([]int, n) // as they were taken
			for i := range there {
				there[i] = i
			}
			var away []int
			for range rapid.IntRange(0, 4).Draw(t, "events") {
				switch rapid.SampledFrom([]string{"one", "newest", "all", "back", "alien", "alien first"}).Draw(t,
					"event") {
				case "one": // by a verdict of its own
					if len(there) > 0 {
						i := rapid.IntRange(0, len(there)-1).Draw(t, "which")
						there = slices.Delete(there, i, i+1)
					}
				case "newest": // reaped
					left := len(there) - rapid.IntRange(0, len(there)).Draw(t, "so many")
					away, there = append(away, there[left:]...), there[:left:left]
				case "all":
					away, there = append(away, there...), nil
				case "back": // taken again, by bytes of a dead incarnation that come late
					for _, i := range away {
						there = append(there, i+1000)
					}
					away = nil
				case "alien": // something of which the worker does not know
					there = append(there, 200)
				case "alien first":
					there = slices.Insert(there, 0, 200)
				}
			}
			_, err := c.Do("DEL", list)
			if err != nil {
				t.Fatal(err)
			}
			for _, i := range there {
				if _, err := c.Do("LPUSH", list, element(i)); err != nil {
					t.Fatal(err)
				}
			}
			first := acked <= len(there)
			for i := range acked {
				first = first && there[i] == i
			}
			got, err := redis.Int(script.Do(c, list, acked, element(0)[2:20], element(acked - 1)[2:20]))
			want := -1
			if first {
				want, there = 1, there[acked:]
			}
			if err != nil || got != want {
				t.Fatalf("of %v: reply %d, %v, want %d", there, got, err, want)
			}
			left, err := redis.Strings(c.Do("LRANGE", list, 0, -1))
			slices.Reverse(left)
			var stays []string
			for _, i := range there {
				stays = append(stays, element(i))
			}
			if err != nil || !slices.Equal(left, stays) {
				t.Fatalf("%q are left, %v, want %q", left, err, stays)
			}
		})
	})
}
