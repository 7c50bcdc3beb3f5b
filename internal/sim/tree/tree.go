// Package tree reads packages of the module with their types, and lays changed texts over their files. Nothing in the
// tree is written to.
package tree

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
)

// Tree is the packages that some patterns name, and all that these import.
type Tree struct {
	Root   string // of the module
	Module string
	Fset   *token.FileSet

	version  string // of Go
	packages map[string]*listed
	imports  types.Importer
}

// listed is what go list says of a package.
type listed struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
}

// Package is a package as it is under an Overlay.
type Package struct {
	Path  string
	Files []*File
	Info  *types.Info
}

// File is a file of a Package; tests are not among them.
type File struct {
	Path string // absolute
	Name string // from the root of the module
	Text []byte
	AST  *ast.File
}

// Offset is where a position lies in the text.
func (f *File) Offset(fset *token.FileSet, p token.Pos) int { return fset.File(p).Offset(p) }

// Go is a run of the go command in a directory, outside of any workspace.
func Go(ctx context.Context, dir string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, "go", args...)
	c.Dir = dir
	c.Env = append(os.Environ(), "GOWORK=off")
	return c
}

// Root is the root of the module that a directory is in.
func Root(dir string) (string, error) {
	out, err := Go(context.Background(), dir, "env", "GOMOD").Output()
	if err != nil {
		return "", err
	}
	return filepath.Dir(string(bytes.TrimSpace(out))), nil
}

// Open has the go command list the packages, and compile what they import where that is not in its cache.
func Open(root, tags string, patterns ...string) (*Tree, error) {
	t := &Tree{Root: root, Fset: token.NewFileSet(), packages: make(map[string]*listed)}
	var module struct {
		Path string
		Go   string
	}
	for _, ask := range []struct {
		args []string
		take func(*json.Decoder) error
	}{
		{
			[]string{"list", "-m", "-f", `{"Path":"{{.Path}}","Go":"{{.GoVersion}}"}`},
			func(d *json.Decoder) error { return d.Decode(&module) },
		},
		{
			slices.Concat(
				[]string{"list", "-export", "-deps", "-tags", tags, "-json=ImportPath,Dir,Export,GoFiles"}, patterns),
			t.take,
		},
	} {
		c := Go(context.Background(), root, ask.args...)
		c.Stderr = os.Stderr
		out, err := c.Output()
		if err == nil {
			err = ask.take(json.NewDecoder(bytes.NewReader(out)))
		}
		if err != nil {
			return nil, fmt.Errorf("go list in %s: %w", root, err)
		}
	}
	t.Module, t.version = module.Path, "go"+module.Go
	t.imports = importer.ForCompiler(t.Fset, "gc", func(path string) (io.ReadCloser, error) {
		p := t.packages[path]
		if p == nil {
			return nil, fmt.Errorf("go list does not know %s", path)
		}
		return os.Open(p.Export)
	})
	return t, nil
}

func (t *Tree) take(d *json.Decoder) error {
	for {
		p := new(listed)
		switch err := d.Decode(p); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		t.packages[p.ImportPath] = p
	}
}

// Dir is the directory of a package, by its path from the root of the module; "." is the root itself.
func (t *Tree) Dir(from string) string { return filepath.Join(t.Root, filepath.FromSlash(from)) }

// Load reads a package, by its path from the root of the module, as it is under the overlay. What it imports is taken
// as it is in the tree: an overlay changes bodies of functions, and no declarations.
func (t *Tree) Load(from string, over Overlay) (*Package, error) {
	path := t.Module
	if from != "." {
		path += "/" + from
	}
	l := t.packages[path]
	if l == nil {
		return nil, fmt.Errorf("go list does not know %s", path)
	}
	p := &Package{Path: path}
	for _, name := range l.GoFiles {
		f := &File{Path: filepath.Join(l.Dir, name)}
		var err error
		if f.Name, err = filepath.Rel(t.Root, f.Path); err != nil {
			return nil, err
		}
		f.Name = filepath.ToSlash(f.Name)
		if f.Text, err = over.Read(f.Path); err != nil {
			return nil, err
		}
		if f.AST, err = t.parse(f.Path, f.Text); err != nil {
			return nil, err
		}
		p.Files = append(p.Files, f)
	}
	var err error
	p.Info, err = t.check(p)
	return p, err
}

// Compiles says whether the package would compile with another text of one of its files.
func (t *Tree) Compiles(p *Package, file *File, text []byte) error {
	changed := &File{Path: file.Path, Name: file.Name, Text: text}
	var err error
	if changed.AST, err = t.parse(file.Path, text); err != nil {
		return err
	}
	other := &Package{Path: p.Path, Files: slices.Clone(p.Files)}
	other.Files[slices.Index(p.Files, file)] = changed
	_, err = t.check(other)
	return err
}

func (t *Tree) parse(path string, text []byte) (*ast.File, error) {
	return parser.ParseFile(t.Fset, path, text, parser.SkipObjectResolution|parser.ParseComments)
}

func (t *Tree) check(p *Package) (*types.Info, error) {
	info := &types.Info{
		Types:      make(map[ast.Expr]types.TypeAndValue),
		Defs:       make(map[*ast.Ident]types.Object),
		Uses:       make(map[*ast.Ident]types.Object),
		Selections: make(map[*ast.SelectorExpr]*types.Selection),
	}
	var files []*ast.File
	for _, f := range p.Files {
		files = append(files, f.AST)
	}
	conf := types.Config{Importer: t.imports, GoVersion: t.version, Sizes: types.SizesFor("gc", runtime.GOARCH)}
	_, err := conf.Check(p.Path, t.Fset, files, info)
	return info, err
}

// Callee is the function or method that a call calls; nil where that is a value, a conversion or a builtin.
func Callee(info *types.Info, call *ast.CallExpr) *types.Func { return Function(info, call.Fun) }

// Function is the function or method that an expression names, or nil.
func Function(info *types.Info, e ast.Expr) *types.Func {
	switch e := ast.Unparen(e).(type) {
	case *ast.Ident:
		f, _ := info.Uses[e].(*types.Func)
		return f
	case *ast.SelectorExpr:
		f, _ := info.Uses[e.Sel].(*types.Func)
		return f
	case *ast.IndexExpr:
		return Function(info, e.X)
	}
	return nil
}
