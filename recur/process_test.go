package recur

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/redistest"
)

// The test binary is also the process that runs a channel and is killed: RECUR_TEST_URL and RECUR_TEST_CHANNEL tell it
// which.
func init() {
	if url := os.Getenv("RECUR_TEST_URL"); url != "" {
		pool, err := shunt.NewPool(url)
		if err == nil {
			t := &Timetable{Queue: &shunt.Queue{Pool: pool}}
			_, err = t.Run(context.Background(), os.Getenv("RECUR_TEST_CHANNEL"))
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		_, _ = os.Stdin.Read(make([]byte, 1)) // ends with the parent
		os.Exit(0)
	}
}

// TestProcesses: of five processes one is killed at random, and another started, every second: each tick is one
// message, on time. The short form has 100 ticks, the long one 1,000.
func TestProcesses(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	const every = 100 * time.Millisecond
	want := 1000
	if testing.Short() {
		want = 100
	}
	s := redistest.Shared(t)
	b := newBench(t, s.URL(), redistest.Name(t))
	b.receive()
	start := func() *redistest.Child {
		return redistest.Run(t, []string{"RECUR_TEST_URL=" + s.URL(), "RECUR_TEST_CHANNEL=" + b.channel}, os.Args[0])
	}
	var children []*redistest.Child
	for range 5 {
		children = append(children, start())
	}
	b.add("tick", Every(every), Missed(All(MaxAll)))
	kills := 0
	for len(b.handled("tick")) < want {
		n := len(b.handled("tick")) + int(time.Second/every)
		b.until(30*time.Second, "ticks of a second", func() bool { return len(b.handled("tick")) >= min(n, want) })
		i := rand.IntN(len(children))
		if children[i].Gone() {
			t.Fatalf("a process ended by itself: %s", children[i].Said())
		}
		children[i].Kill()
		kills++
		children[i] = start()
	}
	b.once("tick", every, false)
	hs := b.handled("tick")
	late := make([]time.Duration, len(hs))
	for i, h := range hs {
		late[i] = h.at.Sub(h.tick)
	}
	slices.Sort(late)
	redistest.Tell(fmt.Sprintf("recur: %d ticks with %d kills: %d messages, handled after %v at the median, %v at "+
		"99%%, %v at most\n",
		want, kills, len(hs), late[len(late)/2], late[len(late)*99/100], late[len(late)-1]))
	if late[0] < 0 {
		t.Errorf("%v before its tick", -late[0])
	}
	// What an idle machine does in 50 ms one that also runs other tests, under the race detector, may take longer for.
	if late[len(late)*9/10] > 500*time.Millisecond {
		t.Errorf("late: %v", late)
	}
}
