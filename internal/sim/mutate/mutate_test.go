package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/shuntmq/shunt/internal/sim/tree"
)

// sampleOf makes a module of its own of one file and its test, and all mutants of it.
func sampleOf(t *testing.T, text string, test ...string) *pool {
	t.Helper()
	root := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module example.org/sample\n\ngo 1.25\n", "sample.go": text,
		"sample_test.go": "package sample\n" + strings.Join(test, "\n"),
	} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	sample, err := tree.Open(root, "", ".")
	if err != nil {
		t.Fatal(err)
	}
	pkg, err := sample.Load(".", nil)
	if err != nil {
		t.Fatal(err)
	}
	f := pkg.Files[0]
	return &pool{
		tree: sample, packages: map[string]*tree.Package{".": pkg}, files: map[string]*tree.File{f.Name: f},
		byGroup: map[string][]*mutant{".": goMutants(sample, pkg, f, ".")},
	}
}

// changes are a mutant's kind, and the lines it makes, without what is around them.
func changes(ms []*mutant, text []byte) (all []string) {
	for _, m := range ms {
		var is []string
		for _, line := range strings.Split(m.diff(text), "\n") {
			if strings.HasPrefix(line, "+") {
				is = append(is, strings.TrimSpace(line[1:]))
			}
		}
		all = append(all, strings.TrimSpace(fmt.Sprintf("%s %d: %s", m.kind, m.line, strings.Join(is, " | "))))
	}
	slices.Sort(all)
	return all
}

func compare(t *testing.T, got []string, want string) {
	t.Helper()
	wanted := strings.Split(strings.TrimSpace(want), "\n")
	slices.Sort(wanted)
	for _, g := range got {
		if !slices.Contains(wanted, g) {
			t.Errorf("not wanted: %s", g)
		}
	}
	for _, w := range wanted {
		if !slices.Contains(got, w) {
			t.Errorf("missing: %s", w)
		}
	}
}

func TestGoMutants(t *testing.T) {
	p := sampleOf(t, `package sample

import (
	"errors"
	"time"
)

type box struct{ n, m int }

var _, _ = errors.ErrUnsupported, time.Second

func (b *box) String() string { b.n = 7; return "" }

func (b *box) move(from, to int) error {
	if from < to {
		return errors.New("1 < 2")
	}
	b.n, b.m = from, to
	b.put(from, to)
	for range 3 {
		break
	}
	time.Sleep(5 * time.Second)
	return nil
}

func (b *box) put(x, y int) { b.n = max(x, y) }
`)
	f := p.files["sample.go"]
	ms := slices.DeleteFunc(p.byGroup["."], func(m *mutant) bool {
		return p.tree.Compiles(p.packages["."], f, m.apply(f.Text)) != nil
	})
	compare(t, changes(ms, f.Text), `
drop 15:
drop 18:
drop 19:
drop 23:
drop 27: func (b *box) put(x, y int) {  }
exchange 19: b.put(to, from)
jump 16:
jump 21:
off-by-one 15: if from <= to {
off-by-one 20: for range 4 {
swap 15: b.n, b.m = from, to | if from < to { | return errors.New("1 < 2") | }
swap 18: b.put(from, to) | b.n, b.m = from, to
turn 15: if !(from < to) {
`)
}

func TestLuaMutants(t *testing.T) {
	text := []byte(`-- if x then return 1 end
local n = redis.call('LLEN', KEYS[1]) -- 3
if n < 2 then
  redis.call('LPUSH', KEYS[1], ARGV[2])
  redis.call('LREM', KEYS[2], '-1', ARGV[3])
end
return {KEYS[1],
  KEYS[1]}
`)
	ms := luaMutants("a.lua", text, luaDir)
	compare(t, changes(ms, text), `
drop 4:
drop 5:
off-by-one 2: local n = redis.call('LLEN', KEYS[2]) -- 3
off-by-one 3: if n <= 2 then
off-by-one 3: if n < 3 then
off-by-one 4: redis.call('LPUSH', KEYS[2], ARGV[2])
off-by-one 4: redis.call('LPUSH', KEYS[1], ARGV[3])
off-by-one 5: redis.call('LREM', KEYS[3], '-1', ARGV[3])
off-by-one 5: redis.call('LREM', KEYS[2], '0', ARGV[3])
off-by-one 5: redis.call('LREM', KEYS[2], '-1', ARGV[4])
off-by-one 7: return {KEYS[2],
off-by-one 8: KEYS[2]}
swap 4: redis.call('LREM', KEYS[2], '-1', ARGV[3]) | redis.call('LPUSH', KEYS[1], ARGV[2])
turn 3: if not (n < 2) then
`)
	for _, m := range ms {
		if err := parses("a.lua", m.apply(text)); err != nil {
			t.Errorf("%s: %v", m.id(), err)
		}
	}
	index := []byte("redis.call('RPOPLPUSH', KEYS[1], KEYS[2], ARGV[1], ARGV[x])\nif a then return end\nreturn 1\n")
	compare(t, changes(luaMutants("b.lua", index, luaDir), index), `
drop 1:
drop 2:
exchange 1: redis.call('RPOPLPUSH', KEYS[2], KEYS[1], ARGV[1], ARGV[x])
jump 3:
off-by-one 1: redis.call('RPOPLPUSH', KEYS[2], KEYS[2], ARGV[1], ARGV[x])
off-by-one 1: redis.call('RPOPLPUSH', KEYS[1], KEYS[3], ARGV[1], ARGV[x])
off-by-one 1: redis.call('RPOPLPUSH', KEYS[1], KEYS[2], ARGV[2], ARGV[x])
off-by-one 3: return 2
swap 1: if a then return end | redis.call('RPOPLPUSH', KEYS[1], KEYS[2], ARGV[1], ARGV[x])
turn 2: if not (a) then return end
`)
}

// A mutant has the same name when lines have moved, and no two of one file share one.
func TestNames(t *testing.T) {
	text := "redis.call('DEL', KEYS[1])\nredis.call('DEL', KEYS[1])\nif a then return 0 end\n"
	before, after := luaMutants("a.lua", []byte(text), luaDir), luaMutants("a.lua", []byte("\n\n"+text), luaDir)
	seen := make(map[string]bool)
	for i, m := range before {
		if seen[m.key()] {
			t.Errorf("%s is there twice", m.id())
		}
		seen[m.key()] = true
		if o := after[i]; o.key() != m.key() || keyOf(o.id()) != m.key() || o.line != m.line+2 {
			t.Errorf("%s has become %s", m.id(), o.id())
		}
	}
}

var shunt = sync.OnceValues(func() (*pool, error) {
	root, err := tree.Root(".")
	if err != nil {
		return nil, err
	}
	return newPool(root, "")
})

// What the compiler or go vet has something against is no mutant.
func TestBuilds(t *testing.T) {
	p := sampleOf(t, "package sample\n\nvar a [2]int\n\nfunc move() {\n\ta[0] = a[1]\n}\n")
	var builds []string
	for _, m := range p.byGroup["."] {
		is, err := p.builds(t.Context(), m, t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		if is {
			builds = append(builds, m.kind)
		}
	}
	if want := []string{drop}; !slices.Equal(builds, want) || len(p.byGroup["."]) != 3 {
		t.Errorf("%v build, want %v", builds, want)
	}
}

// A seed draws the same mutants of shunt again, spread over its packages; another seed draws others.
func TestDraw(t *testing.T) {
	draw := func(seed uint64) (ids []string) {
		p, err := shunt()
		if err != nil {
			t.Fatal(err)
		}
		of := make(map[string]int)
		ms, err := p.draw(seed, 4*len(groups), func(m *mutant) (bool, error) { return m.hash[0] < '8', nil })
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range ms {
			of[m.group]++
			ids = append(ids, m.id())
		}
		for _, g := range groups {
			if of[g] != 4 {
				t.Errorf("of %s there are %d", g, of[g])
			}
		}
		again, err := p.named(ids)
		if err != nil || !slices.Equal(again, ms) {
			t.Errorf("by name there are others: %v", err)
		}
		return ids
	}
	one := draw(1)
	if !slices.Equal(one, draw(1)) {
		t.Error("a seed draws other mutants when it is used again")
	}
	if slices.Equal(one, draw(2)) {
		t.Error("two seeds draw the same mutants")
	}
}

// Ids of explained mutants are those of mutants that are there.
func TestEquivalents(t *testing.T) {
	known, err := readKnown("equivalent.txt")
	if err != nil {
		t.Fatal(err)
	}
	p, err := shunt()
	if err != nil {
		t.Fatal(err)
	}
	for key := range known {
		if !slices.ContainsFunc(groups, func(g string) bool {
			return slices.ContainsFunc(p.byGroup[g], func(m *mutant) bool { return m.key() == key })
		}) {
			t.Errorf("%s is explained, and not there any more", key)
		}
	}
}
