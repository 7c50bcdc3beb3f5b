// Package seam finds the statements by which goroutines meet, and has [disturb.Point] called before each of them in an
// overlay. Everything is inserted on the line that is there, so that line numbers stay.
package seam

import (
	"bytes"
	"context"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/shuntmq/shunt/internal/sim/chance"
	"github.com/shuntmq/shunt/internal/sim/tree"
)

// Packages are those that are disturbed, by their paths from the root of the module.
var Packages = []string{
	".", "internal/bell", "internal/crowd", "internal/custody", "internal/event", "internal/lane", "internal/link",
	"internal/meter", "internal/sender", "internal/worker",
}

const (
	point    = "disturb.Point(); "
	deferred = "; defer disturb.Point()"
)

// Weave lays the packages over with their points, and over what the overlay already changes. It returns how many
// points there are.
func Weave(t *tree.Tree, over tree.Overlay, packages ...string) (points int, err error) {
	started := make(map[string]bool)
	loaded := make([]*tree.Package, len(packages))
	for i, from := range packages {
		if loaded[i], err = t.Load(from, over); err != nil {
			return 0, err
		}
		for _, f := range loaded[i].Files {
			ast.Inspect(f.AST, func(n ast.Node) bool {
				for _, e := range starts(n) {
					if f := tree.Function(loaded[i].Info, e); f != nil {
						started[f.FullName()] = true
					}
				}
				return true
			})
		}
	}
	for _, p := range loaded {
		for _, f := range p.Files {
			w := &weaver{fset: t.Fset, info: p.Info, started: started}
			ast.Inspect(f.AST, w.visit)
			if len(w.inserts) == 0 {
				continue
			}
			points += len(w.inserts)
			path := t.Module + "/internal/sim/disturb"
			w.insert(f.AST.Name.End(), fmt.Sprintf("; import disturb %q", path))
			over[f.Path] = w.apply(f.Text)
		}
	}
	return points, nil
}

// Disturb weaves all of Packages, has shunt go by the clocks of package daytime, and has the runtime draw by seeds, as
// package chance does. kept is why it could not: the runtime is another one, and keeps its chance.
func Disturb(ctx context.Context, t *tree.Tree, over tree.Overlay) (points int, kept, err error) {
	if points, err = Weave(t, over, Packages...); err != nil {
		return 0, nil, err
	}
	if err := clocks(ctx, t, over); err != nil {
		return 0, nil, err
	}
	return points, chance.Lay(ctx, t.Root, over), nil
}

// asks are what asks for the time, and what would forget whose clock that is.
var asks = strings.NewReplacer("time.Now()", "simclock.Now()", "time.Since(", "simclock.Since(", "time.Until(",
	"simclock.Until(", "time.AfterFunc(", "simclock.AfterFunc(", "context.AfterFunc(", "simclock.AfterEnd(")

// clocks has every package of shunt that a process runs ask package daytime for the time.
func clocks(ctx context.Context, t *tree.Tree, over tree.Overlay) error {
	const ours = "{{with .Module}}{{if .Main}}{{$.Dir}}{{end}}{{end}}"
	dirs, err := tree.Go(ctx, t.Root, "list", "-deps", "-f", ours, ".", "./recur").Output()
	if err != nil {
		return err
	}
	for dir := range strings.Lines(string(dirs)) {
		files, err := filepath.Glob(filepath.Join(strings.TrimSpace(dir), "*.go"))
		if err != nil {
			return err
		}
		for _, path := range files {
			text, err := over.Read(path)
			if err != nil {
				return err
			}
			if asked := asks.Replace(string(text)); !strings.HasSuffix(path, "_test.go") && asked != string(text) {
				asked = packageClause.ReplaceAllString(asked,
					"${0}; import simclock \""+t.Module+"/internal/sim/daytime\"")
				for _, name := range []string{"time.Time", "context.Context"} {
					of, _, _ := strings.Cut(name, ".")
					if strings.Contains(asked, "\t\""+of+"\"\n") { // it may be imported for that alone
						asked += "var _ " + name + ";"
					}
				}
				over[path] = []byte(asked)
			}
		}
	}
	return nil
}

var packageClause = regexp.MustCompile(`(?m)^package \w+`)

// starts are the functions that a node starts as goroutines.
func starts(n ast.Node) []ast.Expr {
	switch n := n.(type) {
	case *ast.GoStmt:
		return []ast.Expr{n.Call.Fun}
	case *ast.CallExpr:
		// sync.WaitGroup and errgroup.Group have a Go, package time and context an AfterFunc.
		if s, is := n.Fun.(*ast.SelectorExpr); is && (s.Sel.Name == "Go" || s.Sel.Name == "AfterFunc") {
			return n.Args
		}
	}
	return nil
}

// weaver gathers what is inserted into one file.
type weaver struct {
	fset    *token.FileSet
	info    *types.Info
	started map[string]bool // functions that run as goroutines, by their full names
	inserts []insert
}

type insert struct {
	at   int
	text string
}

func (w *weaver) insert(p token.Pos, text string) {
	w.inserts = append(w.inserts, insert{w.fset.File(p).Offset(p), text})
}

func (w *weaver) apply(text []byte) []byte {
	slices.SortStableFunc(w.inserts, func(a, b insert) int { return a.at - b.at })
	var out bytes.Buffer
	at := 0
	for _, i := range w.inserts {
		out.Write(text[at:i.at])
		out.WriteString(i.text)
		at = i.at
	}
	out.Write(text[at:])
	return out.Bytes()
}

// visit finds every list of statements, and every body that begins with a point.
func (w *weaver) visit(n ast.Node) bool {
	for _, e := range starts(n) {
		if f, is := e.(*ast.FuncLit); is {
			w.begin(f.Body)
		}
	}
	switch n := n.(type) {
	case *ast.FuncDecl:
		if f, is := w.info.Defs[n.Name].(*types.Func); is && n.Body != nil && w.started[f.FullName()] {
			w.begin(n.Body)
		}
	case *ast.ForStmt:
		if w.meets(n) {
			w.begin(n.Body)
		}
	case *ast.RangeStmt:
		if w.meets(n) {
			w.begin(n.Body)
		}
	case *ast.BlockStmt:
		w.list(n.List)
	case *ast.CaseClause:
		w.list(n.Body)
	case *ast.CommClause:
		w.list(n.Body)
	}
	return true
}

func (w *weaver) begin(b *ast.BlockStmt) { w.insert(b.Lbrace+1, point) }

func (w *weaver) list(list []ast.Stmt) {
	for _, s := range list {
		switch s.(type) { // these are lists of others
		case *ast.CaseClause, *ast.CommClause:
			return
		}
		d, _ := s.(*ast.DeferStmt)
		switch {
		case d != nil && w.isSeam(d.Call):
			w.insert(d.End(), deferred) // which runs before the call that was deferred earlier
		case w.meets(s):
			w.insert(s.Pos(), point)
		}
	}
}

// meets says whether goroutines meet in a statement, outside of the lists of statements in it.
func (w *weaver) meets(s ast.Stmt) bool {
	found := false
	ast.Inspect(s, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit, *ast.BlockStmt:
			return false
		case *ast.SwitchStmt:
			for _, c := range n.Body.List {
				for _, e := range c.(*ast.CaseClause).List {
					found = found || w.meets(&ast.ExprStmt{X: e})
				}
			}
		case *ast.SelectStmt, *ast.SendStmt:
			found = true
		case *ast.UnaryExpr:
			found = found || n.Op == token.ARROW
		case *ast.RangeStmt:
			_, is := w.info.TypeOf(n.X).Underlying().(*types.Chan)
			found = found || is
		case *ast.CallExpr:
			found = found || w.isSeam(n)
		}
		return !found
	})
	return found
}

// exchanges are what sends to Redis, by the end of its package's path.
var exchanges = map[string][]string{
	"/internal/link": {"Do", "DoFor", "Run", "Post"},
	"/redigo/redis":  {"Do", "DoWithTimeout", "Send", "Flush", "Receive", "ReceiveWithTimeout", "Close"},
}

// isSeam says whether goroutines meet in a call.
func (w *weaver) isSeam(call *ast.CallExpr) bool {
	if id, is := call.Fun.(*ast.Ident); is && id.Name == "close" {
		return w.info.Types[call.Fun].IsBuiltin()
	}
	switch types.TypeString(w.info.TypeOf(call.Fun), nil) {
	case "context.CancelFunc", "context.CancelCauseFunc":
		return true
	}
	f := tree.Callee(w.info, call)
	if f == nil || f.Pkg() == nil {
		return false
	}
	if path := f.Pkg().Path(); path == "sync" || path == "sync/atomic" {
		return true
	}
	for end, names := range exchanges {
		if strings.HasSuffix(f.Pkg().Path(), end) && slices.Contains(names, f.Name()) && f.Signature().Recv() != nil {
			return true
		}
	}
	return false
}
