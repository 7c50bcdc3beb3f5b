package snippets

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// imports are what a block may use without an import of its own, by the name before the dot.
var imports = map[string]string{
	"asynq":        "github.com/hibiken/asynq",
	"bytes":        "bytes",
	"context":      "context",
	"cron":         "github.com/robfig/cron/v3",
	"errors":       "errors",
	"fmt":          "fmt",
	"http":         "net/http",
	"json":         "encoding/json",
	"log":          "log",
	"maps":         "maps",
	"os":           "os",
	"pgx":          "github.com/jackc/pgx/v5",
	"pgxpool":      "github.com/jackc/pgx/v5/pgxpool",
	"recur":        "github.com/shuntmq/shunt/recur",
	"redis":        "github.com/gomodule/redigo/redis",
	"river":        "github.com/riverqueue/river",
	"riverpgxv5":   "github.com/riverqueue/river/riverdriver/riverpgxv5",
	"rivermigrate": "github.com/riverqueue/river/rivermigrate",
	"rivertest":    "github.com/riverqueue/river/rivertest",
	"rivertype":    "github.com/riverqueue/river/rivertype",
	"runtime":      "runtime",
	"shunt":        "github.com/shuntmq/shunt",
	"shunttest":    "github.com/shuntmq/shunt/shunttest",
	"signal":       "os/signal",
	"slices":       "slices",
	"slog":         "log/slog",
	"sort":         "sort",
	"sql":          "database/sql",
	"strconv":      "strconv",
	"strings":      "strings",
	"sync":         "sync",
	"syscall":      "syscall",
	"testing":      "testing",
	"time":         "time",
	"tls":          "crypto/tls",
	"url":          "net/url",
}

// block is the text between a line "```go" and the next "```".
type block struct {
	page string // its absolute path
	line int    // of the block's first line
	text string
}

// blocks finds what a page shows as Go. Of a fence with more than "go" behind it, such as "go-fragment" or
// "go (machinery)", nothing is compiled.
func blocks(page string) (bs []block, err error) {
	if page, err = filepath.Abs(page); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(page)
	if err != nil {
		return nil, err
	}
	fence, b := "", block{} // fence is what stands behind the backquotes of the fence that is open
	open := false
	for i, line := range strings.SplitAfter(string(text), "\n") {
		switch after, isFence := strings.CutPrefix(strings.TrimSpace(line), "```"); {
		case isFence && !open:
			open, fence, b = true, after, block{page: page, line: i + 2}
		case isFence:
			open = false
			if fence == "go" {
				bs = append(bs, b)
			}
		case open:
			b.text += line
		}
	}
	if open {
		return nil, fmt.Errorf("%s:%d: the fence has no end", page, b.line-1)
	}
	return bs, nil
}

var packageClause = regexp.MustCompile(`(?m)\A(\s*//.*\n)*package `)

// whole says that the block is a file with a package clause, and so a package by itself.
func (b block) whole() bool { return packageClause.MatchString(b.text) }

// file makes a Go file of the block. Its lines count as those of the page.
func (b block) file() ([]byte, error) {
	at := fmt.Sprintf("//line %s:%d\n", b.page, b.line)
	if b.whole() {
		return []byte(at + b.text), nil
	}
	const head = "package page\n"
	body := b.text
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, "", head+at+body, 0)
	if err != nil {
		// The function's result is for blocks that return one. The panic is for those that do not.
		var statementErr error
		wrap := func(tail string) string { return "func _() (_ error) {\n" + at + b.text + "\n" + tail + "}\n" }
		body = wrap("panic(0)\n")
		f, statementErr = parser.ParseFile(set, "", head+body, 0)
		if statementErr != nil {
			if regexp.MustCompile(`(?m)^(func|type|import|const) `).MatchString(b.text) {
				return nil, err // it looks like declarations, so this is the error to show
			}
			return nil, statementErr
		}
		// A block may show a result and leave the rest to the reader, so its variables count as used.
		uses := ""
		for _, name := range declared(f.Decls[0].(*ast.FuncDecl).Body) {
			uses += "_ = " + name + "\n"
		}
		body = wrap(uses + "panic(0)\n")
		at = ""
	}
	return []byte(head + importsFor(f) + at + body), nil
}

// declared are the variables that a block of statements declares outside of any inner block.
func declared(body *ast.BlockStmt) (names []string) {
	add := func(e ast.Expr) {
		if id, ok := e.(*ast.Ident); ok && id.Name != "_" && !slices.Contains(names, id.Name) {
			names = append(names, id.Name)
		}
	}
	for _, s := range body.List {
		switch s := s.(type) {
		case *ast.AssignStmt:
			if s.Tok == token.DEFINE {
				for _, e := range s.Lhs {
					add(e)
				}
			}
		case *ast.DeclStmt:
			for _, spec := range s.Decl.(*ast.GenDecl).Specs {
				if v, ok := spec.(*ast.ValueSpec); ok && s.Decl.(*ast.GenDecl).Tok == token.VAR {
					for _, id := range v.Names {
						add(id)
					}
				}
			}
		}
	}
	return names
}

// importsFor imports what the block names before a dot, and does not declare or import by itself.
func importsFor(f *ast.File) string {
	used := map[string]bool{}
	ast.Inspect(f, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if id, ok := s.X.(*ast.Ident); ok && slices.Contains(f.Unresolved, id) && imports[id.Name] != "" {
				used[id.Name] = true
			}
		}
		return true
	})
	for _, spec := range f.Imports {
		path, _ := strconv.Unquote(spec.Path.Value)
		for name := range used {
			if imports[name] == path || spec.Name != nil && spec.Name.Name == name {
				delete(used, name)
			}
		}
	}
	text := ""
	for name := range used {
		text += fmt.Sprintf("import %s %q\n", name, imports[name])
	}
	return text
}

// compile compiles and vets all Go of the pages, and returns what the compiler said and how many blocks there were. A
// page's blocks are one package with testdata/preamble.go, and with testdata/<page>.go, if there is one. These declare
// what blocks use and do not show.
func compile(t *testing.T, pages ...string) (faults string, n int) {
	dir := t.TempDir()
	write := func(name string, text []byte) {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, text, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	read := func(name string) []byte {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	// The packages are a module elsewhere, with the requirements of this one, so nothing is ever left in the tree.
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	write("go.mod", bytes.Replace(read("go.mod"), []byte("=> ../../"), []byte("=> "+strconv.Quote(root)), 1))
	write("go.sum", read("go.sum"))
	for p, page := range pages {
		found, err := blocks(page)
		if err != nil {
			t.Fatal(err)
		}
		pkg := fmt.Sprint("page", p)
		n += len(found)
		for i, b := range found {
			text, err := b.file()
			if err != nil {
				faults += err.Error() + "\n"
				continue
			}
			if b.whole() {
				write(fmt.Sprintf("page%dblock%d/main.go", p, i), text)
			} else {
				write(fmt.Sprintf("page%d/block%d.go", p, i), text)
			}
		}
		if _, err := os.Stat(filepath.Join(dir, pkg)); err != nil {
			continue // no block of the page belongs into it
		}
		write(pkg+"/preamble.go", read("testdata/preamble.go"))
		if own, err := os.ReadFile("testdata/" + strings.TrimSuffix(filepath.Base(page), ".md") + ".go"); err == nil {
			write(pkg+"/own.go", own)
		}
	}
	// vet tells one error of a package and stops, so the compiler goes first; go list runs it without a linker. The
	// panic at the end of a function may be unreachable.
	for _, args := range [][]string{{"list", "-export", "-gcflags=-e"}, {"vet", "-unreachable=false"}} {
		c := exec.Command("go", append(args, "./...")...)
		c.Dir = dir
		c.Env = append(os.Environ(), "GOWORK=off")
		var stderr bytes.Buffer
		c.Stderr = &stderr
		if err := c.Run(); err != nil {
			return faults + stderr.String(), n
		}
	}
	return faults, n
}

// Every block of Go in the documentation compiles. The pages are outside of this module, where the cache of tests does
// not look: run it with -count=1.
func TestSnippets(t *testing.T) {
	t.Parallel()
	var pages []string
	for _, pattern := range []string{"README.md", "CONTRIBUTING.md", "docs/*.md", "docs/guide/*.md"} {
		found, err := filepath.Glob(filepath.Join("..", "..", filepath.FromSlash(pattern)))
		if err != nil || len(found) == 0 {
			t.Fatalf("there is no page %s: %v", pattern, err)
		}
		pages = append(pages, found...)
	}
	faults, n := compile(t, pages...)
	if n < 10 {
		t.Errorf("found %d blocks of Go on %d pages", n, len(pages))
	}
	if faults != "" {
		t.Errorf("the documentation's Go does not compile:\n%s", faults)
	}
}

// What does not compile is reported with its page and line.
func TestFaults(t *testing.T) {
	t.Parallel()
	page := filepath.Join(t.TempDir(), "page.md")
	const text = "A page.\n\n```go\nn := 1\nerr = q.Enqueued(ctx)\n```\n\n" +
		"```go\nfunc f() {}\n\nvar s string = 1\n```\n\n" +
		"```go\nif {\n```\n\n```go-fragment\nnot Go\n```\n\n" +
		"```go\npackage main\n\nfunc main() { x() }\n```\n"
	if err := os.WriteFile(page, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	faults, n := compile(t, page)
	if n != 4 {
		t.Errorf("found %d blocks, want 4", n)
	}
	for _, want := range []string{"page.md:5", "page.md:11", "page.md:15", "page.md:25"} {
		if !strings.Contains(faults, want) {
			t.Errorf("%s is not reported: %s", want, faults)
		}
	}
	if lines := strings.Count(faults, "page.md:"); lines != 4 {
		t.Errorf("%d faults are reported, want 4: %s", lines, faults)
	}
}
