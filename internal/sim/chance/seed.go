package chance

import "unsafe"

// Seeded says whether this is a build in which seeds are heard.
const Seeded = false

// Seed has the runtime draw from a seed for the goroutines of bubbles, from now on; 0 leaves all to chance again.
// It is called where only one processor runs goroutines of bubbles, else the same seed goes another way.
func Seed(uint64) {}

// Own notes whose this goroutine is, and what it starts from now on. It returns whose it was. Where seeds are not heard
// it notes nothing.
func Own(unsafe.Pointer) (was unsafe.Pointer) { return nil }

// Owner is whose this goroutine is; nil: nobody's.
func Owner() unsafe.Pointer { return nil }
