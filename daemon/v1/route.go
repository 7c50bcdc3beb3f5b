package v1

import (
	"fmt"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/shuntmq/shunt/daemon/access"
	"github.com/shuntmq/shunt/daemon/serve"
)

// anyRole is for what every token may do.
const anyRole access.Role = "any"

// route is one line of the interface.
type route struct {
	method  string
	pattern string // segments; {name} is any one
	name    string // operationId, and its name in metrics
	role    access.Role
	counts  string // "produce" or "consume": limited; "": not, or only where something follows a verdict
	tokens  bool   // not for operators: a GET that changes things, and another site may have their browser send it
	handle  func(*API, *call)
	parts   []string // of pattern
}

// operators is the role of routes that only operators have.
const operators access.Role = "operator"

var routes = []route{
	{method: "GET", pattern: "/v1/openapi.json", name: "openapi", handle: (*API).openapi},
	{method: "GET", pattern: "/v1/namespaces", name: "namespaces", role: operators, handle: (*API).namespaces},
	{method: "GET", pattern: "/v1/{ns}/queues", name: "queues", role: anyRole, handle: (*API).queues},
	{method: "GET", pattern: "/v1/{ns}/pull", name: "pullByGet", role: access.Consume, counts: "consume",
		tokens: true, handle: (*API).pulled},
	{method: "POST", pattern: "/v1/{ns}/pull", name: "pull", role: access.Consume, counts: "consume",
		handle: (*API).pulled},
	{method: "POST", pattern: "/v1/{ns}/settle", name: "settle", role: access.Consume, handle: (*API).settle},
	{method: "POST", pattern: "/v1/{ns}/ack", name: "ack", role: access.Consume, handle: (*API).ack},
	{method: "POST", pattern: "/v1/{ns}/fail", name: "fail", role: access.Consume, handle: (*API).fail},
	{method: "POST", pattern: "/v1/{ns}/release", name: "release", role: access.Consume, handle: (*API).releaseOne},
	{method: "POST", pattern: "/v1/{ns}/extend", name: "extend", role: access.Consume, handle: (*API).extend},
	{method: "POST", pattern: "/v1/{ns}/{queue}/messages", name: "publish", role: access.Publish, counts: "produce",
		handle: (*API).publish},
	{method: "POST", pattern: "/v1/{ns}/{queue}/messages:batch", name: "publishBatch", role: access.Publish,
		counts: "produce", handle: (*API).publishBatch},
	{method: "GET", pattern: "/v1/{ns}/{queue}/messages", name: "list", role: anyRole, handle: (*API).list},
	{method: "GET", pattern: "/v1/{ns}/{queue}/messages/{ref}", name: "status", role: anyRole, handle: (*API).status},
	{method: "DELETE", pattern: "/v1/{ns}/{queue}/messages/{ref}", name: "delete", role: access.Both,
		handle: (*API).remove},
	{method: "GET", pattern: "/v1/{ns}/{queue}/messages/{ref}/peek", name: "peek", role: anyRole, handle: (*API).peek},
	{method: "GET", pattern: "/v1/{ns}/{queue}/messages/{ref}/outcome", name: "wait", role: anyRole,
		handle: (*API).wait},
	{method: "POST", pattern: "/v1/{ns}/{queue}/messages/{ref}/cancel", name: "cancel", role: access.Both,
		handle: (*API).cancel},
	{method: "POST", pattern: "/v1/{ns}/{queue}/messages/{ref}/postpone", name: "postpone", role: access.Both,
		handle: (*API).postpone},
	{method: "POST", pattern: "/v1/{ns}/{queue}/messages/{ref}/promote", name: "promote", role: access.Both,
		handle: (*API).promote},
	{method: "POST", pattern: "/v1/{ns}/{queue}/messages/{ref}/retry", name: "retry", role: access.Both,
		handle: (*API).retry},
	{method: "GET", pattern: "/v1/{ns}/{queue}/stats", name: "stats", role: anyRole, handle: (*API).stats},
	{method: "POST", pattern: "/v1/{ns}/{queue}/purge", name: "purge", role: access.Both, handle: (*API).purge},
	{method: "GET", pattern: "/v1/{ns}/{queue}/events", name: "events", role: anyRole, handle: (*API).events},
	{method: "GET", pattern: "/v1/{ns}/{queue}/recurring", name: "listRecurring", role: anyRole,
		handle: (*API).listRecurring},
	{method: "PUT", pattern: "/v1/{ns}/{queue}/recurring/{name}", name: "putRecurring", role: access.Both,
		handle: (*API).putRecurring},
	{method: "DELETE", pattern: "/v1/{ns}/{queue}/recurring/{name}", name: "deleteRecurring", role: access.Both,
		handle: (*API).deleteRecurring},
	{method: "POST", pattern: "/v1/{ns}/{queue}/recurring/{name}/pause", name: "pauseRecurring", role: access.Both,
		handle: (*API).pauseRecurring},
	{method: "POST", pattern: "/v1/{ns}/{queue}/recurring/{name}/resume", name: "resumeRecurring", role: access.Both,
		handle: (*API).resumeRecurring},
	{method: "POST", pattern: "/v1/{ns}/{queue}/recurring/{name}/enqueue", name: "enqueueRecurring",
		role: access.Both, counts: "produce", handle: (*API).enqueueRecurring},
}

func init() {
	for i := range routes {
		routes[i].parts = strings.Split(routes[i].pattern[1:], "/")
	}
}

// maxParts is how many segments the longest pattern has, and one more.
const maxParts = 8

// split is the segments of a path, each unescaped by itself: an id may have slashes. It cleans nothing: there is one
// path for each thing.
func split(escaped string) (parts []string, ok bool) {
	parts = strings.SplitN(strings.TrimPrefix(escaped, "/"), "/", maxParts)
	for i, p := range parts {
		text, err := url.PathUnescape(p)
		if err != nil || text == "" {
			return nil, false
		}
		parts[i] = text
	}
	return parts, true
}

// match gives the values of a pattern's names.
func (rt *route) match(parts []string) (values map[string]string, ok bool) {
	if len(parts) != len(rt.parts) {
		return nil, false
	}
	for i, p := range rt.parts {
		if p[0] != '{' && p != parts[i] {
			return nil, false
		}
	}
	values = make(map[string]string, 3)
	for i, p := range rt.parts {
		if p[0] == '{' {
			values[p[1:len(p)-1]] = parts[i]
		}
	}
	return values, true
}

// route finds the route of a request and serves it. allowed is nil for those who need a token.
func (a *API) route(w http.ResponseWriter, r *http.Request, allowed func(http.ResponseWriter, *http.Request) bool) {
	if r.Body != nil && r.Body != http.NoBody { // also where nobody reads it: net/http reads what is left
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(a.Budget.Limits().BodyTimeout))
	}
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	c := &call{w: &serve.Recorder{ResponseWriter: w}, r: r, log: a.Log, budget: a.Budget, operator: allowed != nil}
	defer a.caught(c)
	parts, ok := split(r.URL.EscapedPath())
	var methods []string
	for i := range routes {
		rt := &routes[i]
		values, is := rt.match(parts)
		if !ok || !is || rt.role == operators && !c.operator || rt.tokens && c.operator {
			continue
		}
		if rt.method == r.Method {
			if c.operator && !sameSite(r) {
				c.refuse(forbidden, "the request comes from another site")
				return
			}
			if c.operator && !allowed(w, r) {
				return
			}
			c.path = values
			a.serve(rt, c)
			return
		}
		methods = append(methods, rt.method)
	}
	if len(methods) > 0 {
		slices.Sort(methods)
		w.Header().Set("Allow", strings.Join(methods, ", "))
		c.refuse(wrongMethod, "")
		return
	}
	c.refuse(noRoute, "")
}

// caught answers 500 for a panic, unless an answer has begun: half of one must not look like a whole one.
func (a *API) caught(c *call) {
	p := recover()
	if p == nil {
		return
	}
	if p == http.ErrAbortHandler || c.w.Status != 0 {
		panic(p)
	}
	a.Log.Error("v1: a handler panicked", "request", c.w.Header().Get("X-Request-ID"), "panic", fmt.Sprint(p), "stack",
		string(debug.Stack()))
	c.refuse(internal, "")
}

var browsers = http.NewCrossOriginProtection()

// sameSite says that no page of another site has a browser send the request, with an operator's password. Over HTTP
// without TLS a browser tells it by Origin alone, and of a GET nothing.
func sameSite(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return (site == "" || site == "same-origin" || site == "none") && browsers.Check(r) == nil
}
