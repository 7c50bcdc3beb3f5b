package shunt

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
)

// document is one of the pages that come with the package.
func document(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// README's program is vetted, built and run, on a server of its own, and does what README says of it.
func TestREADMEProgram(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no interrupt that a process could be sent")
	}
	s := redistest.Start(t)
	readme := document(t, "README.md")
	_, program, _ := strings.Cut(readme, "```go\npackage main")
	program, _, found := strings.Cut(program, "```")
	if !found {
		t.Fatal("README.md has no program")
	}
	const url = "redis://localhost:6379"
	if strings.Count(program, url) != 1 {
		t.Fatalf("README's program does not say %s once", url)
	}
	program = "package main" + strings.Replace(program, url, s.URL(), 1)

	// An overlay puts it into this module, in a directory that has no other program, and writes nothing there.
	dir := t.TempDir()
	write := func(name string, text []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{
		filepath.Join(root, "docs", "main.go"): write("main.go", []byte(program)),
	}})
	if err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "readme")
	for _, args := range [][]string{{"vet"}, {"build", "-o", binary}} {
		c := exec.Command("go", append(args, "-overlay", write("overlay.json", overlay), "./docs")...)
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(c.Args, " "), err, out)
		}
	}

	c := exec.Command(binary)
	var logged bytes.Buffer
	c.Stderr = &logged
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	hung := time.AfterFunc(20*time.Second, func() { c.Process.Kill() })
	defer hung.Stop()
	var printed []string
	for lines := bufio.NewScanner(out); lines.Scan(); {
		printed = append(printed, lines.Text())
		if len(printed) == 2 {
			c.Process.Signal(os.Interrupt)
		}
	}
	if err := c.Wait(); err != nil {
		t.Errorf("after Ctrl-C: %v", err)
	}
	if want := "[welcome, Ann welcome, Ben]"; fmt.Sprint(printed) != want {
		t.Errorf("it printed %v, want %s", printed, want)
	}
	for _, line := range printed {
		if !strings.Contains(readme, "\n"+line+"\n") {
			t.Errorf("README.md does not say that it prints %q", line)
		}
	}
	if lines := strings.Count(logged.String(), "\n"); lines != 1 ||
		!strings.Contains(logged.String(), "WARN shunt: retried channel=welcome") {
		t.Errorf("it logged %d lines: %s", lines, &logged)
	}
}

// The example that the README names is its program but for the server, and the README's first link away comes soon.
func TestREADMEFirstScreen(t *testing.T) {
	readme := document(t, "README.md")
	_, program, _ := strings.Cut(readme, "```go\npackage main")
	program, _, _ = strings.Cut(program, "```")
	inReadme := make(map[string]bool)
	for line := range strings.Lines(program) {
		inReadme[line] = true
	}
	_, hello, _ := strings.Cut(document(t, "example/hello/main.go"), "package main")
	others := 0
	for line := range strings.Lines(hello) {
		if !inReadme[line] {
			others++
		}
	}
	if n := strings.Count(hello, "\n") - strings.Count(program, "\n"); others != 4 || n < 1 || n > 3 {
		t.Errorf("example/hello has %d lines that README's program has not, and is %d lines longer", others, n)
	}
	first, _, found := strings.Cut(readme, "](")
	if n := strings.Count(first, "\n"); !found || n > 120 {
		t.Errorf("README.md's first link comes after %d lines", n)
	}
}

// sources are the parsed files of the package, without tests.
func sources(t *testing.T) []*ast.File {
	t.Helper()
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	return files
}

// row is the cells of the table row of a page that begins with the given one.
func row(page, first string) []string {
	_, rest, found := strings.Cut(page, "\n| "+first+" |")
	if !found {
		return nil
	}
	line, _, _ := strings.Cut(rest, "\n")
	cells := strings.Split(line, "|")
	for i := range cells {
		cells[i] = strings.TrimSpace(cells[i])
	}
	return cells
}

// Every field, option and optional method is in the tables of docs/configuration.md, with the default that a Queue
// takes.
func TestConfigurationPage(t *testing.T) {
	t.Parallel()
	page := document(t, "docs/configuration.md")
	pool, err := NewPool("redis://localhost:1")
	if err != nil {
		t.Fatal(err)
	}
	q := &Queue{Pool: pool}
	if err := q.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	def := reflect.ValueOf(q.conf).Elem()
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Queue]()) {
		if !f.IsExported() {
			continue
		}
		cells := row(page, "`"+f.Name+"`")
		if len(cells) < 3 {
			t.Errorf("the field %s is not in docs/configuration.md's table", f.Name)
			continue
		}
		var want int64
		switch f.Type.Kind() {
		case reflect.Int, reflect.Int64:
			want = def.FieldByName(f.Name).Int()
		default:
			continue
		}
		if got, err := quantity(cells[0]); err != nil || got != want {
			t.Errorf("docs/configuration.md says that the default of %s is %s, it is %d: %v", f.Name, cells[0],
				want, err)
		}
	}

	ident := func(e ast.Expr) string {
		if i, ok := e.(*ast.Ident); ok {
			return i.Name
		}
		return ""
	}
	options, methods := 0, 0
	for _, file := range sources(t) {
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.IsExported() && f.Type.Results != nil &&
				ident(f.Type.Results.List[0].Type) == "Option" {
				options++
				if !strings.Contains(page, "\n| `"+f.Name.Name+"(") {
					t.Errorf("the option %s is not in docs/configuration.md's table", f.Name.Name)
				}
			}
			g, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range g.Specs {
				ts, ok := spec.(*ast.TypeSpec)
				if !ok {
					continue
				}
				i, ok := ts.Type.(*ast.InterfaceType)
				if !ok || !ts.Name.IsExported() || ts.Name.Name == "IMessage" {
					continue
				}
				methods++
				if !strings.Contains(page, "\n| `"+i.Methods.List[0].Names[0].Name+"(") ||
					!strings.Contains(page, "`"+ts.Name.Name+"`") {
					t.Errorf("the optional method of %s is not in docs/configuration.md's table", ts.Name.Name)
				}
			}
		}
	}
	if options < 5 || methods < 3 {
		t.Errorf("found %d options and %d optional methods: this test no longer sees them", options, methods)
	}
}

// quantity reads "10 s", "30 days", "256 KB", "10,000".
func quantity(s string) (int64, error) {
	number, unit, _ := strings.Cut(strings.ReplaceAll(s, ",", ""), " ")
	n, err := strconv.ParseInt(number, 10, 64)
	units := map[string]int64{
		"":     1,
		"s":    int64(time.Second),
		"min":  int64(time.Minute),
		"days": int64(24 * time.Hour),
		"KB":   1 << 10,
		"MB":   1 << 20,
	}
	if units[unit] == 0 {
		return 0, fmt.Errorf("no unit %q", unit)
	}
	return n * units[unit], err
}

// The version of Go that README names is that of go.mod.
func TestREADMEGo(t *testing.T) {
	t.Parallel()
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(document(t, "go.mod"))
	if version == nil || !strings.Contains(document(t, "README.md"), "Go "+version[1]+" or later") {
		t.Errorf("go.mod says %q", version)
	}
}

// A Queue that only enqueues and looks has one connection, one that receives as many as the page's formula says.
func TestConnectionsPage(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	q := newBench(t, s.URL())
	q.enqueue(0, 10)
	q.enqueue(10, 20, In(time.Hour))
	if _, err := q.Stats(t.Context(), q.name); err != nil {
		t.Fatal(err)
	}
	if n := s.Connections(); n != 1 {
		t.Errorf("a Queue that enqueues has %d connections", n)
	}
	kinds := q.ranks(2, func(context.Context, int, int) error { return nil })
	q.receive(16, func(context.Context, int) error { return nil })
	if _, err := q.ReceiveOrdered(t.Context(), 16, kinds[0], kinds[1]); err != nil {
		t.Fatal(err)
	}
	// The subscription, three waiters, and a connection for the large one of each receiver.
	large := []byte("7" + strings.Repeat(" ", 128<<10))
	for range 3 {
		for _, channel := range []string{q.name, kinds[0].Channel()} {
			if err := q.Enqueue(t.Context(), Raw(channel, large)); err != nil {
				t.Fatal(err)
			}
		}
	}
	q.wait(EventAcked, 16, 10*time.Second)
	most := 3 + (1 + 1) + (1 + 2)
	q.until(10*time.Second, "all connections", func() bool { return s.Connections() == most })
	if need := q.connections(); need != most {
		t.Errorf("Receive counts %d", need)
	}
}

// What operations.md says of moving a plain list keeps its order.
func TestREADMEMove(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	operations := document(t, "docs/operations.md")
	for _, c := range []struct {
		push, first, move string
		want              string
	}{
		{"LPUSH", "", "RENAMENX jobs {jobs}.prepare", "1 2 3"},
		{"LPUSH", "4", "LMOVE jobs {jobs}.prepare LEFT RIGHT", "1 2 3 4"},
		{"LPUSH", "4", "RPOPLPUSH jobs {jobs}.prepare", "4 1 2 3"},
		{"RPUSH", "4", "LMOVE jobs {jobs}.prepare LEFT LEFT", "4 1 2 3"},
	} {
		if !strings.Contains(operations, "`"+c.move+"`") {
			t.Errorf("docs/operations.md does not say %s", c.move)
		}
		s.Do("FLUSHALL")
		q := newBench(t, s.URL())
		s.Do(c.push, "jobs", "1", "2", "3")
		if c.first != "" {
			s.Do("LPUSH", "{jobs}.prepare", c.first)
		}
		words := strings.Fields(c.move)
		var args []any
		for _, w := range words[1:] {
			args = append(args, w)
		}
		for i := range 4 {
			if v, err := s.TryDo(words[0], args...); err != nil && i == 0 || v == nil {
				if i == 0 {
					t.Errorf("%s: %v", c.move, err)
				}
				break
			}
		}
		es, err := q.List(t.Context(), "jobs", StatePrepare, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range es {
			got = append(got, string(e.Payload))
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: to be taken in the order %v, want %s", c.move, got, c.want)
		}
	}
}

// Links within the project lead somewhere, and tables are tables.
func TestREADMELinks(t *testing.T) {
	t.Parallel()
	link := regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`)
	n := 0
	for _, page := range []string{"README.md", "CHANGELOG.md", "docs/lifecycle.md", "docs/design.md",
		"docs/operations.md", "docs/performance.md", "docs/reliability.md", "docs/README.md", "docs/history.md",
		"docs/configuration.md", "docs/access.md", "CONTRIBUTING.md", "docs/guide/from-asynq.md",
		"docs/guide/from-river.md", "docs/guide/from-list.md", "docs/guide/options.md", "docs/guide/patterns.md",
		"docs/guide/troubleshooting.md", "docs/guide/deploy.md", "docs/guide/clients.md",
		"clients/python/README.md", "clients/php/README.md", "chaos/README.md", "SECURITY.md"} {
		for _, m := range link.FindAllStringSubmatch(document(t, page), -1) {
			n++
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), m[1])); err != nil {
				t.Errorf("%s: %v", page, err)
			}
		}
		for _, row := range regexp.MustCompile(`\n\n(\|.*)\n(\|[^-].*)?(\n|$)`).FindAllStringSubmatch(document(t,
			page), -1) {
			t.Errorf("%s: a blank line has cut this row off its table, so it is shown as it is: %s", page, row[1])
		}
	}
	if n < 5 {
		t.Errorf("found %d links", n)
	}
}

// What exists stands in the page that is there for it: each Event in operations.md, each script and key in
// lifecycle.md.
func TestREADMEPages(t *testing.T) {
	t.Parallel()
	operations, lifecycle := document(t, "docs/operations.md"), document(t, "docs/lifecycle.md")
	events := 0
	for _, file := range sources(t) {
		ast.Inspect(file, func(n ast.Node) bool {
			if v, ok := n.(*ast.ValueSpec); ok && len(v.Values) == 1 {
				if i, ok := v.Type.(*ast.Ident); ok && i.Name == "EventKind" {
					events++
					if !strings.Contains(operations, "`"+v.Names[0].Name+"`") {
						t.Errorf("docs/operations.md does not tell what to do about the Event %s", v.Names[0].Name)
					}
				}
			}
			return true
		})
	}
	if events < 20 {
		t.Errorf("found %d kinds of Event: this test no longer sees them", events)
	}
	scripts, err := os.ReadDir("internal/store/lua")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range scripts {
		name := strings.TrimSuffix(s.Name(), ".lua")
		if !strings.Contains(lifecycle, "`"+name+"`") {
			t.Errorf("docs/lifecycle.md does not tell of internal/store/lua/%s", s.Name())
		}
	}
	keys := []any{store.ChannelsKey}
	for k, i := reflect.ValueOf(*store.KeysOf("C")), 1; i < k.NumField(); i++ { // the first is the channel
		if k.Type().Field(i).IsExported() {
			keys = append(keys, k.Field(i).Interface())
		}
	}
	for _, key := range keys {
		if !strings.Contains(lifecycle, fmt.Sprintf("`%s`", key)) {
			t.Errorf("docs/lifecycle.md does not tell of the key %s", key)
		}
	}
}

// The widths that CONTRIBUTING names: code has at most 120 columns, with a tab as four, and prose in Markdown 100.
// Tables, and programs in Markdown, are as wide as they must be.
func TestWidths(t *testing.T) {
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		most := map[string]int{".go": 120, ".lua": 120, ".md": 100}[filepath.Ext(path)]
		if err != nil || most == 0 {
			return err
		}
		program := false
		for n, line := range strings.Split(document(t, path), "\n") {
			if strings.HasPrefix(line, "```") {
				program = !program
			}
			columns := utf8.RuneCountInString(strings.ReplaceAll(line, "\t", "    "))
			if columns > most && !program && !strings.HasPrefix(line, "|") {
				t.Errorf("%s:%d has %d columns, more than %d", path, n+1, columns, most)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// A comment that begins with a name begins with that of what stands below it. Tests and examples are free to begin with
// what they try out.
func TestCommentsName(t *testing.T) {
	t.Parallel()
	for opening, misnamed := range map[string]bool{
		"LookSoon asks for a sweep": true, "kick makes the beat": true, "Grave tells of an error": true,
		"own is what it says": false, "own: it says": false, "own's methods say": false, "A pool is": false,
		"The sweeps": false, "What is true": false, "Today there is": false, "URL is its address": false, "Own": false,
	} {
		if misnames(opening, "own") != misnamed {
			t.Errorf("%q above own: found %v", opening, !misnamed)
		}
	}
	free, seen := regexp.MustCompile(`^(Test|Benchmark|Fuzz|Example)`), 0
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" {
			return err
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, nil, parser.ParseComments)
		if err != nil || ast.IsGenerated(file) {
			return err
		}
		check := func(doc *ast.CommentGroup, name string) {
			if doc == nil {
				return
			}
			seen++
			if misnames(doc.Text(), name) {
				t.Errorf("%v: the comment of %s begins with another name: %.60q", files.Position(doc.Pos()), name,
					doc.Text())
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if !free.MatchString(n.Name.Name) {
					check(n.Doc, n.Name.Name)
				}
			case *ast.GenDecl:
				if len(n.Specs) == 1 && !n.Lparen.IsValid() {
					if s, ok := n.Specs[0].(*ast.TypeSpec); ok {
						check(n.Doc, s.Name.Name)
					}
				}
			case *ast.TypeSpec: // in parentheses
				check(n.Doc, n.Name.Name)
			case *ast.InterfaceType:
				for _, m := range n.Methods.List {
					if len(m.Names) == 1 {
						check(m.Doc, m.Names[0].Name)
					}
				}
			}
			return true
		})
		return nil
	})
	if err != nil || seen < 1000 {
		t.Errorf("%d comments seen, %v", seen, err)
	}
}

var (
	// opening is a comment's first word, what may follow its name, and the second word.
	opening = regexp.MustCompile(`^(\w+)('s|:|,)?\s+(\w+)`)
	// sentence is a word that begins a sentence which is about no name.
	sentence = regexp.MustCompile(`^(An?|The|This|That|These|It|Its|Each|Every|One|No|None|Nothing|Nobody|All|Both|` +
		`What|Whatever|Who|Whoever|Which|Where|When|While|How|Here|There|Only|Also|Else|As|If|So|In|On|Of|By|For)$`)
	// name is a word that a sentence does not begin with: its first letter is small, or a later one a capital.
	name = regexp.MustCompile(`^([a-z_]\w*|[A-Z]+[a-z]\w*[A-Z]\w*)$`)
)

// misnames says whether a comment of own begins with another name: with a word that no sentence begins with, or with
// any word as the subject of a verb, as in "Grave tells".
func misnames(comment, own string) bool {
	m := opening.FindStringSubmatch(comment)
	if m == nil || m[1] == own {
		return false
	}
	word, verb := m[1], strings.HasSuffix(m[3], "s")
	return name.MatchString(word) || verb && !sentence.MatchString(word) && word != strings.ToUpper(word)
}
