package v1

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/daemon/access"
	"github.com/shuntmq/shunt/daemon/budget"
	"github.com/shuntmq/shunt/daemon/serve"
)

const maxChannel = 200 // bytes, as shunt has it

// call is one request on its way.
type call struct {
	w     *serve.Recorder
	r     *http.Request
	log   *slog.Logger
	path  map[string]string
	query url.Values

	ns, queue string
	poolName  string
	pool      *shunt.Queue
	token     access.Token
	operator  bool
	free      bool // no token was asked for
	admission access.Admission
	budget    *budget.Budget
	body      budget.Metered
	faults    []fault
	useless   bool // it came to nothing, so the token's limit does not count it
}

// serve does what all routes have in common, and then what the route is for.
func (a *API) serve(rt *route, c *call) {
	begun := time.Now()
	defer func() { c.body.Release() }()
	defer func() { a.Metrics.request(rt.name, c.w.Outcome(c.r), time.Since(begun)) }()
	var err error
	if c.query, err = url.ParseQuery(c.r.URL.RawQuery); err != nil {
		c.fault("query", "", "it is no query: "+err.Error())
		c.query = nil
	}
	c.named()
	if c.bad() || rt.role != "" && !a.trusted(c, rt.role) {
		return
	}
	defer c.refund()
	if rt.counts == "" || a.admitted(c, rt.counts) {
		rt.handle(a, c)
	}
}

// refund takes the request back from the token's limit where it came to nothing.
func (c *call) refund() {
	if c.w.Status < 300 && !c.useless {
		return
	}
	ctx, cancel := c.detached()
	defer cancel()
	if err := c.admission.Refund(ctx); err != nil {
		c.complain("refund a request", err)
	}
}

// detached is a context for what goes on although the client has left.
func (c *call) detached() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(c.r.Context()), redisTimeout)
}

// isName is ^[-_[:alnum:]]+$, as lmstfy has it.
func isName(s string) bool {
	for i := range len(s) {
		b := s[i]
		if !(b >= '0' && b <= '9' || b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b == '-' || b == '_') {
			return false
		}
	}
	return s != ""
}

// named checks the names in the path.
func (c *call) named() {
	ns, has := c.path["ns"]
	if !has {
		return
	}
	c.ns = ns
	if !isName(ns) || len(ns) > maxChannel-2 {
		c.fault("path", "ns", "want letters, digits, - and _, at most 198 of them")
	}
	if queue, has := c.path["queue"]; has {
		c.queue = queue
		if detail := c.queueFault(queue); detail != "" {
			c.fault("path", "queue", detail)
		}
	}
}

// queueFault says what is wrong with a queue's name; empty: nothing.
func (c *call) queueFault(queue string) string {
	if !isName(queue) || queue[0] == '_' {
		return "want letters, digits, - and _, and not _ first"
	}
	if len(c.ns)+1+len(queue) > maxChannel {
		return "namespace and queue have 199 characters at most together"
	}
	return ""
}

func (c *call) channel() string { return c.ns + "/" + c.queue }

// given is the token of the request, and its pool.
func (c *call) given() (pool, token string) {
	text := c.r.Header.Get("X-Token")
	if scheme, credentials, ok := strings.Cut(c.r.Header.Get("Authorization"), " "); ok && text == "" &&
		strings.EqualFold(scheme, "Bearer") {
		text = strings.TrimSpace(credentials)
	}
	if text == "" {
		text = c.query.Get("token")
	}
	if pool, token, ok := strings.Cut(text, ":"); ok {
		return pool, token
	}
	return DefaultPool, text
}

// trusted finds the pool, and checks the token.
func (a *API) trusted(c *call, role access.Role) bool {
	name, token := c.given()
	if c.operator {
		if name = DefaultPool; c.query.Has("pool") {
			name = c.query.Get("pool")
		}
	}
	if c.pool, c.poolName = a.Pools[name], name; c.pool == nil {
		c.refuse(noPool, "")
		return false
	}
	if c.free = a.Open || c.operator; c.free {
		return true
	}
	c.w.Header().Set("WWW-Authenticate", "Bearer")
	if token == "" {
		c.refuse(noToken, "give it as Authorization: Bearer, as X-Token, or as the parameter token")
		return false
	}
	t, err := a.Access.Check(c.r.Context(), c.poolName, c.ns, token)
	if errors.Is(err, access.ErrInvalid) {
		c.refuse(invalidToken, "")
		return false
	}
	c.w.Header().Del("WWW-Authenticate")
	if err != nil {
		c.failed("check a token", err)
		return false
	}
	c.token = t
	return role == anyRole || c.may(role)
}

// may says whether the token has a role, and else has answered.
func (c *call) may(role access.Role) bool {
	if c.free || c.token.Role.May(role) {
		return true
	}
	c.refuse(forbidden, "it takes the role "+string(role))
	return false
}

// trustedStill says whether the token was not deleted while the request waited.
func (a *API) trustedStill(c *call) bool {
	if c.free {
		return true
	}
	_, token := c.given()
	_, err := a.Access.Check(c.r.Context(), c.poolName, c.ns, token)
	return !errors.Is(err, access.ErrInvalid)
}

// admitted counts the request against the token's limit, once. Where that is reached, it has answered.
func (a *API) admitted(c *call, action string) (ok bool) {
	if c.free {
		return true
	}
	ad, err := a.Access.Admit(c.r.Context(), c.token, action == "consume")
	switch {
	case err != nil:
		c.failed("count a request", err)
	case !ad.OK:
		c.refuseFor(tooMany, ad.RetryAfter, "the token "+c.token.Mark+" has reached its limit to "+action)
	default:
		c.admission = ad
	}
	return err == nil && ad.OK
}

func (c *call) complain(what string, err error) {
	c.log.Error("v1: failed", "what", what, "pool", c.poolName, "namespace", c.ns, "queue", c.queue,
		"request", c.w.Header().Get("X-Request-ID"), "error", err)
}
