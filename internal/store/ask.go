package store

import (
	"context"

	"github.com/shuntmq/shunt/internal/link"
)

// Asker sends commands that may be executed twice, in one pipeline, and once more where the first replies were lost.
// The first error is that of all. twice: they were sent again, so that what they do may have been done before.
type Asker interface {
	Ask(ctx context.Context, channel string, fill func(*link.Call)) (replies []link.Reply, twice bool, err error)
}
