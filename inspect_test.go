package shunt

import (
	"context"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
)

// Purge deletes what was there when it began, and leaves what came meanwhile.
func TestPurgeLeavesWhatCameMeanwhile(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	ctx := context.Background()
	b := newBench(t, s.URL())
	k := b.kind(nil)
	b.must(b.Enqueue(ctx, k.Message(-1), ID("id"))) // one message with an id: so it goes in batches
	const old = 500
	b.enqueue(0, old)
	p := redistest.NewProxy(t, s.Addr())
	operator := newBench(t, p.URL())
	batches := 0
	p.On(redistest.ByScript(store.Purge)(b.name), 0, redistest.Call(func() { // between its batches others enqueue
		if batches++; batches == 1 {
			return
		}
		var ms []IMessage
		for i := range 50 {
			ms = append(ms, k.Message(10000+100*batches+i))
		}
		b.must(b.EnqueueAll(ctx, ms))
	}))
	n, err := operator.Purge(ctx, b.name, StatePrepare)
	b.must(err)
	es, err := b.List(ctx, b.name, StatePrepare, 0, 0)
	b.must(err)
	fresh := 0
	for _, e := range es {
		var i int
		b.must(json.Unmarshal(e.Payload, &i))
		if i >= 10000 {
			fresh++
		}
	}
	if n != old+1 || fresh != 50*(batches-1) || len(es) != fresh || batches < 3 {
		t.Errorf("%d deleted in %d batches; left: %d, of which %d came meanwhile", n, batches, len(es), fresh)
	}
}

// What is kept of a message is found by whoever waits for it, although its id was taken again at once.
func TestWaitWhileTheIDIsTakenAgain(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	b := newBench(t, p.URL())
	o := newBench(t, s.URL())
	o.name = b.name
	step := make(chan struct{})
	o.receive(2, func(context.Context, int) error { <-step; return nil })
	ctx := context.Background()
	k := o.kind(nil)
	o.must(o.Enqueue(ctx, k.Message(1), ID("x"), Retain(time.Hour)))
	confirm := make(chan struct{})
	p.On(redistest.Command("SUBSCRIBE", ".done"), 1, redistest.Call(func() { <-confirm })) // a slow line, no fault
	looks := p.On(redistest.ByScript(store.Wait)(b.name), 0, redistest.Pass)
	got := make(chan error, 1)
	go func() {
		out, err := b.Wait(ctx, b.name, "x")
		if err == nil && out.Kind != EventAcked {
			t.Errorf("%+v", out)
		}
		got <- err
	}()
	strikes(t, looks, 1)
	step <- struct{}{}
	o.wait(EventAcked, 1, 5*time.Second)
	o.must(o.Enqueue(ctx, k.Message(2), ID("x"), Retain(time.Hour)))
	close(confirm)
	select {
	case err := <-got:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("it waits for the other one")
	}
	close(step)
}
