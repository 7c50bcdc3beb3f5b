package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/redistest"
)

// asProcess has this test binary run main.
const asProcess = "TEST_SHUNTD_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asProcess) != "" {
		main()
		return
	}
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP) // starts a goroutine of os/signal's, which no test is to be blamed for
	signal.Stop(hangups)
	os.Exit(redistest.Main(m))
}

// The three lines that -dev prints work, the first of them at once, and the dashboard shows their queue.
func TestDev(t *testing.T) {
	redistest.Leaks(t)
	out, lines := io.Pipe()
	ctx, stop := context.WithCancel(context.Background())
	code := make(chan int, 1)
	begun := time.Now()
	go func() {
		code <- command(ctx, []string{"-dev", "-api.listen=127.0.0.1:0", "-admin.listen=127.0.0.1:0"}, lines,
			io.Discard)
		_ = lines.Close()
	}()
	var text []byte
	for !strings.Contains(string(text), "/size'\n\n") {
		b := make([]byte, 1000)
		n, err := out.Read(b)
		if text = append(text, b[:n]...); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
	curls := regexp.MustCompile(`(?m)curl (-X PUT -d hello )?'(.*)'$`).FindAllStringSubmatch(string(text), -1)
	if len(curls) != 3 {
		t.Fatalf("%s", text)
	}
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for i, want := range []string{"published", "aGVsbG8=", `"size":0`} {
		method, body := "GET", ""
		if curls[i][1] != "" {
			method, body = "PUT", "hello"
		}
		r, err := http.NewRequest(method, curls[i][2], strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		res, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if !strings.Contains(string(answer), want) {
			t.Errorf("%s: %s", curls[i][0], answer)
		}
		if took := time.Since(begun); i == 0 && took > time.Second {
			t.Errorf("the first answer after %v", took)
		}
	}
	at := regexp.MustCompile(`(?m)The dashboard is at (http://.*/dashboard/)$`).FindSubmatch(text)
	if at == nil {
		t.Fatalf("%s", text)
	}
	res, err := client.Get(string(at[1]))
	if err != nil {
		t.Fatal(err)
	}
	page, _ := io.ReadAll(res.Body)
	res.Body.Close()
	if res.StatusCode != 200 || !strings.Contains(string(page), ">demo/greetings<") {
		t.Errorf("%s: %s", res.Status, page)
	}
	stop()
	if c := <-code; c != 0 {
		t.Errorf("exit status %d", c)
	}
}

func TestCommands(t *testing.T) {
	file := filepath.Join(t.TempDir(), "shuntd.toml")
	const text = "nothing = 1\n[limits]\nmax_body = 0\n[admin]\nlisten = \":1\"\nviewers = [\"x\"]\n" +
		"[dashboard]\non = true\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		code int
		text []string
	}{
		{[]string{"check", "-config", file}, 2,
			[]string{"nothing: there is no such key", "limits.max_body: 0: want", "pools: ",
				`admin.viewers: "x" is not`, "dashboard.on: "}},
		{[]string{"-config=" + file}, 2, []string{"limits.max_body: 0: want"}},
		{[]string{"check", "-pools.default.redis=redis://127.0.0.1:1"}, 1, []string{"Redis cannot be asked"}},
		{[]string{"check", "-checks=off", "-pools.default.redis=redis://127.0.0.1:1"}, 0,
			[]string{"no Redis was asked"}},
		{[]string{"check", "-checks=off", "-pools.default.redis=redis://127.0.0.1:1", "-api.tls_cert=/none.pem",
			"-api.tls_key=" + file}, 1, []string{"api.tls_cert: ", "no such file"}},
		{[]string{"-pools.default.redis=redis://127.0.0.1:1", "-api.listen=:x"}, 1, []string{"listen for api"}},
		{[]string{"keys"}, 0, []string{"limits.max_wait", "pools.NAME.redis"}},
		{[]string{"version"}, 0, []string{"shuntd devel"}},
		{[]string{"help"}, 2, []string{"usage"}},
		{[]string{"-h"}, 2, []string{"usage"}},
		{[]string{"-config"}, 2, []string{"flag -config"}},
	} {
		var out bytes.Buffer
		code := command(context.Background(), c.args, &out, &out)
		for _, want := range c.text {
			if code != c.code || !strings.Contains(out.String(), want) {
				t.Errorf("%v: %d %s", c.args, code, out.String())
			}
		}
	}
}
