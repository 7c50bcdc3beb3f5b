package codec

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func read(t testing.TB, d *Dir, name string) ([]byte, error) {
	t.Helper()
	r, err := d.Get(t.Context(), name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}

// An object is put, read, put again, listed and deleted; the directory need not be there.
func TestDir(t *testing.T) {
	t.Parallel()
	d := &Dir{Path: filepath.Join(t.TempDir(), "new", "store")}
	ctx := t.Context()
	if names := objects(t, d); names != nil {
		t.Errorf("no directory has %v", names)
	}
	if err := d.Delete(ctx, "a/b"); err != nil {
		t.Errorf("delete what is not there: %v", err)
	}
	if _, err := d.Get(ctx, "a/b"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("get what is not there: %v", err)
	}
	for _, text := range []string{"one", ""} {
		if err := d.Put(ctx, "a/b", []byte(text)); err != nil {
			t.Fatal(err)
		}
		if got, err := read(t, d, "a/b"); err != nil || string(got) != text {
			t.Errorf("%q, %v", got, err)
		}
	}
	if names := objects(t, d); len(names) != 1 || names[0] != "a/b" {
		t.Errorf("there are %v", names)
	}
	if info, err := os.Stat(filepath.Join(d.Path, "a", "b")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if err := d.Delete(ctx, "a/b"); err != nil || objects(t, d) != nil {
		t.Errorf("%v, and there are %v", err, objects(t, d))
	}
	done, cancel := context.WithCancel(ctx)
	cancel()
	if err := errors.Join(d.Put(done, "a/b", nil), d.Delete(done, "a/b")); !errors.Is(err, context.Canceled) {
		t.Errorf("with a done context: %v", err)
	}
	if err := d.List(done, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("listed with a done context: %v", err)
	}
	if _, err := d.Get(ctx, "a"); err == nil || !strings.Contains(err.Error(), "no file") {
		t.Errorf("a directory is read: %v", err)
	}
}

// No name and no symbolic link leads out of the directory.
func TestDirPaths(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	d := &Dir{Path: filepath.Join(home, "store")}
	outside := filepath.Join(home, "outside")
	if err := errors.Join(os.MkdirAll(d.Path, 0o700), os.WriteFile(outside, []byte("secret"), 0o600),
		os.Symlink(outside, filepath.Join(d.Path, "link")), os.Symlink(home, filepath.Join(d.Path, "up"))); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", ".", "..", "../outside", "a/../../outside", "/etc/passwd", "a//b", "a/", "/a",
		"a\x00b", "a\\b", "..\\outside", "C:a", ".hidden", "a/.b", "a b", "ä", strings.Repeat("a", 201), "link",
		"up/outside"} {
		if got, err := read(t, d, name); err == nil {
			t.Errorf("%q is read: %q", name, got)
		}
		if name != "link" {
			if err := d.Put(t.Context(), name, []byte("x")); err == nil {
				t.Errorf("%q is put", name)
			}
			if err := d.Delete(t.Context(), name); err == nil {
				t.Errorf("%q is deleted", name)
			}
		}
	}
	if err := d.Put(t.Context(), "link", []byte("mine")); err != nil { // in place of the link
		t.Error(err)
	}
	if b, err := os.ReadFile(outside); err != nil || string(b) != "secret" {
		t.Errorf("outside there is %q, %v", b, err)
	}
	for _, name := range objects(t, d) {
		if name != "link" {
			t.Errorf("there is %q", name)
		}
	}
}

// Who reads while others write gets one object as a whole, and what fails leaves nothing.
func TestDirIsAtomic(t *testing.T) {
	t.Parallel()
	d := &Dir{Path: t.TempDir()}
	if err := d.Put(t.Context(), "a/b", bytes.Repeat([]byte{0}, 10000)); err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for i := range byte(4) {
		group.Go(func() {
			for range 20 {
				if err := d.Put(t.Context(), "a/b", bytes.Repeat([]byte{i}, 10000)); err != nil {
					t.Error(err)
				}
				got, err := read(t, d, "a/b")
				if err != nil || len(got) != 10000 || bytes.Count(got, got[:1]) != 10000 {
					t.Errorf("%d bytes of several, %v", len(got), err)
				}
			}
		})
	}
	group.Wait()
	if err := os.Mkdir(filepath.Join(d.Path, "a", "c"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := d.Put(t.Context(), "a/c", []byte("x")); err == nil {
		t.Error("a file is put in place of a directory")
	}
	if names := objects(t, d); len(names) != 1 {
		t.Errorf("left are %v", names)
	}
}

// FuzzName holds the names of objects to a path within.
func FuzzName(f *testing.F) {
	for _, name := range []string{"a/b", "../a", "a/./b", ".part", "a..b"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if isName(name) && (!filepath.IsLocal(name) || filepath.Clean(name) != filepath.FromSlash(name)) {
			t.Fatalf("%q is a name", name)
		}
	})
}

// A Dir makes the directories above it, and makes anew what was taken away.
func TestDirMakesPath(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	for _, name := range []string{"a/b/c", "a/b/d", "e"} {
		d := &Dir{Path: filepath.Join(top, name)}
		for range 2 {
			if err := d.Put(t.Context(), "x/y", []byte("z")); err != nil {
				t.Fatal(err)
			}
			if b, err := read(t, d, "x/y"); err != nil || string(b) != "z" {
				t.Errorf("%q, %v", b, err)
			}
			if err := os.RemoveAll(filepath.Join(top, "a")); err != nil {
				t.Fatal(err)
			}
		}
	}
}
