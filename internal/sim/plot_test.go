package sim

import (
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

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

// A handler that hangs has ended when its storm is over, and none does where a lease would end meanwhile.
func TestHangs(t *testing.T) {
	hang, inside := 0, 0
	for seed := range uint64(200) {
		p := draw(seed)
		for i, post := range p.Posts {
			text, is := strings.CutPrefix(post.Plan, trial.PlanUntil)
			switch {
			case post.Plan == trial.PlanInside:
				inside++
			case is:
				hang++
				ms, err := strconv.ParseInt(text, 10, 64)
				ends := time.UnixMilli(ms).Sub(epoch)
				over := p.cycleAt(p.cycleOf(post.At)) + p.Storm
				if err != nil || ends > over || ends > post.At+hangs || p.pulls(post.Channel) || !p.Hangs || p.Calm {
					t.Errorf("seed %d: message %d of %s at %v hangs until %v", seed, i, post.Channel, post.At, ends)
				}
			}
		}
	}
	if hang < 200 || inside < 200 {
		t.Errorf("%d handlers hang, and %d would end their receivers", hang, inside)
	}
}

// What one hand strikes is over before the calm, also where its turn came late. What goes on into the calm on purpose
// does not count.
func TestBlowsEnd(t *testing.T) {
	late := 0
	for seed := range uint64(2000) {
		over := make(map[int]time.Duration)
		p := draw(seed)
		for _, b := range p.Blows {
			if slices.Contains([]string{"shot", "foreign", "forbid", "clock"}, b.Kind) {
				continue
			}
			hand, now := handOf(b), b.At
			if over[hand] > now {
				now = over[hand]
				late++
			}
			over[hand] = now + b.endsIn(now)
			if calm := p.cycleAt(p.cycleOf(b.At)) + p.Storm; b.At <= calm && over[hand] > calm {
				t.Errorf("seed %d: %s of %v at %v goes on from %v to %v", seed, b.Kind, b.For, b.At, now, over[hand])
			}
		}
	}
	if late == 0 {
		t.Error("no turn comes late")
	}
}

// A run is as large as docs/simulation.md says. What dies at its Deadline does not meet a foreign key at dead, which
// would keep workers without a word.
func TestDrawn(t *testing.T) {
	deadlines, foreign := 0, 0
	for seed := range uint64(2000) {
		p := draw(seed)
		if len(p.Crew) < 3 || len(p.Posts) < 300 || p.length()+rest+window < 2*time.Minute {
			t.Errorf("seed %d: %d processes, %d messages, %v", seed, len(p.Crew), len(p.Posts), p.length())
		}
		ends := slices.ContainsFunc(p.Posts, func(post Post) bool { return post.Deadline > 0 })
		dead := slices.ContainsFunc(p.Blows, func(b Blow) bool { return b.Kind == "foreign" && b.What == "dead" })
		if ends && dead {
			t.Errorf("seed %d: a Deadline beside a foreign key at dead", seed)
		}
		if ends {
			deadlines++
		}
		if dead {
			foreign++
		}
	}
	if deadlines == 0 || foreign == 0 {
		t.Errorf("%d plots with Deadlines, %d with a foreign key at dead", deadlines, foreign)
	}
}

// Other settings are within the bounds of those that are drawn, and those after them are the first ones again.
func TestDifferently(t *testing.T) {
	for seed := range uint64(100) {
		for _, o := range draw(seed).Crew {
			n := differently(o)
			if n.Lease == o.Lease || differently(n).Lease != o.Lease || n.Workers < 1 || n.Workers > 8 ||
				n.Prefetch < 1 || n.Prefetch > 16 || (n.Pull > 0) != (o.Pull > 0) || (n.Batch > 0) != (o.Batch > 0) ||
				n.Lease > lease {
				t.Errorf("seed %d: %+v after %+v", seed, n, o)
			}
		}
	}
}
