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

// Another process of Redis may have an older state, and is not what broke the connection.
func TestRenewedDebts(t *testing.T) {
	d := new(Debts)
	d.init(&Site{Lanes: []*Lane{{}, {}}})
	owed := store.NewIncarnation(1, time.Second)
	d.Add(owed, true)
	d.remove(map[Debt]bool{d.List()[0]: true})
	paid := store.NewIncarnation(1, time.Second)
	d.Add(paid, true)
	d.remove(map[Debt]bool{d.List()[1]: true, d.List()[2]: true})
	d.Renew()
	of := make(map[store.Incarnation]int)
	for _, o := range d.List() {
		if of[o.Incarnation]++; o.Counted {
			t.Errorf("%v is counted", o)
		}
	}
	if of[owed] != 2 || of[paid] != 2 {
		t.Errorf("owed at %d and %d of 2 lanes", of[owed], of[paid])
	}
}
