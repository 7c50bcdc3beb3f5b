package zstd

import (
	"bytes"
	"crypto/rand"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/codec"
	"github.com/shuntmq/shunt/internal/redistest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

func payloads(t testing.TB, c *codec.Chain) shunt.Payloads {
	t.Helper()
	p, err := c.Payloads()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// What is large and can be made smaller is compressed, and comes back; by many goroutines at once.
func TestLayer(t *testing.T) {
	t.Parallel()
	p := payloads(t, &codec.Chain{Layers: []codec.Layer{&Layer{Level: 9}}})
	random := make([]byte, 5000)
	_, _ = rand.Read(random)
	var group sync.WaitGroup
	for name, c := range map[string]struct {
		payload    []byte
		compressed bool
	}{
		"empty": {[]byte{}, false}, "small": {bytes.Repeat([]byte("a"), 1024), false},
		"large": {bytes.Repeat([]byte("a"), 1025), true}, "random": {random, false},
		"huge": {bytes.Repeat([]byte("text "), 1e6), true},
	} {
		for range 4 {
			group.Go(func() {
				in := shunt.Payload{Channel: "c", Serial: "s", Bytes: c.payload}
				encoding, b, err := p.Encode(t.Context(), in)
				if err != nil || (encoding == "zstd") != c.compressed || c.compressed && len(b) > len(c.payload)/2 {
					t.Errorf("%s: %q, %d of %d bytes, %v", name, encoding, len(b), len(c.payload), err)
				}
				in.Encoding, in.Bytes = encoding, b
				got, err := p.Decode(t.Context(), in)
				if err != nil || !bytes.Equal(got, c.payload) {
					t.Errorf("%s: %d bytes came back as %d, %v", name, len(c.payload), len(got), err)
				}
			})
		}
	}
	group.Wait()
	for _, l := range []*Layer{{Above: -1}, {Level: 23}, {Level: -1}} {
		if _, err := (&codec.Chain{Layers: []codec.Layer{l}}).Payloads(); err == nil {
			t.Errorf("%d and %d are allowed", l.Above, l.Level)
		}
	}
}

// A few bytes that say they are many are not expanded, whatever they say of their size. No other test runs meanwhile,
// for it looks at memory.
func TestBomb(t *testing.T) {
	p := payloads(t, &codec.Chain{Layers: []codec.Layer{&Layer{}}, MaxSize: 1 << 20})
	one, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	full := one.EncodeAll(make([]byte, 1<<20), nil)
	over := one.EncodeAll(make([]byte, 1<<20+1), nil)
	var stream bytes.Buffer // which does not say its size
	w, err := zstd.NewWriter(&stream, zstd.WithWindowSize(64<<10), zstd.WithEncoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	for range 64 {
		if _, err := w.Write(make([]byte, 1<<20)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	half := one.EncodeAll(make([]byte, 1<<19), nil)
	for name, c := range map[string]struct {
		payload []byte
		says    string
	}{
		"just allowed": {full, ""}, "a byte more": {over, "more than 1048576 bytes"},
		"stream": {stream.Bytes(), "more than 1048576 bytes"}, "two frames": {append(half, half...), ""},
		"three frames": {append(append(half, half...), half...), "more than 1048576 bytes"},
		"cut":          {full[:len(full)-1], "changed or cut"}, "text": {[]byte("text"), "changed or cut"},
		"changed": {append(full[:len(full)-4:len(full)-4], 1, 2, 3, 4), "changed or cut"},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		got, err := p.Decode(t.Context(), shunt.Payload{Encoding: "zstd", Bytes: c.payload})
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 16<<20 {
			t.Errorf("%s takes %d bytes", name, n)
		}
		if c.says == "" && (err != nil || len(got) != 1<<20) || c.says != "" &&
			(err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	l := &Layer{Above: 1}
	for _, text := range []string{"aa", strings.Repeat("text ", 100)} {
		_, b, err := l.Encode(f.Context(), shunt.Payload{Bytes: []byte(text)})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if got, err := l.Decode(t.Context(), "", shunt.Payload{Bytes: b}, 4096); err == nil && len(got) > 4096 {
			t.Fatalf("%d bytes", len(got))
		}
		_, encoded, err := l.Encode(t.Context(), shunt.Payload{Bytes: b})
		if err != nil {
			t.Fatal(err)
		}
		if encoded == nil {
			return
		}
		got, err := l.Decode(t.Context(), "", shunt.Payload{Bytes: encoded}, len(b))
		if err != nil || !bytes.Equal(got, b) {
			t.Fatalf("%q came back as %q, %v", b, got, err)
		}
	})
}
