//go:build !windows

package main

import (
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/redistest"
)

// language is one for which there is a client.
type language struct {
	name    string
	command string   // in the path
	named   string   // variable that names another one: it may not be missing
	args    []string // before the program
	dir     string
	test    string
}

var languages = []language{
	{name: "Python", command: "python3", named: "PYTHON", args: []string{"-B", "-W", "error"}, dir: "python",
		test: "test_shunt.py"},
	{name: "PHP", command: "php", named: "PHP", args: []string{"-d", "error_reporting=-1"}, dir: "php",
		test: "test.php"},
}

const (
	clientToken   = "token-of-the-clients-tests"
	clientMaxBody = 1 << 17
)

// find is the path of the language's command. Without one the test is skipped, unless one was asked for by name.
func (l *language) find(t *testing.T) string {
	t.Helper()
	asked := os.Getenv(l.named)
	command := l.command
	if asked != "" {
		command = asked
	}
	path, err := exec.LookPath(command)
	switch {
	case err == nil:
		return path
	case asked != "" || os.Getenv("REQUIRE_CLIENTS") != "":
		t.Fatalf("%s: %v", command, err)
	}
	t.Skipf("there is no %s, and neither %s nor REQUIRE_CLIENTS asks for one", l.command, l.named)
	return ""
}

// site is a shuntd on which a client's test runs, and what the test may have done to it.
type site struct {
	t          *testing.T
	redis      string
	api, admin string // host:port, the same for each process
	child      *redistest.Child
	web        *http.Client
	commands   chan errand

	mu      sync.Mutex
	lose    int     // answers
	refuse  int     // requests
	refusal refusal // of these
	term    int     // pid of a client that gets SIGTERM before the answer of its next pull
}

type refusal struct{ status, kind, after string }

// errand is done by the test's own goroutine.
type errand struct {
	do   func()
	done chan struct{}
}

func newSite(t *testing.T) *site {
	s := &site{t: t, redis: redistest.Start(t).URL(), api: "127.0.0.1:0", admin: "127.0.0.1:0",
		web: &http.Client{Transport: &http.Transport{}}, commands: make(chan errand)}
	t.Cleanup(s.web.CloseIdleConnections)
	s.start()
	r, err := http.NewRequest("POST", "http://"+s.admin+"/token/ns?description=clients&token="+clientToken, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.SetBasicAuth("ann", "pw")
	res, err := s.web.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if text, _ := io.ReadAll(res.Body); res.StatusCode != 201 {
		t.Fatalf("%d %s", res.StatusCode, text)
	}
	return s
}

var serves = regexp.MustCompile(`msg="shuntd serves" api=(\S+) admin=(\S+)`)

// start runs a process, and returns when it serves.
func (s *site) start() {
	env := []string{asProcess + "=1", "SHUNTD_ADMIN_ACCOUNTS_ANN=pw"}
	s.child = redistest.Run(s.t, env, os.Args[0], "-api.listen="+s.api, "-admin.listen="+s.admin,
		"-checks=off", "-log.access=false", "-log.format=text",
		"-limits.max_body="+strconv.Itoa(clientMaxBody), "-pools.default.redis="+s.redis)
	redistest.Until(s.t, 10*time.Second, "shuntd serves", func() bool {
		m := serves.FindStringSubmatch(s.child.Said())
		if m != nil {
			s.api, s.admin = m[1], m[2]
		}
		if s.child.Gone() {
			s.t.Fatalf("shuntd has ended: %s", s.child.Said())
		}
		return m != nil
	})
}

// control takes the commands of a client's test: kill, start, lose (the next n answers), refuse (the next n requests),
// term (the client, before the answer of its next pull).
func (s *site) control(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	n, _ := strconv.Atoi(q.Get("n"))
	s.mu.Lock()
	switch r.URL.Path {
	case "/lose":
		s.lose = n
	case "/refuse":
		s.refuse, s.refusal = n, refusal{q.Get("status"), q.Get("type"), q.Get("after")}
	case "/term":
		s.term, _ = strconv.Atoi(q.Get("pid"))
	}
	s.mu.Unlock()
	do := map[string]func(){"/kill": func() { s.child.Kill() }, "/start": s.start}[r.URL.Path]
	if do == nil {
		return
	}
	c := errand{do, make(chan struct{})}
	select {
	case s.commands <- c:
		<-c.done
	case <-r.Context().Done():
	}
}

var errLost = errors.New("the answer is to be lost")

// passed sees an answer before it is written.
func (s *site) passed(res *http.Response) error {
	s.mu.Lock()
	lost, pid := s.lose > 0, s.term
	if lost {
		s.lose--
	}
	if pid != 0 && strings.HasSuffix(res.Request.URL.Path, "/pull") {
		s.term = 0
	} else {
		pid = 0
	}
	s.mu.Unlock()
	if lost {
		return errLost
	}
	if pid == 0 {
		return nil
	}
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	_ = res.Body.Close()
	res.Body = io.NopCloser(bytes.NewReader(body))
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-res.Request.Context().Done(): // the client has closed its half
	case <-time.After(5 * time.Second):
	}
	return nil
}

// front passes requests on, and answers back, but for those that are to be lost or refused.
func (s *site) front() http.Handler {
	transport := &http.Transport{}
	s.t.Cleanup(transport.CloseIdleConnections)
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: s.api})
	proxy.Transport = transport
	proxy.ModifyResponse = s.passed
	proxy.ErrorHandler = func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		refused, as := s.refuse > 0, s.refusal
		if refused {
			s.refuse--
		}
		s.mu.Unlock()
		if !refused {
			proxy.ServeHTTP(w, r)
			return
		}
		if as.after != "" {
			w.Header().Set("Retry-After", as.after)
		}
		status, _ := strconv.Atoi(as.status)
		w.WriteHeader(status)
		if as.kind != "" {
			fmt.Fprintf(w, `{"type":"urn:shunt:problem:%s","title":"t","status":%d}`, as.kind, status)
			return
		}
		_, _ = io.WriteString(w, "<html>"+strings.Repeat("no problem of shunt's ", 500)) // chunked
	})
}

// env starts the servers beside shuntd, and is what a client's test learns of them.
func (s *site) env() []string {
	plain := httptest.NewServer(s.front())
	s.t.Cleanup(plain.Close)
	secure := httptest.NewUnstartedServer(s.front())
	secure.Config.ErrorLog = log.New(io.Discard, "", 0) // of clients that do not trust it
	secure.StartTLS()
	s.t.Cleanup(secure.Close)
	control := httptest.NewServer(http.HandlerFunc(s.control))
	s.t.Cleanup(control.Close)
	ca := filepath.Join(s.t.TempDir(), "ca.pem")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw})
	if err := os.WriteFile(ca, block, 0o600); err != nil {
		s.t.Fatal(err)
	}
	return []string{"SHUNT_URL=http://" + s.api, "SHUNT_TOKEN=" + clientToken, "SHUNT_LOSSY=" + plain.URL,
		"SHUNT_TLS=" + secure.URL, "SHUNT_CA=" + ca, "SHUNT_CONTROL=" + control.URL}
}

// serve does what a client's test asks for, until it has ended or a minute is over.
func (s *site) serve(program *redistest.Child) {
	late := time.NewTimer(time.Minute)
	defer late.Stop()
	for {
		select {
		case c := <-s.commands:
			c.do()
			close(c.done)
		case <-program.Ended():
			return
		case <-late.C:
			program.Kill()
			s.t.Error("it has not ended in a minute")
			return
		}
	}
}

// Each client passes its own tests, which it runs against a shuntd of its own.
func TestClients(t *testing.T) {
	for _, l := range languages {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			redistest.Leaks(t)
			path := l.find(t)
			s := newSite(t)
			test := filepath.Join("..", "..", "..", "clients", l.dir, l.test)
			program := redistest.Run(t, s.env(), path, append(l.args[:len(l.args):len(l.args)], test)...)
			s.serve(program)
			if program.Code() != 0 {
				t.Errorf("exit status %d: %s\nshuntd said: %s", program.Code(), program.Said(), s.child.Said())
			} else if testing.Verbose() {
				t.Log(program.Said())
			}
		})
	}
}

// The program in each client's README handles what it publishes, and ends on SIGTERM.
func TestClientsREADME(t *testing.T) {
	for _, l := range languages {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			redistest.Leaks(t)
			path := l.find(t)
			dir, err := filepath.Abs(filepath.Join("..", "..", "..", "clients", l.dir))
			if err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(filepath.Join(dir, "README.md"))
			if err != nil {
				t.Fatal(err)
			}
			_, code, _ := strings.Cut(string(text), "```"+l.dir+"\n")
			code, _, found := strings.Cut(code, "```")
			if n := strings.Count(code, "\n"); !found || n > 24 {
				t.Fatalf("the README has no program, or one of %d lines", n)
			}
			main := filepath.Join(t.TempDir(), "main")
			code = strings.ReplaceAll(code, "__DIR__", "'"+dir+"'")
			if err := os.WriteFile(main, []byte(code), 0o600); err != nil {
				t.Fatal(err)
			}
			env := append(newSite(t).env(), "PYTHONPATH="+dir)
			program := redistest.Run(t, env, path, append(l.args[:len(l.args):len(l.args)], main)...)
			redistest.Until(t, 10*time.Second, "it has handled its message", func() bool {
				return program.Gone() || strings.Contains(program.Said(), "order 7")
			})
			if program.Gone() {
				t.Fatalf("it has ended: %s", program.Said())
			}
			if err := program.Term(); err != nil {
				t.Fatal(err)
			}
			if program.Code() != 0 || strings.Contains(program.Said(), "arning") {
				t.Errorf("exit status %d: %s", program.Code(), program.Said())
			}
		})
	}
}
