package lmstfy

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/shuntmq/shunt/daemon/access"
)

const (
	noPool         = "the pool was not exists"
	maxDescription = 1024
)

func (c *adminCall) refuse(text string) { _ = c.answer(http.StatusBadRequest, failure(text)) }

// newToken makes a token, or takes in that of a user. The answer has it; no other one will.
func (c *adminCall) newToken() {
	c.small()
	if err := c.r.ParseForm(); err != nil {
		c.refuse("invalid form")
		return
	}
	description, given := c.r.Form.Get("description"), c.r.Form.Get("token")
	role, err := access.ParseRole(c.r.Form.Get("role"))
	switch {
	case description == "" || len(description) > maxDescription:
		c.refuse("invalid description")
		return
	case given != "" && len(given) < access.MinToken:
		c.refuse("the user token was too short")
		return
	case len(given) > maxDescription:
		c.refuse("the user token was too long")
		return
	case len(c.ns) > maxName:
		c.refuse("the namespace name was too long")
		return
	case !isName(c.ns):
		c.refuse("namespace name contains forbidden characters")
		return
	case err != nil:
		c.refuse("invalid role")
		return
	}
	prefix, token := "", given
	if given == "" {
		if token, err = access.Mint(); err != nil {
			c.failed("make a token", err)
			return
		}
	} else if before, after, ok := strings.Cut(given, ":"); ok && !strings.Contains(after, ":") {
		prefix, token = before, after
	}
	pool := c.poolOf(prefix)
	if c.a.Pools[pool] == nil {
		c.refuse(noPool)
		return
	}
	err = c.a.Access.Create(c.r.Context(), token,
		access.Token{Pool: pool, Namespace: c.ns, Description: description, Role: role})
	switch {
	case errors.Is(err, access.ErrExists):
		c.refuse("the token has already existed")
	case err != nil:
		c.failed("create a token", err)
	default:
		_ = c.indented(http.StatusCreated, message{"token": qualified(pool, token)})
	}
}

// qualified is how a client gives the token.
func qualified(pool, token string) string {
	if pool == DefaultPool {
		return token
	}
	return pool + ":" + token
}

// listTokens shows marks: the tokens themselves nobody knows any more.
func (c *adminCall) listTokens() {
	pool, given := c.poolOf(""), c.query.Get("pool") != ""
	if c.a.Pools[pool] == nil {
		c.refuse(noPool)
		return
	}
	ts, err := c.a.Access.List(c.r.Context(), pool, c.ns)
	if err != nil {
		c.failed("list the tokens", err)
		return
	}
	all := make(map[string]string, len(ts))
	for _, t := range ts {
		mark := t.Mark
		if given {
			mark = pool + ":" + mark
		}
		all[mark] = t.Description
	}
	_ = c.indented(http.StatusOK, message{"tokens": all})
}

// namedToken is the token in the path, and its pool. It answers where the pool is none.
func (c *adminCall) namedToken() (pool, token string, ok bool) {
	pool, token = splitToken(c.r.PathValue("token"))
	if c.a.Pools[pool] == nil {
		c.refuse(noPool)
		return "", "", false
	}
	return pool, token, true
}

func (c *adminCall) deleteToken() {
	pool, token, ok := c.namedToken()
	if !ok {
		return
	}
	err := c.a.Access.Delete(c.r.Context(), pool, c.ns, token)
	if err != nil && !errors.Is(err, access.ErrNotFound) {
		c.failed("delete a token", err)
		return
	}
	c.nothing()
}

func (c *adminCall) getLimit() {
	pool, token, ok := c.namedToken()
	if !ok {
		return
	}
	l, err := c.a.Access.LimitOf(c.r.Context(), pool, c.ns, token)
	switch {
	case errors.Is(err, access.ErrNotFound):
		_ = c.answer(http.StatusNotFound, nil)
	case err != nil:
		c.failed("look for a limit", err)
	default:
		_ = c.answer(http.StatusOK, l)
	}
}

// asked reads a limit from the body.
func (c *adminCall) asked() (l access.Limit, ok bool) {
	c.small()
	d := json.NewDecoder(c.r.Body)
	err := d.Decode(&l)
	switch {
	case err != nil:
		c.refuse("the body should be a limit as JSON")
	case !isName(c.ns) || len(c.ns) > maxName:
		c.refuse("namespace name contains forbidden characters")
	case l.Read == 0 && l.Write == 0:
		_ = c.answer(http.StatusBadRequest, message{"limiter": l})
	case l.Validate() != nil:
		c.refuse("interval should be > 0")
	default:
		return l, true
	}
	return l, false
}

func (c *adminCall) addLimit() {
	pool, token, named := c.namedToken()
	if !named {
		return
	}
	l, ok := c.asked()
	if !ok {
		return
	}
	err := c.a.Access.AddLimit(c.r.Context(), pool, c.ns, token, l)
	switch {
	case errors.Is(err, access.ErrExists):
		_ = c.answer(http.StatusInternalServerError, failure("throttler token("+access.MarkOf(token)+
			") has already exists"))
	case err != nil:
		c.failed("add a limit", err)
	default:
		_ = c.answer(http.StatusCreated, message{"limiter": l})
	}
}

func (c *adminCall) setLimit() {
	pool, token, named := c.namedToken()
	if !named {
		return
	}
	l, ok := c.asked()
	if !ok {
		return
	}
	if err := c.a.Access.SetLimit(c.r.Context(), pool, c.ns, token, l); err != nil {
		c.failed("set a limit", err)
		return
	}
	_ = c.answer(http.StatusOK, message{"limiter": l})
}

func (c *adminCall) deleteLimit() {
	pool, token, ok := c.namedToken()
	if !ok {
		return
	}
	if err := c.a.Access.DeleteLimit(c.r.Context(), pool, c.ns, token); err != nil {
		c.failed("delete a limit", err)
		return
	}
	_ = c.answer(http.StatusOK, message{"msg": "success"})
}

// limits lists all limits. force_update is accepted: they are always read from Redis.
func (c *adminCall) limits() {
	ls, err := c.a.Access.Limits(c.r.Context())
	if err != nil {
		c.failed("list the limits", err)
		return
	}
	all := make([]message, len(ls))
	for i, l := range ls {
		all[i] = message{"namespace": l.Namespace, "token": qualified(l.Pool, l.Mark), "limiter": l.Limit}
	}
	_ = c.answer(http.StatusOK, all)
}
