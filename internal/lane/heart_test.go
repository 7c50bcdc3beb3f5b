package lane

import (
	"testing"
	"testing/synctest"
	"time"
)

// The row of beats begins anew after a pause of Redis or of this process, and after a jump of either clock. It does not
// after a beat that failed.
func TestHeartRow(t *testing.T) {
	const lease = 12 * time.Second
	for _, c := range []struct {
		name        string
		here, there time.Duration // from the beat before
		took        time.Duration
		goes        bool // the row goes on
	}{
		{"on time", lease / 3, lease / 3, 0, true},
		{"one failed", lease/3 + minBeatRetry, lease/3 + minBeatRetry, 0, true},
		{"too late", lease/2 + 1, lease/2 + 1, 0, false},
		{"the server's clock forward", lease / 3, lease/3 + lease/4, 0, false},
		{"the server's clock back", lease / 3, lease/3 - lease/4, 0, false},
		{"this process was suspended", lease / 2, lease/2 + lease/4, 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &Site{heart: heart{lease: lease}}
				h := &s.heart
				if f := s.Fence(); !f.At.IsZero() {
					t.Errorf("a fence without a beat: %+v", f)
				}
				server := time.Unix(1_700_000_000, 0)
				h.see(time.Now(), 0, server)
				time.Sleep(c.here)
				h.see(time.Now(), c.took, server.Add(c.there))
				if f := s.Fence(); f.Since.Equal(server) != c.goes || !f.At.Equal(server.Add(c.there)) {
					t.Errorf("%+v", f)
				}
				h.see(time.Now(), lease/6+1, server.Add(time.Hour)) // an answer that took too long says nothing
				if f := s.Fence(); !f.At.Equal(server.Add(c.there)) {
					t.Errorf("%+v", f)
				}
				time.Sleep(lease/2 + 1)
				if f := s.Fence(); !f.At.IsZero() {
					t.Errorf("a fence that is too old: %+v", f)
				}
			})
		})
	}
}
