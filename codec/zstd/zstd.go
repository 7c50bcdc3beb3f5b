// Package zstd is the layer of a codec.Chain that compresses payloads with Zstandard. It stands first in the chain, for
// what is encrypted cannot be compressed.
//
//	chain := &codec.Chain{Layers: []codec.Layer{&zstd.Layer{}, &codec.AES{Keys: keys}}}
package zstd

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/codec"
)

// Layer is the layer "zstd". It leaves a payload as it is that does not get shorter. Its encoder keeps some MB for each
// core as long as the Layer lives. The zero Layer works.
type Layer struct {
	// Above is the size in bytes above which a payload is compressed: default 1 KB.
	Above int
	// Level is from 1, the fastest, to 22, as the zstd command has them: default 3. Levels are mapped to the four that
	// github.com/klauspost/compress has.
	Level int

	mu       sync.Mutex
	encoder  *zstd.Encoder
	decoders map[int]*zstd.Decoder // by the limit of what they make
}

// Name is "zstd".
func (*Layer) Name() string { return "zstd" }

// Validate says what is out of its bounds.
func (l *Layer) Validate() error {
	var errs []error
	if l.Above < 0 {
		errs = append(errs, fmt.Errorf("zstd: Layer.Above is %d: want a positive number, or 0 for 1 KB", l.Above))
	}
	if l.Level < 0 || l.Level > 22 {
		errs = append(errs, fmt.Errorf("zstd: Layer.Level is %d: want 1 to 22, or 0 for 3", l.Level))
	}
	return errors.Join(errs...)
}

// Encode compresses a payload.
func (l *Layer) Encode(_ context.Context, p shunt.Payload) (string, []byte, error) {
	above, level := l.Above, l.Level
	if above == 0 {
		above = 1 << 10
	}
	if level == 0 {
		level = 3
	}
	if len(p.Bytes) <= above {
		return "", nil, nil
	}
	l.mu.Lock()
	if l.encoder == nil {
		var err error
		if l.encoder, err = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.EncoderLevelFromZstd(level))); err != nil {
			l.mu.Unlock()
			return "", nil, err
		}
	}
	by := l.encoder
	l.mu.Unlock()
	encoded := by.EncodeAll(p.Bytes, make([]byte, 0, len(p.Bytes)/2))
	if len(encoded) >= len(p.Bytes) {
		return "", nil, nil
	}
	return "", encoded, nil
}

// Decode expands a payload, and never to more than limit bytes. What cannot be expanded goes to dead.
func (l *Layer) Decode(_ context.Context, _ string, p shunt.Payload, limit int) ([]byte, error) {
	by, err := l.decoder(limit)
	if err != nil {
		return nil, err
	}
	plain, err := by.DecodeAll(p.Bytes, []byte{})
	switch {
	case errors.Is(err, zstd.ErrDecoderSizeExceeded), errors.Is(err, zstd.ErrWindowSizeExceeded), len(plain) > limit:
		return nil, codec.TooLarge(limit)
	case err != nil:
		return nil, shunt.Reject(fmt.Errorf("the payload was changed or cut: %w", err))
	}
	return plain, nil
}

// decoder is the one that makes no more than limit bytes. A chain asks for two limits at most.
func (l *Layer) decoder(limit int) (*zstd.Decoder, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if by := l.decoders[limit]; by != nil {
		return by, nil
	}
	most := max(limit, zstd.MinWindowSize) // no frame has a smaller window, and Decode looks at the length itself
	by, err := zstd.NewReader(nil, zstd.WithDecoderMaxMemory(uint64(most)), zstd.WithDecoderConcurrency(0))
	if err != nil {
		return nil, err
	}
	if l.decoders == nil {
		l.decoders = make(map[int]*zstd.Decoder)
	}
	l.decoders[limit] = by
	return by, nil
}
