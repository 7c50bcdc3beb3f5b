//go:build unix

package sandbox

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/redistest"
)

// interpreter is what python3 stands for: a name in PATH may be a script that looks for it.
var interpreter = sync.OnceValue(func() string {
	path, err := exec.Command("python3", "-c", "import sys; print(sys.executable)").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(path))
})

// python is a Pool of a Python program.
func python(t testing.TB, program string, set ...func(*Pool)) *Pool {
	t.Helper()
	if interpreter() == "" {
		t.Skip("there is no python3")
	}
	file := filepath.Join(t.TempDir(), "handler.py")
	if err := os.WriteFile(file, []byte(program), 0o644); err != nil {
		t.Fatal(err)
	}
	p := &Pool{Command: []string{interpreter(), file}, Children: 1}
	for _, f := range set {
		f(p)
	}
	return p
}

// documented is the program that the package comment shows.
func documented(t testing.TB) string {
	t.Helper()
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	_, program, _ := strings.Cut(string(doc), "//\timport json, sys\n")
	program, _, found := strings.Cut("//\timport json, sys\n"+program, "//\n// All other exceptions")
	if !found {
		t.Fatal("doc.go has no program")
	}
	var lines []string
	for line := range strings.Lines(program) {
		lines = append(lines, strings.TrimPrefix(strings.TrimPrefix(line, "//"), "\t"))
	}
	return strings.Join(lines, "")
}

func TestPython(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	program := documented(t)
	if n := strings.Count(program, "\n"); n > 16 {
		t.Errorf("the program has %d lines", n)
	}
	b := newBench(t, python(t, program))
	b.receive(1)
	if got := b.ask("wörld \x00\n"); got != "hello wörld \x00\n" {
		t.Errorf("%q", got)
	}
	b.enqueue("\xff", shunt.MaxAttempts(1))
	contains(t, b.wait(shunt.EventRejected, 1), "Traceback", "KeyError: 'text'")

	program = strings.Replace(program, `"hello "`, `print("to standard error") or int`, 1)
	program = strings.Replace(program, ` + message["text"]`, `(message["text"])`, 1)
	b = newBench(t, python(t, program))
	b.receive(1)
	b.enqueue("no number")
	contains(t, b.wait(shunt.EventRejected, 1), "invalid literal for int()")
}

// A child that wants more memory than it may have fails; one that wants less does not.
func TestMemory(t *testing.T) {
	t.Parallel()
	if !canLimit {
		t.Skip("this system limits no memory")
	}
	program := strings.Replace(documented(t), `"hello " + message["text"]`,
		`str(len(b"x" * (int(message["text"]) << 20)))`, 1)
	p := python(t, program, func(p *Pool) { p.MaxMemory = 200 << 20 })
	redistest.Leaks(t)
	t.Cleanup(func() { closePool(t, p) })
	succeeds(t, p, "100")
	fails(t, p, "300", ErrExit, "MemoryError", "limited to 200 MB")
	succeeds(t, p, "100")
	e := python(t, "import sys\nprint(len(b'x' * (int(sys.stdin.read()) << 20)))", func(p *Pool) {
		p.MaxMemory, p.Protocol = 200<<20, Exec
	})
	t.Cleanup(func() { closePool(t, e) })
	succeeds(t, e, "100")
	fails(t, e, "300", ErrExit, "MemoryError", "limited to 200 MB", "exit status 1")
}

// BenchmarkPython is 8 children without work of their own, through shunt and a Redis on this machine.
func BenchmarkPython(b *testing.B) {
	const noop = `import json, sys
for line in sys.stdin:
    print(json.dumps({"n": json.loads(line)["n"], "ok": True}), flush=True)
`
	benchmark(b, python(b, noop, func(p *Pool) { p.Children = 8 }))
}

// BenchmarkExec is a process for each message.
func BenchmarkExec(b *testing.B) {
	benchmark(b, &Pool{Command: []string{"true"}, Children: 8, Protocol: Exec})
}

func benchmark(b *testing.B, p *Pool) {
	redis, err := shunt.NewPool(redistest.Shared(b).URL())
	if err != nil {
		b.Fatal(err)
	}
	defer redis.Close()
	var acked atomic.Int64
	all := make(chan struct{})
	q := &shunt.Queue{Pool: redis, Events: func(e shunt.Event) {
		if e.Kind == shunt.EventAcked && acked.Add(1) == int64(b.N) {
			close(all)
		}
	}}
	defer closePool(b, p)
	defer q.Close()
	channel := redistest.Name(b)
	for left := b.N; left > 0; left -= 1000 {
		var ms []shunt.IMessage
		for range min(left, 1000) {
			ms = append(ms, shunt.Raw(channel, []byte(`{"order":7,"to":"ann@example.org"}`)))
		}
		if err := q.EnqueueAll(context.Background(), ms); err != nil {
			b.Fatal(err)
		}
	}
	runtime.GC()
	b.ResetTimer()
	if _, err := q.Receive(context.Background(), p.Message(channel), 8); err != nil {
		b.Fatal(err)
	}
	<-all
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
}
