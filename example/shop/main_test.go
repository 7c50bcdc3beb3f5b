//go:build unix

package main

import (
	"bufio"
	"bytes"
	"context"
	"html"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/redistest"
)

// asProgram makes of the test binary the program itself.
const asProgram = "SHOP_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(redistest.Main(m))
}

// visit is a shop that runs, and a browser in it.
type visit struct {
	*testing.T
	c       *exec.Cmd
	at      string // of the page at which one buys
	redis   string // as the shop says
	tmp     string // where the shop makes its temporary files
	browser *http.Client
	printed chan string // what it printed after its greeting
}

func start(t *testing.T, env []string, args ...string) *visit {
	t.Helper()
	v := &visit{T: t, tmp: t.TempDir(), printed: make(chan string, 1)}
	v.c = exec.Command(os.Args[0], append([]string{"-addr", "127.0.0.1:0"}, args...)...)
	v.c.Env = append(append(os.Environ(), env...), asProgram+"=1", "TMPDIR="+v.tmp)
	v.c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a group of its own, as a terminal gives it
	v.c.Stderr = os.Stderr
	out, err := v.c.StdoutPipe()
	if err == nil {
		err = v.c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		v.c.Process.Kill()
		v.c.Wait()
	})
	lines := bufio.NewReader(out)
	for v.redis == "" {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal("it ended at its start")
		}
		if _, at, is := strings.Cut(line, "yourself:  "); is {
			v.at = strings.TrimSpace(at)
		}
		if _, name, is := strings.Cut(line, "Redis: "); is {
			v.redis = name
		}
	}
	go func() {
		rest, _ := io.ReadAll(lines)
		v.printed <- string(rest)
	}()
	jar, _ := cookiejar.New(nil)
	v.browser = &http.Client{Jar: jar, Transport: &http.Transport{}, Timeout: 10 * time.Second}
	t.Cleanup(v.browser.CloseIdleConnections)
	return v
}

// get loads a page, and posts a form to it where there is one.
func (v *visit) get(page string, form url.Values) string {
	v.Helper()
	r, err := http.NewRequest(http.MethodGet, v.at+page, nil)
	if form != nil {
		r, err = http.NewRequest(http.MethodPost, v.at+page, strings.NewReader(form.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if err != nil {
		v.Fatal(err)
	}
	resp, err := v.browser.Do(r)
	if err != nil {
		v.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		v.Fatalf("%s: %v, status %d: %s", page, err, resp.StatusCode, body)
	}
	return string(body)
}

// await loads a page until it is as wanted.
func (v *visit) await(page, what string, is func(body string) bool) string {
	v.Helper()
	for end := time.Now().Add(15 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if body := v.get(page, nil); is(body) {
			return body
		}
	}
	v.Fatalf("no %s on %s after 15 s", what, page)
	return ""
}

var (
	rows     = regexp.MustCompile(`<tr data-c="([^"]+)"`)
	acked    = regexp.MustCompile(`data-f="out">([^<]+)<`)
	groups   = regexp.MustCompile(`(?s)<form method="post" action="act" class="inline">(.*?)</form>`)
	fields   = regexp.MustCompile(`type="hidden" name="([^"]+)" value="([^"]*)"`)
	channels = []string{"shop.invoices", "shop.mails", "shop.orders.vip", "shop.orders.web", "shop.payments",
		"shop.reports", "shop.stock"}
)

// tour is what a newcomer does.
func (v *visit) tour() {
	v.await("shunt/", "all channels", func(body string) bool {
		var shown []string
		for _, m := range rows.FindAllStringSubmatch(body, -1) {
			shown = append(shown, m[1])
		}
		slices.Sort(shown)
		return slices.Equal(shown, channels)
	})

	bought := v.get("", url.Values{})
	if !regexp.MustCompile(`Order S-\d+: your .+ comes on \w+day\.`).MatchString(bought) {
		v.Errorf("bought: %s", bought)
	}
	_, link, _ := strings.Cut(bought, `<p>Order`)
	_, link, _ = strings.Cut(link, `href="`)
	link, _, _ = strings.Cut(link, `"`)
	if order := v.get(link, nil); !strings.Contains(order, "comes on") {
		v.Errorf("the order's page has no result: %s", order)
	}

	dead := v.await("shunt/dead?c=shop.payments", "dead letters", func(body string) bool {
		return strings.Contains(body, "card declined: insufficient funds, request #")
	})
	v.retry(groups.FindStringSubmatch(dead)[1])

	page := v.get("shunt/recurring", nil)
	run := url.Values{"verb": {"run"}, "c": {"shop.reports"}, "name": {"minute"}}
	run.Set("token", regexp.MustCompile(`name="token" value="([^"]+)"`).FindStringSubmatch(page)[1])
	v.get("shunt/act", run)

	// What processes count is on pages within 10 s.
	v.await("shunt/channel?c=shop.stock", "packed parcels", func(body string) bool {
		m := acked.FindStringSubmatch(body)
		return m != nil && m[1] != "0"
	})
}

// retry presses a group's button, and confirms.
func (v *visit) retry(form string) {
	values := func(from string) url.Values {
		u := url.Values{}
		for _, m := range fields.FindAllStringSubmatch(from, -1) {
			u.Add(m[1], html.UnescapeString(m[2]))
		}
		return u
	}
	first := values(form)
	first.Set("verb", "retry-all") // the button
	_, question, _ := strings.Cut(v.get("shunt/act", first), "<main")
	confirmed := values(question)
	confirmed.Set("yes", "1")
	v.get("shunt/act", confirmed)
	count := regexp.MustCompile(`retry-all.*?<td class="num">(\d+)`)
	v.await("shunt/audit", "retried messages", func(body string) bool {
		m := count.FindStringSubmatch(strings.ReplaceAll(body, "\n", " "))
		return m != nil && m[1] != "0"
	})
}

// leave presses Ctrl-C, which reaches the whole group, and looks at what is left. It returns what the shop has printed.
func (v *visit) leave() string {
	v.Helper()
	pid, began := v.c.Process.Pid, time.Now()
	if err := syscall.Kill(-pid, syscall.SIGINT); err != nil {
		v.Fatal(err)
	}
	rest := <-v.printed
	if err := v.c.Wait(); err != nil {
		v.Errorf("it ended with %v: %s", err, rest)
	}
	if took := time.Since(began); took > 2*time.Second {
		v.Errorf("it took %v to end", took)
	}
	if !strings.Contains(rest, "The shop closes") || strings.Contains(rest, "disconnected") {
		v.Errorf("it printed %q", rest)
	}
	if left, err := os.ReadDir(v.tmp); err != nil || len(left) > 0 {
		v.Errorf("left behind: %v, %v", left, err)
	}
	if err := syscall.Kill(-pid, 0); err != syscall.ESRCH {
		v.Errorf("there is a process of its group: %v", err)
	}
	return rest
}

// A redis-server of the shop's own ends with it.
func TestOwnRedis(t *testing.T) {
	t.Parallel()
	v := start(t, nil, "-rate", "40")
	_, port, _ := strings.Cut(v.redis, "a redis-server of its own at 127.0.0.1:")
	port, _, _ = strings.Cut(port, ".")
	if _, err := strconv.Atoi(port); err != nil {
		t.Fatalf("it runs on %q", v.redis)
	}
	dial := func() error {
		c, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err == nil {
			c.Close()
		}
		return err
	}
	v.tour()
	if err := dial(); err != nil {
		t.Error(err)
	}
	if rest := v.leave(); !strings.Contains(rest, "report of 1 min: ") {
		t.Errorf("no report: %q", rest)
	}
	if dial() == nil {
		t.Error("its redis-server still runs")
	}
}

// Without a redis-server there is one inside the process.
func TestInside(t *testing.T) {
	t.Parallel()
	v := start(t, []string{"PATH=/nowhere", "REDIS_SERVER="}, "-rate", "40", "-quiet")
	if !strings.Contains(v.redis, "inside this process") {
		t.Errorf("it runs on %q", v.redis)
	}
	v.tour()
	if rest := v.leave(); strings.Contains(rest, "report") {
		t.Errorf("it was to be quiet: %q", rest)
	}
}

// On another's Redis messages wait for the next shop, and none is in the hands of this one.
func TestGivenRedis(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	v := start(t, nil, "-rate", "5", "-redis", s.URL())
	v.await("shunt/", "mails", func(body string) bool { return strings.Contains(body, `"shop.mails"`) })
	v.leave()
	q := &shunt.Queue{Pool: s.Pool(t), Quiet: true}
	defer q.Close()
	for _, channel := range channels {
		stats, err := q.Stats(context.Background(), channel)
		if err != nil || stats[shunt.StateDoing].Count > 0 {
			t.Errorf("%s: %v, in its hands %d", channel, err, stats[shunt.StateDoing].Count)
		}
		rs, err := q.Receivers(context.Background(), channel)
		if err != nil || len(rs) > 0 {
			t.Errorf("%s: %v, receivers %v", channel, err, rs)
		}
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"-rate", "0"}, {"-rate", "NaN"}, {"there"}, {"-addr", "nowhere"}, {"-addr", "127.0.0.1:0", "-redis", "x"},
	} {
		c := exec.Command(os.Args[0], args...)
		c.Env = append(os.Environ(), asProgram+"=1")
		var stderr bytes.Buffer
		c.Stderr = &stderr
		if err := c.Run(); err == nil || !strings.HasPrefix(stderr.String(), "shop: ") ||
			strings.Count(stderr.String(), "\n") != 1 {
			t.Errorf("%q: %v, %s", args, err, &stderr)
		}
	}
}
