// Package chance takes from the runtime what it leaves to chance: by the order of a select's cases, of a map's keys and
// of timers that end at once, by math/rand, and by the end of a goroutine's time slice, the same seed would go another
// way each time. It does so in an overlay, for the goroutines of synctest bubbles. These also know whose they are, and
// their times have monotonic readings, as times elsewhere have.
package chance

import (
	"context"
	"maps"
	"path/filepath"
	"strings"

	"github.com/shuntmq/shunt/internal/sim/tree"
)

// change is one change of a file of the runtime. The old text is there exactly once.
type change struct{ file, old, new string }

var changes = []change{
	// Hashes are the same in each process, and all maps of a bubble have one seed: a map that is made once in a process
	// would else shift what comes after it.
	{"runtime/rand.go", "	globalRand.state.Init(*seed)\n", "	clear(seed[:])\n	globalRand.state.Init(*seed)\n"},
	{"runtime/rand.go", "func rand() uint64 {\n", `func rand() uint64 {
	if inChance() {
		return chanceSeed * 0x9e3779b97f4a7c15
	}
`},
	{"math/rand/v2/rand.go", "//go:linkname runtime_rand runtime.rand\n",
		"//go:linkname runtime_rand runtime.chanceRand\n"},
	{"runtime/select.go", "j := cheaprandn(uint32(norder + 1))", "j := chancen(&chanceCases, uint32(norder+1))"},
	{"runtime/time.go", "t.rand = cheaprand()", "t.rand = chancen(&chanceTimers, 1<<31)"},
	// No time slice ends by the clock, and no goroutine overtakes another one that waits for more than a millisecond.
	{"runtime/proc.go", "func retake(now int64) uint32 {\n", `func retake(now int64) uint32 {
	if chanceSeed != 0 {
		return 0
	}
`},
	{"internal/sync/mutex.go", "starvationThresholdNs = 1e6\n", "starvationThresholdNs = 1e15\n"},
	// Speed: a lone processor is nobody to wake, and nearly each goroutine of a play grows beyond the least stack.
	{"runtime/proc.go", "func wakep() {\n", `func wakep() {
	if chanceSeed != 0 && gomaxprocs == 1 {
		return
	}
`},
	{"runtime/stack.go", "startingStackSize uint32 = fixedStack\n", "startingStackSize uint32 = 4 * fixedStack\n"},
	{"runtime/time.go", "		return sec, nsec, 0\n", "		return sec, nsec, bubble.now\n"},
	{"runtime/runtime2.go", "	labels          unsafe.Pointer // profiler labels\n",
		"	labels          unsafe.Pointer // profiler labels\n	chanceOwner     unsafe.Pointer\n"},
	{"runtime/proc.go", "			newg.labels = mp.curg.labels\n",
		"			newg.labels = mp.curg.labels\n			newg.chanceOwner = mp.curg.chanceOwner\n"},
	{"runtime/proc.go", "	gp.labels = nil\n	gp.timer = nil\n",
		"	gp.labels = nil\n	gp.chanceOwner = nil\n	gp.timer = nil\n"},
	// Each 61st turn is that of goroutines that have yielded. Turns of the runtime's own do not count.
	{"runtime/proc.go", "	if !inheritTime {\n		mp.p.ptr().schedtick++\n",
		"	if !inheritTime && (chanceSeed == 0 || gp.bubble != nil) {\n		mp.p.ptr().schedtick++\n"},
}

// drawing is what the runtime draws by.
const drawing = `
var chanceSeed, chanceDrawn, chanceCases, chanceTimers uint64

//go:linkname seedChance
func seedChance(seed uint64) {
	chanceSeed, chanceDrawn, chanceCases, chanceTimers = seed, 0, 1<<20, 1<<40
	getg().m.p.ptr().schedtick = 0
}

//go:nosplit
func inChance() bool {
	gp := getg().m.curg
	return chanceSeed != 0 && gp != nil && gp.bubble != nil
}

// chance is SplitMix64.
//
//go:nosplit
func chance(drawn *uint64) uint64 {
	*drawn++
	x := (chanceSeed + *drawn) * 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

//go:linkname chanceOwn
func chanceOwn(p unsafe.Pointer) (was unsafe.Pointer) {
	was, getg().chanceOwner = getg().chanceOwner, p
	return was
}

//go:linkname chanceOwner
func chanceOwner() unsafe.Pointer { return getg().chanceOwner }

//go:linkname chanceRand
//go:nosplit
func chanceRand() uint64 {
	if inChance() {
		return chance(&chanceDrawn)
	}
	return rand()
}

//go:nosplit
func chancen(drawn *uint64, n uint32) uint32 {
	if !inChance() {
		return cheaprandn(n)
	}
	return uint32(uint64(uint32(chance(drawn))) * uint64(n) >> 32)
}
`

const seeding = `package chance

import "unsafe"

const Seeded = true

//go:linkname Seed runtime.seedChance
func Seed(seed uint64)

//go:linkname Own runtime.chanceOwn
func Own(p unsafe.Pointer) (was unsafe.Pointer)

//go:linkname Owner runtime.chanceOwner
func Owner() unsafe.Pointer
`

// Lay lays the runtime over, for a tree whose root is given. Where that is another runtime than it was made for it
// fails, and changes nothing.
func Lay(ctx context.Context, root string, over tree.Overlay) error {
	dir, err := tree.Go(ctx, root, "env", "GOROOT").Output()
	if err != nil {
		return err
	}
	src := filepath.Join(strings.TrimSpace(string(dir)), "src")
	laid := make(tree.Overlay)
	for _, c := range changes {
		if err := laid.Change(filepath.Join(src, c.file), c.old, c.new); err != nil {
			return err
		}
	}
	draws := filepath.Join(src, "runtime/rand.go")
	laid[draws] = append(laid[draws], drawing...)
	laid[filepath.Join(root, "internal/sim/chance/seed.go")] = []byte(seeding)
	maps.Copy(over, laid)
	return nil
}
