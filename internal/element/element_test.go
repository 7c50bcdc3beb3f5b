package element

import (
	"bytes"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"math"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"pgregory.net/rapid"
)

// golden is one case of testdata/elements-v1.txt.
type golden struct {
	name      string
	raw       []byte
	canonical bool // encode writes these very bytes
	newer     bool
	want      Element
}

// goldens reads the file; it never writes it.
func goldens(t testing.TB) []golden {
	t.Helper()
	text, err := os.ReadFile("testdata/elements-v1.txt")
	if err != nil {
		t.Fatal(err)
	}
	var all []golden
	for i, line := range strings.Split(string(text), "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		word, rest, _ := strings.Cut(line, " ")
		if word == "case" {
			all = append(all, golden{name: rest})
			continue
		}
		if len(all) == 0 {
			t.Fatalf("line %d: no case yet", i+1)
		}
		if err := all[len(all)-1].read(word, rest); err != nil {
			t.Fatalf("line %d: %s: %v", i+1, line, err)
		}
	}
	return all
}

func count(text string) (int16, error) {
	n, err := strconv.ParseInt(text, 10, 16)
	return int16(n), err
}

func (g *golden) read(word, rest string) (err error) {
	e := &g.want
	text := func(s *string) {
		var q string
		if q, err = strconv.QuotedPrefix(rest); err == nil {
			*s, err = strconv.Unquote(q)
			rest = strings.TrimPrefix(rest[len(q):], " ")
		}
	}
	switch word {
	case "element":
		g.raw, err = hex.DecodeString(rest)
	case "canonical":
		g.canonical = rest == "yes"
	case "newer":
		g.newer = true
	case "bare":
		e.Bare = true
	case "serial":
		e.Serial, err = ulid.ParseStrict(rest)
	case "flags":
		var n int
		n, err = strconv.Atoi(rest)
		e.flags = byte(n)
	case "recoveries":
		e.Recoveries, err = count(rest)
	case "attempts":
		e.Attempts, err = count(rest)
	case "maxAttempts":
		e.own().maxAttempts, err = strconv.Atoi(rest)
	case "timeout":
		e.own().timeout, err = time.ParseDuration(rest)
	case "unknown":
		e.own().unknown, err = hex.DecodeString(rest)
	case "id":
		text(&e.extra().ID)
	case "expires", "deadline", "retain", "unique":
		x := e.extra()
		to := map[string]*int64{"expires": &x.Expires, "deadline": &x.Deadline, "retain": &x.Retain,
			"unique": &x.Unique}[word]
		*to, err = strconv.ParseInt(rest, 10, 64)
	case "dead":
		e.extra().ToDead = rest == "yes"
	case "type":
		text(&e.own().typeName)
	case "failure":
		text(&e.own().failure)
	case "header":
		var k, v string
		text(&k)
		text(&v)
		if err == nil {
			err = e.SetHeader(k, v)
		}
	case "payload":
		var p string
		text(&p)
		e.Payload = []byte(p)
	default:
		err = errors.New("no such field")
	}
	return err
}

// alike says whether two elements mean the same: an empty slice or map is like none.
func alike(a, b Element) bool {
	for _, e := range []*Element{&a, &b} {
		e.Payload = append([]byte{}, e.Payload...)
		e.Detach()
		r := e.rest
		r.unknown = append([]byte{}, r.unknown...)
		if r.headers == nil {
			r.headers = map[string]string{}
		}
		x := Extra{}
		if e.Extra != nil {
			x = *e.Extra
		}
		x.bytes = nil
		e.Extra = &x
	}
	return reflect.DeepEqual(a, b)
}

// What any version ever wrote is read for ever, and what this one writes is what it always wrote.
func TestGoldenElements(t *testing.T) {
	t.Parallel()
	all := goldens(t)
	if len(all) < 45 {
		t.Fatalf("only %d cases", len(all))
	}
	for _, g := range all {
		t.Run(g.name, func(t *testing.T) {
			before := bytes.Clone(g.raw)
			e, err := Decode(g.raw)
			if (err == ErrNewerVersion) != g.newer || err != nil && !g.newer {
				t.Errorf("error %v", err)
			}
			if !alike(e, g.want) {
				t.Errorf("decoded\n%+v, want\n%+v", e, g.want)
			}
			if b := e.Encode(); bytes.Equal(b, g.raw) != g.canonical {
				t.Errorf("encoded again: %x", b)
			}
			if !bytes.Equal(g.raw, before) {
				t.Errorf("the bytes were written to: %x", g.raw)
			}
			if e.Bare != (e.SerialString() == "") || !e.Bare && e.SerialString() != g.want.Serial.String() {
				t.Errorf("name %q", e.SerialString())
			}
			sum := sha1.Sum(g.raw)
			want := hex.EncodeToString(sum[:])
			if !g.want.Bare {
				want = string(g.raw[4:20])
			}
			if id := e.Identity(g.raw); id != want {
				t.Errorf("identity %q, want %q", id, want)
			}
		})
	}
}

// fixed is a serial for tests.
var fixed = ulid.MustParseStrict("01J3SWF8DJRFAEBXG730MKMJTW")

// The longest key that Header takes.
func TestLongestHeader(t *testing.T) {
	t.Parallel()
	e := Element{Serial: fixed, Payload: []byte("p")}
	k, v := strings.Repeat("k", maxHeaderKey), strings.Repeat("v", maxHeaderValue)
	if err := e.SetHeader(k, v); err != nil {
		t.Fatal(err)
	}
	got, err := Decode(e.Encode())
	if err != nil || !alike(got, e) {
		t.Errorf("%v, %d headers", err, len(got.Headers()))
	}
}

// A script puts a failure behind the fixed bytes, before one that may be there.
func TestFailureField(t *testing.T) {
	t.Parallel()
	for _, old := range []string{"", "old"} {
		e := Element{
			Serial:  fixed,
			Payload: []byte("p"),
			rest:    &rest{failure: old, headers: map[string]string{"k": "v"}},
		}
		b := e.Encode()
		e.SetFailure("new")
		got, err := Decode([]byte(string(b[:fixedBytes]) + FailureField("new") + string(b[fixedBytes:])))
		if err != nil || !alike(got, e) {
			t.Errorf("%v, %+v", err, got)
		}
	}
}

func TestSaturate(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]byte{math.MinInt: 0, -1: 0, 0: 0, 1: 1, 254: 254, 255: 255, 256: 255, 511: 255,
		math.MaxInt: 255} {
		if got := saturate(n); got != want {
			t.Errorf("%d: %d, want %d", n, got, want)
		}
	}
}

func TestSerialsDiffer(t *testing.T) {
	t.Parallel()
	seen := make(map[ulid.ULID]bool)
	before := time.Now().Truncate(time.Millisecond)
	for range 10000 {
		s := NewSerial()
		if at := EnqueuedAt(s); at.Before(before) || time.Since(at) < 0 {
			t.Fatalf("%s is of %v, now is %v", s, at, time.Now())
		}
		seen[s] = true
	}
	if len(seen) != 10000 {
		t.Errorf("%d of 10000 serials differ", len(seen))
	}
}

func FuzzDecode(f *testing.F) {
	for _, g := range goldens(f) {
		f.Add(g.raw)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		before := bytes.Clone(b)
		e, err := Decode(b)
		if err != nil {
			if err != ErrNewerVersion || len(b) <= fixedBytes || b[0] != magic || b[1] < 0x20 {
				t.Fatalf("error %v", err)
			}
			if !e.Bare || !bytes.Equal(e.Payload, b) {
				t.Fatalf("of a newer version, and yet read: %+v", e)
			}
			return
		}
		if !bytes.HasSuffix(b, e.Payload) {
			t.Fatalf("the payload %x is no tail of the element", e.Payload)
		}
		if e.Bare {
			if escaped := len(b) > 1 && b[0] == magic && b[1] == 0; escaped && len(e.Payload) != len(b)-2 ||
				!escaped && len(e.Payload) != len(b) {
				t.Fatalf("bare payload %x", e.Payload)
			}
			e.Bare, e.Serial = false, fixed // as it is when it is written back
		} else {
			fields := b[fixedBytes : len(b)-len(e.Payload)-1]
			for _, u := range split(e.rest.given().unknown) {
				if i := bytes.Index(fields, u); i < 0 {
					t.Fatalf("unknown field %x is not in the element", u)
				}
			}
			if n := known(fields); len(split(fields))-n != len(split(e.rest.given().unknown)) {
				t.Fatalf("%d fields, %d of them known, %d unknown kept", len(split(fields)), n,
					len(split(e.rest.given().unknown)))
			}
		}
		again := e.Encode()
		got, err := Decode(again)
		if len(again) != e.Size() {
			t.Fatalf("%d bytes, and Size says %d", len(again), e.Size())
		}
		if err != nil || !alike(got, e) {
			t.Fatalf("decoded again: %v\n%+v, want\n%+v", err, got, e)
		}
		if third := got.Encode(); !bytes.Equal(third, again) {
			t.Fatalf("encoding is not stable:\n%x\n%x", again, third)
		}
		if !bytes.Equal(b, before) {
			t.Fatal("the bytes were written to")
		}
	})
}

// split cuts fields apart, by a second reading of the format.
func split(b []byte) (fields [][]byte) {
	for len(b) > 0 {
		end := 3 + int(b[1])<<8 + int(b[2])
		fields = append(fields, b[:end])
		b = b[end:]
	}
	return fields
}

// known counts the fields that version 1 reads.
func known(b []byte) (n int) {
	for _, f := range split(b) {
		switch v := f[3:]; f[0] {
		case 2:
			n++
		case 4:
			if len(v) > 0 && int(v[0])+1 <= len(v) {
				n++
			}
		case 5, 6, 8, 9, 10, 13:
			if len(v) == 8 {
				n++
			}
		case 1:
			if len(v) == 9 {
				n++
			}
		case 11, 12:
			if len(v) > 0 && len(v) <= MaxID {
				n++
			}
		}
	}
	return n
}

// anyElement draws an element that has a header.
func anyElement(t *rapid.T) Element {
	count := rapid.Int16Range(0, 255)
	e := Element{
		flags:      byte(rapid.IntRange(0, 15).Draw(t, "flags")),
		Recoveries: count.Draw(t, "recoveries"),
		Attempts:   count.Draw(t, "attempts"),
		Payload:    rapid.SliceOf(rapid.Byte()).Draw(t, "payload"),
	}
	e.SetFailure(rapid.String().Draw(t, "failure"))
	e.SetType(rapid.StringN(0, 60, MaxType).Draw(t, "type"))
	e.SetTimeout(time.Duration(rapid.Int64().Draw(t, "timeout")))
	e.SetMaxAttempts(rapid.Int().Draw(t, "max attempts"))
	copy(e.Serial[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "serial"))
	for k, v := range rapid.MapOfN(rapid.StringN(1, 60, 250), rapid.String(), -1, 5).Draw(t, "headers") {
		if err := e.SetHeader(k, v); err != nil {
			t.Fatal(err)
		}
	}
	if rapid.Bool().Draw(t, "extra") {
		e.Extra = &Extra{
			ID:       rapid.StringN(0, 60, MaxID).Draw(t, "id"),
			Expires:  rapid.Int64().Draw(t, "expires"),
			Deadline: rapid.Int64().Draw(t, "deadline"),
			Retain:   rapid.Int64().Draw(t, "retain"),
			Unique:   rapid.Int64().Draw(t, "unique"),
		}
		e.Extra.ToDead = e.Extra.Expires != 0 && rapid.Bool().Draw(t, "to dead")
	}
	for range rapid.IntRange(0, 3).Draw(t, "unknown fields") {
		v := rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "value")
		tag := rapid.SampledFrom([]byte{3, 7, 100, 255}).Draw(t, "tag")
		r := e.own()
		r.unknown = append(appendField(r.unknown, tag, len(v)), v...)
	}
	return e
}

// What encode writes, decode reads.
func TestElementRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		e := anyElement(t)
		got, err := Decode(e.Encode())
		if err != nil || !alike(got, e) {
			t.Fatalf("%v\n%+v, want\n%+v", err, got, e)
		}
	})
}

// A handling changes the counts and the failure of an element, and nothing else.
func TestNext(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		e := anyElement(t)
		before := e
		before.Detach()
		before.rest.unknown, before.Payload = slices.Clone(e.rest.given().unknown), slices.Clone(e.Payload)
		failure := rapid.String().Draw(t, "new failure")
		err := errors.New(failure)
		if rapid.Bool().Draw(t, "no failure") {
			err, failure = nil, ""
		}
		n := e.Next(err)
		if !alike(e, before) {
			t.Fatalf("next changed the element itself: %+v, was %+v", e, before)
		}
		want := before
		want.Attempts, want.Recoveries = before.Attempts+1, 0
		want.SetFailure(failure)
		if x := before.Extra; x != nil && x.Expires != 0 { // it was taken
			taken := *x
			taken.Expires, taken.ToDead = 0, false
			want.Extra = &taken
		}
		if !alike(n, want) {
			t.Fatalf("next is\n%+v, want\n%+v", n, want)
		}
		want.Attempts = min(want.Attempts, 255)
		if got, err := Decode(n.Encode()); err != nil || !alike(got, want) {
			t.Fatalf("written: %v\n%+v, want\n%+v", err, got, want)
		}
	})
}

// A bare payload gets a header when it is rewritten, and a serial of its own each time.
func TestNextOfBare(t *testing.T) {
	t.Parallel()
	seen := make(map[ulid.ULID]bool)
	for _, raw := range []string{"", "{}", "\xc1\x00\xc1\x10", "\xc1", "\xc1\x10 no header"} {
		e, err := Decode([]byte(raw))
		if err != nil {
			t.Fatal(err)
		}
		n := e.Next(errors.New("no"))
		got, err := Decode(n.Encode())
		if err != nil || got.Bare || got.Attempts != 1 || got.Recoveries != 0 || got.Failure() != "no" ||
			!bytes.Equal(got.Payload, e.Payload) {
			t.Errorf("%q: %v %+v", raw, err, got)
		}
		if time.Since(EnqueuedAt(got.Serial)) > time.Minute || seen[got.Serial] {
			t.Errorf("%q: serial %s", raw, got.Serial)
		}
		seen[got.Serial] = true
	}
}

// An error's text is cut at a whole character.
func TestFailureText(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		s    string
		want int
	}{
		{"", 0},
		{strings.Repeat("a", maxFailure), maxFailure},
		{strings.Repeat("a", maxFailure+1), maxFailure},
		{strings.Repeat("é", maxFailure), maxFailure},
		{"a" + strings.Repeat("é", maxFailure), maxFailure - 1},
		{"aa" + strings.Repeat("𝄞", maxFailure), maxFailure - 2},
		{"aaa" + strings.Repeat("𝄞", maxFailure), maxFailure - 1},
		{"a" + strings.Repeat("𝄞", maxFailure), maxFailure - 3},
	} {
		if got := FailureText(errors.New(c.s)); len(got) != c.want || !strings.HasPrefix(c.s, got) {
			t.Errorf("%.10s…: %d bytes, want %d", c.s, len(got), c.want)
		}
	}
}

// It is cut no earlier than it must be, whatever characters it is made of.
func TestFailureTextOfAnyLength(t *testing.T) {
	t.Parallel()
	for _, char := range []string{"a", "é", "断", "𝄞"} {
		for before := range 12 {
			for n := maxFailure/len(char) - 4; n < maxFailure/len(char)+4; n++ {
				s := strings.Repeat("a", before) + strings.Repeat(char, n)
				got := FailureText(errors.New(s))
				whole := len(s)
				if whole > maxFailure {
					whole = before + (maxFailure-before)/len(char)*len(char)
				}
				if got != s[:whole] {
					t.Errorf(
						"%d bytes and %d × %s: %d bytes, want %d, end %q",
						before,
						n,
						char,
						len(got),
						whole,
						got[len(got)-4:],
					)
				}
			}
		}
	}
}

func BenchmarkEncode(b *testing.B) {
	b.ReportAllocs()
	payload := make([]byte, 128)
	for b.Loop() {
		e := Element{Serial: NewSerial(), Payload: payload}
		if len(e.Encode()) != fixedBytes+1+len(payload) {
			b.Fatal("another length")
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	b.ReportAllocs()
	plain := Element{Serial: NewSerial(), Payload: make([]byte, 128)}
	full := plain
	full.rest = &rest{
		failure: "it failed",
		timeout: time.Second,
		headers: map[string]string{"tenant": "7", "trace": "00-4bf92f35"},
	}
	for name, raw := range map[string][]byte{"plain": plain.Encode(), "fields": full.Encode(), "bare": make([]byte,
		128)} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if e, err := Decode(raw); err != nil || len(e.Payload) != 128 {
					b.Fatal(err)
				}
			}
		})
	}
}

// The header that docs/operations.md makes in Python is one.
func TestHeaderOfOthers(t *testing.T) {
	serial := NewSerial()
	raw := append([]byte{0xc1, 0x10, 0, 0}, serial[:]...)
	raw = append(raw, "\x0c\x00\x0dmails.Welcome\x00{}"...)
	if e, err := Decode(raw); err != nil || e.Bare || e.Type() != "mails.Welcome" || string(e.Payload) != "{}" ||
		e.Serial != serial {
		t.Errorf("%+v, %v", e, err)
	}
}
