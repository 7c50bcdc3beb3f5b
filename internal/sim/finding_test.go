package sim

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/sim/seam"
	"github.com/shuntmq/shunt/internal/sim/tree"
)

// change is one textual change to a file of the module. The old text must be there exactly once.
type change struct{ file, old, new string }

// finding is a defect that a careful reader once found, as changes that bring it back.
type finding struct {
	name    string
	changes []change
}

const (
	audits    = "internal/worker/audit.go"
	handovers = "internal/worker/handover.go"
	settles   = "internal/worker/settle.go"
	luas      = "internal/store/lua/"
)

var findings = []finding{
	{name: "1a a verdict that Redis closes the connection for is sent again and again", changes: []change{
		{"internal/element/next.go", "over > 0 {", "over > 0 && n < 0 {"},
		{handovers, "h.counted, cut = true, true", "cut = true"},
		{handovers, "m.make(why, streak > 1)", "m.make(why, streak < 0)"},
	}},
	{name: "1b what no reply can bring is taken again and again", changes: []change{
		{handovers, "m.make(why, streak > 1)", "m.make(why, streak < 0)"},
	}},
	{name: "2 a cron expression that makes the parser panic", changes: []change{
		{"recur/spec.go", `case strings.Contains(part, "="):`, `case strings.Contains(part, "=="):`},
	}},
	{name: "3 an older state leaves messages in the list of a living receiver", changes: []change{
		{audits, "if a.restarted(ctx) {", "if false && a.restarted(ctx) {"},
		{audits, "} else if a.stray(ctx) && !planted", "} else if false && a.stray(ctx) && !planted"},
	}},
	{name: "4 a handover that waits until what has ended is listed as dead", changes: []change{
		{handovers, "site.Debts.Add(h.old, h.counted)\n", `site.Debts.Add(h.old, h.counted)
	for site.Debts.Pay(r.PoolCtx) != nil && link.Sleep(r.PoolCtx, 100*time.Millisecond) == nil {
	}
`},
	}},
	{name: "5 a purge of what was enqueued last", changes: []change{
		{luas + "purge.lua", "redis.call('LRANGE', KEYS[1], -n, -1)", "redis.call('LRANGE', KEYS[1], 0, n - 1)"},
		{luas + "purge.lua", "'LTRIM', KEYS[1], 0, -#es - 1)", "'LTRIM', KEYS[1], #es, -1)"},
	}},
	{name: "6 a beat that fails ends the row", changes: []change{
		{"internal/link/link.go", "if !c.Repeats && l.check ||", "if !c.Repeats ||"},
		{"internal/lane/heart.go", "third := h.lease / 3\n", "h.seen.Store(nil)\n\t\t\tthird := h.lease / 3\n"},
	}},
	{name: "7a a refused verdict of one channel holds up the others", changes: []change{
		{"internal/worker/hand.go", "bars, stuck = bars|1<<l.Index, true", "bars, stuck = bars|l.Site.Mask, true"},
	}},
	{name: "7b a foreign key at delay or suspect stops sweeps", changes: []change{
		{luas + "sweep.lua", "local suspects = redis.pcall('LLEN'", "local suspects = redis.call('LLEN'"},
		{luas + "sweep.lua", "local first = redis.pcall('ZRANGE'", "local first = redis.call('ZRANGE'"},
	}},
	{name: "8 a refused take of suspects holds up all takes", changes: []change{
		{"internal/worker/take.go", "t.site.ReportFatal(l, trouble)\n\t} else {\n",
			"t.site.ReportFatal(l, trouble)\n\t\tsuspects.Done()\n\t\treturn trouble\n\t} else {\n"},
	}},
	{name: "9 what was taken in time, and given back, expires", changes: []change{
		{luas + "header.lua", "if string.byte(e, 21) ~= 1 or not field(e, 1, 9, 9) then return e end",
			"do return e end"},
	}},
	{name: "9b what was taken in time expires in its worker's list", changes: []change{
		{"internal/worker/index.go", "return x.now - x.heard.Sub(it.batch.at).Milliseconds() - 1", "return x.now"},
	}},
	{name: "10 a delayed enqueue does not hear Close", changes: []change{
		{"internal/sender/later.go", "link.Resend{Until: s.router.For(k.Name).Data.Closed()}", "link.Resend{}"},
		{"internal/sender/later.go", "known := link.Classify(err) != link.Unknown\n\t\terr = again.Failed(err)\n",
			"err = again.Failed(err)\n\t\tknown := link.Classify(err) != link.Unknown\n"},
	}},
	{name: "11 a Wait does not look for what is kept of its message first", changes: []change{
		{luas + "wait.lua",
			"if out and known and string.sub(out, 1, 16) == ARGV[2] then return {0, out} end\n", ""},
		{luas + "wait.lua", "return {0, out or ''", "return {0, not p and out or ''"},
	}},
	{name: "12 the row before a judgement is a quarter of a lease", changes: []change{
		{luas + "sweep.lua", "if judge and row < lease / 2 then", "if judge and row < lease / 4 then"},
		{luas + "sweep.lua", "fence - tonumber(ARGV[6]) < lease / 3", "fence < tonumber(ARGV[6])"},
		{luas + "sweep.lua", "soon(math.ceil(lease / 2 - row))", "soon(math.ceil(lease / 4 - row))"},
		{"internal/lane/heart.go", "early := h.lease/2 - seen", "early := h.lease/4 - seen"},
	}},
	{name: "13 Stats subtract all that is cancelled from prepare", changes: []change{
		{"internal/store/inspect.go", "if holder != nil {", "if holder != nil && n.Cancelled < 0 {"},
	}},
	{name: "14 dead letters while the clock is behind are the oldest", changes: []change{
		{luas + "trim.lua", "if last <= now then return printed(now) end", "do return printed(now) end"},
	}},
	{name: "15a the ack of a bare payload whose reply is lost is told by nothing", changes: []change{
		{settles, "\th := it.custody(d.worker)\n\treturn d.worker.report(it, &h, false, evs)\n", "\treturn evs\n"},
	}},
	{name: "15b a batch's handler times out before the batch is due", changes: []change{
		{"batch.go", "t > 0 && t <= g.MaxWait {", "t < 0 && t <= g.MaxWait {"},
	}},
	{name: "15c any number of messages follow one", changes: []change{
		{"then.go", "const thenMost = 1000", "const thenMost = 1e9"},
	}},
}

// Each finding of a careful reading is found by seeds.
func TestFindings(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes thousands of seeds")
	}
	root, err := tree.Root(".")
	if err != nil {
		t.Fatal(err)
	}
	code, err := tree.Open(root, "", ".")
	if err != nil {
		t.Fatal(err)
	}
	sound := new(finding).build(t, code)
	var table strings.Builder
	for _, f := range findings {
		t.Run(f.name, func(t *testing.T) {
			bin := f.build(t, code)
			n, broke := hunt(t, bin, sound, func(seed uint64) *Plot { return &Plot{Seed: seed} })
			fmt.Fprintf(&table, "sim: %5d seeds: %s: %v\n", n, f.name, broke)
			if len(broke) == 0 {
				t.Errorf("not found in %d seeds", n)
			}
		})
	}
	redistest.Tell(table.String())
}

// Each finding can still be planted.
func TestFindingsFit(t *testing.T) {
	root, err := tree.Root(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range findings {
		f.plant(t, root)
	}
}

func (f *finding) plant(t *testing.T, root string) tree.Overlay {
	over := make(tree.Overlay)
	for _, c := range f.changes {
		if err := over.Change(filepath.Join(root, c.file), c.old, c.new); err != nil {
			t.Errorf("%s: the code has moved, and the finding has to be planted anew: %v", f.name, err)
		}
	}
	return over
}

// build builds the test's program with the changes, as make sim builds it: a seed that finds one does so each time.
func (f *finding) build(t *testing.T, code *tree.Tree) (bin string) {
	over := f.plant(t, code.Root)
	if t.Failed() {
		t.FailNow()
	}
	_, kept, err := seam.Disturb(t.Context(), code, over)
	if err != nil {
		t.Fatal(err)
	}
	if kept != nil {
		t.Log("the runtime keeps its chance:", kept)
	}
	dir := t.TempDir()
	list, err := over.Write(dir)
	if err != nil {
		t.Fatal(err)
	}
	bin = filepath.Join(dir, "player")
	c := tree.Go(t.Context(), code.Root, "test", "-c", "-overlay", list, "-o", bin, "./internal/sim")
	c.Stderr = os.Stderr
	if err := c.Run(); err != nil {
		t.Fatal(err)
	}
	return bin
}
