package shunt

import (
	"go/ast"
	"go/doc"
	"go/importer"
	"go/parser"
	"go/token"
	gotypes "go/types"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// shownFields are the structs of which each field is shown.
var shownFields = []string{"Queue", "Filter", "Ref", "BulkResult", "Batch", "Codec", "Info", "Entry", "Status",
	"Outcome"}

// serving are methods that somebody else calls, by an interface of the standard library.
var serving = []string{"Error", "Unwrap", "Is", "String", "MarshalText", "UnmarshalText"}

// Each public symbol is used by an Example, or by what stands beside one: so a user finds out how.
func TestExamplesShowAll(t *testing.T) {
	t.Parallel()
	p := checkedPackage(t)
	var missing []string
	demand := func(name string, shown bool) {
		if !shown {
			missing = append(missing, name)
		}
	}
	n := 0
	for _, name := range p.shunt.Scope().Names() {
		o := p.shunt.Scope().Lookup(name)
		if !o.Exported() {
			continue
		}
		n++
		switch o := o.(type) {
		case *gotypes.TypeName:
			demand(name, p.shows(o))
			for _, m := range p.membersOf(o) {
				demand(name+"."+m.Name(), p.used[m])
			}
		case *gotypes.Const:
			// The kinds of Event and of Finding are many, and are handled alike: a few of them are shown.
			named, ok := o.Type().(*gotypes.Named)
			if !ok || named.Obj().Name() != "EventKind" && named.Obj().Name() != "FindingKind" {
				demand(name, p.used[o])
			}
		default:
			demand(name, p.used[o])
		}
	}
	if len(missing) > 0 {
		t.Errorf("%d symbols that no Example shows: %s", len(missing), strings.Join(missing, ", "))
	}
	if n < 90 {
		t.Errorf("%d exported names: this test no longer sees them", n)
	}
}

// Each Example runs, and says what it shows in one sentence of at most 25 words.
func TestExamplesForm(t *testing.T) {
	t.Parallel()
	_, examples := parsed(t, token.NewFileSet())
	all := doc.Examples(examples...)
	for _, e := range all {
		text := strings.TrimSpace(e.Doc)
		if words := len(strings.Fields(text)); words == 0 || words > 25 {
			t.Errorf("Example%s has a comment of %d words: want 1 to 25", e.Name, words)
		}
		if !strings.HasSuffix(text, ".") || strings.Contains(text, ". ") {
			t.Errorf("Example%s has the comment %q: want one sentence", e.Name, text)
		}
		if e.Output == "" {
			t.Errorf("Example%s has no output, so it is not run", e.Name)
		}
	}
	if len(all) < 50 {
		t.Errorf("%d Examples: this test no longer sees them", len(all))
	}
}

// parsed are the files of the package, and those of package shunt_test.
func parsed(t *testing.T, fset *token.FileSet) (code, examples []*ast.File) {
	t.Helper()
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		f, err := parser.ParseFile(fset, name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case f.Name.Name == "shunt_test":
			examples = append(examples, f)
		case !strings.HasSuffix(name, "_test.go"):
			code = append(code, f)
		}
	}
	return code, examples
}

// checked is the package, and what its Examples use of it.
type checked struct {
	shunt *gotypes.Package
	used  map[gotypes.Object]bool // symbols that are named
	holds map[gotypes.Object]bool // types of which there is a value
	own   []gotypes.Type          // that the Examples declare
}

// checkedPackage checks the types of the package and of its Examples, so that a field ID of one struct is not taken for
// another's. What comes from other modules has no types there, and is not looked at.
func checkedPackage(t *testing.T) *checked {
	t.Helper()
	fset := token.NewFileSet()
	code, examples := parsed(t, fset)
	im := &imports{std: importer.ForCompiler(fset, "source", nil), known: make(map[string]*gotypes.Package)}
	for _, f := range examples {
		for _, i := range f.Imports {
			im.real = append(im.real, strings.Trim(i.Path.Value, `"`))
		}
	}
	const path = "github.com/shuntmq/shunt"
	conf := gotypes.Config{Importer: im, Error: func(error) {}} // of what the faked imports lack
	p := &checked{used: make(map[gotypes.Object]bool), holds: make(map[gotypes.Object]bool)}
	p.shunt, _ = conf.Check(path, fset, code, nil)
	im.known[path] = p.shunt
	info := &gotypes.Info{
		Uses: make(map[*ast.Ident]gotypes.Object), Defs: make(map[*ast.Ident]gotypes.Object),
		Types: make(map[ast.Expr]gotypes.TypeAndValue),
	}
	conf.Check(path+"_test", fset, examples, info)
	for _, o := range info.Uses {
		switch symbol := o.(type) {
		case *gotypes.Var:
			o = symbol.Origin()
		case *gotypes.Func:
			o = symbol.Origin()
		}
		p.used[o] = true
	}
	for _, v := range info.Types {
		if pointer, ok := v.Type.(*gotypes.Pointer); ok {
			v.Type = pointer.Elem()
		}
		if named, ok := v.Type.(*gotypes.Named); ok {
			p.holds[named.Obj()] = true
		}
	}
	for _, o := range info.Defs {
		if o, ok := o.(*gotypes.TypeName); ok {
			p.own = append(p.own, o.Type(), gotypes.NewPointer(o.Type()))
		}
	}
	return p
}

// shows says whether a type is named, or there is a value of it, or for an interface one that implements it.
func (p *checked) shows(o *gotypes.TypeName) bool {
	if i, ok := o.Type().Underlying().(*gotypes.Interface); ok {
		return slices.ContainsFunc(p.own, func(t gotypes.Type) bool { return gotypes.Implements(t, i) })
	}
	return p.used[o] || p.holds[o]
}

// membersOf are the methods of a type that users call, and its fields where each is shown.
func (p *checked) membersOf(o *gotypes.TypeName) (ms []gotypes.Object) {
	named, ok := o.Type().(*gotypes.Named)
	if !ok {
		return nil
	}
	for m := range named.Methods() {
		if m.Exported() && !slices.Contains(serving, m.Name()) && !p.serves(named, m.Name()) {
			ms = append(ms, m)
		}
	}
	if s, ok := named.Underlying().(*gotypes.Struct); ok && slices.Contains(shownFields, o.Name()) {
		for f := range s.Fields() {
			if f.Exported() {
				ms = append(ms, f)
			}
		}
	}
	return ms
}

// serves says whether a method is there for an interface of the package, through which shunt calls it.
func (p *checked) serves(of *gotypes.Named, method string) bool {
	for _, name := range p.shunt.Scope().Names() {
		i, ok := p.shunt.Scope().Lookup(name).Type().Underlying().(*gotypes.Interface)
		if !ok || !gotypes.Implements(gotypes.NewPointer(of), i) {
			continue
		}
		for m := range i.Methods() {
			if m.Name() == method {
				return true
			}
		}
	}
	return false
}

// imports has the packages that Examples import from the standard library, and fakes all others.
type imports struct {
	std   gotypes.Importer
	real  []string
	known map[string]*gotypes.Package
}

func (im *imports) Import(path string) (*gotypes.Package, error) {
	if p := im.known[path]; p != nil {
		return p, nil
	}
	if slices.Contains(im.real, path) && !strings.Contains(path, ".") {
		return im.std.Import(path)
	}
	p := gotypes.NewPackage(path, filepath.Base(path))
	p.MarkComplete()
	im.known[path] = p
	return p, nil
}
