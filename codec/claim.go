package codec

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/oklog/ulid/v2"

	"github.com/shuntmq/shunt"
)

// Store keeps objects by their names, as S3 does. Names are those of a path with one slash, of A-Z, a-z, 0-9. Its
// methods are called by many goroutines at once, and end when ctx does.
type Store interface {
	// Put keeps an object, in place of one that has the name. When it returns nil the object lasts.
	Put(ctx context.Context, name string, body []byte) error
	// Get reads an object. The error of one that is not there is an fs.ErrNotExist.
	Get(ctx context.Context, name string) (io.ReadCloser, error)
	// Delete removes an object; nil where there is none.
	Delete(ctx context.Context, name string) error
}

// Claim is the layer "claim": a payload above a size goes to a Store, and Redis keeps its name and its SHA-256. It
// stands last in a chain, so that the store gets what is compressed and encrypted.
//
// The object is put before the message is enqueued; where that fails, so does the enqueue, and Redis gets nothing. It
// is deleted when the message was surely acked, cancelled, expired or deleted. That of a dead message is kept until
// that is deleted. Where a process ends before it has deleted, where an outcome is not known, and in the other cases
// that shunt.Payloads.Over lists, objects stay: run Sweep once a day. A message whose object is missing fails with an
// error that names it, and is tried again.
//
// A recurring message keeps its payload in Redis, for all its ticks share it. A copy of a message has an object of its
// own, unless a program without the chain makes it. That one names the object of the original, with which it goes.
type Claim struct {
	Store Store // required
	// Above is the size in bytes above which a payload goes to the store: default 256 KB.
	Above int
}

// Name is "claim".
func (*Claim) Name() string { return "claim" }

// Validate says what is missing.
func (c *Claim) Validate() error {
	var errs []error
	if c.Store == nil {
		errs = append(errs, errors.New("codec: Claim.Store is nil: want a &codec.Dir{Path: …}, or a Store of yours"))
	}
	if c.Above < 0 {
		errs = append(errs, fmt.Errorf("codec: Claim.Above is %d: want a positive number, or 0 for 256 KB", c.Above))
	}
	if v, ok := c.Store.(interface{ Validate() error }); ok {
		errs = append(errs, v.Validate())
	}
	return errors.Join(errs...)
}

// Encode puts a large payload into the store.
func (c *Claim) Encode(ctx context.Context, p shunt.Payload) (string, []byte, error) {
	above := c.Above
	if above == 0 {
		above = 256 << 10
	}
	if len(p.Bytes) <= above || p.Serial == "" {
		return "", nil, nil
	}
	name := folderOf(p.Channel) + "/" + p.Serial
	if err := c.Store.Put(ctx, name, p.Bytes); err != nil {
		return "", nil, fmt.Errorf("put %s into the store: %w", name, err)
	}
	return name + "/" + sumOf(p.Bytes), []byte{}, nil
}

// Decode gets the payload from the store.
func (c *Claim) Decode(ctx context.Context, param string, p shunt.Payload, limit int) ([]byte, error) {
	name, sum, err := claimed(param, p.Channel)
	if err != nil {
		return nil, shunt.Reject(err)
	}
	body, err := c.Store.Get(ctx, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("the store has no %s: restore it, or delete the message: %w", name, err)
	}
	if err != nil {
		return nil, fmt.Errorf("get %s from the store: %w", name, err)
	}
	defer body.Close()
	var b bytes.Buffer
	n, err := b.ReadFrom(io.LimitReader(until{ctx, body}, int64(limit)+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read %s from the store: %w", name, err)
	case n > int64(limit):
		return nil, TooLarge(limit)
	case sumOf(b.Bytes()) != sum:
		return nil, shunt.Reject(fmt.Errorf("%s of the store is not what was put there: it has %d bytes, and another "+
			"SHA-256", name, n))
	}
	return b.Bytes(), nil
}

func (c *Claim) deleteOf(ctx context.Context, param string, p shunt.Payload) error {
	name, _, err := claimed(param, p.Channel)
	if err != nil {
		return err
	}
	if _, serial, _ := strings.Cut(name, "/"); serial != p.Serial { // that of another message, which may wait
		return nil
	}
	if err := c.Store.Delete(ctx, name); err != nil {
		return fmt.Errorf("delete %s from the store, which Sweep does later: %w", name, err)
	}
	return nil
}

// until is a reader that ends with a context.
type until struct {
	ctx context.Context
	io.Reader
}

func (u until) Read(b []byte) (int, error) {
	if u.ctx.Err() != nil {
		return 0, context.Cause(u.ctx)
	}
	return u.Reader.Read(b)
}

// folderOf is where a channel's objects are: 32 hex digits, for channels have names that a path may not have.
func folderOf(channel string) string { return sumOf([]byte(channel)) }

func sumOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:16])
}

// claimed reads what a message says of its object. An object of another channel is refused: who can write to Redis
// could name any, to have it deleted.
func claimed(param, channel string) (name, sum string, err error) {
	part := strings.Split(param, "/")
	if len(part) == 3 && isSum(part[0]) && isSerial(part[1]) && isSum(part[2]) {
		if part[0] != folderOf(channel) {
			return "", "", fmt.Errorf("the payload lies in the store for another channel than %q", channel)
		}
		return part[0] + "/" + part[1], part[2], nil
	}
	return "", "", fmt.Errorf("the name of the payload in the store is %.80q: want what Claim has written", param)
}

func isSum(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == 16 && s == strings.ToLower(s)
}

func isSerial(s string) bool {
	u, err := ulid.ParseStrict(s)
	return err == nil && u.String() == s
}
