package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shuntmq/shunt"
)

// file is the message: one file that is to be hashed. run is what its handler needs; Unmarshal hands it on from the
// prototype.
type file struct {
	path string // relative to DIR, so that the same directory may be spelt otherwise in the next run
	run  *run
}

func (f *file) Channel() string { return f.run.channel }

// Marshal gives the path's bytes as they are: a file name need not be UTF-8, so it cannot travel as a JSON string.
func (f *file) Marshal() ([]byte, error) { return []byte(f.path), nil }

func (f *file) Unmarshal(payload []byte) (shunt.IMessage, error) {
	return &file{path: string(payload), run: f.run}, nil
}

// MaxAttempts and Backoff are short because a file that cannot be read now is seldom readable a minute later.
func (f *file) MaxAttempts() int          { return 3 }
func (f *file) Backoff(int) time.Duration { return 200 * time.Millisecond }

// Resolve returns nil, and so lets the message go, only after the line is on the disk. A message may come twice, as
// that of a process killed between the line and the ack does: it finds its file done.
func (f *file) Resolve(ctx context.Context) error {
	r := f.run
	if !r.ledger.has(f.path) {
		s, err := hash(ctx, r.name(f.path), &r.bytes)
		if err != nil {
			return err
		}
		if err := r.ledger.enter(f.path, s); err != nil {
			return err
		}
		r.counted()
	}
	r.tally.close(f.path)
	return nil
}

// sum is a file's SHA-256.
type sum [sha256.Size]byte

// buffers are large enough that the calls to read do not count.
var buffers = sync.Pool{New: func() any { b := make([]byte, 256<<10); return &b }}

// hash reads a file, but no longer than ctx lets it: the message then goes back untouched. It counts the bytes as they
// come. Its error is the bare reason.
func hash(ctx context.Context, name string, bytes *atomic.Int64) (s sum, err error) {
	in, err := os.Open(name)
	if err != nil {
		return s, reason(err)
	}
	defer in.Close()
	b := buffers.Get().(*[]byte)
	defer buffers.Put(b)
	h := sha256.New()
	for {
		if ctx.Err() != nil {
			return s, context.Cause(ctx)
		}
		n, err := in.Read(*b)
		h.Write((*b)[:n])
		bytes.Add(int64(n))
		if err == io.EOF {
			h.Sum(s[:0])
			return s, nil
		}
		if err != nil {
			return s, reason(err)
		}
	}
}

// reason is an error without the file's name, which stands beside it wherever it is shown.
func reason(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}
