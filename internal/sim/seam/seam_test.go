package seam

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/shuntmq/shunt/internal/sim/tree"
)

// Each line of source has a comment that says what comes to stand in it: P for a point, D for a deferred one.
const source = `package sample //                         import

import (
	"context"
	"sync"
	"sync/atomic"
)

type box struct {
	sync.Mutex
	n    atomic.Int64
	c    chan int
	once func()
}

func (b *box) all(ctx context.Context) int {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() //                          D
	b.Lock() //                                P
	defer b.Unlock() //                        D
	defer func() {
		b.c <- 1 //                              P
	}()
	n := len(b.c)
	if x := <-b.c; x > n { //                  P
		return x
	} else if b.n.Load() > 1 {
		n++
	}
	for b.n.Add(1) < 3 { //                    PP
		n++
	}
	for x := range b.c { //                    PP
		n += x
	}
	for i := range n {
		n -= i
	}
	switch { //                                P
	case n > 1:
		cancel() //                              P
		fallthrough
	case b.n.Load() > 2:
		n++
	}
	switch x := any(n).(type) {
	case int:
		close(b.c) //                            P
		n += x
	}
loop: //                                     P
	for b.n.Load() > 0 { //                    P
		select { //                              P
		case b.c <- n:
			break loop
		case <-ctx.Done():
			b.n.Store(1) //                        P
		default:
		}
	}
	go b.run() // a comment
	go func() { //                             P
		n++
	}()
	var all sync.WaitGroup
	all.Go(b.other) //                         P
	all.Go(func() { //                         PP
		n++
	})
	func() { b.n.Store(2) }() //               P
	b.once()
	return int(b.n.Load()) //                  P
}

func (b *box) run() { //                     P
}

func (b *box) other() { //                   P
}

func (b *box) idle() {
}

func swap(c chan int) (int, bool) { x, is := <-c; return x, is } // P
`

func TestWeave(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module example.org/sample\n\ngo 1.25\n", "sample.go": source,
		"internal/sim/disturb/disturb.go": "package disturb\n\nfunc Point() {}\n",
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	sample, err := tree.Open(root, "", "./...")
	if err != nil {
		t.Fatal(err)
	}
	over := make(tree.Overlay)
	points, err := Weave(sample, over, ".")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sample.Load(".", over); err != nil {
		t.Errorf("the woven text does not compile: %v", err)
	}
	woven := strings.Split(string(over[filepath.Join(root, "sample.go")]), "\n")
	sum := 0
	for i, line := range strings.Split(source, "\n") {
		_, comment, _ := strings.Cut(line, "//")
		want := strings.TrimSpace(comment)
		there := strings.Count(woven[i], point)
		defers := strings.Count(woven[i], deferred)
		sum += there + defers
		if there != strings.Count(want, "P") || defers != strings.Count(want, "D") {
			t.Errorf("line %d: %s", i+1, woven[i])
		}
	}
	if points != sum {
		t.Errorf("%d points are told of, %d are there", points, sum)
	}
}

// The whole of shunt compiles woven, and each line is still where it was.
func TestWeaveShunt(t *testing.T) {
	root, err := tree.Root(".")
	if err != nil {
		t.Fatal(err)
	}
	shunt, err := tree.Open(root, "", ".", "./internal/sim/disturb")
	if err != nil {
		t.Fatal(err)
	}
	over := make(tree.Overlay)
	points, err := Weave(shunt, over, Packages...)
	if err != nil {
		t.Fatal(err)
	}
	if points < 500 {
		t.Errorf("only %d points", points)
	}
	for path, woven := range over {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Count(text, []byte("\n")) != bytes.Count(woven, []byte("\n")) {
			t.Errorf("%s has another number of lines", path)
		}
	}
	for _, p := range Packages {
		if _, err := shunt.Load(p, over); err != nil {
			t.Error(err)
		}
	}
}
