package lane

import (
	"testing"
	"time"
)

// A beat counts for the incarnation whose it is, and ends a doubt that is older than its sending.
func TestLeaseExtend(t *testing.T) {
	begun := time.Now()
	l := Lease{Length: time.Hour}
	l.renew(begun)
	first := l.Last()
	l.Doubt()
	later := time.Now().Add(time.Second)
	l.renew(begun.Add(1))
	if l.extend(first, later) || !l.InDoubt() || !l.Last().Equal(begun.Add(1)) {
		t.Error("a beat of the incarnation before has counted")
	}
	if l.extend(l.Last(), begun) || !l.InDoubt() || l.Fresh(later) {
		t.Error("a beat from before the doubt has ended it")
	}
	if !l.extend(l.Last(), later) || l.InDoubt() || !l.Fresh(later) || !l.Last().Equal(later) {
		t.Error("a beat has not ended the doubt")
	}
}
