package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
)

// outcome is what has become of one mutant.
type outcome struct {
	ID      string
	In      string `json:",omitempty"` // the function
	Diff    string
	Status  string
	How     string   // the first line of the failure, or why it is no mistake
	Seconds float64  // that the test binary ran
	Passed  []string `json:",omitempty"` // the judges that found nothing
}

// table is a file of outcomes, and beside it the same for people. Safe for concurrent use.
type table struct {
	path string // without its ending

	mu  sync.Mutex
	all []outcome
}

// openTable reads the table where it is there; only with resume it may be.
func openTable(path string, resume bool) (*table, error) {
	t := &table{path: strings.TrimSuffix(path, ".json")}
	b, err := os.ReadFile(t.path + ".json")
	switch {
	case os.IsNotExist(err):
		return t, nil
	case err != nil:
		return nil, err
	case !resume:
		return nil, fmt.Errorf("%s.json is there: -resume goes on with it", t.path)
	}
	return t, json.Unmarshal(b, &t.all)
}

func (t *table) outcome(m *mutant) (outcome, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, o := range t.all {
		if keyOf(o.ID) == m.key() {
			return o, true
		}
	}
	return outcome{}, false
}

// restart has what survived judged by all judges again.
func (t *table) restart() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range t.all {
		t.all[i].Passed = nil
	}
}

// set adds an outcome, or replaces an earlier one, and writes both files.
func (t *table) set(o outcome) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := slices.IndexFunc(t.all, func(was outcome) bool { return keyOf(was.ID) == keyOf(o.ID) }); i >= 0 {
		t.all[i] = o
	} else {
		t.all = append(t.all, o)
	}
	b, err := json.MarshalIndent(t.all, "", "\t")
	if err != nil {
		return err
	}
	if err := replace(t.path+".json", append(b, '\n')); err != nil {
		return err
	}
	return replace(t.path+".md", t.markdown())
}

// replace writes a file so that it is there whole, whenever the program is interrupted.
func replace(path string, text []byte) error {
	if err := os.WriteFile(path+".new", text, 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// summary counts the outcomes.
func (t *table) summary() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.counts()
}

func (t *table) counts() string {
	var parts []string
	for _, s := range []string{caught, caughtByUnit, explained, survived, didNotBuild} {
		n := 0
		for _, o := range t.all {
			if o.Status == s {
				n++
			}
		}
		parts = append(parts, fmt.Sprintf("%d %s", n, s))
	}
	return fmt.Sprintf("%d mutants: %s", len(t.all), strings.Join(parts, ", "))
}

func (t *table) markdown() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s.\n\n| mutant | in | outcome | seconds | how |\n|---|---|---|---|---|\n", t.counts())
	for _, o := range t.all {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %.1f | %s |\n", o.ID, o.In, o.Status, o.Seconds,
			strings.ReplaceAll(o.How, "|", `\|`))
	}
	for _, o := range t.all {
		if o.Status == survived {
			fmt.Fprintf(&b, "\n`%s` survived:\n\n```diff\n%s```\n", o.ID, o.Diff)
		}
	}
	return b.Bytes()
}

// readKnown reads the file of explained mutants: an id and a sentence a line. It gives the sentences by the ids' keys.
func readKnown(path string) (map[string]string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	known := make(map[string]string)
	for i, line := range strings.Split(string(b), "\n") {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		id, why, _ := strings.Cut(line, " ")
		if keyOf(id) == id || why == "" {
			return nil, fmt.Errorf("%s:%d: not an id and a sentence", path, i+1)
		}
		known[keyOf(id)] = strings.TrimSpace(why)
	}
	return known, nil
}
