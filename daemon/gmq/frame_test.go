package gmq

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/shuntmq/shunt/daemon/budget"
)

// pieces gives a text in pieces of a length.
type pieces struct {
	text []byte
	n    int
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.text) == 0 {
		return 0, io.EOF
	}
	n := copy(b[:min(len(b), p.n)], p.text)
	p.text = p.text[n:]
	return n, nil
}

// framesOf cuts a text that comes in pieces.
func framesOf(text []byte, most, piece int, all *budget.Budget) *frames {
	return &frames{from: &pieces{text, piece}, most: func() int { return most }, budget: all,
		begun: func(bool) error { return nil }}
}

// framed are the objects of a text, and how it ends.
func framed(text []byte, most, piece int) (objects [][]byte, err error) {
	var all budget.Budget
	f := framesOf(text, most, piece, &all)
	for {
		object, err := f.next()
		if err != nil {
			for _, o := range objects {
				all.Return(len(o))
			}
			f.close()
			if n := all.Bodies(); n != 0 {
				return objects, errors.New("bytes are held")
			}
			return objects, err
		}
		objects = append(objects, object)
	}
}

// The time that a request may take begins with it, also where it comes together with the end of the one before.
func TestSince(t *testing.T) {
	t.Parallel()
	f := framesOf([]byte(`{"a":1}{"b":2}{"c":3}`), 100, 10, new(budget.Budget))
	begun := 0
	f.begun = func(part bool) error {
		if part && f.since.IsZero() {
			f.since = time.Now()
			begun++
		}
		return nil
	}
	for range 3 {
		if _, err := f.next(); err != nil || !f.since.IsZero() {
			t.Error(err, f.since)
		}
	}
	if begun != 2 {
		t.Error(begun)
	}
}

// A connection that waits for its next request holds nothing of the one before, also where that ends with its line.
func TestNothingHeldBetween(t *testing.T) {
	t.Parallel()
	for _, behind := range []string{"", "\n", "\r\n ", `{"b":2}` + "\n"} {
		all := new(budget.Budget)
		large := `{"a":"` + strings.Repeat("x", 4*small) + `"}`
		held := int64(-1)
		f := framesOf([]byte(large+behind), 10*small, 1<<20, all)
		f.begun = func(part bool) error {
			if !part {
				held = all.Bodies()
			}
			return nil
		}
		for range 1 + strings.Count(behind, "{") {
			object, err := f.next()
			if err != nil {
				t.Fatal(err)
			}
			all.Return(len(object))
		}
		if _, err := f.next(); err != io.EOF || held != 0 {
			t.Errorf("%q: %d bytes are held, %v", behind, held, err)
		}
	}
}

// A request may have two thirds of all bytes, whatever comes with it and behind it, and is counted once.
func TestTwoThirds(t *testing.T) {
	t.Parallel()
	for _, all := range []int{2 << 20, 2<<20 + 2*readAt, 3 << 20, 5_000_000} {
		for _, length := range []int{all / 2, 2*all/3 - 2*readAt} {
			for _, behind := range []string{"", "\n", `{"b":2}`, `{"c":"` + strings.Repeat("y", 2*small) + `"}`} {
				for _, piece := range []int{small - 1, 1 << 20} {
					large := `{"a":"` + strings.Repeat("x", length) + `"}`
					b := bounded(budget.Limits{MaxBodies: int64(all)})
					f := framesOf([]byte(large+behind), all, piece, b)
					object, err := f.next()
					if held := int(b.Bodies()); err != nil || string(object) != large || held > length+len(behind)+100 {
						t.Fatalf("%d of %d, %d behind, pieces of %d: %d are held, %v", length, all, len(behind), piece,
							held, err)
					}
					b.Return(len(object))
					if strings.HasPrefix(behind, "{") {
						object, err := f.next()
						if err != nil || string(object) != behind {
							t.Fatalf("%d bytes, %v", len(object), err)
						}
						b.Return(len(object))
					}
					if f.close(); b.Bodies() != 0 {
						t.Fatalf("%d bytes are held", b.Bodies())
					}
				}
			}
		}
	}
}

// Small requests behind a large one cost their own bytes, not all that is behind them.
func TestManyBehindALargeOne(t *testing.T) {
	const small = `{"b":2}`
	text := []byte(`{"a":"` + strings.Repeat("x", 1<<20) + `"}` + strings.Repeat(small, 50_000))
	b := new(budget.Budget)
	f := framesOf(text, 2<<20, 2<<20, b)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 50_001 {
		object, err := f.next()
		if err != nil || cap(object) > 2*len(object)+64 {
			t.Fatalf("%d bytes keep %d, %v", len(object), cap(object), err)
		}
		b.Return(len(object))
	}
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 20<<20 {
		t.Errorf("%d MiB were allocated for %d", grown>>20, len(text)>>20)
	}
}

// FuzzLine holds the cutting of requests against encoding/json's, whatever the pieces in which they come, and has every
// one that comes answered by one line of JSON with its id.
func FuzzLine(f *testing.F) {
	for _, seed := range []string{
		`{"method":"Service.Push","params":[{"id":"1","topic":"q","body":"b","delay":"0","TTR":"60"}],"id":1}`,
		`{"method":"Service.Pop","params":[["a","b"]],"id":"x"}{"method":"Service.Ack","params":["1"],"id":null}`,
		"{}\n \r\n{}", `{"a":"}\"{\\"}`, `{]`, `[`, `{"id":{"a":[1,{}]},"method":5}`, "{\"method\":\"\xff\"}", `{"a":`,
		`{"id":1e400,"params":[[[]]]}`,
	} {
		f.Add([]byte(seed), uint8(1))
		f.Add([]byte(seed), uint8(255))
	}
	f.Fuzz(func(t *testing.T, text []byte, piece uint8) {
		const most = 1000
		objects, err := framed(text, most, int(piece)+1)
		whole, errWhole := framed(text, most, 1<<20)
		if len(objects) != len(whole) || !errors.Is(err, errWhole) && !errors.Is(errWhole, err) {
			t.Fatalf("%d and %v in pieces, %d and %v at once", len(objects), err, len(whole), errWhole)
		}
		d := json.NewDecoder(bytes.NewReader(text))
		for i, object := range objects {
			if len(object) > most || !bytes.Equal(object, whole[i]) || object[0] != '{' {
				t.Fatalf("%q", object)
			}
			r, err := parse(object)
			if errors.Is(err, errNoJSON) {
				return // where the connection ends
			}
			var want json.RawMessage
			if err := d.Decode(&want); err != nil || !bytes.Equal(want, object) {
				t.Fatalf("%q, want %q, %v", object, want, err)
			}
			answered(t, &r, err)
		}
	})
}

func answered(t *testing.T, r *request, err error) {
	t.Helper()
	if err == nil {
		_, err = argument[map[string]string](r)
		_, _ = argument[[]string](r)
		_, _ = argument[string](r)
	}
	answer := response{ID: r.ID, Result: r.Method}
	if err != nil {
		answer = response{ID: r.ID, Error: err.Error()}
	}
	line := answer.line()
	var got response
	if bytes.IndexByte(line, '\n') != len(line)-1 || json.Unmarshal(line, &got) != nil {
		t.Fatalf("%q", line)
	}
	if r.ID != nil {
		var a, b bytes.Buffer
		if json.Compact(&a, *r.ID) != nil || json.Compact(&b, *got.ID) != nil || r.ID == nil != (got.ID == nil) {
			t.Fatalf("%q", line)
		}
	}
}
