package codec

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/redistest"
)

// halved is a layer that compresses what says everything twice.
type halved struct{}

func (halved) Name() string { return "half" }

func (halved) Encode(_ context.Context, p shunt.Payload) (string, []byte, error) {
	if n := len(p.Bytes); n > 0 && n%2 == 0 && bytes.Equal(p.Bytes[:n/2], p.Bytes[n/2:]) {
		return "", p.Bytes[:n/2], nil
	}
	return "", nil, nil
}

func (halved) Decode(_ context.Context, _ string, p shunt.Payload, _ int) ([]byte, error) {
	return append(bytes.Clone(p.Bytes), p.Bytes...), nil
}

// Whatever chain a payload was written by, or none, and whatever it begins with: a newer chain reads it.
func TestOldPayloads(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		name, dir := redistest.Name(t), &Dir{Path: t.TempDir()}
		chains := []*Chain{
			nil,
			{Layers: []Layer{halved{}}},
			{Layers: []Layer{halved{}, &AES{Keys: []Key{key("k1")}}}},
			{Layers: []Layer{&AES{Keys: []Key{key("k1"), key("k2")}}, &Claim{Store: dir, Above: 60}},
				Old: []Layer{halved{}}},
			{Layers: []Layer{&AES{Keys: []Key{key("k2"), key("k1")}, AnySerial: true}, halved{}},
				Old: []Layer{&Claim{Store: dir}}},
		}
		var want []string
		for i, c := range chains {
			b := newBench(t, s.URL(), name, c)
			for _, text := range []string{"", "twice twice ", "half\n", "\xc1\x00zstd", "aes=k1",
				strings.Repeat("large ", 30)} {
				text = fmt.Sprintf("%d %s", i, text)
				b.enqueue(text)
				want = append(want, strings.ToValidUTF8(text, "\ufffd"))
			}
			for _, payload := range []string{"\xc1\x00", "\xc1\x10", "aes=k1\n", "\"a\"\"a\"", "twice!twice!"} {
				if err := b.Enqueue(t.Context(), shunt.Raw(name+".raw", []byte(payload))); err != nil {
					t.Fatal(err)
				}
			}
		}
		b := newBench(t, s.URL(), name, chains[len(chains)-1])
		for _, e := range b.list(shunt.StatePrepare) {
			if bytes.Contains(e.Payload, []byte("twice")) &&
				strings.Contains(e.Headers[shunt.EncodingHeader], "aes=") {
				t.Errorf("%q is there in the clear", e.Payload)
			}
		}
		ms, err := b.Pull(t.Context(), shunt.PullOptions{Channels: []string{name + ".raw"}, Max: 100})
		if err != nil || len(ms) != 5*len(chains) {
			t.Fatalf("pulled %d, %v", len(ms), err)
		}
		for i, m := range ms {
			want := []string{"\xc1\x00", "\xc1\x10", "aes=k1\n", "\"a\"\"a\"", "twice!twice!"}[i%5]
			if string(m.Payload) != want {
				t.Errorf("%d: %q came back as %q", i, want, m.Payload)
			}
		}
		handled, _ := b.receive(done)
		b.wait(shunt.EventAcked, len(want))
		if slices.Sort(want); !slices.Equal(handled(), want) {
			t.Errorf("handled %q, want %q", handled(), want)
		}
		b.until("no objects", func() bool { return len(objects(t, dir)) == 0 })
	})
}

// What cannot be read goes to dead, and says why.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		name := redistest.Name(t)
		c := &Chain{Layers: []Layer{halved{}, &AES{Keys: []Key{key("k1")}}}, Require: []string{"aes"}, MaxSize: 1000}
		b := newBench(t, s.URL(), name, c)
		plain := newBench(t, s.URL(), name, nil)
		r := b.enqueue("secret")
		e, err := plain.Peek(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		wrote := e.Headers[shunt.EncodingHeader]
		if wrote != "aes=k1" || bytes.Contains(e.Payload, []byte("secret")) {
			t.Errorf("Redis has %q, by %s", e.Payload, wrote)
		}
		// A new serial, as a replay of the ciphertext has, and as an import has.
		for encoding, why := range map[string]string{
			wrote:                    "was changed or cut, is that of another message",
			"aes=k9":                 `the key "k9" is unknown: add it to AES.Keys`,
			"aes=k1:any":             "was changed or cut",
			"aes=k1,zip":             `went through "zip", and the chain has no such layer`,
			"aes=k1,":                "want what a Chain has written",
			"aes":                    `the key "" is unknown`,
			"":                       "did not go through aes",
			"half":                   "did not go through aes",
			"aes=" + "k1,half":       "was changed or cut",
			strings.Repeat("a,", 99): "more than 8 layers",
		} {
			var opts []shunt.Option
			if encoding != "" {
				opts = append(opts, shunt.Header(shunt.EncodingHeader, encoding))
			}
			n := plain.count(shunt.EventEnqueued)
			if err := plain.Enqueue(t.Context(), shunt.Raw(name, e.Payload), append(opts,
				shunt.Header("why", why))...); err != nil {
				t.Fatal(err)
			}
			plain.wait(shunt.EventEnqueued, n+1)
		}
		handled, _ := b.receive(done)
		b.wait(shunt.EventUndecodable, 10)
		b.wait(shunt.EventAcked, 1)
		if got := handled(); !slices.Equal(got, []string{"secret"}) {
			t.Errorf("handled %q", got)
		}
		dead := b.list(shunt.StateDead)
		for _, e := range dead {
			if why := e.Headers["why"]; !strings.Contains(e.Failure, why) {
				t.Errorf("%q: %q, want %q", e.Headers[shunt.EncodingHeader], e.Failure, why)
			}
		}
		if len(dead) != 10 {
			t.Errorf("%d are dead", len(dead))
		}
		if err := b.Enqueue(t.Context(), shunt.Raw(name, make([]byte, 1001))); err == nil ||
			!strings.Contains(err.Error(), "Chain.MaxSize is 1000") {
			t.Errorf("a large one: %v", err)
		}
	})
}

// One layer may not make more of a payload than the chain allows.
func TestDecodeIsBounded(t *testing.T) {
	t.Parallel()
	p := payloads(t, &Chain{Layers: []Layer{halved{}}, MaxSize: 10})
	b, err := p.Decode(t.Context(), shunt.Payload{Encoding: "half", Bytes: []byte("01234")})
	if string(b) != "0123401234" || err != nil {
		t.Errorf("10 bytes: %q, %v", b, err)
	}
	_, err = p.Decode(t.Context(), shunt.Payload{Encoding: "half", Bytes: []byte("012345")})
	if err == nil || !strings.Contains(err.Error(), "more than 10 bytes") {
		t.Errorf("12 bytes: %v", err)
	}
}

// What is wrong with a chain is said before it is used, all at once.
func TestValidate(t *testing.T) {
	t.Parallel()
	short := Key{ID: "k1", Secret: []byte("short")}
	for want, c := range map[string]*Chain{
		"":                          {},
		"a layer is nil":            {Layers: []Layer{nil}},
		"two layers are named":      {Layers: []Layer{halved{}}, Old: []Layer{halved{}}},
		"Chain.Require has \"aes\"": {Layers: []Layer{halved{}}, Require: []string{"aes"}},
		"Chain.MaxSize is -1":       {MaxSize: -1},
		"AES.Keys is empty":         {Layers: []Layer{&AES{}}},
		"has 5 bytes":               {Layers: []Layer{&AES{Keys: []Key{short}}}},
		"two keys have the ID":      {Layers: []Layer{&AES{Keys: []Key{key("k1"), key("k1")}}}},
		"the ID of key 0 is":        {Layers: []Layer{&AES{Keys: []Key{key("k:")}}}},
		"Claim.Store is nil":        {Layers: []Layer{&Claim{}}},
		"Claim.Above is -1":         {Old: []Layer{&Claim{Store: &Dir{Path: "x"}, Above: -1}}},
		"Dir.Path is empty":         {Layers: []Layer{&Claim{Store: &Dir{}}}},
	} {
		_, err := c.Payloads()
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v", want, err)
		}
	}
	if text := fmt.Sprintf("%v %+v %#v", short, []Key{short}, short); strings.Contains(text, "short") ||
		strings.Contains(text, fmt.Sprint([]byte("short"))) || strings.Contains(text, "0x73") {
		t.Errorf("a key is shown: %s", text)
	}
}

// Seal and Open are a chain for what has no headers.
func TestSeal(t *testing.T) {
	t.Parallel()
	dir := &Dir{Path: t.TempDir()}
	c := &Chain{Layers: []Layer{halved{}, &AES{Keys: []Key{key("k1")}}, &Claim{Store: dir, Above: 1}}}
	for _, text := range []string{"", "a\nb", "twice twice "} {
		p := shunt.Payload{Channel: "c", ID: "7", Serial: "ignored", Bytes: []byte(text)}
		sealed, err := c.Seal(t.Context(), p)
		if err != nil || text != "" && bytes.Contains(sealed, []byte(text)) {
			t.Fatalf("%q, %v", sealed, err)
		}
		p.Bytes = sealed
		if got, err := c.Open(t.Context(), p); string(got) != text || err != nil {
			t.Errorf("%q came back as %q, %v", text, got, err)
		}
		p.Channel = "d"
		if _, err := c.Open(t.Context(), p); err == nil {
			t.Error("it is opened on another channel")
		}
	}
	if _, err := c.Open(t.Context(), shunt.Payload{Bytes: []byte("x")}); err == nil {
		t.Error("opened what was not sealed")
	}
}

// A chain serves many goroutines, and no two ciphertexts of one payload are the same.
func TestConcurrency(t *testing.T) {
	t.Parallel()
	dir := &Dir{Path: t.TempDir()}
	p := payloads(t, &Chain{Layers: []Layer{halved{}, &AES{Keys: []Key{key("k1"), key("k2")}},
		&Claim{Store: dir, Above: 100}}})
	var mu sync.Mutex
	seen := make(map[string]bool)
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for j := range 25 {
				in := shunt.Payload{Channel: "c", Serial: serial(i*100 + j), Bytes: bytes.Repeat([]byte("x"), j*8+1)}
				encoding, b, err := p.Encode(t.Context(), in)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if j < 5 && seen[string(b)] {
					t.Error("one ciphertext came twice")
				}
				seen[string(b)] = true
				mu.Unlock()
				out := in
				out.Encoding, out.Bytes = encoding, b
				if got, err := p.Decode(t.Context(), out); err != nil || !bytes.Equal(got, in.Bytes) {
					t.Errorf("%q came back as %q, %v", in.Bytes, got, err)
				}
				if err := p.Over(t.Context(), out); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	if names := objects(t, dir); len(names) > 0 {
		t.Errorf("left: %v", names)
	}
}

// serial is the n-th of some serials.
func serial(n int) string { return fmt.Sprintf("01KAV9%020d", n) }

// FuzzDecode gives a chain what anybody may have written into Redis.
func FuzzDecode(f *testing.F) {
	dir := &Dir{Path: f.TempDir()}
	p := payloads(f, &Chain{Layers: []Layer{halved{}, &AES{Keys: []Key{key("k1")}}, &Claim{Store: dir, Above: 100}}})
	for _, n := range []int{0, 10, 101} {
		in := shunt.Payload{Channel: "c", Serial: serial(n), Bytes: bytes.Repeat([]byte("x"), n)}
		encoding, b, err := p.Encode(f.Context(), in)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(in.Serial, encoding, b)
	}
	f.Add("", "", []byte("plain"))
	f.Add("", "half,half,half,half,half,half,half,half", []byte("plain"))
	f.Add("", "claim=../../etc/passwd", []byte{})
	f.Fuzz(func(t *testing.T, serial, encoding string, b []byte) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		in := shunt.Payload{Channel: "c", Serial: serial, Encoding: encoding, Bytes: b}
		before := bytes.Clone(b)
		got, err := p.Decode(ctx, in)
		if errors.Is(err, context.DeadlineExceeded) || !bytes.Equal(b, before) {
			t.Fatal(err)
		}
		if encoding == "" && (err != nil || !bytes.Equal(got, b)) {
			t.Fatalf("%q came back as %q, %v", b, got, err)
		}
		if steps, err := parse(encoding); err == nil && strings.TrimSuffix(text(steps), "=") != encoding &&
			!strings.Contains(encoding, "=,") && !strings.HasSuffix(encoding, "=") {
			t.Fatalf("%q is read as %q", encoding, text(steps))
		}
	})
}

// What was sealed is no message, and a message nothing that was sealed.
func TestSealIsApart(t *testing.T) {
	t.Parallel()
	c := &Chain{Layers: []Layer{&AES{Keys: []Key{key("k1")}, AnySerial: true}}}
	all := payloads(t, c)
	p := shunt.Payload{Channel: "c", ID: "7", Bytes: []byte("text")}
	sealed, err := c.Seal(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	encoding, encoded, _ := bytes.Cut(sealed, []byte("\n"))
	m := p
	m.Serial, m.Encoding, m.Bytes = serial(1), string(encoding), encoded
	if got, err := all.Decode(t.Context(), m); err == nil {
		t.Errorf("what was sealed is the message %q", got)
	}
	m.Encoding, m.Bytes, err = all.Encode(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := all.Decode(t.Context(), m); err != nil || string(got) != "text" {
		t.Errorf("%q, %v", got, err)
	}
	m.Bytes = append([]byte(m.Encoding+"\n"), m.Bytes...)
	if got, err := c.Open(t.Context(), m); err == nil {
		t.Errorf("a message is opened: %q", got)
	}
}
