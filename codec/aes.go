package codec

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"

	"github.com/shuntmq/shunt"
)

// AES is the layer "aes": it encrypts every payload with AES-GCM. Redis and its backups then have no payload in the
// clear, and what was changed there is not handled but goes to dead.
//
// A ciphertext is bound to its channel, the message's serial, ID and type name, its key, and the layers before it: at
// another message, or on another channel, it cannot be read. These are not bound: headers, options and counts, and
// whether the message was handled before. So who can write to Redis can delete a message, delay it, or put it back
// whole to have it handled twice.
//
// Nonces are random, 12 bytes each. With them one key may encrypt 2³² messages (NIST SP 800-38D, 8.3), from all
// processes together: that is 49 days at 1,000 a second. Take a new key before.
//
// To rotate keys, first add the new one behind the others in every process that reads. Then put it first in every
// process that enqueues. Remove the old one when no message waits that names it, dead and recurring ones included.
type AES struct {
	// Keys are those that decrypt; the first one encrypts.
	Keys []Key
	// AnySerial binds neither serial nor ID, for channels whose messages are exported and imported again, or copied,
	// by programs without the chain: they get new serials there. They stay bound to their channel. The command line
	// refuses to import what is bound to a serial. A recurring message has no serial to be bound in any
	// case: its ciphertext can stand for any message of its channel and type.
	AnySerial bool

	once    sync.Once
	ciphers map[string]cipher.AEAD
	err     error
}

// Key is a secret of 16, 24 or 32 random bytes, and its name, 1 to 64 of A-Z, a-z, 0-9 and ._-, which messages show.
// A name has one secret for good.
type Key struct {
	ID     string
	Secret []byte `json:"-"`
}

// String does not show the secret.
func (k Key) String() string { return "key " + k.ID }

// GoString does not show the secret.
func (k Key) GoString() string { return fmt.Sprintf("codec.Key{ID: %q}", k.ID) }

// LogValue does not show the secret.
func (k Key) LogValue() slog.Value { return slog.StringValue(k.String()) }

// unbound ends the param of a ciphertext that is not bound to a serial.
const unbound = ":any"

// Name is "aes".
func (*AES) Name() string { return "aes" }

// Validate says what is wrong with the keys.
func (a *AES) Validate() error {
	a.once.Do(a.init)
	return a.err
}

func (a *AES) init() {
	var errs []error
	if len(a.Keys) == 0 {
		errs = append(errs, errors.New("codec: AES.Keys is empty: the first key encrypts"))
	}
	a.ciphers = make(map[string]cipher.AEAD, len(a.Keys))
	for i, k := range a.Keys {
		if len(k.ID) > 64 || !isText(k.ID, "._-", true) {
			errs = append(errs, fmt.Errorf("codec: the ID of key %d is %.80q: want 1 to 64 of A-Z, a-z, 0-9 and ._-", i,
				k.ID))
		}
		if a.ciphers[k.ID] != nil {
			errs = append(errs, fmt.Errorf("codec: two keys have the ID %q", k.ID))
		}
		block, err := aes.NewCipher(k.Secret)
		if err != nil {
			errs = append(errs, fmt.Errorf("codec: key %q has %d bytes: want 16, 24 or 32", k.ID, len(k.Secret)))
			continue
		}
		if a.ciphers[k.ID], err = cipher.NewGCMWithRandomNonce(block); err != nil {
			errs = append(errs, fmt.Errorf("codec: key %q: %w", k.ID, err))
		}
	}
	a.err = errors.Join(errs...)
}

// Encode encrypts with the first key.
func (a *AES) Encode(ctx context.Context, p shunt.Payload) (string, []byte, error) {
	if err := a.Validate(); err != nil {
		return "", nil, err
	}
	param := a.Keys[0].ID
	if a.AnySerial || p.Serial == "" {
		param += unbound
	}
	by := a.ciphers[a.Keys[0].ID]
	return param, by.Seal(make([]byte, 0, len(p.Bytes)+by.Overhead()), nil, p.Bytes, bound(ctx, p, param)), nil
}

// Decode decrypts with the key that the message names.
func (a *AES) Decode(ctx context.Context, param string, p shunt.Payload, limit int) ([]byte, error) {
	if err := a.Validate(); err != nil {
		return nil, err
	}
	id := strings.TrimSuffix(param, unbound)
	by := a.ciphers[id]
	switch {
	case by == nil:
		return nil, shunt.Reject(fmt.Errorf("the key %q is unknown: add it to AES.Keys, and retry the message", id))
	case len(p.Bytes) > limit+by.Overhead():
		return nil, TooLarge(limit)
	}
	plain, err := by.Open([]byte{}, nil, p.Bytes, bound(ctx, p, param))
	if err != nil {
		return nil, shunt.Reject(fmt.Errorf("the payload cannot be decrypted: it was changed or cut, is that of "+
			"another message, or the key %q is another here", id))
	}
	return plain, nil
}

// bound is the additional data. Each part has its length before it, so that no two lists of parts give the same bytes.
// What was sealed has a first part of its own: else who can write to Redis could make a message of a result.
func bound(ctx context.Context, p shunt.Payload, param string) []byte {
	domain, serial, id := "shunt codec aes 1", p.Serial, p.ID
	if ctx.Value(sealing{}) != nil {
		domain = "shunt codec aes seal 1"
	}
	if strings.HasSuffix(param, unbound) {
		serial, id = "", ""
	}
	var b []byte
	for _, part := range []string{domain, p.Channel, serial, id, p.Type, p.Encoding, param} {
		b = append(binary.AppendUvarint(b, uint64(len(part))), part...)
	}
	return b
}
