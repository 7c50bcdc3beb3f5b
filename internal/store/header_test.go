package store

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/redistest"
)

// goldens are the elements of every released form, by the names of their cases.
func goldens(t testing.TB) map[string][]byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "element", "testdata", "elements-v1.txt"))
	if err != nil {
		t.Fatal(err)
	}
	all, name := make(map[string][]byte), ""
	for line := range strings.Lines(string(text)) {
		switch word, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " "); word {
		case "case":
			name = rest
		case "element":
			if all[name], err = hex.DecodeString(rest); err != nil {
				t.Fatal(err)
			}
		}
	}
	return all
}

// probe is what the scripts make of an element.
type probe struct {
	header, newer bool
	identity, id  string
}

// expected is what element.go makes of it.
func expected(b []byte) probe {
	e, err := element.Decode(b)
	return probe{header: !e.Bare, newer: err == element.ErrNewerVersion, identity: e.Identity(b), id: e.ID()}
}

// probeScript is header.lua and a return.
func probeScript(t testing.TB) *redis.Script {
	t.Helper()
	return redis.NewScript(
		0,
		joined(
			[]string{"header"},
		)+"\nlocal e = ARGV[1]\nreturn {header(e) and 1 or 0, newer(e) and 1 or 0, identity(e), idOf(e) or ''}",
	)
}

func probed(s *redis.Script, c redis.Conn, b []byte) (p probe, err error) {
	vs, err := redis.Values(s.Do(c, b))
	if err == nil {
		_, err = redis.Scan(vs, &p.header, &p.newer, &p.identity, &p.id)
	}
	return p, err
}

func FuzzHeaderLua(f *testing.F) {
	for _, raw := range goldens(f) {
		f.Add(raw)
	}
	m := miniredis.RunT(f)
	s := probeScript(f)
	pool := redistest.Pool(f, m.Addr())
	f.Fuzz(func(t *testing.T, b []byte) {
		c := pool.Get()
		defer c.Close()
		got, err := probed(s, c, b)
		if want := expected(b); err != nil || got != want {
			t.Fatalf("header.lua: %+v (%v), element.go: %+v", got, err, want)
		}
	})
}

// The same on both backends, for every golden element, every cut of it, and every change of one of its bytes to a
// telling one.
func TestHeaderLua(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		t.Parallel()
		s := probeScript(t)
		c := redistest.Pool(t, b.Addr()).Get()
		defer c.Close()
		n := 0
		check := func(name string, e []byte) {
			n++
			got, err := probed(s, c, e)
			if want := expected(e); err != nil || got != want {
				t.Errorf("%s: %x: header.lua: %+v (%v), element.go: %+v", name, e, got, err, want)
			}
		}
		for name, raw := range goldens(t) {
			check(name, raw)
			for i := range min(len(raw), 40) {
				check(name+", cut", raw[:i])
				for _, to := range []byte{0, 1, 4, 0x10, 0x1f, 0x20, 0xc1, 0xff} {
					if i < 4 || i >= 20 {
						e := bytes.Clone(raw)
						e[i] = to
						check(fmt.Sprintf("%s, byte %d", name, i), e)
					}
				}
			}
		}
		if n < 5000 {
			t.Errorf("only %d elements", n)
		}
	})
}
