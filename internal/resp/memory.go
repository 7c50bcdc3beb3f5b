package resp

// Memory is shared by the short strings of replies, which would otherwise have a piece of memory each. Its owner
// calls Reuse when nobody reads them any more.
type Memory struct{ all, free []byte }

const (
	maxPiece  = 1 << 10
	maxMemory = 64 << 10
)

// piece is n bytes of it, or of their own.
func (m *Memory) piece(n int) []byte {
	if m == nil || n == 0 || n > maxPiece { // an empty string is a string, so it is not nil
		return make([]byte, n)
	}
	if n > len(m.free) {
		m.all = make([]byte, min(max(maxPiece, 2*len(m.all)), maxMemory)) // the pieces given out keep the old memory
		m.free = m.all
	}
	b := m.free[:n:n]
	m.free = m.free[n:]
	return b
}

// Reuse takes back all pieces.
func (m *Memory) Reuse() { m.free = m.all }

// Size is how many bytes it keeps.
func (m *Memory) Size() int { return len(m.all) }
