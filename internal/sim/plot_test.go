package sim

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/shuntmq/shunt/internal/trial"
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

// Where a puller decodes what it pulls no handler of its messages takes long and extends nothing.
func TestReads(t *testing.T) {
	reading := 0
	for seed := range uint64(300) {
		p := draw(seed)
		if !slices.ContainsFunc(p.Crew, func(o trial.Orders) bool { return o.Reads }) {
			continue
		}
		reading++
		for _, post := range p.Posts {
			if p.pulls(post.Channel) && (strings.HasPrefix(post.Plan, trial.PlanSlow) ||
				strings.HasPrefix(post.Plan, trial.PlanDeaf)) {
				t.Fatalf("seed %d: %s in %s", seed, post.Plan, post.Channel)
			}
		}
	}
	if reading == 0 {
		t.Error("nobody decodes")
	}
}
