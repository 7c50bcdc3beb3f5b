package lmstfy

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/daemon/access"
	"github.com/shuntmq/shunt/daemon/budget"
	"github.com/shuntmq/shunt/daemon/serve"
)

const (
	maxName    = 255
	maxChannel = 200 // bytes, as shunt has it
)

// call is one request on its way.
type call struct {
	w     http.ResponseWriter
	r     *http.Request
	log   *slog.Logger
	query url.Values

	ns, queue string // queue as in the path, with commas
	poolName  string
	pool      *shunt.Queue
	token     access.Token
	valid     bool // the token was checked, so the names may be labels
	budget    *budget.Budget
	body      budget.Metered
}

// serve does the checks in the interface's order, and then what the route is for.
func (a *API) serve(rt *route, w http.ResponseWriter, r *http.Request) {
	begun := time.Now()
	rec := &serve.Recorder{ResponseWriter: w}
	c := &call{w: rec, r: r, log: a.Log, budget: a.Budget, ns: r.PathValue("ns"), queue: r.PathValue("queue")}
	defer func() { c.body.Release() }()
	defer func() { a.Metrics.request(rt.api, c, rec.Outcome(r), time.Since(begun)) }()
	if !c.named(rt.names) || !c.parsed() || !a.pooled(c) || rt.role != "" && !a.trusted(c, rt.role) {
		return
	}
	if rt.counts != "" && !a.Open {
		ad, ok := a.admitted(c, rt.counts)
		if !ok {
			return
		}
		defer func() {
			if rec.Status != rt.good {
				ctx, cancel := c.detached()
				defer cancel()
				if err := ad.Refund(ctx); err != nil {
					c.complain("refund", err)
				}
			}
		}()
	}
	rt.handle(a, c)
}

// detached is a context for what goes on although the client has left.
func (c *call) detached() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(c.r.Context()), redisTimeout)
}

// isName is ^[-_[:alnum:]]+$.
func isName(s string) bool { return s != "" && only(s, "-_") }

func only(s, others string) bool {
	for i := range len(s) {
		b := s[i]
		if !(b >= '0' && b <= '9' || b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z') && strings.IndexByte(others, b) < 0 {
			return false
		}
	}
	return true
}

// named checks the names in the path.
func (c *call) named(need need) bool {
	long, queue := false, isName(c.queue) && c.queue[0] != '_'
	if need == needQueues {
		queue = c.queue != "" && only(c.queue, "-_,")
		for _, name := range strings.Split(c.queue, ",") {
			long = long || len(c.ns)+1+len(name) > maxChannel
		}
	} else {
		long = len(c.ns) > maxName || len(c.queue) > maxName || len(c.ns)+1+len(c.queue) > maxChannel
	}
	text := ""
	switch {
	case long:
		text = "namespace or queue name too long"
	case !isName(c.ns):
		text = "namespace name contains forbidden characters"
	case !queue:
		text = "queue name contains forbidden characters"
	default:
		return true
	}
	_ = c.answer(http.StatusBadRequest, failure(text))
	return false
}

func (c *call) parsed() (ok bool) {
	var err error
	if c.query, err = url.ParseQuery(c.r.URL.RawQuery); err != nil {
		_ = c.answer(http.StatusBadRequest, failure("invalid query"))
	}
	return err == nil
}

// given is the token of the request, and its pool.
func (c *call) given() (pool, token string) {
	text := c.r.Header.Get("X-Token")
	if text == "" {
		text = c.query.Get("token")
	}
	return splitToken(text)
}

// splitToken reads [pool:]token.
func splitToken(text string) (pool, token string) {
	if pool, token, ok := strings.Cut(text, ":"); ok {
		return pool, token
	}
	return DefaultPool, text
}

func (a *API) pooled(c *call) bool {
	name, _ := c.given()
	if q := a.Pools[name]; q != nil {
		c.pool, c.poolName = q, name
		return true
	}
	_ = c.answer(http.StatusNotFound, failure("pool not found"))
	return false
}

// trusted checks the token.
func (a *API) trusted(c *call, role access.Role) bool {
	if a.Open {
		c.valid = true
		return true
	}
	_, token := c.given()
	if token == "" {
		_ = c.answer(http.StatusUnauthorized, failure("token not found"))
		return false
	}
	t, err := a.Access.Check(c.r.Context(), c.poolName, c.ns, token)
	switch {
	case errors.Is(err, access.ErrInvalid):
		_ = c.answer(http.StatusUnauthorized, failure("invalid token"))
	case err != nil:
		c.failed("check the token", err)
	case role != anyRole && !t.Role.May(role):
		_ = c.answer(http.StatusForbidden, failure("the token's role does not allow this"))
	default:
		c.token, c.valid = t, true
		return true
	}
	return false
}

// admitted counts the request against the token's limit.
func (a *API) admitted(c *call, action string) (ad access.Admission, ok bool) {
	ad, err := a.Access.Admit(c.r.Context(), c.token, action == "consume")
	switch {
	case err != nil:
		c.complain("count a request", err)
		_ = c.answer(http.StatusInternalServerError, message{"err": "internal error"})
	case !ad.OK:
		a.Metrics.limited(c, action)
		c.later(http.StatusTooManyRequests, ad.RetryAfter, message{"msg": "token(" + c.token.Mark + ") " + action +
			" reach the limit rate, please retry later"})
	default:
		return ad, true
	}
	return ad, false
}

// number reads a parameter of so many bits; absent: otherwise.
func (c *call) number(name string, otherwise uint64, bits int) (n uint64, ok bool) {
	text, given := c.query[name]
	if !given {
		return otherwise, true
	}
	n, err := strconv.ParseUint(text[0], 10, bits)
	return n, err == nil
}

// body reads the request's body, up to a bound, within BodyTimeout. It answers where it cannot.
func (a *API) body(c *call, most int64) (body []byte, ok bool) {
	control := http.NewResponseController(c.w)
	c.body = a.Budget.Meter(http.MaxBytesReader(c.w, c.r.Body, min(most, a.Budget.Limits().MaxBodies/2)))
	body, err := io.ReadAll(&c.body)
	if err == nil {
		_ = control.SetReadDeadline(time.Time{}) // else it would end this request's wait for a job
	} // else it still bounds what net/http reads of the rest
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		_ = c.answer(http.StatusRequestEntityTooLarge, failure("body too large"))
	case errors.Is(err, budget.ErrFull):
		c.body.Release()
		_ = control.SetReadDeadline(time.Now())
		c.w.Header().Set("Connection", "close")
		c.later(http.StatusServiceUnavailable, retryAfter, failure(budget.ErrFull.Error()))
	case err != nil:
		_ = control.SetReadDeadline(time.Now())
		c.w.Header().Set("Connection", "close")
		_ = c.answer(http.StatusBadRequest, failure("failed to read body"))
	default:
		return body, true
	}
	return nil, false
}
