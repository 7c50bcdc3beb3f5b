package shuntprom

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/recur"
)

func local(t testing.TB, o Options) *Collector {
	t.Helper()
	o.Local = true
	c, err := New(nil, o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Each kind moves just the counters that it should.
func TestKinds(t *testing.T) {
	t.Parallel()
	why := errors.New("why")
	for _, c := range []struct {
		e    shunt.Event
		want string // counters that move, and by how much
	}{
		{shunt.Event{Kind: shunt.EventEnqueued, N: 1}, "enqueued_total 1"},
		{shunt.Event{Kind: shunt.EventEnqueued, N: 1000}, "enqueued_total 1000"},
		{shunt.Event{Kind: shunt.EventAcked, Took: time.Second}, "outcomes_total acked 1, handling_seconds 1"},
		{shunt.Event{Kind: shunt.EventAcked}, "outcomes_total acked 1"}, // it was pulled
		{shunt.Event{Kind: shunt.EventRetried, Took: 1, Err: why}, "outcomes_total retried 1, handling_seconds 1"},
		{shunt.Event{Kind: shunt.EventSnoozed, Took: 1}, "outcomes_total snoozed 1, handling_seconds 1"},
		{shunt.Event{Kind: shunt.EventRejected, Took: 1, Err: why}, "outcomes_total dead 1, handling_seconds 1"},
		{shunt.Event{Kind: shunt.EventUndecodable, Err: why}, "outcomes_total dead 1, incidents_total undecodable 1"},
		{shunt.Event{Kind: shunt.EventPoisoned, N: 2}, "outcomes_total dead 2, moves_total poisoned 2"},
		{shunt.Event{Kind: shunt.EventCancelled}, "outcomes_total cancelled 1"},
		{shunt.Event{Kind: shunt.EventExpired}, "outcomes_total expired 1"},
		{shunt.Event{Kind: shunt.EventReleased, N: 3}, "moves_total released 3"},
		{shunt.Event{Kind: shunt.EventRecovered, N: 3}, "moves_total recovered 3"},
		{shunt.Event{Kind: shunt.EventSuspected, N: 3}, "moves_total suspected 3"},
		{shunt.Event{Kind: shunt.EventLapsed, N: 3}, "moves_total lapsed 3"},
		{shunt.Event{Kind: shunt.EventLapsed, N: 3, Err: why}, "outcomes_total dead 3, moves_total lapsed 3"},
		{shunt.Event{Kind: shunt.EventPromoted, N: 3}, "moves_total promoted 3"},
		{shunt.Event{Kind: shunt.EventTrimmed, N: 3}, "moves_total trimmed 3"},
		{shunt.Event{Kind: shunt.EventLateVerdict, Err: why}, "incidents_total late-verdict 1"},
		{shunt.Event{Kind: shunt.EventUnconfirmedVerdict}, "incidents_total unconfirmed-verdict 1"},
		{shunt.Event{Kind: shunt.EventDuplicate, N: 2}, "incidents_total duplicate 2"},
		{shunt.Event{Kind: shunt.EventTimedOut, Took: 1}, "incidents_total timed-out 1"},
		{shunt.Event{Kind: shunt.EventOrphaned, N: 7}, "incidents_total orphaned 1"},
		{shunt.Event{Kind: shunt.EventWorkersMissing, N: 7}, "incidents_total workers-missing 1"},
		{shunt.Event{Kind: shunt.EventHandedOver, N: 7}, "incidents_total handed-over 1"},
		{shunt.Event{Kind: shunt.EventLeaseLost}, "incidents_total lease-lost 1"},
		{shunt.Event{Kind: shunt.EventReceiversDied, N: 2}, "incidents_total receivers-died 2"},
		{shunt.Event{Kind: shunt.EventReceiverError, Err: why}, "incidents_total receiver-error 1"},
		{shunt.Event{Kind: shunt.EventReceiverError, Err: why, Fatal: true}, "incidents_total fatal 1"},
		{shunt.Event{Kind: recur.MissedTicks, N: 5}, "incidents_total missed-ticks 1"},
		{shunt.Event{Kind: shunt.EventStarted, N: 8}, ""},
		{shunt.Event{Kind: "of a later version"}, ""},
	} {
		m := local(t, Options{})
		c.e.Channel = "c"
		m.Event(c.e)
		left := scrape(t, m)
		for _, part := range strings.Split(c.want, ", ") {
			if part == "" {
				continue
			}
			words := strings.Fields(part)
			var n float64
			fmt.Sscan(words[len(words)-1], &n)
			var label []string
			if len(words) == 3 {
				label = []string{families[words[0]].labels[1], words[1]}
			}
			left.want(t, n, words[0], "c", label...)
			for name := range left {
				if strings.HasPrefix(name, "shunt_"+words[0]) &&
					(label == nil || strings.Contains(name, `"`+words[1]+`"`)) {
					delete(left, name)
				}
			}
		}
		for name, n := range left {
			if n != 0 {
				t.Errorf("%s (N %d) moved %s by %v", c.e.Kind, c.e.N, name, n)
			}
		}
	}
}

func TestLink(t *testing.T) {
	t.Parallel()
	m := local(t, Options{})
	first := scrape(t, m)
	if _, is := first["shunt_link_up{}"]; is {
		t.Error("the link is said to be up or down before anybody knows")
	}
	for _, fatal := range []string{"false", "true"} {
		if _, is := first[`shunt_link_disconnects_total{fatal="`+fatal+`"}`]; !is {
			t.Error("a counter is missing until its first increment, which is then hidden")
		}
	}
	for _, c := range []struct {
		e           shunt.Event
		up, lost, f float64
	}{
		{shunt.Event{Kind: shunt.EventConnected}, 1, 0, 0},
		{shunt.Event{Kind: shunt.EventDisconnected}, 0, 1, 0},
		{shunt.Event{Kind: shunt.EventDisconnected, Fatal: true}, 0, 1, 1},
		{shunt.Event{Kind: shunt.EventConnected}, 1, 1, 1},
		{shunt.Event{Kind: shunt.EventEventsDropped, N: 9}, 1, 1, 1},
	} {
		m.Event(c.e)
		got := scrape(t, m)
		if got["shunt_link_up{}"] != c.up || got[`shunt_link_disconnects_total{fatal="false"}`] != c.lost ||
			got[`shunt_link_disconnects_total{fatal="true"}`] != c.f {
			t.Errorf("after %v: %v", c.e, got)
		}
	}
	if n := scrape(t, m)["shunt_events_dropped_total{}"]; n != 9 {
		t.Errorf("%v events dropped, want 9", n)
	}
}

// However many channels there are, the series stay bounded, and nothing is left out of the sum.
func TestEventsAreBounded(t *testing.T) {
	t.Parallel()
	const most, all = 5, 200
	m := local(t, Options{MaxChannels: most})
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			for i := range all {
				m.Event(shunt.Event{Kind: shunt.EventAcked, Channel: fmt.Sprint("c", i), Took: 1})
				m.Event(shunt.Event{Kind: shunt.EventKind(fmt.Sprint("kind", i)), Channel: "c0"})
			}
		})
	}
	wait.Wait()
	got, sum, channels := scrape(t, m), 0.0, 0
	for name, n := range got {
		if strings.HasPrefix(name, "shunt_outcomes_total{") {
			sum += n
		}
		if strings.HasPrefix(name, "shunt_handling_seconds{") {
			channels++
		}
	}
	if sum != 4*all || channels != most+1 {
		t.Errorf("%v acked in %d channels, want %d in %d", sum, channels, 4*all, most+1)
	}
	got.want(t, 4*(all-most), "outcomes_total", other, "outcome", acked)
}
