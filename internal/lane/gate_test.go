package lane

import (
	"context"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/custody"
)

// Whoever waits at the gate is let in when all who closed it have opened it, in whatever order, and only then.
func TestGate(t *testing.T) {
	t.Parallel()
	g := new(Gate)
	g.init(func(context.Context) {})
	if !g.Enter() {
		t.Fatal("closed from the start")
	}
	ctx, cancel := context.WithCancel(context.Background())
	closed := make(chan bool)
	go func() { closed <- g.CloseGate(ctx) }()
	for !g.Pausing() {
		time.Sleep(time.Millisecond)
	}
	if g.Enter() {
		t.Error("one entered while another waited for it to be empty")
	}
	cancel()
	if <-closed {
		t.Error("it was closed around one inside")
	}
	if g.Pausing() {
		t.Error("who could not close it keeps it closed")
	}
	g.Leave()
	if !g.CloseGate(context.Background()) || g.Enter() {
		t.Error("not closed")
	}
	g.MustHandOver(custody.ErrLeaseLost)
	g.OpenGate()
	if g.Enter() || !g.MustEnd() {
		t.Error("the incarnation has to end, and somebody entered")
	}
	g.mended()
	if !g.Enter() {
		t.Error("closed after the handover")
	}
	select {
	case why := <-g.Broken():
		t.Errorf("what is mended is broken: %v", why)
	default:
	}
}
