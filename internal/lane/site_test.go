package lane

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/link"
)

// On a connection that is younger than the last good beat no take is sent, and what goes with one is.
func TestExchangeTakes(t *testing.T) {
	b := newBed(t, 1)
	if err := b.Join(t.Context()); err != nil { // and there is no beat but those of the cases
		t.Fatal(err)
	}
	made := time.Now() // or before: the connection
	for _, c := range []struct {
		name          string
		beat          time.Time
		takes, others int
		refused       int
	}{
		{"older than the beat", made.Add(time.Hour), 1, 1, 0},
		{"younger, without a take", made.Add(-time.Hour), 0, 2, 0},
		{"younger, a take alone", made.Add(-time.Hour), 1, 0, 1},
		{"younger, takes and others", made.Add(-time.Hour), 2, 2, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			b.Lease.renew(c.beat)
			b.Lease.doubt.Store(nil)
			b.heart.requests = make(chan struct{}, 1)
			call := link.NewCall()
			for i := range c.takes + c.others {
				call.Add("ECHO", i)
			}
			b.Enter()
			sent := b.ExchangeTakes(call, c.takes)
			b.Leave()
			for i, rep := range call.Replies {
				said, err := redis.String(rep.Any(), rep.Err)
				if i < c.refused && !errors.Is(err, link.ErrYoung) || i >= c.refused && said != fmt.Sprint(i) {
					t.Errorf("command %d: %q, %v", i, said, err)
				}
			}
			if some := c.refused < call.Len(); sent != some || (call.Order > 0) != some {
				t.Errorf("sent: %v, its number is %d", sent, call.Order)
			}
			if b.Lease.InDoubt() != (c.refused > 0) {
				t.Errorf("in doubt: %v", b.Lease.InDoubt())
			}
			if asked := len(b.heart.requests) > 0; asked != (c.refused > 0) {
				t.Errorf("a beat is asked for: %v", asked)
			}
		})
	}
}
