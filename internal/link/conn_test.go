package link

import "testing"

// A link on a pool that is not NewPool's speaks by redigo, and is as good.
func TestForeignPool(t *testing.T) {
	for name, test := range map[string]func(*testing.T){
		"Pipelining": TestPipelining, "MoreThanInflight": TestMoreThanInflight, "Cut": TestCut,
		"Refusals": TestRefusals, "Scripts": TestScripts,
		"BlackHole": TestBlackHole, "Close": TestCloseWithCallsInFlight, "Old": TestOldConnectionsOfThePool,
	} {
		t.Run(name, test)
	}
}

// An old connection of NewPool's pool, whose socket is not known any more, is not what a link gets.
func TestLinkGetsItsSocket(t *testing.T) {
	b := shared(t)
	old := b.pool.Get()
	if _, err := old.Do("PING"); err != nil {
		t.Fatal(err)
	}
	old.Close()
	c, socket, err := b.node.DialOwn(b.within(patience))
	if err != nil || socket == nil {
		t.Fatalf("socket %v, %v", socket, err)
	}
	discard(c)
}
