package push

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
)

const (
	groupsKey    = "{shuntd}.push."
	versionKey   = "{shuntd}.pushed"
	hintsChannel = "{shuntd}.push.hints"
)

// maxGroups bounds the groups of a pool: each costs every process some connections.
const maxGroups = 1000

var (
	// ErrExists: there is a group of that name.
	ErrExists = errors.New("push: the group exists already")
	// ErrNotFound: there is no such group.
	ErrNotFound = errors.New("push: there is no such group")
	// ErrTooMany: the pool has as many groups as it may have.
	ErrTooMany = fmt.Errorf("push: the pool has %d groups, and may not have more", maxGroups)
	// errBusy: others have changed the group again and again meanwhile.
	errBusy = errors.New("push: the group is changed by others all the time: try again")
)

// store keeps groups in one Redis. Its methods may be called by many goroutines at once.
type store struct {
	redis *redis.Pool // each call takes a connection for one round trip
}

// swap changes a group, unless somebody else has changed it meanwhile.
//
// KEYS groups of the pool, version. ARGV field, its text until now, or nothing where there is none, its new text, or
// nothing to delete it, hints, most groups. Replies 1; 0 where the text is another; -1 where there are too many. A
// change of a group opens with a freeing write: a full Redis refuses only new groups. What a user may lack the right to
// comes before all writes.
var swap = redis.NewScript(2, `
local had = redis.call('HGET', KEYS[1], ARGV[1]) or ''
if had ~= ARGV[2] then return 0 end
if had == '' and redis.call('HLEN', KEYS[1]) >= tonumber(ARGV[5]) then return -1 end
redis.call('PUBLISH', ARGV[4], KEYS[1])
local version = (tonumber(redis.call('GET', KEYS[2])) or 0) + 1
if had ~= '' then redis.call('HDEL', KEYS[1], ARGV[1]) end
if ARGV[3] ~= '' then redis.call('HSET', KEYS[1], ARGV[1], ARGV[3]) end
redis.call('SET', KEYS[2], string.format('%d', version))
return 1`)

// record is a group as Redis has it.
type record struct {
	text  string
	group Group
	err   error // it is none
}

func parse(k Key, text string) record {
	r := record{text: text}
	if r.err = json.Unmarshal([]byte(text), &r.group); r.err == nil {
		r.err = r.group.Validate(k.Namespace)
	}
	r.group.Key = k
	return r
}

// all are the groups of a pool.
func (s *store) all(ctx context.Context, pool string) (map[Key]record, error) {
	texts, err := redis.StringMap(s.do(ctx, "HGETALL", groupsKey+pool))
	if err != nil {
		return nil, fmt.Errorf("push: list the groups of pool %s: %w", pool, err)
	}
	all := make(map[Key]record, len(texts))
	for field, text := range texts {
		ns, name, _ := strings.Cut(field, "/")
		k := Key{pool, ns, name}
		all[k] = parse(k, text)
	}
	return all, nil
}

// get is one group. ErrNotFound: there is none.
func (s *store) get(ctx context.Context, k Key) (Group, string, error) {
	text, err := redis.String(s.do(ctx, "HGET", groupsKey+k.Pool, k.field()))
	switch {
	case errors.Is(err, redis.ErrNil):
		return Group{}, "", ErrNotFound
	case err != nil:
		return Group{}, "", fmt.Errorf("push: read %s: %w", k, err)
	}
	r := parse(k, text)
	return r.group, text, nil // a record that is wrong can be mended and deleted
}

// version counts all changes.
func (s *store) version(ctx context.Context) (string, error) {
	v, err := redis.String(s.do(ctx, "GET", versionKey))
	if errors.Is(err, redis.ErrNil) {
		err = nil
	}
	return v, err
}

// create adds a group. ErrExists, ErrTooMany: it cannot.
func (s *store) create(ctx context.Context, g Group) (Group, error) {
	g.CreatedAt = now()
	g.ChangedAt = g.CreatedAt
	n, err := s.swap(ctx, g.Key, "", &g)
	if err == nil && n == 0 {
		err = ErrExists
	}
	return g, err
}

// change has f change a group, which f may do several times. An error of f's is returned as it is.
func (s *store) change(ctx context.Context, k Key, f func(*Group) error) (Group, error) {
	for range 10 {
		g, had, err := s.get(ctx, k)
		if err != nil {
			return g, err
		}
		if err := f(&g); err != nil {
			return g, err
		}
		g.ChangedAt = now()
		n, err := s.swap(ctx, k, had, &g)
		if err != nil || n != 0 {
			return g, err
		}
	}
	return Group{}, errBusy
}

// delete removes a group. ErrNotFound: there is none.
func (s *store) delete(ctx context.Context, k Key) error {
	for range 10 {
		_, had, err := s.get(ctx, k)
		if err != nil {
			return err
		}
		if n, err := s.swap(ctx, k, had, nil); err != nil || n != 0 {
			return err
		}
	}
	return errBusy
}

// swap writes a group, or with nil deletes it, where Redis has the text had. Without it the reply is 0.
func (s *store) swap(ctx context.Context, k Key, had string, g *Group) (int, error) {
	var text []byte
	if g != nil {
		var err error
		if text, err = json.Marshal(g); err != nil {
			return 0, fmt.Errorf("push: write %s: %w", k, err)
		}
	}
	c, err := s.redis.GetContext(ctx)
	if err != nil {
		return 0, fmt.Errorf("push: write %s: %w", k, err)
	}
	n, err := redis.Int(swap.DoContext(ctx, c, groupsKey+k.Pool, versionKey, k.field(), had, text, hintsChannel,
		maxGroups))
	err = errors.Join(err, c.Close())
	switch {
	case err != nil:
		return 0, fmt.Errorf("push: write %s: %w", k, err)
	case n < 0:
		return 0, ErrTooMany
	}
	return n, nil
}

func (s *store) do(ctx context.Context, command string, args ...any) (any, error) {
	c, err := s.redis.GetContext(ctx)
	if err != nil {
		return nil, err
	}
	v, err := redis.DoContext(c, ctx, command, args...)
	return v, errors.Join(err, c.Close())
}

func now() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }
