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
	controlled  map[string]bool // packages whose unit tests pass without a mutant
}

// run judges all that the table does not know yet. What is judged is written at once.
func (r *runner) run(ctx context.Context, ms []*mutant, t *table) error {
	if err := r.control(ctx); err != nil {
		return err
	}
	for _, root := range []bool{false, true} {
		if err := r.stage(ctx, ms, t, root); err != nil {
			return err
		}
	}
	return nil
}

// stage has mutants judged by the root's tests, which take longest, or by all the others.
func (r *runner) stage(ctx context.Context, ms []*mutant, t *table, root bool) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(r.workers)
	for _, m := range ms {
		was, there := t.outcome(m)
		if there && was.Status != survived && was.Status != explained {
			continue
		}
		if r.again && !root {
			was.Passed = nil
		}
		why, known := r.known[m.key()]
		judges := slices.DeleteFunc(r.judges(m), func(j string) bool {
			return slices.Contains(was.Passed, j) || (j == rootPkg) != root
		})
		if known && was.How == why || !known && len(judges) == 0 {
			continue
		}
		g.Go(func() error {
			o := outcome{ID: m.id(), In: m.in, Diff: m.diff(r.pool.files[m.file].Text), Status: explained, How: why}
			if !known {
				o.Status, o.Passed, o.Seconds = survived, was.Passed, was.Seconds
				if err := r.judge(ctx, m, judges, &o); err != nil {
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

// control fails unless the tests pass without a mutant.
func (r *runner) control(ctx context.Context) error {
	o := outcome{Status: survived}
	if err := r.test(ctx, binary, make(tree.Overlay), &o); err != nil {
		return err
	}
	if o.Status != survived {
		return fmt.Errorf("without a mutant: %s: %s", o.Status, o.How)
	}
	fmt.Printf("%-20s in %.1f s without a mutant\n", "passes", o.Seconds)
	return nil
}

// binary stands among a mutant's judges for the test binary; the others are packages.
const (
	binary  = "the test binary"
	rootPkg = "./"
)

// judges are in order of what they cost: the tests of the mutant's package take seconds, those of the root a minute.
func (r *runner) judges(m *mutant) []string {
	pkg := packageOf(m)
	switch {
	case !r.unit:
		return []string{binary}
	case pkg == rootPkg:
		return []string{binary, rootPkg}
	}
	return []string{pkg, binary, rootPkg}
}

func (r *runner) judge(ctx context.Context, m *mutant, judges []string, o *outcome) error {
	for _, j := range judges {
		judge := r.unitJudge
		if j == binary {
			judge = r.test
		}
		if err := judge(ctx, j, r.pool.overlay(m), o); err != nil || o.Status != survived {
			return err
		}
		o.Passed = append(o.Passed, j)
	}
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
	if err := r.unitControl(ctx, pkg); err != nil {
		return err
	}
	if how := r.unitTest(ctx, list, pkg); how != "" {
		o.Status, o.How = caughtByUnit, how
	}
	return nil
}

// unitControl fails unless the unit tests of a package pass without a mutant. It runs them once.
func (r *runner) unitControl(ctx context.Context, pkg string) error {
	r.controlling.Lock()
	defer r.controlling.Unlock()
	if r.controlled[pkg] {
		return nil
	}
	if how := r.unitTest(ctx, "", pkg); how != "" {
		return fmt.Errorf("go test %s without a mutant: %s", pkg, how)
	}
	r.controlled[pkg] = true
	return nil
}

// unitTest says how the unit tests of a package fail. On a busy machine they may fail by themselves, but hardly twice.
func (r *runner) unitTest(ctx context.Context, list, pkg string) (how string) {
	for range 2 {
		c := tree.Go(ctx, r.pool.tree.Root, "test", "-short", "-count=1", "-parallel", "8", "-failfast",
			"-timeout", r.limit.String(), "-tags", r.pool.tags, "-overlay", list, pkg)
		c.WaitDelay = time.Second
		out, err := c.CombinedOutput()
		if err == nil {
			return ""
		}
		how = failure(out, err)
	}
	return how
}

// test builds the binary under an overlay, and runs it.
func (r *runner) test(ctx context.Context, _ string, over tree.Overlay, o *outcome) error {
	dir, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if r.disturb {
		r.weaving.Lock()
		_, err := seam.Weave(r.pool.tree, over, seam.Packages...)
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
		if out, err = r.command(ctx, string(bytes.TrimSpace(at)), bin).CombinedOutput(); err == nil {
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
