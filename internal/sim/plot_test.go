package sim

import (
	"encoding/json"
	"reflect"
	"testing"
)

// A plot that is kept is the one that was drawn, and a seed draws the same one always.
func TestPlotAsJSON(t *testing.T) {
	for seed := range uint64(100) {
		p, q := draw(seed), new(Plot)
		b, err := json.Marshal(p)
		if err == nil {
			err = json.Unmarshal(b, q)
		}
		if err != nil {
			t.Fatal(err)
		}
		if again := draw(seed); !reflect.DeepEqual(p, again) {
			t.Fatalf("seed %d draws another plot", seed)
		}
		if b2, _ := json.Marshal(q); string(b) != string(b2) {
			t.Fatalf("seed %d reads back as another plot:\n%s\n%s", seed, b, b2)
		}
	}
}
