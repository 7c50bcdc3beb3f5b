package chance

import (
	"testing"

	"github.com/shuntmq/shunt/internal/sim/tree"
)

// Whether it also compiles, and makes the same story, is for make sim.
func TestLay(t *testing.T) {
	root, err := tree.Root(".")
	if err != nil {
		t.Fatal(err)
	}
	over := make(tree.Overlay)
	if err := Lay(t.Context(), root, over); err != nil {
		t.Skip("this Go keeps its chance: ", err)
	}
	for path := range over {
		if old, err := (tree.Overlay{}).Read(path); err != nil || string(old) == string(over[path]) {
			t.Errorf("%s is not changed: %v", path, err)
		}
	}
	if len(over) != 9 {
		t.Errorf("%d files are changed", len(over))
	}
}
