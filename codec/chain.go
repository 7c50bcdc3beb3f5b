package codec

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/shuntmq/shunt"
)

// Layer is one step of a Chain. Its methods are called by many goroutines at once.
type Layer interface {
	// Name stands in the header of each payload that the layer has changed: 1 to 16 of a-z and 0-9. A layer keeps its
	// name and its form for good, for payloads that lie in Redis.
	Name() string
	// Encode returns other bytes, and up to 255 of A-Z, a-z, 0-9 and ._:/- that Decode must know, or none. nil leaves
	// the payload as it is. It must not write to p.Bytes. p.Encoding is what the layers before it have done.
	Encode(ctx context.Context, p shunt.Payload) (param string, encoded []byte, err error)
	// Decode undoes that. It makes no more than limit bytes of whatever it is given. After an error the message is
	// tried again, and after a shunt.Reject it goes to dead. p.Encoding is as Encode has met it.
	Decode(ctx context.Context, param string, p shunt.Payload, limit int) ([]byte, error)
}

// deleter is a layer that keeps something elsewhere.
type deleter interface {
	deleteOf(ctx context.Context, param string, p shunt.Payload) error
}

// Chain is a chain of layers. Its fields are its configuration, and are not written to once it is used. To change it,
// first give every process that reads the chain that can read both: with the new layer in Old, or the new key behind
// the old one. Then give every process that enqueues the one that writes anew.
type Chain struct {
	// Layers change a payload in their order, and are undone in the order in which they were done. None is there twice.
	Layers []Layer
	// Old are read and not written any more.
	Old []Layer
	// Require names layers without which a payload is not read, but goes to dead. With "aes" nobody who can write to
	// Redis, but has no key, can have a message handled. Set it once no message waits that was written without.
	Require []string
	// MaxSize bounds a payload as Marshal makes it, at Encode and at Decode, whatever its compressed bytes say of
	// themselves: default 64 MB.
	MaxSize int
}

const (
	maxLayers = 8
	maxParam  = 255
	// overhead is by how much layers may lengthen what they cannot shorten.
	overhead = 4 << 10
)

// Payloads checks the chain, and gives what Queue.Payloads wants. The error joins all that is wrong.
func (c *Chain) Payloads() (shunt.Payloads, error) {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("codec: "+format, args...))
		}
	}
	check(c.MaxSize >= 0, "Chain.MaxSize is %d: want a positive number, or 0 for 64 MB", c.MaxSize)
	check(len(c.Layers) <= maxLayers, "Chain.Layers has %d: want up to %d", len(c.Layers), maxLayers)
	names, deletes := make(map[string]bool), false
	for _, l := range c.all() {
		if l == nil {
			check(false, "a layer is nil: leave it out")
			continue
		}
		name := l.Name()
		check(len(name) <= 16 && isText(name, "", false), "a layer's name is %.40q: want 1 to 16 of a-z and 0-9", name)
		check(!names[name], "two layers are named %q: want each once, in Layers or in Old", name)
		names[name] = true
		if v, ok := l.(interface{ Validate() error }); ok {
			errs = append(errs, v.Validate())
		}
		if _, ok := l.(deleter); ok {
			deletes = true
		}
	}
	for _, name := range c.Require {
		check(names[name], "Chain.Require has %.40q: want names of its layers", name)
	}
	if err := errors.Join(errs...); err != nil {
		return shunt.Payloads{}, err
	}
	p := shunt.Payloads{Encode: c.encode, Decode: c.decode}
	if deletes {
		p.Over = c.over
	}
	return p, nil
}

func (c *Chain) all() []Layer { return append(c.Layers[:len(c.Layers):len(c.Layers)], c.Old...) }

func (c *Chain) maxSize() int {
	if c.MaxSize == 0 {
		return 64 << 20
	}
	return c.MaxSize
}

// layer is the one of a name, nil where there is none.
func (c *Chain) layer(name string) Layer {
	for _, l := range c.Layers {
		if l.Name() == name {
			return l
		}
	}
	for _, l := range c.Old {
		if l.Name() == name {
			return l
		}
	}
	return nil
}

func (c *Chain) encode(ctx context.Context, p shunt.Payload) (string, []byte, error) {
	if n := len(p.Bytes); n > c.maxSize() {
		return "", nil, fmt.Errorf("codec: the payload has %d bytes, and Chain.MaxSize is %d", n, c.maxSize())
	}
	p.Encoding = ""
	for _, l := range c.Layers {
		param, encoded, err := l.Encode(ctx, p)
		switch {
		case err != nil:
			return "", nil, fmt.Errorf("codec: %s: %w", l.Name(), err)
		case encoded == nil:
			continue
		case len(param) > maxParam || param != "" && !isText(param, paramMarks, true):
			return "", nil, fmt.Errorf("codec: %s says %.40q of a payload: want up to %d of A-Z, a-z, 0-9 and %s",
				l.Name(), param, maxParam, paramMarks)
		}
		p.Bytes, p.Encoding = encoded, step{l.Name(), param}.after(p.Encoding)
	}
	return p.Encoding, p.Bytes, nil
}

func (c *Chain) decode(ctx context.Context, p shunt.Payload) ([]byte, error) {
	steps, err := parse(p.Encoding)
	if err != nil {
		return nil, shunt.Reject(err)
	}
	for _, name := range c.Require {
		if !has(steps, name) {
			return nil, shunt.Reject(fmt.Errorf("codec: the payload did not go through %s, which Chain.Require wants",
				name))
		}
	}
	for i := len(steps) - 1; i >= 0; i-- {
		s, limit := steps[i], c.maxSize()
		if i > 0 {
			limit += overhead
		}
		l := c.layer(s.name)
		if l == nil {
			return nil, shunt.Reject(fmt.Errorf("codec: the payload went through %q, and the chain has no such layer: "+
				"add it to Chain.Old", s.name))
		}
		p.Encoding = text(steps[:i])
		if p.Bytes, err = l.Decode(ctx, s.param, p, limit); err != nil {
			return nil, fmt.Errorf("codec: %s: %w", s.name, err)
		}
		if len(p.Bytes) > limit {
			return nil, shunt.Reject(fmt.Errorf("codec: %s: %w", s.name, TooLarge(limit)))
		}
	}
	return p.Bytes, nil
}

// TooLarge is the error of a Layer whose Decode would make more than limit bytes. The message goes to dead.
func TooLarge(limit int) error {
	return shunt.Reject(fmt.Errorf("the payload has more than %d bytes, as Chain.MaxSize allows", limit))
}

// over deletes what layers keep elsewhere for a message that is over.
func (c *Chain) over(ctx context.Context, p shunt.Payload) error {
	steps, err := parse(p.Encoding)
	if err != nil {
		return err
	}
	var errs []error
	for _, s := range steps {
		if d, ok := c.layer(s.name).(deleter); ok {
			if err := d.deleteOf(ctx, s.param, p); err != nil {
				errs = append(errs, fmt.Errorf("codec: %s: %w", s.name, err))
			}
		}
	}
	return errors.Join(errs...)
}

// sealing is the key of a context in Seal and Open.
type sealing struct{}

// Seal encodes what has no headers, such as a result for shunt.SetResult: the encoding stands before it. Give what Open
// will know of it, but no Serial. What AES has sealed is no payload of a message, and is not read as one.
func (c *Chain) Seal(ctx context.Context, p shunt.Payload) ([]byte, error) {
	p.Serial = ""
	encoding, encoded, err := c.encode(context.WithValue(ctx, sealing{}, true), p)
	if err != nil {
		return nil, err
	}
	return append([]byte(encoding+"\n"), encoded...), nil
}

// Open decodes what Seal has made. p has the same fields, and those bytes.
func (c *Chain) Open(ctx context.Context, p shunt.Payload) ([]byte, error) {
	encoding, encoded, ok := bytes.Cut(p.Bytes, []byte("\n"))
	if !ok {
		return nil, errors.New("codec: that was not made by Seal")
	}
	p.Serial, p.Encoding, p.Bytes = "", string(encoding), encoded
	return c.decode(context.WithValue(ctx, sealing{}, true), p)
}

// step is what one layer says of a payload.
type step struct{ name, param string }

func (s step) String() string {
	if s.param == "" {
		return s.name
	}
	return s.name + "=" + s.param
}

func (s step) after(encoding string) string {
	if encoding == "" {
		return s.String()
	}
	return encoding + "," + s.String()
}

func text(steps []step) (encoding string) {
	for _, s := range steps {
		encoding = s.after(encoding)
	}
	return encoding
}

func has(steps []step, name string) bool {
	for _, s := range steps {
		if s.name == name {
			return true
		}
	}
	return false
}

// parse reads an encoding, which anybody may have written. What it accepts, text gives back to the byte.
func parse(encoding string) (steps []step, err error) {
	if encoding == "" {
		return nil, nil
	}
	if strings.Count(encoding, ",") >= maxLayers {
		return nil, fmt.Errorf("codec: the header %s has more than %d layers", shunt.EncodingHeader, maxLayers)
	}
	for part := range strings.SplitSeq(encoding, ",") {
		name, param, has := strings.Cut(part, "=")
		if len(name) > 16 || !isText(name, "", false) || len(param) > maxParam ||
			has && !isText(param, paramMarks, true) {
			return nil, fmt.Errorf("codec: the header %s is %.80q: want what a Chain has written", shunt.EncodingHeader,
				encoding)
		}
		steps = append(steps, step{name, param})
	}
	return steps, nil
}

const paramMarks = "._:/-"

// isText says whether s has one byte at least, and only small letters, digits, some marks and, with capitals, those.
func isText(s, marks string, capitals bool) bool {
	for i := range len(s) {
		b := s[i]
		if !(b >= 'a' && b <= 'z' || b >= '0' && b <= '9' || capitals && b >= 'A' && b <= 'Z' ||
			strings.IndexByte(marks, b) >= 0) {
			return false
		}
	}
	return s != ""
}
