package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/redistest"
)

// asProgram makes of the test binary the program itself, so that it can be killed.
const asProgram = "CHECKSUM_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	os.Exit(redistest.Main(m))
}

// result is what a child process did.
type result struct {
	code           int // -1: killed
	stdout, stderr string
}

func program(dir string, args ...string) *exec.Cmd {
	c := exec.Command(os.Args[0], args...)
	c.Dir = dir
	c.Env = append(
		slices.DeleteFunc(os.Environ(), func(s string) bool { return strings.HasPrefix(s, "REDIS_URL=") }),
		asProgram+"=1",
	)
	return c
}

// execute runs the program in dir to its end.
func execute(t *testing.T, dir string, args ...string) result {
	t.Helper()
	c := program(dir, args...)
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	stop := time.AfterFunc(25*time.Second, func() { _ = c.Process.Kill() })
	_ = c.Wait() // the code says it all
	if !stop.Stop() {
		t.Errorf("%q did not end", args)
	}
	r := result{c.ProcessState.ExitCode(), stdout.String(), stderr.String()}
	t.Logf("%q: exit code %d\n%s", args, r.code, r.stderr)
	return r
}

// number is the one behind word in what the program said.
func (r result) number(t *testing.T, word string) int {
	t.Helper()
	all := regexp.MustCompile(word+` (\d+)`).FindAllStringSubmatch(r.stderr, -1)
	if len(all) == 0 {
		t.Fatalf("it does not say %q", word)
	}
	n, _ := strconv.Atoi(all[len(all)-1][1])
	return n
}

// odd are names that are awkward to write down.
var odd = []string{
	"new\nline",
	"\n",
	`back\slash`,
	`\n`,
	"carriage\rreturn",
	"\xc1\x01 invalid \xff",
	"two  blanks",
	" before",
	"after ",
	"-dash",
	"-",
	"*star",
	"Ünïcode",
}

// tree makes a directory "tree" of plain and odd files, and returns all their names, sorted.
func tree(t *testing.T, dir string, plain int) (names []string) {
	t.Helper()
	write := func(name string, content []byte) {
		name = filepath.Join(dir, "tree", name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for i := range plain {
		write(fmt.Sprintf("sub%d/file%d", i%7, i), bytes.Repeat([]byte{byte(i)}, i*50))
	}
	write("empty", nil)
	if runtime.GOOS == "linux" {
		for _, name := range odd {
			write(name, []byte(name))
			write("sub\n\\/"+name, []byte(name))
		}
	}
	if err := os.Symlink("empty", filepath.Join(dir, "tree", "link")); err != nil && runtime.GOOS != "windows" {
		t.Fatal(err)
	}
	_ = filepath.WalkDir(filepath.Join(dir, "tree"), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			t.Fatal(err)
		}
		if d.Type().IsRegular() {
			rel, _ := filepath.Rel(dir, path)
			names = append(names, filepath.ToSlash(rel))
		}
		return nil
	})
	slices.Sort(names)
	return names
}

// verify compares a manifest with the files, and lets sha256sum do so too where there is one.
func verify(t *testing.T, dir string, manifest []byte, names []string) {
	t.Helper()
	var want []byte
	for _, name := range names {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		want = appendLine(want, sha256.Sum256(content), name)
	}
	if !bytes.Equal(manifest, want) {
		t.Errorf("the manifest is not that of the %d files:\n%s", len(names), manifest)
	}
	if path, err := exec.LookPath("sha256sum"); err == nil {
		c := exec.Command(path, "-c", "--strict")
		c.Dir, c.Stdin = dir, bytes.NewReader(manifest)
		out, err := c.CombinedOutput()
		if n := bytes.Count(out, []byte(": OK\n")); err != nil || n != len(names) {
			t.Errorf("sha256sum -c: %v, %d of %d files OK:\n%s", err, n, len(names), out)
		}
	}
}

// clean checks that Redis holds no message any more, nor anything that lives on unasked, but what was counted. Two
// things may be left of a killed run: its name among the dead, for an hour, and its place as keeper, until the next
// one takes it.
func clean(t *testing.T, s *redistest.Server) {
	t.Helper()
	keys, _ := redis.Strings(s.Do("KEYS", "*"), nil)
	for _, k := range keys {
		known := func(end string) bool { return strings.HasSuffix(k, end) }
		told := strings.Contains(k, "}.about.") // of a killed process, for two hours
		if k != "shunt.channels" && !told && !known(".counts") && !known(".receivers.dead") && !known(".keeper") {
			t.Errorf("%s was left in Redis", k)
		}
	}
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// gone checks that the run's own files are.
func gone(t *testing.T, out string) {
	t.Helper()
	for _, name := range []string{out + ".part", out + ".tmp"} {
		if _, err := os.Stat(name); err == nil {
			t.Errorf("%s was left behind", name)
		}
	}
}

func TestKilledRunsAreContinued(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	dir := t.TempDir()
	names := tree(t, dir, 300)
	out := filepath.Join(dir, "tree", "manifest") // in the directory itself, which it is no part of
	const kills, workers, crash = 3, 4, 50
	common := []string{"-redis", s.URL(), "-workers", strconv.Itoa(workers), "-out", out}

	hashed := 0
	for kill := range kills {
		r := execute(t, dir, append(common, "-crash-after", strconv.Itoa(crash), "tree")...)
		if r.code != -1 {
			t.Fatalf("run %d ended by itself", kill)
		}
		hashed += r.number(t, "hashed")
		if _, err := os.Stat(out); err == nil {
			t.Fatal("there is a manifest before all is done")
		}
		part, err := os.OpenFile(out+".part", os.O_APPEND|os.O_WRONLY, 0)
		if err == nil {
			_, err = part.WriteString(`\00aa`) // what a kill in the middle of a line leaves
			part.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	// The directory spelt otherwise is the same one.
	r := execute(t, dir, append(common, filepath.Join(dir, "tree")+"/")...)
	if r.code != 0 {
		t.Fatalf("the last run ended with exit code %d", r.code)
	}
	hashed += r.number(t, "hashed")
	if most := len(names) + kills*(crash+workers); hashed < len(names)-kills*workers || hashed > most {
		t.Errorf("%d files were hashed %d times, more than %d or too seldom", len(names), hashed, most)
	}
	if n := r.number(t, "enqueued"); n != 0 {
		t.Errorf("%d files were enqueued again that were done or waiting", n)
	}
	if r.number(t, "recovered") == 0 || r.number(t, "found") == 0 {
		t.Error("nothing was recovered or found")
	}
	manifest := bytes.ReplaceAll(read(t, out), []byte("  "+dir+"/tree/"), []byte("  tree/"))
	verify(t, dir, manifest, names)
	gone(t, out)
	clean(t, s)

	again := execute(t, dir, append(common, "tree")...)
	if n := again.number(t, "hashed"); again.code != 0 || n != len(names) {
		t.Errorf("a run after all that hashed %d files with exit code %d, want all %d and 0", n, again.code, len(names))
	}
	verify(t, dir, read(t, out), names)
	clean(t, s)
}

func TestKilledBetweenLineAndAck(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	dir := t.TempDir()
	names := tree(t, dir, 20)
	out := filepath.Join(dir, "manifest")
	common := []string{"-redis", s.URL(), "-workers", "1", "-out", out}
	if r := execute(t, dir, append(common, "-crash-after", strconv.Itoa(len(names)), "tree")...); r.code != -1 {
		t.Fatal("the first run ended by itself")
	}
	r := execute(t, dir, append(common, "tree")...)
	if n := r.number(t, "hashed"); r.code != 0 || n != 0 || r.number(t, "recovered") == 0 {
		t.Errorf("exit code %d, want 0, nothing hashed, and the last message recovered", r.code)
	}
	verify(t, dir, read(t, out), names)
	gone(t, out)
	clean(t, s)
}

func TestVanishedFileIsReportedOnce(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	dir := t.TempDir()
	names := tree(t, dir, 20)
	out := filepath.Join(dir, "manifest")
	common := []string{"-redis", s.URL(), "-workers", "1", "-out", out}
	if r := execute(t, dir, append(common, "-crash-after", "1", "tree")...); r.code != -1 {
		t.Fatal("the first run ended by itself")
	}
	done := read(t, out+".part")
	names = slices.DeleteFunc(names, func(name string) bool {
		if strings.Contains(name, "file7") && !bytes.Contains(done, []byte("file7\n")) {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
			return true
		}
		return false
	})
	r := execute(t, dir, append(common, "tree")...)
	if r.code != 1 || r.number(t, "failed") != 1 || strings.Count(r.stderr, `cannot read "tree/sub0/file7"`) != 1 {
		t.Error("want one failed file, named with the reason, and exit code 1")
	}
	verify(t, dir, read(t, out), names)
	gone(t, out)
	clean(t, s)
	if r := execute(t, dir, append(common, "tree")...); r.code != 0 {
		t.Error("the next run did not start afresh")
	}
	verify(t, dir, read(t, out), names)
}

func TestUnreadableFiles(t *testing.T) {
	t.Parallel()
	if os.Getuid() == 0 {
		t.Skip("root may read everything")
	}
	dir := t.TempDir()
	names := tree(t, dir, 20)
	if err := os.Chmod(filepath.Join(dir, "tree", "empty"), 0); err != nil {
		t.Fatal(err)
	}
	r := execute(t, dir, "tree")
	if r.code != 1 || strings.Count(r.stderr, `cannot read "tree/empty": permission denied`) != 1 {
		t.Error("want the file named with the reason and exit code 1")
	}
	verify(t, dir, []byte(r.stdout), slices.DeleteFunc(names, func(n string) bool { return n == "tree/empty" }))
}

func TestEmbeddedServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	names := tree(t, dir, 50)
	r := execute(t, dir, "tree/")
	if r.code != 0 || !strings.Contains(r.stderr, "inside this process") {
		t.Error("want exit code 0 and a word on the server")
	}
	verify(t, dir, []byte(r.stdout), names)

	r = execute(t, filepath.Join(dir, "tree"), ".")
	for i, name := range names {
		names[i] = "." + strings.TrimPrefix(name, "tree")
	}
	verify(t, filepath.Join(dir, "tree"), []byte(r.stdout), names)
}

func TestInterruptedRunIsContinued(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("there is no interrupt to send")
	}
	s := redistest.Start(t)
	dir := t.TempDir()
	names := tree(t, dir, 20)
	huge := filepath.Join(dir, "tree", "huge") // takes longer to read than the run has
	if err := os.WriteFile(huge, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(huge, 1<<40); err != nil {
		t.Skip("no sparse files: ", err)
	}
	c := program(dir, "-redis", s.URL(), "-out", "manifest", "tree")
	var stderr bytes.Buffer
	c.Stderr = &stderr
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer c.Process.Kill()
	for deadline := time.Now().Add(10 * time.Second); bytes.Count(partOf(dir),
		[]byte("\n")) < len(names); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the small files are not done")
		}
	}
	other := execute(t, dir, "-redis", s.URL(), "-out", "manifest", "tree")
	if other.code != 1 || !strings.Contains(other.stderr, "another run is at work") {
		t.Error("a second run at the same time was not refused")
	}
	if err := c.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait() // the code is looked at
	if code := c.ProcessState.ExitCode(); code != 130 ||
		!strings.Contains(stderr.String(), "the same command continues it") {
		t.Errorf("exit code %d, want 130 and a word on how to go on:\n%s", code, &stderr)
	}
	if err := os.Truncate(huge, 1000); err != nil {
		t.Fatal(err)
	}
	r := execute(t, dir, "-redis", s.URL(), "-out", "manifest", "tree")
	if n := r.number(t, "hashed"); r.code != 0 || n != 1 {
		t.Errorf("the next run hashed %d files with exit code %d, want 1 and 0", n, r.code)
	}
	verify(t, dir, read(t, filepath.Join(dir, "manifest")), slices.Sorted(slices.Values(append(names, "tree/huge"))))
	clean(t, s)
}

func partOf(dir string) []byte {
	b, _ := os.ReadFile(filepath.Join(dir, "manifest.part"))
	return b
}

func TestWrongUsage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, args := range [][]string{
		{}, {"nowhere"}, {".", "."}, {"-workers", "0", "."}, {"-no-such-flag", "."}, {"-out", dir, "."}, {"-redis",
			"http://localhost", "."},
		{"-crash-after", "1", "-out", "manifest", "."}, {"-crash-after", "1", "-redis", "redis://localhost", "."},
		{"-crash-after", "-1", "."},
	} {
		if r := execute(t, dir, args...); r.code != 2 || !strings.HasPrefix(r.stderr, "checksum: ") || r.stdout != "" {
			t.Errorf("%q: exit code %d, want 2", args, r.code)
		}
	}
	if r := execute(t, dir, "-h"); r.code != 0 || !strings.Contains(r.stderr, "usage:") {
		t.Error("-h is no error")
	}
}

func TestLine(t *testing.T) {
	t.Parallel()
	for _, name := range append(odd, "a", `\\`, "\\\n\\r\r") {
		s := sha256.Sum256([]byte(name))
		line := appendLine(nil, s, name)
		if got, sum, ok := parseLine(string(line)); got != name || sum != s || !ok {
			t.Errorf("%q came back as %q, %v", line, got, ok)
		}
		for n := range line {
			if _, _, ok := parseLine(string(line[:n])); ok {
				t.Errorf("%q is half a line", line[:n])
			}
		}
	}
	zeros := strings.Repeat("0", 64)
	for name, want := range map[string]string{
		"a b": zeros + "  a b\n", "\xff": zeros + "  \xff\n", `a\b`: `\` + zeros + `  a\\b` + "\n",
		"a\nb": `\` + zeros + `  a\nb` + "\n",
		"a\rb": `\` + zeros + `  a\rb` + "\n", `a\nb`: `\` + zeros + `  a\\nb` + "\n",
	} {
		if got := string(appendLine(nil, sum{}, name)); got != want {
			t.Errorf("%q became %q, want %q", name, got, want)
		}
	}
	for _, bad := range []string{"\n", "00  a\n", strings.Repeat("g", 64) + "  a\n", `\` + zeros + "  a\\x\n",
		zeros + "  \n"} {
		if _, _, ok := parseLine(bad); ok {
			t.Errorf("%q was taken for a line", bad)
		}
	}
}

func TestForeignPartIsNotTouched(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tree(t, dir, 1)
	part := filepath.Join(dir, "manifest.part")
	if err := os.WriteFile(part, []byte("somebody's\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if r := execute(t, dir, "-out", "manifest", "tree"); r.code != 1 || string(read(t, part)) != "somebody's\n" {
		t.Errorf("exit code %d, and the file holds %q", r.code, read(t, part))
	}
}
