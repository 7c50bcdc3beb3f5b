package lane

import (
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/store"
)

// Debts have a bound, and the newest are kept: the entries of the others run out.
func TestDebtsAreBounded(t *testing.T) {
	d := new(Debts)
	d.init(&Site{Lanes: []*Lane{{}}})
	var last store.Incarnation
	for range maxDebts + 10 {
		last = store.NewIncarnation(1, time.Second)
		d.Add(last, false)
	}
	all := d.List()
	if len(all) != maxDebts || all[len(all)-1].Incarnation != last {
		t.Errorf("%d debts", len(all))
	}
	d.remove(map[Debt]bool{all[0]: true})
	if left := d.List(); len(left) != maxDebts-1 || left[0] == all[0] {
		t.Errorf("%d left", len(left))
	}
	for range maxAbandoned + 10 {
		d.abandon("name")
	}
	if len(d.abandoned) != maxAbandoned {
		t.Errorf("%d abandoned", len(d.abandoned))
	}
}
