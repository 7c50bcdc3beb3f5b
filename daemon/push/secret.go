package push

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"log/slog"
	"strconv"
	"strings"
)

const (
	secretPrefix = "whsec_"
	markPrefix   = "sha256:"
	// The bytes of a key, as Standard Webhooks has them.
	leastKey, mostKey = 24, 64
)

// Secret is a key as Standard Webhooks writes it: "whsec_" and base64. It prints as its mark.
type Secret string

// errSecret does not tell what was given.
var errSecret = errors.New(`want "whsec_" and the base64 of 24 to 64 bytes, or the mark of a secret that the group has`)

// key is the bytes to sign with.
func (s Secret) key() ([]byte, error) {
	text, ok := strings.CutPrefix(string(s), secretPrefix)
	if !ok {
		return nil, errSecret
	}
	key, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		key, err = base64.RawStdEncoding.DecodeString(text)
	}
	if err != nil || len(key) < leastKey || len(key) > mostKey {
		return nil, errSecret
	}
	return key, nil
}

// Mark names the secret to people: "sha256:" and 16 digits of its hash. It has 192 bits or more, so that tells nothing.
func (s Secret) Mark() string {
	sum := sha256.Sum256([]byte(s))
	return markPrefix + hex.EncodeToString(sum[:8])
}

func (s Secret) String() string       { return s.Mark() }
func (s Secret) GoString() string     { return s.Mark() }
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.Mark()) }

// signatures signs a request with each key, as the header webhook-signature has it.
func signatures(keys [][]byte, id string, seconds int64, body []byte) string {
	all := make([]string, len(keys))
	for i, key := range keys {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(id + "." + strconv.FormatInt(seconds, 10) + "."))
		mac.Write(body)
		all[i] = "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	}
	return strings.Join(all, " ")
}
