// Command mutate makes mistakes in shunt's code, by a seed, and says which of them the tests catch. Nothing in the tree
// is written to: the mistakes lie over it.
//
//	go run ./internal/sim/mutate list -seed 1 -n 100
//	go run ./internal/sim/mutate run -seed 1 -n 100 -unit -- -test.run TestSeeds -sim.seeds 2000
//
// What stands behind -- is for the test binary.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"github.com/shuntmq/shunt/internal/sim/tree"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 || args[0] != "list" && args[0] != "run" {
		return fmt.Errorf("want list or run, and flags: -h tells of them")
	}
	r := &runner{controlled: make(map[string]bool)}
	f := flag.NewFlagSet(args[0], flag.ExitOnError)
	seed := f.Uint64("seed", 1, "draws the mutants")
	n := f.Int("n", 100, "how many")
	only := f.String("only", "", "ids with commas between: these, and none is drawn")
	tags := f.String("tags", "", "build tags")
	f.StringVar(&r.pkg, "pkg", "./internal/sim", "the package whose tests run")
	f.DurationVar(&r.limit, "limit", 10*time.Minute, "how long a run of tests may take; longer is a failure")
	f.IntVar(&r.times, "times", 1, "a mutant is caught when the test binary fails so many times in a row")
	f.IntVar(&r.workers, "p", 1, "how many run at once")
	f.BoolVar(&r.unit, "unit", false, "unit tests judge too: those of a mutant's package first, those of the root last")
	f.BoolVar(&r.again, "again", false, "with -resume: what survived is judged anew")
	f.BoolVar(&r.disturb, "disturb", false, "build as make sim does: woven, and with a runtime that draws by seeds")
	out := f.String("out", "mutants.json", "the table; one that ends in .md comes beside it")
	resume := f.Bool("resume", false, "go on with the table that is there")
	if err := f.Parse(args[1:]); err != nil {
		return err
	}
	r.args = f.Args()
	root, err := tree.Root(".")
	if err != nil {
		return err
	}
	if r.known, err = readKnown(filepath.Join(root, "internal/sim/mutate/equivalent.txt")); err != nil {
		return err
	}
	if r.pool, err = newPool(root, *tags); err != nil {
		return err
	}
	var ms []*mutant
	if *only != "" {
		ms, err = r.pool.named(strings.Split(*only, ","))
	} else {
		dir, err2 := os.MkdirTemp("", "mutate")
		if err2 != nil {
			return err2
		}
		defer os.RemoveAll(dir)
		ms, err = r.pool.draw(*seed, *n, func(m *mutant) (bool, error) { return r.pool.builds(ctx, m, dir) })
	}
	if err != nil {
		return err
	}
	if args[0] == "list" {
		for _, m := range ms {
			fmt.Printf("%s\n%s\n", m.id(), m.diff(r.pool.files[m.file].Text))
		}
		return nil
	}
	t, err := openTable(*out, *resume)
	if err != nil {
		return err
	}
	err = r.run(ctx, ms, t)
	fmt.Println(t.summary())
	return err
}
