package lmstfy

import (
	"errors"
	"io"
	"sync/atomic"
)

// errFull says that the bodies of all requests together have reached Limits.MaxBodies.
var errFull = errors.New("too many bytes at once, please retry later")

// metered counts what is read of a body among all bodies. It counts what has come, not what a client says will come: so
// slow ones hold little.
type metered struct {
	from io.Reader
	all  *atomic.Int64
	most int64
	held int64
}

func (m *metered) Read(b []byte) (int, error) {
	n, err := m.from.Read(b)
	m.held += int64(n)
	if m.all.Add(int64(n)) > m.most {
		return n, errFull
	}
	return n, err
}

// release takes in that the body is not needed any more.
func (m *metered) release() {
	m.all.Add(-m.held)
	m.held = 0
}
