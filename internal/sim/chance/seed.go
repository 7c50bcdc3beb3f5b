package chance

// Seeded says whether this is a build in which seeds are heard.
const Seeded = false

// Seed has the runtime draw from a seed for the goroutines of bubbles, from now on; 0 leaves all to chance again.
// It is called where only one processor runs goroutines of bubbles, else the same seed goes another way.
func Seed(uint64) {}
