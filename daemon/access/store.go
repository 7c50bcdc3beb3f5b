package access

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
)

const (
	namespacesKey = "{shuntd}.namespaces"
	tokensKey     = "{shuntd}.tokens."
	limitsKey     = "{shuntd}.limits"
	countKey      = "{shuntd}.count."
	hintsChannel  = "{shuntd}.hints"
)

// Store keeps tokens and limits in one Redis. Redis is its configuration. Run must run for checks to be cheap. Its
// methods may be called by many goroutines at once. A Store is not copied once used.
type Store struct {
	Redis *redis.Pool // required; each call takes a connection for one round trip

	mirror mirror
}

// create adds a token and lists its namespace. The hint, which a user may lack the right to, comes before all writes.
//
// KEYS tokens of the namespace, namespaces. ARGV sum, token, namespace, hints, the first key. Replies 1, or 0 where the
// token is there already.
var create = redis.NewScript(2, `
redis.call('PUBLISH', ARGV[4], ARGV[5])
if redis.call('HSETNX', KEYS[1], ARGV[1], ARGV[2]) == 0 then return 0 end
redis.call('SADD', KEYS[2], ARGV[3])
return 1`)

// remove deletes tokens with their limits, and what lists an empty namespace. Its hint comes last: without the right to
// it, the token is gone all the same.
//
// KEYS tokens of the namespace, namespaces, limits. ARGV sum, namespace, hints, the first key. Replies how many.
var remove = redis.NewScript(3, `
local n = redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('HDEL', KEYS[3], ARGV[2] .. '/' .. ARGV[1])
if redis.call('EXISTS', KEYS[1]) == 0 then redis.call('SREM', KEYS[2], ARGV[2]) end
redis.call('PUBLISH', ARGV[3], ARGV[4])
return n`)

func place(pool, namespace string) string { return pool + "/" + namespace }

// Create adds a token of 1 byte or more. ErrExists: the namespace has it already.
func (s *Store) Create(ctx context.Context, token string, t Token) error {
	sum, at := sumOf(token), place(t.Pool, t.Namespace)
	t.Mark, t.CreatedAt = markOf(token, sum), time.Now().UTC().Truncate(time.Second)
	text, err := json.Marshal(t)
	if err != nil {
		return fmt.Errorf("access: create a token of %s: %w", at, err)
	}
	key := tokensKey + at
	n, err := redis.Int(s.run(ctx, create, key, namespacesKey, sum, text, at, hintsChannel, key))
	s.mirror.drop(key)
	switch {
	case err != nil:
		return fmt.Errorf("access: create a token of %s: %w", at, err)
	case n == 0:
		return ErrExists
	}
	return nil
}

// Delete removes a token, given by itself or by its Mark, with its limit. ErrNotFound: there is none.
func (s *Store) Delete(ctx context.Context, pool, namespace, token string) error {
	at := place(pool, namespace)
	sum, err := s.sumFor(ctx, at, token)
	if err != nil {
		return err
	}
	key := tokensKey + at
	n, err := redis.Int(s.run(ctx, remove, key, namespacesKey, limitsKey, sum, at, hintsChannel, key))
	s.mirror.drop(key)
	s.mirror.drop(limitsKey)
	switch {
	case err != nil:
		return fmt.Errorf("access: delete a token of %s: %w", at, err)
	case n == 0:
		return ErrNotFound
	}
	return nil
}

// List shows the tokens of a namespace, sorted by Mark.
func (s *Store) List(ctx context.Context, pool, namespace string) ([]Token, error) {
	fields, err := s.all(ctx, tokensKey+place(pool, namespace))
	if err != nil {
		return nil, fmt.Errorf("access: list the tokens of %s: %w", place(pool, namespace), err)
	}
	var ts []Token
	for sum, text := range fields {
		if t, err := parse(pool, namespace, sum, text); err == nil {
			ts = append(ts, t)
		}
	}
	slices.SortFunc(ts, func(a, b Token) int { return strings.Compare(a.Mark, b.Mark) })
	return ts, nil
}

// Check finds a token. ErrInvalid: there is none in that pool's namespace. Any other error is Redis'.
func (s *Store) Check(ctx context.Context, pool, namespace, token string) (Token, error) {
	at := place(pool, namespace)
	known, err := s.look(ctx, namespacesKey)
	if err != nil {
		return Token{}, fmt.Errorf("access: check a token of %s: %w", at, err)
	}
	if _, ok := known.fields[at]; !ok {
		return Token{}, ErrInvalid
	}
	has, err := s.look(ctx, tokensKey+at)
	if err != nil {
		return Token{}, fmt.Errorf("access: check a token of %s: %w", at, err)
	}
	sum, found := sumOf(token), ""
	for kept := range has.fields { // all of them, so that the time tells nothing of where a sum differs
		if subtle.ConstantTimeCompare([]byte(kept), []byte(sum)) == 1 {
			found = kept
		}
	}
	if found == "" {
		return Token{}, ErrInvalid
	}
	if t, ok := has.tokens[found]; ok {
		return t, nil
	}
	return parse(pool, namespace, found, has.fields[found]) // for its error
}

// tokensOf reads the fields of a key that has tokens. What is none is left out.
func tokensOf(key string, fields map[string]string) map[string]Token {
	at, has := strings.CutPrefix(key, tokensKey)
	if !has {
		return nil
	}
	pool, namespace, _ := strings.Cut(at, "/")
	tokens := make(map[string]Token, len(fields))
	for sum, text := range fields {
		if t, err := parse(pool, namespace, sum, text); err == nil {
			tokens[sum] = t
		}
	}
	return tokens
}

func parse(pool, namespace, sum, text string) (Token, error) {
	t := Token{}
	if err := json.Unmarshal([]byte(text), &t); err != nil {
		return t, fmt.Errorf("access: a token of %s: %w", place(pool, namespace), err)
	}
	t.Pool, t.Namespace, t.sum = pool, namespace, sum
	return t, nil
}

// sumFor is the sum of a token that is given by itself or by its Mark.
func (s *Store) sumFor(ctx context.Context, at, token string) (string, error) {
	if !isMark(token) {
		return sumOf(token), nil
	}
	fields, err := s.all(ctx, tokensKey+at)
	if err != nil {
		return "", fmt.Errorf("access: find %s in %s: %w", token, at, err)
	}
	for sum, text := range fields {
		if t, err := parse("", "", sum, text); err == nil && t.Mark == token {
			return sum, nil
		}
	}
	return sumOf(token), nil // a token may look like a mark
}

// all are the fields of a hash, or the members of the set, as Redis has them now.
func (s *Store) all(ctx context.Context, key string) (map[string]string, error) {
	if key == namespacesKey {
		names, err := redis.Strings(s.do(ctx, "SMEMBERS", key))
		fields := make(map[string]string, len(names))
		for _, name := range names {
			fields[name] = ""
		}
		return fields, err
	}
	return redis.StringMap(s.do(ctx, "HGETALL", key))
}

func (s *Store) do(ctx context.Context, command string, args ...any) (any, error) {
	c, err := s.Redis.GetContext(ctx)
	if err != nil {
		return nil, err
	}
	v, err := redis.DoContext(c, ctx, command, args...)
	return v, errors.Join(err, c.Close())
}

func (s *Store) run(ctx context.Context, script *redis.Script, args ...any) (any, error) {
	c, err := s.Redis.GetContext(ctx)
	if err != nil {
		return nil, err
	}
	v, err := script.DoContext(ctx, c, args...)
	return v, errors.Join(err, c.Close())
}
