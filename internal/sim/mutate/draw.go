package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/shuntmq/shunt/internal/sim/tree"
)

// luaDir has the scripts, which are embedded in the package above it.
const luaDir = "internal/store/lua"

// groups are what the mutants are spread over evenly: packages and the scripts. Of the root these files count, which
// receive and pull.
var groups = []string{
	"internal/worker", "internal/sender", "internal/link", "internal/lane", "internal/crowd", "internal/bell",
	"internal/store", luaDir, ".",
}

var rootFiles = []string{
	"batch.go", "burial.go", "counter.go", "delay.go", "guard.go", "haul.go", "lapse.go", "leased.go", "pull.go",
	"reaper.go", "receipts.go", "receiver.go", "settle.go", "sight.go", "station.go", "upkeep.go", "verdict.go",
}

// kit is what only tests and the fault harness use.
var kit = []string{"internal/store/alter.go", "internal/store/embedded.go"}

// pool is every mutant there could be.
type pool struct {
	tree     *tree.Tree
	tags     string
	packages map[string]*tree.Package // by group
	files    map[string]*tree.File    // by name; of Lua files only the text is there
	byGroup  map[string][]*mutant
}

func newPool(root, tags string) (*pool, error) {
	t, err := tree.Open(root, tags, ".", "./internal/sim/disturb")
	if err != nil {
		return nil, err
	}
	p := &pool{tree: t, tags: tags, packages: make(map[string]*tree.Package), files: make(map[string]*tree.File),
		byGroup: make(map[string][]*mutant)}
	for _, g := range groups {
		add := p.addGo
		if g == luaDir {
			add = p.addLua
		}
		if err := add(g); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (p *pool) addGo(group string) error {
	pkg, err := p.tree.Load(group, nil)
	if err != nil {
		return err
	}
	p.packages[group] = pkg
	for _, f := range pkg.Files {
		if group == "." && !slices.Contains(rootFiles, f.Name) || slices.Contains(kit, f.Name) {
			continue
		}
		p.files[f.Name] = f
		p.byGroup[group] = append(p.byGroup[group], goMutants(p.tree, pkg, f, group)...)
	}
	return nil
}

func (p *pool) addLua(group string) error {
	paths, err := filepath.Glob(filepath.Join(p.tree.Dir(group), "*.lua"))
	if err != nil {
		return err
	}
	for _, file := range paths {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		f := &tree.File{Path: file, Name: path.Join(group, filepath.Base(file)), Text: text}
		p.files[f.Name] = f
		p.byGroup[group] = append(p.byGroup[group], luaMutants(f.Name, text, group)...)
	}
	return nil
}

// overlay has the mutant's file.
func (p *pool) overlay(m *mutant) tree.Overlay {
	f := p.files[m.file]
	return tree.Overlay{f.Path: m.apply(f.Text)}
}

// packageOf is the package that a mutant is in, as the go command names it.
func packageOf(m *mutant) string {
	if m.group == luaDir {
		return "./" + path.Dir(luaDir)
	}
	return "./" + strings.TrimPrefix(m.group, ".")
}

// builds says whether a mutant compiles and go vet has nothing against it; a Lua file has to parse.
func (p *pool) builds(ctx context.Context, m *mutant, dir string) (bool, error) {
	f := p.files[m.file]
	if m.group == luaDir {
		return parses(m.file, m.apply(f.Text)) == nil, nil
	}
	if p.tree.Compiles(p.packages[m.group], f, m.apply(f.Text)) != nil {
		return false, nil
	}
	list, err := p.overlay(m).Write(dir)
	if err != nil {
		return false, err
	}
	err = tree.Go(ctx, p.tree.Root, "vet", "-tags", p.tags, "-overlay", list, packageOf(m)).Run()
	return err == nil, ctx.Err()
}

// draw draws n mutants that build: the groups in turn, of a group every kind alike, and of a kind each mutant. Each
// group has its own luck, so that the others' mutants stay when its code changes, and most of its own.
func (p *pool) draw(seed uint64, n int, builds func(*mutant) (bool, error)) (drawn []*mutant, err error) {
	hats := make([]*hat, len(groups))
	for i, g := range groups {
		hats[i] = newHat(seed, g, p.byGroup[g])
	}
	for empty := 0; len(drawn) < n; {
		if empty == len(hats) {
			return nil, fmt.Errorf("there are only %d mutants", len(drawn))
		}
		empty = 0
		for _, h := range hats {
			m, err := h.next(builds)
			switch {
			case err != nil:
				return nil, err
			case m == nil:
				empty++
			case len(drawn) < n:
				drawn = append(drawn, m)
			}
		}
	}
	return drawn, nil
}

// named are the mutants of those ids, whatever lines they are in.
func (p *pool) named(ids []string) (ms []*mutant, err error) {
	all := make(map[string]*mutant)
	for _, g := range groups {
		for _, m := range p.byGroup[g] {
			all[m.key()] = m
		}
	}
	for _, id := range ids {
		m := all[keyOf(id)]
		if m == nil {
			return nil, fmt.Errorf("there is no mutant %s: the code has changed", id)
		}
		ms = append(ms, m)
	}
	return ms, nil
}

// hat has the mutants of one group.
type hat struct {
	rand  *rand.Rand
	kinds [][]*mutant
}

func newHat(seed uint64, group string, ms []*mutant) *hat {
	sum := fnv.New64a()
	sum.Write([]byte(group))
	h := &hat{rand: rand.New(rand.NewPCG(seed, sum.Sum64()))}
	for _, kind := range []string{drop, jump, turn, swap, exchange, offByOne} {
		var of []*mutant
		for _, m := range ms {
			if m.kind == kind {
				of = append(of, m)
			}
		}
		// Those that a change of the code leaves alone keep their order.
		slices.SortFunc(of, func(a, b *mutant) int { return bytes.Compare(luck(seed, a), luck(seed, b)) })
		h.kinds = append(h.kinds, of)
	}
	return h
}

func luck(seed uint64, m *mutant) []byte {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %s", seed, m.key()))
	return sum[:]
}

// next draws one that is good, or nil if there is none left.
func (h *hat) next(good func(*mutant) (bool, error)) (*mutant, error) {
	for {
		h.kinds = slices.DeleteFunc(h.kinds, func(ms []*mutant) bool { return len(ms) == 0 })
		if len(h.kinds) == 0 {
			return nil, nil
		}
		i := h.rand.IntN(len(h.kinds))
		for len(h.kinds[i]) > 0 {
			m := h.kinds[i][0]
			h.kinds[i] = h.kinds[i][1:]
			if is, err := good(m); is || err != nil {
				return m, err
			}
		}
	}
}
