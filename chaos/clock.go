package main

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// clockText is a clock that somebody has set wrong. It changes the time of day that time.Now gives. It leaves alone how
// much time passes, as a clock does that is set. CHAOS_CLOCK is by how much, or how far it jumps to and fro every 700
// ms.
const clockText = `package PACKAGE

import (
	"os"
	"strings"
	"time"
	"unsafe"
)

var clockWrong, clockJumps = func() (time.Duration, bool) {
	text, jumps := strings.CutPrefix(os.Getenv("CHAOS_CLOCK"), "jump:")
	d, _ := time.ParseDuration(text)
	return d, jumps
}()

var clockBegan = time.Now()

func clockNow() time.Time {
	t := time.Now()
	wrong := clockWrong
	if clockJumps {
		wrong *= time.Duration(t.Sub(clockBegan) / (700 * time.Millisecond) % 3 - 1)
	}
	// A time with a monotonic reading keeps its seconds above 30 bits of nanoseconds in its first word.
	*(*uint64)(unsafe.Pointer(&t)) += uint64(wrong/time.Second) << 30
	return t
}

func clockSince(t time.Time) time.Duration { return clockNow().Sub(t) }
func clockUntil(t time.Time) time.Duration { return t.Sub(clockNow()) }

var _, _ = clockSince, clockUntil
`

// clockEdits gives every package of shunt that a user's process runs that clock.
func clockEdits() ([]edit, error) {
	root, err := moduleRoot()
	if err != nil {
		return nil, err
	}
	list := exec.Command("go", "list", "-deps", "-f", `{{with .Module}}{{if .Main}}{{$.Name}} {{$.Dir}}{{end}}{{end}}`,
		".", "./recur")
	list.Dir, list.Env = root, append(os.Environ(), "GOWORK=off")
	packages, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	var edits []edit
	for line := range strings.Lines(string(packages)) {
		name, dir, is := strings.Cut(strings.TrimSpace(line), " ")
		if !is {
			continue
		}
		if dir, err = filepath.Rel(root, dir); err != nil {
			return nil, err
		}
		edits = append(edits,
			edit{filepath.Join(dir, "chaosclock.go"), "", strings.Replace(clockText, "PACKAGE", name, 1)})
		files, err := fs.Glob(os.DirFS(root), filepath.Join(dir, "*.go"))
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			b, err := os.ReadFile(filepath.Join(root, file))
			if err != nil {
				return nil, err
			}
			if strings.HasSuffix(file, "_test.go") || !strings.Contains(string(b), "\t\"time\"\n") {
				continue
			}
			text := strings.NewReplacer("time.Now()", "clockNow()", "time.Since(", "clockSince(", "time.Until(",
				"clockUntil(").Replace(string(b))
			if text != string(b) {
				edits = append(edits, edit{file, "", text + "\nvar _ time.Duration\n"})
			}
		}
	}
	return edits, nil
}

// nextEdits make a version to come: each element gets a flag and a field that today's does not know.
var nextEdits = []edit{
	{"internal/element/encode.go", "magic, version1|e.flags, ", "magic, version1|e.flags|nextFlag, "},
	{
		"internal/element/encode.go",
		"	return append(append(append(b, r.unknown...)",
		`	if !strings.Contains(string(r.unknown), nextField) {
		b = append(b, nextField...)
	}
	return append(append(append(b, r.unknown...)`,
	},
	{"internal/element/encode.go", "import (\n", "import (\n\t\"strings\"\n"},
	{
		"internal/element/element.go",
		"// Element is a decoded element.",
		"const (\n\tnextFlag = 4\n\tnextField = \"\\xc8\\x00\\x04next\"\n)\n\n// Element is a decoded element.",
	},
}

// nextField is tag 200 with 4 bytes.
const nextField = "\xc8\x00\x04next"
