package tree

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Overlay is the texts of changed files by their absolute paths.
type Overlay map[string][]byte

// Read is the text of a file under the overlay.
func (o Overlay) Read(path string) ([]byte, error) {
	if text, is := o[path]; is {
		return text, nil
	}
	return os.ReadFile(path)
}

// Change changes a part of a file that is there exactly once.
func (o Overlay) Change(path, old, new string) error {
	text, err := o.Read(path)
	if err != nil {
		return err
	}
	if n := strings.Count(string(text), old); n != 1 {
		return fmt.Errorf("%s has %q %d times, and not once", path, old, n)
	}
	o[path] = []byte(strings.Replace(string(text), old, new, 1))
	return nil
}

// Write puts the changed files into a directory, and with them what go build -overlay wants. It returns the path of
// that.
func (o Overlay) Write(dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	replace := make(map[string]string)
	for path, text := range o {
		over := filepath.Join(dir, fmt.Sprintf("%d_%s", len(replace), filepath.Base(path)))
		if err := os.WriteFile(over, text, 0o644); err != nil {
			return "", err
		}
		replace[path] = over
	}
	b, err := json.MarshalIndent(map[string]any{"Replace": replace}, "", "\t")
	if err != nil {
		return "", err
	}
	list := filepath.Join(dir, "overlay.json")
	return list, os.WriteFile(list, append(b, '\n'), 0o644)
}
