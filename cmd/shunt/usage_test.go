package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/redistest"
)

const ref = "{mail}.dead.01KAV9Z7Y1P3M8QX2N5R4T6W8C"

// What somebody may type wrongly is an error of one line, which says what is meant.
func TestWrongUsage(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	if err := queueOn(t, s).Enqueue(t.Context(), shunt.Raw("mail", []byte("x"))); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		line string
		code int
		says string
	}{
		{"nonsense", exitUsage, "unknown command"},
		{"stats", exitUsage, "accepts 1 arg"},
		{"stats mail --colour", exitUsage, "unknown flag"},
		{"stats no-channel", exitNotFound, "there is no channel"},
		{"channels no-channel", exitNotFound, "there is no channel"},
		{"channels a{b}", exitFailed, ""},
		{"receivers no-channel", exitNotFound, "there is no channel"},
		{"ls no-channel", exitNotFound, "there is no channel"},
		{"peek no-channel", exitNotFound, "there is no channel"},
		{"dead no-channel", exitNotFound, "there is no channel"},
		{"dead groups no-channel", exitNotFound, "there is no channel"},
		{"dead retry no-channel -y", exitNotFound, "there is no channel"},
		{"retry --all no-channel", exitNotFound, "there is no channel"},
		{"retry --all no-channel -y", exitNotFound, "there is no channel"},
		{"purge no-channel -s dead", exitNotFound, "there is no channel"},
		{"doctor no-channel", exitNotFound, "there is no channel"},
		{"doctor --within 1ms", exitUsage, "1s to 1h"},
		{"top", exitUsage, "wants a terminal"},
		{"top --json", exitUsage, "channels --watch"},
		{"top --refresh 1ms", exitUsage, "100ms to 1h"},
		{"top mail", exitUsage, "shunt help top lists all flags"},
		{"dashboard --addr 0.0.0.0:0", exitUsage, "give --user"},
		{"dashboard --addr :0", exitUsage, "give --user"},
		{"dashboard --addr [::]:0", exitUsage, "give --user"},
		{"dashboard --addr 7878", exitUsage, "want HOST:PORT"},
		{"dashboard --user ann:secret", exitUsage, "--user 1: want NAME=PASSWORD"},
		{"dashboard --user ann=", exitUsage, "--user 1: want NAME=PASSWORD"},
		{"dashboard --user =secret --viewer a:b=secret", exitUsage, "; --viewer 1: want a name"},
		{"dashboard --user ann=secret --viewer ann=secret", exitUsage, `"ann" is there twice`},
		{"dashboard --user @/nonexistent", exitUsage, "no such file"},
		{"dashboard --user @testdata/nobody.txt", exitUsage, "has nobody in it"},
		{"stats mail --redis redis://ann:secret/1@x", exitUsage, "is none such as"},
		{"counts no-channel", exitNotFound, "there is no channel"},
		{"health no-channel", exitNotFound, "there is no channel"},
		{"tail no-channel", exitNotFound, "there is no channel"},
		{"export no-channel", exitNotFound, "there is no channel"},
		{"show mail --id nobody", exitNotFound, "no such message"},
		{"show " + ref, exitNotFound, "no such message"},
		{"retry " + ref, exitNotFound, "no such message"},
		{"delete -y " + ref, exitNotFound, "no such message"},
		{"cancel -y " + ref, exitNotFound, "no such message"},
		{"promote " + ref, exitNotFound, "no such message"},
		{"postpone --in 1h " + ref, exitNotFound, "no such message"},
		{"peek mail -s dead", exitNotFound, "no message"},
		{"stats a{b}", exitFailed, "braces"},
		{"show mail", exitUsage, "--id or --serial"},
		{"show {mail", exitUsage, "names no message"},
		{"show mail --serial xyz", exitUsage, "ULID"},
		{"retry {mail}.nowhere.01KAV9Z7Y1P3M8QX2N5R4T6W8C", exitUsage, "state"},
		{"retry mail --id x --failure y", exitUsage, "--all"},
		{"retry mail --id x --dry-run", exitUsage, "--all"},
		{"retry --all " + ref, exitUsage, "its name alone"},
		{"retry --all mail --from x -y", exitFailed, "Next"},
		{"retry --all mail --limit -1", exitUsage, "0 or more"},
		{"cancel --all mail", exitUsage, "--state"},
		{"cancel --all mail --state dead", exitUsage, "prepare, delay or suspect"},
		{"postpone {mail}.delay.01KAV9Z7Y1P3M8QX2N5R4T6W8C", exitUsage, "--in or --at"},
		{"postpone --all mail", exitUsage, "--in or --at"},
		{"postpone --all mail --at never", exitUsage, "is no time"},
		{"ls mail --state nowhere", exitUsage, "one of [prepare"},
		{"ls mail --limit 0", exitUsage, "1 to 1000"},
		{"ls mail --limit 1001", exitUsage, "1 to 1000"},
		{"ls mail --since yesterday", exitUsage, "is no time"},
		{"ls mail --header x", exitUsage, "key=value"},
		{"ls mail --from x", exitFailed, "Next"},
		{"peek mail -n 0", exitUsage, "1 to 1000"},
		{"purge mail", exitUsage, "state"},
		{"purge mail -s doing", exitUsage, "cannot be purged"},
		{"channels --watch --every 1ms", exitUsage, "100ms"},
		{"tail --every 1ms", exitUsage, "100ms"},
		{"counts --since 1h --until 2h", exitUsage, "before"},
		{"counts mail --step 1s", exitFailed, "Step"},
		{"audit --limit 0", exitUsage, "1 to 1000"},
		{"audit --before x", exitFailed, "AuditEntry.ID"},
		{"deliver mail", exitUsage, "wants a payload"},
		{"deliver mail x --lines", exitUsage, "no payload"},
		{"deliver mail --lines --text", exitUsage, "none of the others"},
		{"deliver mail x --in 1h --at +1h", exitUsage, "none of the others"},
		{"deliver mail x --in soon", exitUsage, "no length of time"},
		{"deliver mail --lines --id x", exitUsage, "--id-from"},
		{"deliver mail --text --id-from x", exitUsage, "--lines"},
		{"deliver mail x --resume r", exitUsage, "stream"},
		{"deliver mail x --expire-to-dead", exitUsage, "--expire"},
		{"deliver mail x --max-attempts 999", exitFailed, "255"},
		{"deliver a{b} x", exitFailed, "braces"},
		{"import --file /nonexistent/x", exitFailed, "no such file"},
		{"import --dead maybe", exitUsage, "enqueue or skip"},
		{"export mail --resume", exitUsage, "--file"},
		{"export mail --from nowhere:", exitUsage, "not what an export said"},
		{"bench -n 1", exitUsage, "1000 to 1000000"},
		{"stats mail --timeout 1ms", exitUsage, "100ms"},
		{"stats mail --redis http://x", exitUsage, "scheme"},
		{"stats mail --redis redis://u:secret@127.0.0.1:1", exitFailed, "refused"},
		{"stats mail --profile none", exitUsage, "no profile"},
		{"delete --all mail", exitOK, ""},
		{"purge mail -s prepare", exitUsage, "--yes"},
		{"bench", exitUsage, "--yes"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // what should be refused may begin to serve
		env := map[string]string{"XDG_CONFIG_HOME": t.TempDir()}
		r := call{url: s.URL(), env: env, ctx: ctx}.do(strings.Fields(row.line)...)
		cancel()
		if r.code != row.code || !strings.Contains(r.err, row.says) {
			t.Errorf("shunt %s: exit %d, want %d, and %q in: %s", row.line, r.code, row.code, row.says, r.err)
		}
		n := strings.Count(r.err, "\n")
		one := n == 1 || strings.Contains(r.err, "lists all flags")
		if r.code > 0 && row.says != "" && !one {
			t.Errorf("shunt %s: %d lines: %s", row.line, n, r.err)
		}
		if strings.Contains(r.err, "secret") {
			t.Errorf("shunt %s prints the password: %s", row.line, r.err)
		}
	}
	for _, row := range []struct{ in, says string }{
		{"{}\n", "none of an export"}, {"no\n", "none of an export"}, {`{"v":2}` + "\n", "v is 2"},
		{`{"v":1,"channel":"c","state":"dead","payload":{"base64":"?"}}` + "\n", "none of an export"},
	} {
		r := call{url: s.URL(), in: strings.NewReader(row.in)}.do("import")
		if r.code != exitFailed || !strings.Contains(r.err, row.says) {
			t.Errorf("import of %q: exit %d, %s", row.in, r.code, r.err)
		}
	}
}

// everything has each command once, as it is used.
var everything = []string{
	"stats mail", "channels", "receivers", "ls mail", "show mail --id x", "peek mail", "dead mail", "dead groups mail",
	"dead retry mail", "retry mail --id x", "delete mail --id x", "cancel mail --id x", "postpone mail --id x --in 1h",
	"promote mail --id x", "purge mail -s dead", "deliver mail x", "deliver mail --text", "export mail", "counts mail",
	"health", "doctor", "dashboard --addr 127.0.0.1:0", "audit", "tail", "channels --watch", "bench",
	"retry --all mail",
}

// Where Redis is away nothing hangs.
func TestRedisAway(t *testing.T) {
	t.Parallel()
	stopped := redistest.Start(t)
	stopped.Stop()
	t.Cleanup(stopped.Cont)
	var g errgroup.Group
	g.SetLimit(25) // most of them wait
	for _, url := range []string{"redis://127.0.0.1:1", "unix:///nonexistent/socket", stopped.URL()} {
		for _, line := range everything {
			g.Go(func() error {
				began := time.Now()
				r := call{url: url, in: strings.NewReader("x\n")}.do(append(strings.Fields(line), "--yes")...)
				if took := time.Since(began); took > 2*time.Second {
					t.Errorf("%s: shunt %s took %v", url, line, took)
				}
				lines := strings.Count(r.err, "\n") - strings.Count(r.err, "to go on, which doubles nothing")
				if r.code != exitFailed || lines != 1 || !strings.HasPrefix(r.err, "shunt: ") {
					t.Errorf("%s: shunt %s: exit %d, %q", url, line, r.code, r.err)
				}
				return nil
			})
		}
	}
	_ = g.Wait()
}

// everything above misses no command but those that need no Redis.
func TestEveryCommandIsTried(t *testing.T) {
	t.Parallel()
	var walk func(c *cobra.Command, path string)
	walk = func(c *cobra.Command, path string) {
		for _, sub := range c.Commands() {
			walk(sub, strings.TrimSpace(path+" "+sub.Name()))
		}
		switch {
		case !c.Runnable(), strings.HasPrefix(path, "completion"), path == "help", path == "version", path == "import",
			path == "dead delete", path == "", path == "top", path == "work":
			return
		}
		for _, line := range everything {
			if line == path || strings.HasPrefix(line, path+" ") {
				return
			}
		}
		t.Errorf("%q is not tried", path)
	}
	walk(newRoot(call{}.app(io.Discard, io.Discard)), "")
}

func TestConfirmation(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	q := queueOn(t, s)
	enqueue(t, q, 7)
	for _, answer := range []string{"", "n\n", "\n", "yess\n"} {
		r := call{url: s.URL(), asks: true, in: strings.NewReader(answer)}.do("purge", "mail", "-s", "prepare")
		if r.code != exitFailed || !strings.Contains(r.err, `delete 7 messages of "mail" in prepare for good? [y/N]`) {
			t.Errorf("answer %q: exit %d, %s", answer, r.code, r.err)
		}
	}
	if n := len(payloads(t, q, "mail", shunt.StatePrepare)); n != 7 {
		t.Fatalf("%d of 7 messages are left", n)
	}
	in, write := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	asked := func(said string) {
		if strings.Contains(said, "[y/N]") {
			cancel()
		}
	}
	r := call{url: s.URL(), asks: true, in: in, ctx: ctx, err: asked}.do("cancel", "--all", "mail", "-s", "prepare")
	_ = write.Close()
	if r.code != exitInterrupted {
		t.Errorf("interrupted while it asks: exit %d, %s", r.code, r.err)
	}
	call{url: s.URL(), asks: true, in: strings.NewReader("y\n")}.good(t, "cancel", "--all", "mail", "-s", "prepare",
		"--limit", "2")
	call{url: s.URL(), asks: true, in: strings.NewReader("YES\n")}.good(t, "cancel", "--all", "mail", "-s", "prepare",
		"--limit", "2")
	if n := len(payloads(t, q, "mail", shunt.StatePrepare)); n != 3 {
		t.Errorf("%d messages are left: want 3", n)
	}
}

func TestHealthExit(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "maxmemory 100mb", "maxmemory-policy allkeys-lru")
	r := call{url: s.URL()}.do("health")
	if r.code != exitCritical || !strings.Contains(r.out, "critical") {
		t.Errorf("exit %d: %s%s", r.code, r.out, r.err)
	}
}

func TestCompletion(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	if err := queueOn(t, s).Enqueue(t.Context(), shunt.Raw("mail", []byte("x"))); err != nil {
		t.Fatal(err)
	}
	c := call{url: s.URL()}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if r := c.good(t, "completion", shell); len(r.out) < 1000 {
			t.Errorf("%s: %s", shell, r.out)
		}
	}
	for line, want := range map[string]string{
		"stats ": "mail", "retry --all ": "mail", "ls mail --state ": "suspect", "dea": "dead",
		"doc": "doctor", "to": "top", "dash": "dashboard", "wo": "work", "doctor ": "mail", "work --channel ": "mail",
		"work --protocol ": "exec",
	} {
		args := append([]string{"__complete"}, strings.Split(line, " ")...)
		redistest.Until(t, 10*time.Second, fmt.Sprintf("%q after %q", want, line), func() bool {
			return strings.Contains(c.good(t, args...).out, want) // Redis has half a second, and may be slow
		})
	}
}
