package budget

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

// What is held is counted by what has come, and given back once.
func TestBodies(t *testing.T) {
	var b Budget
	if err := b.SetLimits(Limits{MaxBodies: 2 << 20}); err != nil {
		t.Fatal(err)
	}
	first, second := b.Meter(strings.NewReader(strings.Repeat("x", 1<<20))),
		b.Meter(strings.NewReader(strings.Repeat("x", 1<<20+1)))
	if _, err := io.ReadAll(&first); err != nil || b.Bodies() != 1<<20 {
		t.Errorf("%v, %d held", err, b.Bodies())
	}
	if _, err := io.ReadAll(&second); !errors.Is(err, ErrFull) {
		t.Errorf("%v", err)
	}
	for range 2 {
		first.Release()
		second.Release()
	}
	if new(Metered).Release(); b.Bodies() != 0 {
		t.Errorf("%d are still held", b.Bodies())
	}
}

func TestWaiting(t *testing.T) {
	var b Budget
	if l := b.Limits(); l.MaxBody != 1<<20 || l.MaxBodies != 256<<20 || l.BodyTimeout != 30*time.Second ||
		l.MaxWait != 10*time.Minute || l.MaxWaiting != 10_000 {
		t.Errorf("%+v", l)
	}
	if err := b.SetLimits(Limits{MaxWaiting: 1}); err != nil {
		t.Fatal(err)
	}
	if !b.Wait() || b.Wait() || b.Waiting() != 1 {
		t.Errorf("%d wait", b.Waiting())
	}
	if b.Done(); !b.Wait() {
		t.Error("a place was lost")
	}
}

// All that is wrong is told at once, and changes nothing.
func TestLimits(t *testing.T) {
	var b Budget
	err := b.SetLimits(Limits{MaxBody: -1, MaxBodies: 1, BodyTimeout: -1, MaxWait: 25 * time.Hour, MaxWaiting: -1})
	for _, name := range []string{"MaxBody ", "MaxBodies ", "BodyTimeout ", "MaxWait ", "MaxWaiting "} {
		if err == nil || !strings.Contains(err.Error(), "Limits."+name) {
			t.Errorf("no %s in %v", name, err)
		}
	}
	if b.Limits().MaxBody != 1<<20 {
		t.Error("it was changed all the same")
	}
}
