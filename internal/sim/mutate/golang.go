package main

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strconv"

	"github.com/shuntmq/shunt/internal/sim/tree"
)

// goFile gathers the mutants of one Go file.
type goFile struct {
	tree  *tree.Tree
	info  *types.Info
	file  *tree.File
	group string
	in    string // the function
	found []*mutant
}

// goMutants are all mutants of a Go file, whether they compile or not.
func goMutants(t *tree.Tree, p *tree.Package, f *tree.File, group string) []*mutant {
	g := &goFile{tree: t, info: p.Info, file: f, group: group}
	for _, d := range f.AST.Decls {
		if d, is := d.(*ast.FuncDecl); is && d.Body != nil && !tells[d.Name.Name] {
			g.in = d.Name.Name
			ast.Inspect(d.Body, g.visit)
		}
	}
	number(g.found, f.Text)
	return g.found
}

// tells are the functions whose outcome is read by people.
var tells = map[string]bool{"String": true, "GoString": true, "Error": true, "Format": true, "LogValue": true}

// texts are functions whose arguments are for people too.
var texts = map[string]bool{"fmt.Errorf": true, "fmt.Sprintf": true, "errors.New": true}

// symmetric are functions whose arguments may be exchanged.
var symmetric = map[string]bool{"bytes.Equal": true, "math.Max": true, "math.Min": true}

func (g *goFile) offset(p token.Pos) int { return g.file.Offset(g.tree.Fset, p) }

func (g *goFile) text(n ast.Node) string {
	return string(g.file.Text[g.offset(n.Pos()):g.offset(n.End())])
}

func (g *goFile) add(kind string, at token.Pos, edits ...edit) {
	g.found = append(g.found, &mutant{group: g.group, file: g.file.Name, kind: kind, in: g.in,
		line: g.tree.Fset.Position(at).Line, edits: edits})
}

// replace adds the mutant in which a node has another text.
func (g *goFile) replace(kind string, n ast.Node, text string) {
	g.add(kind, n.Pos(), edit{g.offset(n.Pos()), g.offset(n.End()), text})
}

func (g *goFile) turn(cond ast.Expr) {
	if cond != nil {
		g.replace(turn, cond, "!("+g.text(cond)+")")
	}
}

func (g *goFile) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.BlockStmt:
		g.list(n.List)
	case *ast.CaseClause:
		g.list(n.Body)
	case *ast.CommClause:
		g.list(n.Body)
	case *ast.IfStmt:
		g.turn(n.Cond)
	case *ast.ForStmt:
		g.turn(n.Cond)
	case *ast.SwitchStmt:
		for _, c := range n.Body.List {
			for _, e := range c.(*ast.CaseClause).List {
				if n.Tag == nil {
					g.turn(e)
				}
			}
		}
	case *ast.CallExpr:
		return g.call(n)
	case *ast.BinaryExpr:
		if other, is := bounds[n.Op]; is {
			at := g.offset(n.OpPos)
			g.add(offByOne, n.OpPos, edit{at, at + len(n.Op.String()), other.String()})
		}
		// 101 ms instead of 100 is no mistake.
		return n.Op != token.MUL || g.info.TypeOf(n).String() != "time.Duration"
	case *ast.BasicLit:
		if v, err := strconv.ParseInt(n.Value, 0, 64); n.Kind == token.INT && err == nil {
			g.replace(offByOne, n, strconv.FormatInt(v+1, 10))
		}
	}
	return true
}

var bounds = map[token.Token]token.Token{
	token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR,
}

// call has two arguments exchanged, and says whether there is more to be found in the call.
func (g *goFile) call(c *ast.CallExpr) bool {
	if f := g.info.Types[c.Fun]; f.IsType() {
		return true
	} else if f.IsBuiltin() {
		name := g.text(c.Fun)
		return name != "make" && name != "panic" // the room that is made is no mistake either
	}
	if f := tree.Callee(g.info, c); f != nil && texts[f.FullName()] {
		return false
	} else if f != nil && symmetric[f.FullName()] {
		return true
	}
	for i, a := range c.Args {
		for _, b := range c.Args[i+1:] {
			if types.Identical(g.info.TypeOf(a), g.info.TypeOf(b)) {
				if g.text(a) != g.text(b) {
					g.add(exchange, a.Pos(), exchanged(g.file.Text, g.offset(a.Pos()), g.offset(a.End()),
						g.offset(b.Pos()), g.offset(b.End()))...)
				}
				break
			}
		}
	}
	return true
}

func (g *goFile) list(list []ast.Stmt) {
	for i, s := range list {
		if _, is := s.(*ast.CaseClause); is {
			return
		}
		if _, is := s.(*ast.CommClause); is {
			return
		}
		switch s := s.(type) {
		case *ast.BranchStmt:
			if s.Tok == token.BREAK || s.Tok == token.CONTINUE {
				g.replace(jump, s, "")
			}
		case *ast.ReturnStmt:
			g.replace(jump, s, "")
		default:
			if g.canDrop(s) {
				g.replace(drop, s, "")
			}
		}
		if i > 0 && g.canSwap(list[i-1], s) {
			a := list[i-1]
			g.add(swap, a.Pos(), exchanged(g.file.Text, g.offset(a.Pos()), g.offset(a.End()),
				g.offset(s.Pos()), g.offset(s.End()))...)
		}
	}
}

func (g *goFile) canDrop(s ast.Stmt) bool {
	switch s := s.(type) {
	case *ast.ExprStmt:
		c, is := s.X.(*ast.CallExpr)
		return !is || g.text(c.Fun) != "panic"
	case *ast.DeferStmt, *ast.GoStmt, *ast.SendStmt, *ast.IncDecStmt:
		return true
	case *ast.AssignStmt:
		return s.Tok != token.DEFINE && g.text(s.Lhs[0]) != "_"
	case *ast.IfStmt: // a guard
		if s.Else != nil || len(s.Body.List) == 0 {
			return false
		}
		switch s.Body.List[len(s.Body.List)-1].(type) {
		case *ast.BranchStmt, *ast.ReturnStmt:
			return true
		}
	}
	return false
}

// canSwap says whether the order of two statements may matter: one of them does something, or they have a name in
// common that one of them changes.
func (g *goFile) canSwap(a, b ast.Stmt) bool {
	for _, s := range []ast.Stmt{a, b} {
		switch s.(type) {
		case *ast.ExprStmt, *ast.AssignStmt, *ast.IncDecStmt, *ast.SendStmt, *ast.DeferStmt, *ast.GoStmt, *ast.IfStmt:
		default:
			return false
		}
	}
	return g.text(a) != g.text(b) && (g.acts(a) || g.acts(b) || g.touches(a, b) || g.touches(b, a))
}

// acts says whether a statement calls or receives something.
func (g *goFile) acts(s ast.Stmt) (acts bool) {
	ast.Inspect(s, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			f := g.info.Types[n.Fun]
			acts = acts || !f.IsBuiltin() && !f.IsType()
		case *ast.SendStmt:
			acts = true
		case *ast.UnaryExpr:
			acts = acts || n.Op == token.ARROW
		}
		return !acts
	})
	return acts
}

// touches says whether b speaks of what a assigns.
func (g *goFile) touches(a, b ast.Stmt) (touches bool) {
	var left []string
	switch a := a.(type) {
	case *ast.AssignStmt:
		for _, l := range a.Lhs {
			left = append(left, g.text(l))
		}
	case *ast.IncDecStmt:
		left = []string{g.text(a.X)}
	}
	ast.Inspect(b, func(n ast.Node) bool {
		if e, is := n.(ast.Expr); is {
			touches = touches || slices.Contains(left, g.text(e))
		}
		return !touches
	})
	return touches
}
