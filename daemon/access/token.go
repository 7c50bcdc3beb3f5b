package access

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"
)

// MinToken is the least length of a token that a user brings, in bytes.
const MinToken = 20

var (
	// ErrInvalid: the pool's namespace has no such token.
	ErrInvalid = errors.New("access: invalid token")
	// ErrExists: the token, or its limit, is there already.
	ErrExists = errors.New("access: it exists already")
	// ErrNotFound: there is no such token or limit.
	ErrNotFound = errors.New("access: not found")
)

// Role says what the holder of a token may do in its namespace.
type Role string

// The roles. Publish and Consume may look at messages, too. Both and Admin may do all that a queue's users do.
// Operators have accounts, and no token.
const (
	Publish Role = "publish"
	Consume Role = "consume"
	Both    Role = "both"
	Admin   Role = "admin"
)

// ParseRole reads a role; an empty text is Both.
func ParseRole(text string) (Role, error) {
	switch r := Role(text); r {
	case "":
		return Both, nil
	case Publish, Consume, Both, Admin:
		return r, nil
	}
	return "", fmt.Errorf("access: role %.20q: want publish, consume, both or admin", text)
}

// May says whether a role includes another one.
func (r Role) May(do Role) bool {
	return r == do || r == Admin || r == Both && do != Admin
}

// Token is what is kept of a token.
type Token struct {
	Pool        string    `json:"-"`
	Namespace   string    `json:"-"`
	Description string    `json:"description"`
	Role        Role      `json:"role"`
	CreatedAt   time.Time `json:"created_at"` // by the clock of the process that made it
	// Mark names the token to people: its first four characters, an asterisk, and 16 digits of its SHA-256. Delete and
	// the methods for limits take it in the token's place; Check does not.
	Mark string `json:"mark"`

	sum string // SHA-256 in hex
}

// Mint makes a token: a ULID with 80 random bits.
func Mint() (string, error) {
	id, err := ulid.New(ulid.Now(), rand.Reader)
	return id.String(), err
}

func sumOf(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// MarkOf is the Mark of a token, for logs and answers.
func MarkOf(token string) string { return markOf(token, sumOf(token)) }

// markOf shows of the token what is no secret of one of 20 bytes, and safe in a URL.
func markOf(token, sum string) string {
	shown := strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' || r == '-' {
			return r
		}
		return '_'
	}, token[:min(len(token), MinToken/5)])
	return shown + "*" + sum[:16]
}

func isMark(text string) bool {
	_, digits, ok := strings.Cut(text, "*")
	if _, err := hex.DecodeString(digits); err != nil {
		return false
	}
	return ok && len(digits) == 16
}
