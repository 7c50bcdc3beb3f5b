//go:build unix

package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// The command that a Pool cannot start, or that dies at once, says what to do, and is not started again and again.
func TestLinesStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, c := range []struct {
		command []string
		parts   []string
	}{
		{[]string{"no-such-command-here"}, []string{`start "no-such-command-here"`, "not in PATH", "install it"}},
		{[]string{dir + "/none"}, []string{"no such file"}},
		{[]string{file("plain.py", "print()", 0o644)}, []string{"may not be executed", "chmod +x"}},
		{[]string{file("bare.py", "print()", 0o755)}, []string{"no program of this system", "#!"}},
		{[]string{file("lost.py", "#!/no/such/python\n", 0o755)}, []string{"no interpreter that its first line names"}},
		{nil, []string{"Command is empty"}},
	} {
		p := pool(t, "lines", func(p *Pool) { p.Command = c.command })
		m, _ := p.Message("c").Unmarshal(nil)
		err := m.Resolve(t.Context())
		if !errors.Is(err, ErrStart) {
			t.Errorf("%v: %v", c.command, err)
			continue
		}
		contains(t, err.Error(), c.parts...)
	}
	p := pool(t, "dies")
	began := time.Now()
	for range 4 {
		fails(t, p, "hello", ErrExit, "before it answered its first message (exit status 1)", "sandbox.Exec",
			"no module named handler")
	}
	// 0.1 + 0.2 + 0.4 s, less a tenth
	if took := time.Since(began); took < 630*time.Millisecond {
		t.Errorf("four starts took %v", took)
	}
}

// A command that is installed while the Pool is at work is found.
func TestStartLater(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "later")
	p := pool(t, "lines", func(p *Pool) { p.Command = []string{path} })
	fails(t, p, "hello", ErrStart, "no such file")
	if err := os.Symlink(os.Args[0], path); err != nil {
		t.Fatal(err)
	}
	succeeds(t, p, "hello")
}
