package access

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
)

// Limit bounds the requests of one token in each window of Interval seconds. Zero or less means no bound.
type Limit struct {
	Read     int64 `json:"read"`     // requests that consume
	Write    int64 `json:"write"`    // requests that publish
	Interval int64 `json:"interval"` // s, 1 or more
}

// Validate says what is wrong with the limit.
func (l Limit) Validate() error {
	switch {
	case l.Interval <= 0 || l.Interval > 1e9:
		return errors.New("limiter interval should be > 0")
	case l.Read == 0 && l.Write == 0:
		return errors.New("the read and write of limiter can't be 0 at the same time")
	}
	return nil
}

// TokenLimit is a limit and whose it is.
type TokenLimit struct {
	Pool, Namespace string
	Mark            string // of the token; of one that was not there when the limit was set, that of what was given
	Limit           Limit
}

// limitText is how a limit lies in Redis.
type limitText struct {
	Limit
	Mark string `json:"mark"`
}

// change writes or deletes a limit, and tells all processes. The hint comes first, as in create.
//
// KEYS limits. ARGV HSET, HSETNX or HDEL, field, hints, and the limit unless it is HDEL. Replies the command's.
var change = redis.NewScript(1, `
redis.call('PUBLISH', ARGV[3], KEYS[1])
local n
if ARGV[1] == 'HDEL' then
	n = redis.call('HDEL', KEYS[1], ARGV[2])
else
	n = redis.call(ARGV[1], KEYS[1], ARGV[2], ARGV[4])
end
return n`)

// AddLimit is SetLimit for a token that has none; else it is ErrExists.
func (s *Store) AddLimit(ctx context.Context, pool, namespace, token string, l Limit) error {
	return s.setLimit(ctx, "HSETNX", pool, namespace, token, l)
}

// SetLimit bounds a token's requests from now on; everywhere within a second.
func (s *Store) SetLimit(ctx context.Context, pool, namespace, token string, l Limit) error {
	return s.setLimit(ctx, "HSET", pool, namespace, token, l)
}

func (s *Store) setLimit(ctx context.Context, command, pool, namespace, token string, l Limit) error {
	if err := l.Validate(); err != nil {
		return err
	}
	at := place(pool, namespace)
	sum, err := s.sumFor(ctx, at, token)
	if err != nil {
		return err
	}
	mark := token
	if !isMark(token) {
		mark = markOf(token, sum)
	}
	text, err := json.Marshal(limitText{l, mark})
	if err != nil {
		return err
	}
	n, err := redis.Int(s.run(ctx, change, limitsKey, command, at+"/"+sum, hintsChannel, text))
	s.mirror.drop(limitsKey)
	switch {
	case err != nil:
		return fmt.Errorf("access: limit %s of %s: %w", mark, at, err)
	case n == 0 && command == "HSETNX":
		return ErrExists
	}
	return nil
}

// DeleteLimit takes a token's limit away; one that has none is no error.
func (s *Store) DeleteLimit(ctx context.Context, pool, namespace, token string) error {
	at := place(pool, namespace)
	sum, err := s.sumFor(ctx, at, token)
	if err == nil {
		_, err = s.run(ctx, change, limitsKey, "HDEL", at+"/"+sum, hintsChannel)
		s.mirror.drop(limitsKey)
	}
	if err != nil {
		return fmt.Errorf("access: delete a limit of %s: %w", at, err)
	}
	return nil
}

// LimitOf is a token's limit. ErrNotFound: it has none.
func (s *Store) LimitOf(ctx context.Context, pool, namespace, token string) (Limit, error) {
	at := place(pool, namespace)
	sum, err := s.sumFor(ctx, at, token)
	if err != nil {
		return Limit{}, err
	}
	l, ok, err := s.limit(ctx, at+"/"+sum)
	if err == nil && !ok {
		err = ErrNotFound
	}
	return l.Limit, err
}

// Limits are those of all tokens, in no order.
func (s *Store) Limits(ctx context.Context) ([]TokenLimit, error) {
	fields, err := s.all(ctx, limitsKey)
	if err != nil {
		return nil, fmt.Errorf("access: list the limits: %w", err)
	}
	var ls []TokenLimit
	for name, text := range fields {
		part := strings.Split(name, "/")
		var l limitText
		if json.Unmarshal([]byte(text), &l) == nil && len(part) == 3 {
			ls = append(ls, TokenLimit{Pool: part[0], Namespace: part[1], Mark: l.Mark, Limit: l.Limit})
		}
	}
	return ls, nil
}

func (s *Store) limit(ctx context.Context, name string) (l limitText, ok bool, err error) {
	limits, err := s.look(ctx, limitsKey)
	if err != nil {
		return l, false, fmt.Errorf("access: look for a limit: %w", err)
	}
	text, ok := limits.fields[name]
	if ok {
		err = json.Unmarshal([]byte(text), &l)
	}
	return l, ok, err
}

// count admits one request into the window that runs, or begins one; or takes it back out of its own window.
//
// KEYS the count. ARGV most requests, window in ms, and to take one back the beginning of its window, else "".
// Replies 1 or 0, the beginning of the window in ms, and ms until it ends. It opens with a freeing write, so that a
// full Redis, which consumers must drain, does not refuse it.
var count = redis.NewScript(1, `
redis.call('HDEL', KEYS[1], '')
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local most, long = tonumber(ARGV[1]), tonumber(ARGV[2])
local had = redis.call('HMGET', KEYS[1], 'begun', 'n')
local begun, n = tonumber(had[1] or 0), tonumber(had[2] or 0)
if ARGV[3] ~= '' then
	if n > 0 and had[1] == ARGV[3] then redis.call('HINCRBY', KEYS[1], 'n', -1) end
	return {1, 0, 0}
end
if now >= begun + long or now < begun then begun, n = now, 0 end
if n >= most then return {0, begun, begun + long - now} end
redis.call('HSET', KEYS[1], 'begun', string.format('%.0f', begun), 'n', n + 1)
redis.call('PEXPIRE', KEYS[1], long)
return {1, begun, begun + long - now}`)

// Admission is whether a request is within its token's limit.
type Admission struct {
	OK         bool
	RetryAfter time.Duration // not OK: until the window ends

	s     *Store
	key   string
	limit int64
	long  int64 // ms
	begun int64 // ms; 0: nothing was counted
}

// Admit counts one request of a token that Check gave. It asks Redis only where the token has a limit.
func (s *Store) Admit(ctx context.Context, t Token, read bool) (Admission, error) {
	a := Admission{OK: true, s: s}
	name := place(t.Pool, t.Namespace) + "/" + t.sum
	l, ok, err := s.limit(ctx, name)
	if err != nil || !ok {
		return a, err
	}
	a.key, a.limit, a.long = countKey+name+".w", l.Write, l.Interval*1000
	if read {
		a.key, a.limit = countKey+name+".r", l.Read
	}
	if a.limit <= 0 {
		return a, nil
	}
	reply, err := redis.Int64s(s.run(ctx, count, a.key, a.limit, a.long, ""))
	if err != nil {
		return a, fmt.Errorf("access: count a request of %s: %w", t.Mark, err)
	}
	a.OK, a.begun, a.RetryAfter = reply[0] == 1, reply[1], time.Duration(reply[2])*time.Millisecond
	return a, nil
}

// Refund takes the request back: it came to nothing. In another window than its own it does nothing.
func (a Admission) Refund(ctx context.Context) error {
	if !a.OK || a.begun == 0 {
		return nil
	}
	_, err := a.s.run(ctx, count, a.key, a.limit, a.long, fmt.Sprint(a.begun))
	if err != nil {
		return fmt.Errorf("access: refund a request: %w", err)
	}
	return nil
}
