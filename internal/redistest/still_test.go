package redistest

import (
	"os"
	"strings"
	"testing"
	"time"
)

const failsLater = "TEST_FAILS_LATER"

// TestFailsLater is run by TestStoodStill, in a process of its own.
func TestFailsLater(t *testing.T) {
	if os.Getenv(failsLater) == "" {
		t.Skip("TestStoodStill runs it")
	}
	Name(t)
	os.Stdout.WriteString("it runs\n")
	time.Sleep(time.Second)
	t.Error("it fails")
}

// A test that fails tells that its process stood still, and only where it did.
func TestStoodStill(t *testing.T) {
	t.Parallel()
	began := time.Now()
	for _, stops := range []bool{false, true} {
		c := Run(t, []string{failsLater + "=1"}, os.Args[0], "-test.run=^TestFailsLater$", "-test.v")
		Until(t, 10*time.Second, "it runs", func() bool { return strings.Contains(c.Said(), "it runs") })
		if stops {
			c.Stop()
			time.Sleep(2 * unfair)
			c.Cont()
		}
		<-c.Ended()
		said := c.Said()
		if c.Code() != 1 || !strings.Contains(said, "it fails") {
			t.Fatalf("it ended with %d:\n%s", c.Code(), said)
		}
		if told := strings.Contains(said, "stood still for"); told != stops && StoodStill(began) < longPause {
			t.Errorf("stopped: %v, told: %v\n%s", stops, told, said)
		}
	}
}
