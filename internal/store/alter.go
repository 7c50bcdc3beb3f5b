package store

import (
	"fmt"
	"strings"

	"github.com/shuntmq/shunt/internal/link"
)

// Alter changes the text of one Lua file in every script that contains it. The fault harness plants mistakes by it,
// before anything uses a script. It fails unless old is there exactly once: then the script has changed, and the mistake
// has to be planted anew.
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
