package main

import "sync"

// tally knows which files there are to be done and which of them still are. A run is over when none is open: it counts
// in the process, and need not ask Redis. The maps may be read without mu once the receiver has been shut down.
type tally struct {
	settled chan struct{} // of capacity 1: nothing is open just now

	mu     sync.Mutex
	wanted map[string]struct{} // the files that belong into the manifest
	open   map[string]struct{} // those that are neither done nor failed
	failed map[string]string   // why, by path
	whole  bool                // wanted is complete: the directory has been walked
}

func newTally() *tally {
	return &tally{settled: make(chan struct{}, 1), wanted: make(map[string]struct{}), open: make(map[string]struct{}),
		failed: make(map[string]string)}
}

// want adds a file, and says whether it is new and not done.
func (t *tally) want(path string, done bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, known := t.wanted[path]
	t.wanted[path] = struct{}{}
	if known || done {
		return false
	}
	t.open[path] = struct{}{}
	return true
}

// complete says that no more files will come.
func (t *tally) complete() {
	t.mu.Lock()
	t.whole = true
	t.mu.Unlock()
}

// close notes that a file is done. Its message may come again, and then closes nothing.
func (t *tally) close(path string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.failed, path)
	t.closed(path)
}

// fail notes why a file will not be done.
func (t *tally) fail(path, why string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.wanted[path], t.failed[path] = struct{}{}, why
	t.closed(path)
}

// closed is the end of both. t.mu is held.
func (t *tally) closed(path string) {
	delete(t.open, path)
	if len(t.open) == 0 {
		poke(t.settled)
	}
}

func (t *tally) left() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.open)
}

// counts are a tally's, of one moment; closed are the failed too.
type counts struct {
	known, closed, failed int
	whole                 bool
}

func (t *tally) counts() counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	return counts{len(t.wanted), len(t.wanted) - len(t.open), len(t.failed), t.whole}
}
