//go:build linux

package sandbox

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/redistest"
)

// The test binary is also the parent that is killed: its children do not look at the end of their standard input.
func init() {
	mode := os.Getenv("SANDBOX_PARENT")
	if mode == "" {
		return
	}
	p := helper(mode, func(p *Pool) { p.Stderr = os.Stdout })
	for i, e := range p.Env {
		if strings.HasPrefix(e, "SANDBOX_PARENT=") {
			p.Env[i] = "SANDBOX_PARENT="
		}
	}
	m, _ := p.Message("c").Unmarshal([]byte("ignore"))
	fmt.Println(m.Resolve(context.Background()))
	os.Exit(1)
}

// A parent that is killed leaves no child.
func TestParentKilled(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"lines-stays", "exec"} {
		parent := redistest.Run(t, []string{"SANDBOX_PARENT=" + mode}, os.Args[0])
		var pid string
		redistest.Until(t, 20*time.Second, "the child begins", func() bool {
			_, rest, found := strings.Cut(parent.Said(), "hanging ")
			pid, _, _ = strings.Cut(rest, "\n")
			return found && strings.Contains(rest, "\n") || parent.Gone()
		})
		if parent.Gone() {
			t.Fatal(parent.Said())
		}
		if !alive(atoi(t, pid)) {
			t.Fatal("the test proves nothing: the child is gone")
		}
		parent.Kill()
		ends(t, pid)
	}
}

// A thread that ends takes none of the children with it whose messages came from it.
func TestThreadEnds(t *testing.T) {
	t.Parallel()
	p := pool(t, "lines")
	m, _ := p.Message("c").Unmarshal([]byte("hello"))
	tid := make(chan int)
	var first func()
	first = func() {
		runtime.LockOSThread() // and the thread ends with the goroutine
		if syscall.Gettid() == os.Getpid() {
			go first() // the main thread would not end; this goroutine keeps it from being chosen again
			<-t.Context().Done()
			return
		}
		if err := m.Resolve(t.Context()); err != nil {
			t.Error(err)
		}
		tid <- syscall.Gettid()
	}
	go first()
	task := fmt.Sprint("/proc/self/task/", <-tid)
	redistest.Until(t, 10*time.Second, "the end of the thread", func() bool {
		_, err := os.Stat(task)
		return err != nil
	})
	for range 20 {
		if err := m.Resolve(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	c := <-p.state.idle
	defer func() { p.state.idle <- c }()
	if c.n != 21 {
		t.Errorf("the child has handled %d messages, want all 21", c.n)
	}
}

// Threads that end while a pool is closed take none of its children with them: those have their grace.
func TestThreadEndsInClose(t *testing.T) {
	t.Parallel()
	log := newLines()
	p := pool(t, "lines-term", func(p *Pool) { p.Stderr, p.Grace = log, time.Second })
	succeeds(t, p, "hello")
	closed := make(chan error)
	go func() { closed <- p.Close(t.Context()) }()
	for {
		var threads sync.WaitGroup
		for range 20 { // more than are idle
			threads.Go(runtime.LockOSThread) // and the thread ends with the goroutine
		}
		threads.Wait()
		select {
		case err := <-closed:
			if err != nil {
				t.Error(err)
			}
			log.next(t, "terminated")
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// All children are started by one thread, whichever thread asks for it.
func TestForkerThread(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	f := newForker()
	var work sync.WaitGroup
	defer work.Wait()
	defer close(f.calls)
	work.Go(f.run)
	var callers sync.WaitGroup
	var mu sync.Mutex
	tids := make(map[int]bool)
	for range 8 {
		callers.Go(func() {
			for range 100 {
				f.do(func() {
					mu.Lock()
					tids[syscall.Gettid()] = true
					mu.Unlock()
				})
				_, _ = os.Stat("/proc/self/task") // gives other goroutines this thread
			}
		})
	}
	callers.Wait()
	if len(tids) != 1 {
		t.Errorf("calls ran on %d threads", len(tids))
	}
}
