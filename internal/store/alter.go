package store

import (
	"context"
	"fmt"
	"strings"

	"github.com/shuntmq/shunt/internal/link"
)

// Alter changes the text of one Lua file in every script that contains it. The fault harness plants mistakes by it,
// before anything uses a script. It fails unless old is there exactly once: then the script has changed, and the
// mistake has to be planted anew.
func Alter(file, old, new string) error {
	text := source(file)
	if n := strings.Count(text, old); n != 1 {
		return fmt.Errorf("lua/%s.lua has %q %d times, not once", file, old, n)
	}
	altered[file] = strings.Replace(text, old, new, 1)
	for script, files := range built {
		*script = *link.NewScript(joined(files))
	}
	return nil
}

// Do runs one command of the caller's choice, for mistakes that the fault harness plants.
func Do(ctx context.Context, l *link.Link, name string, args ...any) (any, error) {
	c := link.NewCall()
	c.Add(name, args...)
	if err := l.Run(ctx, c); err != nil {
		return nil, err
	}
	return c.Replies[0].Any(), nil
}
