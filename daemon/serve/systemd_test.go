package serve

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// child makes this test binary one that systemd has started.
const child = "TEST_SERVE_CHILD"

func TestNotify(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("no systemd")
	}
	if err := Notify("READY=1"); err != nil {
		t.Error("without a socket:", err)
	}
	dir, err := os.MkdirTemp("", "n")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	for _, path := range []string{filepath.Join(dir, "n"), "@shuntd-test-" + strconv.Itoa(os.Getpid())} {
		l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path})
		if err != nil {
			t.Fatal(err)
		}
		t.Setenv("NOTIFY_SOCKET", path)
		if err := Notify("READY=1"); err != nil {
			t.Error(err)
		}
		b := make([]byte, 100)
		if n, err := l.Read(b); err != nil || string(b[:n]) != "READY=1" {
			t.Errorf("%q %v", b[:n], err)
		}
		_ = l.Close()
	}
	if err := Notify("READY=1"); err == nil {
		t.Error("nobody listens, and no error")
	}
}

// A socket of systemd's is found by its name.
func TestInherited(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("no systemd")
	}
	var files []*os.File
	var addrs []string
	for range 2 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		f, err := l.(*net.TCPListener).File()
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		files, addrs = append(files, f), append(addrs, l.Addr().String())
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), child+"=1", "LISTEN_FDS=2", "LISTEN_FDNAMES=api:admin")
	cmd.ExtraFiles = files
	out, err := cmd.CombinedOutput()
	want := fmt.Sprintf("admin %s\napi %s\n", addrs[1], addrs[0])
	if err != nil || !strings.HasPrefix(string(out), want) || !strings.Contains(string(out), "no socket of that name") {
		t.Errorf("%v\n%s", err, out)
	}
	if _, err := inherited("api"); err == nil {
		t.Error("sockets of another process")
	}
}

// inChild prints what systemd's sockets are.
func inChild() {
	_ = os.Setenv("LISTEN_PID", strconv.Itoa(os.Getpid()))
	for _, name := range []string{"admin", "api", "third"} {
		s := Server{Name: name, Listen: "systemd:" + name, Handler: http.NotFoundHandler()}
		if l, err := listen(s.Listen); err != nil {
			fmt.Println(err)
		} else {
			fmt.Println(name, l.Addr())
		}
	}
}
