package redistest

import (
	"os"
	"testing"
	"time"
)

// A child that has ended by itself ended then, and not when it is killed later.
func TestEndedAt(t *testing.T) {
	t.Parallel()
	c := Run(t, nil, os.Args[0], "-test.run=^$")
	<-c.Ended()
	seen := time.Now()
	c.Kill()
	if c.EndedAt().After(seen) {
		t.Errorf("ended at %v, and was gone at %v", c.EndedAt(), seen)
	}
}
