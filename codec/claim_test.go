package codec

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/redistest"
)

var errStore = errors.New("the bucket is away")

func large(name string) string { return name + strings.Repeat(".", 1000) }

// An object is there before its message, and goes with it: after an ack, or when a dead message is deleted.
func TestClaim(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		redistest.Leaks(t)
		store := &troubled{Dir: &Dir{Path: t.TempDir()}}
		b := newBench(t, s.URL(), redistest.Name(t), &Chain{Layers: []Layer{
			&AES{Keys: []Key{key("k1")}}, &Claim{Store: store, Above: 100},
		}})
		ctx := t.Context()
		b.enqueue("small")
		acked, dead := b.enqueue(large("acked")), b.enqueue(large("dead"))
		names := objects(t, store)
		if len(names) != 2 {
			t.Fatalf("the store has %v", names)
		}
		for _, e := range b.list(shunt.StatePrepare) {
			if e.Serial != acked.Serial {
				continue
			}
			name := folderOf(b.name) + "/" + e.Serial
			raw, err := os.ReadFile(filepath.Join(store.Path, name))
			if err != nil || len(e.Payload) != 0 || bytes.Contains(raw, []byte("acked")) ||
				!strings.HasPrefix(e.Headers[shunt.EncodingHeader], "aes=k1,claim="+name+"/") {
				t.Errorf("Redis has %q, %v; the store %d bytes, %v", e.Payload, e.Headers, len(raw), err)
			}
		}

		store.fail(errStore)
		err := b.Enqueue(ctx, shunt.Raw(b.name, []byte(large(""))))
		if !errors.Is(err, errStore) || len(b.list(shunt.StatePrepare)) != 3 {
			t.Errorf("while the store is away: %v, and Redis has %d", err, len(b.list(shunt.StatePrepare)))
		}
		handled, shutdown := b.receive(func(text string) error {
			if strings.HasPrefix(text, "dead") {
				return shunt.Reject(errStore)
			}
			return nil
		})
		b.wait(shunt.EventRetried, 4)
		store.fail(nil)
		b.wait(shunt.EventAcked, 2)
		b.wait(shunt.EventRejected, 1)
		if got := handled(); !slices.Equal(got, []string{large("acked"), large("dead"), "small"}) {
			t.Errorf("handled %d", len(got))
		}
		only := folderOf(b.name) + "/" + dead.Serial
		b.until("the acked one is deleted", func() bool { return slices.Equal(objects(t, store), []string{only}) })
		if err := shutdown(ctx); err != nil {
			t.Fatal(err)
		}
		if err := b.Delete(ctx, dead); err != nil {
			t.Fatal(err)
		}
		b.until("the dead one is deleted", func() bool { return len(objects(t, store)) == 0 })
	})
}

// A missing object is a failed attempt. One that is another goes to dead.
func TestClaimOfWhatIsGone(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		dir := &Dir{Path: t.TempDir()}
		b := newBench(t, s.URL(), redistest.Name(t), &Chain{Layers: []Layer{&Claim{Store: dir, Above: 100}},
			MaxSize: 2000})
		ctx, folder := t.Context(), folderOf(b.name)
		gone, changed, grown := b.enqueue(large("gone")), b.enqueue(large("changed")), b.enqueue(large("grown"))
		name := folder + "/" + gone.Serial
		if err := errors.Join(dir.Delete(ctx, name),
			dir.Put(ctx, folder+"/"+changed.Serial, []byte("another")),
			dir.Put(ctx, folder+"/"+grown.Serial, make([]byte, 3000))); err != nil {
			t.Fatal(err)
		}
		handled, _ := b.receive(done)
		b.wait(shunt.EventRetried, 1)
		b.wait(shunt.EventUndecodable, 2)
		b.mu.Lock()
		for _, e := range b.events {
			if e.Kind == shunt.EventRetried && (!errors.Is(e.Err, fs.ErrNotExist) ||
				!strings.Contains(e.Err.Error(), "the store has no "+name)) {
				t.Errorf("a missing object: %v", e.Err)
			}
		}
		b.mu.Unlock()
		for _, e := range b.list(shunt.StateDead) {
			want := map[string]string{changed.Serial: "is not what was put there", grown.Serial: "more than 2000 bytes"}
			if why := want[e.Serial]; why == "" || !strings.Contains(e.Failure, why) {
				t.Errorf("dead with %q, want %q", e.Failure, why)
			}
		}
		if err := dir.Put(ctx, name, []byte(`"`+large("gone")+`"`)); err != nil {
			t.Fatal(err)
		}
		b.wait(shunt.EventAcked, 1)
		if got := handled(); !slices.Equal(got, []string{large("gone")}) {
			t.Errorf("handled %d", len(got))
		}
	})
}

// A message cannot name an object of another channel, and a done context ends a look at the store.
func TestClaimedNames(t *testing.T) {
	t.Parallel()
	c := &Claim{Store: &Dir{Path: t.TempDir()}, Above: 10}
	p := shunt.Payload{Channel: "c", Serial: serial(1), Bytes: []byte("more than ten bytes")}
	param, encoded, err := c.Encode(t.Context(), p)
	if err != nil || len(encoded) != 0 {
		t.Fatal(encoded, err)
	}
	for _, bad := range []string{"", "/", "a/b/c", param + "/", param[1:], strings.ToUpper(param), "../" + param,
		strings.Replace(param, folderOf("c"), folderOf("d"), 1)} {
		if _, err := c.Decode(t.Context(), bad, p, 100); err == nil {
			t.Errorf("%q is got", bad)
		}
		if err := c.deleteOf(t.Context(), bad, p); err == nil {
			t.Errorf("%q is deleted", bad)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Decode(ctx, param, p, 100); !errors.Is(err, context.Canceled) {
		t.Errorf("got with a done context: %v", err)
	}
	if _, err := (until{ctx, strings.NewReader("x")}).Read(make([]byte, 1)); !errors.Is(err, context.Canceled) {
		t.Errorf("read with a done context: %v", err)
	}
	if _, _, err := c.Encode(ctx, p); !errors.Is(err, context.Canceled) {
		t.Errorf("put with a done context: %v", err)
	}
	if got, err := c.Decode(t.Context(), param, p, 100); err != nil || !bytes.Equal(got, p.Bytes) {
		t.Errorf("%q, %v", got, err)
	}
	other := p
	other.Serial = serial(2)
	if err := c.deleteOf(t.Context(), param, other); err != nil || len(objects(t, c.Store.(*Dir))) != 1 {
		t.Errorf("the end of another message: %v, and %v are left", err, objects(t, c.Store.(*Dir)))
	}
	if err := c.deleteOf(ctx, param, p); !errors.Is(err, context.Canceled) {
		t.Errorf("deleted with a done context: %v", err)
	}
	for _, none := range []shunt.Payload{{Channel: "c", Serial: serial(1), Bytes: []byte("short")},
		{Channel: "c", Bytes: p.Bytes}} {
		if _, encoded, err := c.Encode(t.Context(), none); encoded != nil || err != nil {
			t.Errorf("%v is put: %v", none, err)
		}
	}
}

// Sweep deletes what no message names, and nothing else.
func TestSweep(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	dir := &Dir{Path: t.TempDir()}
	claim := &Claim{Store: dir, Above: 100}
	b := newBench(t, s.URL(), redistest.Name(t), &Chain{Layers: []Layer{claim}})
	ctx, folder := t.Context(), folderOf(b.name)
	kept := []shunt.Ref{b.enqueue(large("dead"))}
	_, shutdown := b.receive(func(string) error { return shunt.Reject(errStore) })
	b.wait(shunt.EventRejected, 1)
	if err := shutdown(ctx); err != nil {
		t.Fatal(err)
	}
	kept = append(kept, b.enqueue(large("pulled")))
	if _, err := b.Pull(ctx, shunt.PullOptions{Channels: []string{b.name}}); err != nil {
		t.Fatal(err)
	}
	kept = append(kept, b.enqueue(large("ready")), b.enqueue(large("late"), shunt.In(time.Hour)))
	b.enqueue("small")
	old := time.Now().Add(-2 * time.Hour)
	put := func(name string, at time.Time) {
		t.Helper()
		if err := dir.Put(ctx, name, []byte("x")); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(filepath.Join(dir.Path, name), at, at); err != nil {
			t.Fatal(err)
		}
	}
	var want []string
	for _, r := range kept {
		name := folder + "/" + r.Serial
		want = append(want, name)
		if err := os.Chtimes(filepath.Join(dir.Path, name), old, old); err != nil {
			t.Fatal(err)
		}
	}
	put(folder+"/"+serial(1), old)
	put(folder+"/"+serial(2)+".ABC"+part, old)
	for _, name := range []string{folder + "/" + serial(3), folder + "/" + serial(4) + ".ABC" + part} {
		put(name, time.Now())
		want = append(want, name)
	}
	for _, name := range []string{folderOf("another") + "/" + serial(5), "notes.txt", folder + "/readme"} {
		put(name, old)
		want = append(want, name)
	}
	got, err := claim.Sweep(ctx, b.Queue, time.Hour)
	if w := (Swept{Looked: 9, Deleted: 2, Young: 2, Named: 4, Unknown: 1}); err != nil || got != w {
		t.Errorf("swept %+v, %v; want %+v", got, err, w)
	}
	left := objects(t, dir)
	if slices.Sort(left); !slices.Equal(left, slices.Sorted(slices.Values(want))) {
		t.Errorf("left %v\nwant %v", left, want)
	}
	if _, err := claim.Sweep(ctx, b.Queue, time.Minute); err == nil {
		t.Error("swept what is a minute old")
	}
	if _, err := (&Claim{Store: struct{ Store }{dir}}).Sweep(ctx, b.Queue, time.Hour); err == nil ||
		!strings.Contains(err.Error(), "no method List") {
		t.Errorf("a store without List: %v", err)
	}
}

// Sweep deletes nothing of messages that move all the time, beside many leases that it looks through.
func TestSweepOfWhatMoves(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	dir := &Dir{Path: t.TempDir()}
	claim := &Claim{Store: dir, Above: 1}
	b := newBench(t, s.URL(), redistest.Name(t), &Chain{Layers: []Layer{claim}})
	plain := newBench(t, s.URL(), b.name, nil)
	ctx := t.Context()
	ms := make([]shunt.IMessage, 3000)
	for i := range ms {
		ms[i] = shunt.Raw(b.name, []byte("leased"))
	}
	if err := plain.EnqueueAll(ctx, ms); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		o := shunt.PullOptions{Channels: []string{b.name}, Max: 1000, Lease: time.Hour}
		if got, err := plain.Pull(ctx, o); err != nil || len(got) != 1000 {
			t.Fatal(len(got), err)
		}
	}
	const n = 300
	for range n {
		b.enqueue("not ready")
	}
	old := time.Now().Add(-2 * time.Hour)
	for _, name := range objects(t, dir) {
		if err := os.Chtimes(filepath.Join(dir.Path, name), old, old); err != nil {
			t.Fatal(err)
		}
	}
	shutdown, err := b.Receive(ctx, shunt.Define(b.name, func(context.Context, string) error {
		<-time.After(10 * time.Millisecond)
		return shunt.Snooze(100 * time.Millisecond)
	}), 64)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 15 {
		if w, err := claim.Sweep(ctx, b.Queue, time.Hour); err != nil || w.Deleted > 0 || w.Named != n {
			t.Fatalf("%d swept %+v, %v", i, w, err)
		}
	}
	if err := shutdown(ctx); err != nil {
		t.Fatal(err)
	}
}
