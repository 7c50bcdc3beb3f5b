package main

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/redistest"
)

// dashboardOn starts shunt dashboard and gives its URL, and a func that ends it and gives its exit status.
func dashboardOn(t *testing.T, s *redistest.Server, args ...string) (url string, end func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	out, complaints := &buffer{}, &buffer{}
	code := make(chan int, 1)
	a := call{url: s.URL()}.app(out, complaints)
	go func() { code <- a.run(ctx, append([]string{"dashboard", "--addr", "127.0.0.1:0"}, args...)) }()
	redistest.Until(t, 10*time.Second, "it tells where it is", func() bool {
		return strings.HasSuffix(out.String(), "\n") || complaints.String() != ""
	})
	url = strings.TrimSpace(strings.TrimPrefix(out.String(), "the dashboard is at "))
	if a.json {
		var v struct{ URL string }
		if err := json.Unmarshal([]byte(out.String()), &v); err != nil {
			t.Fatal(err)
		}
		url = v.URL
	}
	return url, func() int {
		cancel()
		select {
		case code := <-code:
			return code
		case <-time.After(10 * time.Second):
			t.Error("it does not end")
			return -1
		}
	}
}

// get asks with a name and a password, and gives the status.
func get(t *testing.T, method, url, name, password string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if name != "" {
		r.SetBasicAuth(name, password)
	}
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	return answer.StatusCode
}

// A stream that is open does not keep it from ending in order.
func TestDashboard(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	if err := queueOn(t, s).Enqueue(t.Context(), shunt.Raw("mail", []byte("x"))); err != nil {
		t.Fatal(err)
	}
	url, end := dashboardOn(t, s)
	if got := get(t, "GET", url+"channel?c=mail", "", ""); got != http.StatusOK {
		t.Errorf("status %d", got)
	}
	r, err := http.NewRequestWithContext(t.Context(), "GET", url+"live", nil)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	if line, err := bufio.NewReader(stream.Body).ReadString('\n'); err != nil {
		t.Fatalf("the stream: %q, %v", line, err)
	}
	began := time.Now()
	if code := end(); code != exitOK {
		t.Errorf("exit %d", code)
	}
	if took := time.Since(began); took >= farewell {
		t.Errorf("it takes %v to end", took)
	}
	if _, err := http.Get(url); err == nil {
		t.Error("it answers after its end")
	}
}

func TestDashboardUsers(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	viewers := filepath.Join(t.TempDir(), "viewers")
	if err := os.WriteFile(viewers, []byte("# they see\n\nvera=v=1\n  bob=b\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	url, end := dashboardOn(t, s, "--user", "olga=o", "--viewer", "@"+viewers)
	for _, row := range []struct {
		method, name, password string
		want                   int
	}{
		{"GET", "", "", http.StatusUnauthorized}, {"GET", "olga", "v=1", http.StatusUnauthorized},
		{"GET", "olga", "o", http.StatusOK}, {"GET", "vera", "v=1", http.StatusOK}, {"GET", "bob", "b", http.StatusOK},
	} {
		if got := get(t, row.method, url, row.name, row.password); got != row.want {
			t.Errorf("%+v: status %d", row, got)
		}
	}
	if code := end(); code != exitOK {
		t.Errorf("exit %d", code)
	}
}

// With --json the address is a document. One that is taken is told.
func TestDashboardAddress(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	url, end := dashboardOn(t, s, "--json")
	if got := get(t, "GET", url, "", ""); got != http.StatusOK {
		t.Errorf("status %d", got)
	}
	at := strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/")
	r := call{url: s.URL()}.do("dashboard", "--addr", at)
	if r.code != exitFailed || !strings.Contains(r.err, "address already in use") {
		t.Errorf("the address is taken: exit %d, %s", r.code, r.err)
	}
	if code := end(); code != exitOK {
		t.Errorf("exit %d", code)
	}
}
