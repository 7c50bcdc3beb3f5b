package resp

import "testing"

// A piece stays as it is until all are taken back. An empty one is not nil: Redis tells the two apart.
func TestMemory(t *testing.T) {
	t.Parallel()
	var none *Memory
	m := new(Memory)
	for _, m := range []*Memory{none, m} {
		if b := m.piece(0); b == nil || len(b) != 0 {
			t.Errorf("a piece of nothing: %v", b)
		}
	}
	for round := range 3 {
		var pieces [][]byte
		for i := range 300 {
			n := []int{1, 150, 0, maxPiece, maxPiece + 1, 150, 150}[i%7]
			b := m.piece(n)
			if len(b) != n || cap(b) != n {
				t.Fatalf("asked for %d: %d of %d", n, len(b), cap(b))
			}
			for j := range b {
				b[j] = byte(i)
			}
			pieces = append(pieces, b)
		}
		for i, b := range pieces {
			if len(b) > 0 && (b[0] != byte(i) || b[len(b)-1] != byte(i)) {
				t.Errorf("round %d: piece %d was written to", round, i)
			}
		}
		if n := m.Size(); n == 0 || n > maxMemory {
			t.Errorf("it keeps %d bytes", n)
		}
		m.Reuse()
	}
	a := m.piece(10)
	m.Reuse()
	if b := m.piece(10); &a[0] != &b[0] {
		t.Error("it is not used again")
	}
}
