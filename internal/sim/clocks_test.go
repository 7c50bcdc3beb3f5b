package sim

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/sim/chance"
	"github.com/shuntmq/shunt/internal/sim/daytime"
	"github.com/shuntmq/shunt/internal/trial"
)

// A clock is set while it is right, and either for all of a run or for a part of a storm.
func TestWatch(t *testing.T) {
	watched := 0
	for seed := range uint64(400) {
		p := draw(seed)
		if p.watched("") {
			watched++
		}
		over := make(map[int]time.Duration)
		for _, b := range p.Blows {
			if b.Kind != "clock" {
				continue
			}
			whole := b.At == 0 && b.For == p.length()
			if b.Nth == 0 || b.At < over[b.Who] || !whole && b.At+b.For > p.lullAt(p.cycleOf(b.At)) {
				t.Errorf("seed %d: %s, after %v", seed, b, over[b.Who])
			}
			over[b.Who] = b.At + b.For
		}
		if p.Calm && p.watched("") {
			t.Errorf("seed %d is calm, and has wrong clocks", seed)
		}
	}
	if watched < 80 || watched > 160 {
		t.Errorf("%d of 400 seeds have wrong clocks", watched)
	}
}

// What a process starts goes by its clock, and the rest by the right one. How much time passes no clock changes. So it
// is where the runtime is laid over.
func TestClocks(t *testing.T) {
	if !chance.Seeded {
		t.Skip("there are no clocks in this build")
	}
	synctest.Test(t, func(t *testing.T) {
		c := new(daytime.Clock)
		wrong := func() time.Duration { return time.Duration(daytime.Now().UnixNano() - time.Now().UnixNano()) }
		said := make(chan string)
		for _, ahead := range []int{0, 300, -2} {
			want := time.Duration(ahead) * time.Second
			say := func(who string) {
				text := ""
				if got := wrong(); got != want {
					text = fmt.Sprintf("%s is wrong by %v, and not %v", who, got, want)
				}
				said <- text
			}
			began := daytime.Now()
			time.Sleep(time.Second)
			c.Within(func() {
				c.Set(ahead)
				if passed := daytime.Since(began); passed != time.Second {
					t.Errorf("%v have passed, and not 1s", passed)
				}
				if at := c.Right(daytime.Now().Round(0)); at.UnixNano() != time.Now().UnixNano() {
					t.Errorf("it was right at %v", at)
				}
				ctx, cancel := context.WithCancel(t.Context())
				go say("a goroutine")
				daytime.AfterFunc(time.Millisecond, func() { say("a timer's function") })
				daytime.AfterEnd(ctx, func() { go say("what follows a context") })
				go cancel()
			})
			for range 3 {
				if text := <-said; text != "" {
					t.Error(text)
				}
			}
			if got := wrong(); got != 0 {
				t.Errorf("the right clock is wrong by %v", got)
			}

			// Shunt goes by it.
			var err error
			end := time.Now().Add(time.Minute).Round(0) // as from elsewhere: it has no monotonic reading
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			q := &shunt.Queue{Pool: link.PoolOver(func(context.Context) (net.Conn, error) { return nil, errRefused })}
			c.Within(func() {
				err = q.Enqueue(ctx, &trial.Message{On: "plain"}, shunt.Deadline(end))
			})
			cancel()
			if late := strings.Contains(fmt.Sprint(err), "Deadline"); late != (ahead > 60) {
				t.Errorf("a minute ahead, by a clock that is %v ahead: %v", want, err)
			}
			_ = q.Close()
		}
	})
}
