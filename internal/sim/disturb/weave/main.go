// Command weave writes an overlay in which the code of shunt calls [disturb.Point] wherever goroutines meet, and prints
// its path:
//
//	go test -overlay "$(go run ./internal/sim/disturb/weave -o DIR)" ./internal/link
//
// Its points strike where a test calls [disturb.Seed], or the environment has SHUNT_DISTURB=seed or seed,rate.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"github.com/shuntmq/shunt/internal/sim/seam"
	"github.com/shuntmq/shunt/internal/sim/tree"
)

func main() {
	dir := flag.String("o", "", "the directory to write to; made where it is not there")
	tags := flag.String("tags", "", "build tags")
	flag.Parse()
	if *dir == "" || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	list, points, files, err := weave(*dir, *tags)
	if err != nil {
		fmt.Fprintln(os.Stderr, "weave:", err)
		os.Exit(1)
	}
	fmt.Fprintf(os.Stderr, "weave: %d points in %d files\n", points, files)
	fmt.Println(list)
}

func weave(dir, tags string) (list string, points, files int, err error) {
	root, err := tree.Root(".")
	if err != nil {
		return "", 0, 0, err
	}
	t, err := tree.Open(root, tags, ".")
	if err != nil {
		return "", 0, 0, err
	}
	over := make(tree.Overlay)
	points, kept, err := seam.Disturb(context.Background(), t, over)
	if err != nil {
		return "", 0, 0, err
	}
	if kept != nil {
		fmt.Fprintln(os.Stderr, "weave: the runtime keeps its chance:", kept)
	}
	list, err = over.Write(dir)
	return list, points, len(over), err
}
