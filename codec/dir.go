package codec

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
)

// Dir is a Store in a directory, which may be shared by processes, also through a network file system. An object is
// written beside its place, synced, and renamed: so it is there as a whole or not at all, and lasts once Put has
// returned. No name, and no symbolic link, leads out of the directory. What a process leaves half written when it is
// killed ends in .part, and Sweep deletes it.
type Dir struct {
	Path string // required; it is made where it is missing, for the user alone

	lasts sync.Map // folders whose entry is synced, whoever has made them; "" is Path itself
}

const part = ".part"

// Validate says what is missing.
func (d *Dir) Validate() error {
	if d.Path == "" {
		return errors.New("codec: Dir.Path is empty: want a directory")
	}
	return nil
}

// isName says whether a name is a path of such names as any system takes.
func isName(name string) bool {
	if len(name) > 200 || !fs.ValidPath(name) || name == "." || !isText(name, "._-/", true) {
		return false
	}
	return !strings.HasPrefix(name, ".") && !strings.Contains(name, "/.")
}

// in calls do in the directory.
func (d *Dir) in(name string, do func(*os.Root) error) error {
	if err := d.Validate(); err != nil {
		return err
	}
	if !isName(name) {
		return fmt.Errorf("codec: the name of an object is %.80q: want a path of A-Z, a-z, 0-9 and ._-", name)
	}
	root, err := os.OpenRoot(d.Path)
	if err != nil {
		return err
	}
	defer root.Close()
	return do(root)
}

// Put writes a file.
func (d *Dir) Put(ctx context.Context, name string, body []byte) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	if err := d.Validate(); err != nil {
		return err
	}
	if err := d.makePath(); err != nil {
		return err
	}
	return d.in(name, func(root *os.Root) error {
		folder := path.Dir(name)
		_, err := root.Stat(folder)
		if _, lasts := d.lasts.Load(folder); err != nil || !lasts {
			if err := root.MkdirAll(folder, 0o700); err != nil {
				return err
			}
			for at := folder; at != "."; at = path.Dir(at) {
				if err := syncFolder(root, path.Dir(at)); err != nil {
					return err
				}
			}
			d.lasts.Store(folder, true)
		}
		draft := name + "." + rand.Text() + part
		err = writeFile(root, draft, body)
		if err == nil {
			if err = context.Cause(ctx); err == nil {
				err = root.Rename(draft, name)
			}
		}
		if err != nil {
			return errors.Join(err, absent(root.Remove(draft)))
		}
		return syncFolder(root, folder)
	})
}

// makePath makes the directory, and has what it made last. A directory above it that may not be opened is not synced.
func (d *Dir) makePath() error {
	if _, err := os.Stat(d.Path); err == nil {
		if _, lasts := d.lasts.Load(""); lasts {
			return nil
		}
	}
	above := []string{filepath.Dir(filepath.Clean(d.Path))}
	for at := above[0]; at != filepath.Dir(at); at = filepath.Dir(at) {
		if _, err := os.Stat(at); err == nil {
			break
		}
		above = append(above, filepath.Dir(at))
	}
	if err := os.MkdirAll(d.Path, 0o700); err != nil {
		return err
	}
	for _, at := range above {
		root, err := os.OpenRoot(at)
		if err == nil {
			err = errors.Join(syncFolder(root, "."), root.Close())
		}
		if err != nil && !errors.Is(err, fs.ErrPermission) {
			return err
		}
	}
	d.lasts.Store("", true)
	return nil
}

func writeFile(root *os.Root, name string, body []byte) error {
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(body)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// syncFolder has what was renamed or made in a folder last. Windows has no such call.
func syncFolder(root *os.Root, name string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	f, err := root.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// absent is nil for what is not there.
func absent(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Get opens a file.
func (d *Dir) Get(ctx context.Context, name string) (body io.ReadCloser, err error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	err = d.in(name, func(root *os.Root) error {
		f, err := root.Open(name)
		if err != nil {
			return err
		}
		if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
			return errors.Join(fmt.Errorf("codec: %s is no file", name), err, f.Close())
		}
		body = f
		return nil
	})
	return body, err
}

// Delete removes a file. The directory of the channel stays.
func (d *Dir) Delete(ctx context.Context, name string) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	return absent(d.in(name, func(root *os.Root) error { return root.Remove(name) }))
}

// List calls each for every file, until that returns an error or ctx ends.
func (d *Dir) List(ctx context.Context, each func(Object) error) error {
	if err := d.Validate(); err != nil {
		return err
	}
	root, err := os.OpenRoot(d.Path)
	if err != nil {
		return absent(err)
	}
	defer root.Close()
	return fs.WalkDir(root.FS(), ".", func(name string, e fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if absent(err) != nil {
			return err
		}
		if err != nil || !e.Type().IsRegular() || !isName(name) {
			return nil
		}
		info, err := e.Info()
		if err != nil {
			return absent(err)
		}
		return each(Object{Name: name, At: info.ModTime()})
	})
}
