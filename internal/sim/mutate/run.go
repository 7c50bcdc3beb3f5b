package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/shuntmq/shunt/internal/sim/seam"
	"github.com/shuntmq/shunt/internal/sim/tree"
)

// What has become of a mutant.
const (
	caught       = "caught"
	survived     = "survived"
	caughtByUnit = "caught by unit tests"
	explained    = "explained"
	didNotBuild  = "did not build"
)

// runner judges mutants by a test binary.
type runner struct {
	pool    *pool
	pkg     string
	args    []string // of the test binary
	limit   time.Duration
	times   int  // that tests fail in a row, before a mutant is caught
	unit    bool // the unit tests are judges too
	again   bool // what survived is judged anew
	disturb bool
	workers int
	known   map[string]string // explained ones, by key

	weaving     sync.Mutex // a tree is not for several goroutines
	controlling sync.Mutex
	controlled  map[string]bool // judges that find nothing without a mutant
}

// run judges all that the table does not know yet. What is judged is written at once. All go to one judge after
// another, so that what is cheap to find is found first.
func (r *runner) run(ctx context.Context, ms []*mutant, t *table) error {
	if r.again {
		t.restart()
	}
	for cost := range dear + 1 {
		if err := r.stage(ctx, ms, t, cost); err != nil {
			return err
		}
	}
	return nil
}

// stage has mutants judged by the judges of that cost.
func (r *runner) stage(ctx context.Context, ms []*mutant, t *table, cost int) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(r.workers)
	for _, m := range ms {
		was, there := t.outcome(m)
		if there && was.Status != survived && was.Status != explained {
			continue
		}
		why, known := r.known[m.key()]
		judge, asked := r.judge(m, cost)
		if known && was.How == why || !known && (!asked || slices.Contains(was.Passed, judge)) {
			continue
		}
		g.Go(func() error {
			o := outcome{ID: m.id(), In: m.in, Diff: m.diff(r.pool.files[m.file].Text), Status: explained, How: why}
			if !known {
				o.Status, o.Passed, o.Seconds = survived, was.Passed, was.Seconds
				if err := r.judged(ctx, m, judge, &o); err != nil {
					return err
				}
			}
			if err := ctx.Err(); err != nil {
				return err // what ended with it is no outcome
			}
			fmt.Printf("%-20s %s %s\n", o.Status, o.ID, o.How)
			return t.set(o)
		})
	}
	return g.Wait()
}

// binary is the judge that is the test binary; the others are packages.
const (
	binary  = "the test binary"
	rootPkg = "./"
)

// What a judge costs: the tests of a mutant's package take seconds, and those of the root a minute.
const (
	cheap = iota
	middling
	dear
)

// judge is the one of that cost.
func (r *runner) judge(m *mutant, cost int) (judge string, is bool) {
	pkg := packageOf(m)
	switch cost {
	case cheap:
		return pkg, r.unit && pkg != rootPkg
	case dear:
		return rootPkg, r.unit
	}
	return binary, true
}

func (r *runner) judged(ctx context.Context, m *mutant, judge string, o *outcome) error {
	if err := r.control(ctx, judge); err != nil {
		return err
	}
	test := r.unitJudge
	if judge == binary {
		test = r.test
	}
	err := test(ctx, judge, r.pool.overlay(m), o)
	if err == nil && o.Status == survived {
		o.Passed = append(slices.Clone(o.Passed), judge)
	}
	return err
}

// control fails unless a judge finds nothing without a mutant; it asks once. The test binary has to pass as often in a
// row as a mutant has to fail: a seed that fails by itself now and then would catch mutants that it does not see.
func (r *runner) control(ctx context.Context, judge string) error {
	r.controlling.Lock()
	defer r.controlling.Unlock()
	if r.controlled[judge] {
		return nil
	}
	o := outcome{Status: survived}
	if judge != binary {
		o.How = r.unitTest(ctx, "", judge)
	} else if err := r.test(ctx, unmutated, make(tree.Overlay), &o); err != nil {
		return err
	}
	if o.How != "" {
		return fmt.Errorf("%s without a mutant: %s", judge, o.How)
	}
	fmt.Printf("%-20s %s, without a mutant\n", "passes", judge)
	r.controlled[judge] = true
	return nil
}

func (r *runner) unitJudge(ctx context.Context, pkg string, over tree.Overlay, o *outcome) error {
	dir, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	list, err := over.Write(dir)
	if err != nil {
		return err
	}
	if how := r.unitTest(ctx, list, pkg); how != "" {
		o.Status, o.How = caughtByUnit, how
	}
	return nil
}

// unitTest says how the unit tests of a package fail. On a busy machine they may fail by themselves, but hardly twice.
// What hangs would do so again.
func (r *runner) unitTest(ctx context.Context, list, pkg string) (how string) {
	limit := r.limit
	if pkg != rootPkg {
		limit /= 3
	}
	for range 2 {
		c := tree.Go(ctx, r.pool.tree.Root, "test", "-short", "-count=1", "-parallel", "8", "-failfast",
			"-timeout", limit.String(), "-tags", r.pool.tags, "-overlay", list, pkg)
		c.WaitDelay = time.Second
		out, err := c.CombinedOutput()
		if err == nil {
			return ""
		}
		how = failure(out, err)
		if strings.Contains(how, "test timed out") {
			break
		}
	}
	return how
}

// unmutated is the judge that looks at the test binary alone.
const unmutated = "no mutant"

// test builds the binary under an overlay, and runs it.
func (r *runner) test(ctx context.Context, judge string, over tree.Overlay, o *outcome) error {
	dir, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if r.disturb {
		r.weaving.Lock()
		_, _, err := seam.Disturb(ctx, r.pool.tree, over)
		r.weaving.Unlock()
		if err != nil {
			return err
		}
	}
	list, err := over.Write(dir)
	if err != nil {
		return err
	}
	bin := filepath.Join(dir, "sim.test")
	root := r.pool.tree.Root
	build := tree.Go(ctx, root, "test", "-c", "-tags", r.pool.tags, "-overlay", list, "-o", bin, r.pkg)
	out, err := build.CombinedOutput()
	if err != nil {
		o.Status, o.How = didNotBuild, failure(out, err)
		return nil
	}
	at, err := tree.Go(ctx, root, "list", "-tags", r.pool.tags, "-f", "{{.Dir}}", r.pkg).Output()
	if err != nil {
		return err
	}
	begun := time.Now()
	for range r.times {
		out, err = r.command(ctx, string(bytes.TrimSpace(at)), bin).CombinedOutput()
		if (err == nil) != (judge == unmutated) {
			break
		}
	}
	o.Seconds = time.Since(begun).Seconds()
	if err != nil {
		o.Status, o.How = caught, failure(out, err)
	}
	return nil
}

// mostMemory is what a test binary may map, in KB: a mutant that never stops to allocate should end before the machine
// does.
const mostMemory = "8388608"

func (r *runner) command(ctx context.Context, dir, bin string) *exec.Cmd {
	args := []string{"-c", `ulimit -v "$0" && exec "$@"`, mostMemory, bin, "-test.timeout", r.limit.String()}
	c := exec.CommandContext(ctx, "sh", append(args, r.args...)...)
	c.Dir, c.WaitDelay = dir, time.Second
	return c
}

var (
	why  = regexp.MustCompile(`(?m)^(\s+\S+\.go:\d+: .*|panic: .*|fatal error: .*|\S+\.go:\d+:\d+: .*)$`)
	name = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)
)

// failure is the first line of an output that says why it failed, with the name of the first test that did.
func failure(out []byte, err error) string {
	if err == nil {
		return ""
	}
	line := err.Error()
	if l := why.Find(out); l != nil {
		line = strings.TrimSpace(string(l))
	}
	if n := name.FindSubmatch(out); n != nil {
		line = string(n[1]) + ": " + line
	}
	return line
}
