package lmstfy

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/daemon/access"
)

// adminBody bounds the reading of a body.
const adminBody = 10 * time.Second

// Build is what GET /version answers.
type Build struct {
	Version string `json:"version"`
	Commit  string `json:"build_commit"`
	Date    string `json:"build_date"`
}

// Admin serves the routes for operators. Its fields are its configuration, and are not changed once Handler was called.
type Admin struct {
	Pools  map[string]*shunt.Queue // by name; required
	Access *access.Store           // required
	// Accounts are the passwords of basic authentication by user, to begin with; without any, nothing is asked for.
	// SetAccounts changes them.
	Accounts  map[string]string
	AccessLog *atomic.Bool // whether requests are logged; nil: POST /accesslog changes nothing
	Metrics   http.Handler // GET /metrics; nil: 404
	// Mount are routes of others by their patterns for http.ServeMux. They ask for basic authentication, too.
	Mount map[string]http.Handler
	Build Build
	Log   *slog.Logger // of errors; nil: slog.Default()

	accounts atomic.Pointer[map[string]string]
}

// SetAccounts changes who may use the routes that ask for basic authentication. The map is not written to afterwards.
func (a *Admin) SetAccounts(accounts map[string]string) { a.accounts.Store(&accounts) }

// Validate says all that is wrong with the configuration.
func (a *Admin) Validate() error {
	var errs []error
	if len(a.Pools) == 0 {
		errs = append(errs, errors.New("lmstfy: Admin.Pools is empty"))
	}
	if a.Access == nil {
		errs = append(errs, errors.New("lmstfy: Admin.Access is nil: want a Store"))
	}
	for user, password := range a.Accounts {
		if user == "" || password == "" || strings.Contains(user, ":") {
			errs = append(
				errs,
				fmt.Errorf("lmstfy: Admin.Accounts has %.40q: want a name without colon, and a password",
					user),
			)
		}
	}
	return errors.Join(errs...)
}

// adminCall is a call of a route for operators.
type adminCall struct {
	call
	a *Admin
}

// Handler is the routes. Call Validate before.
func (a *Admin) Handler() http.Handler {
	if a.Log == nil {
		a.Log = slog.Default()
	}
	a.SetAccounts(a.Accounts)
	browsers := http.NewCrossOriginProtection() // a browser that may ask here must not do so for another site's page
	mux := http.NewServeMux()
	handle := func(pattern string, basic bool, f func(*adminCall)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			c := &adminCall{call{w: w, r: r, log: a.Log, ns: r.PathValue("ns")}, a}
			if browsers.Check(r) != nil {
				_ = c.answer(http.StatusForbidden, failure("a browser asks for another site's page"))
				return
			}
			if !a.named(w, r) || basic && !c.authorized() || !c.parsed() {
				return
			}
			f(c)
		})
	}
	handle("POST /token/{ns}", true, (*adminCall).newToken)
	handle("GET /token/{ns}", true, (*adminCall).listTokens)
	handle("DELETE /token/{ns}/{token}", true, (*adminCall).deleteToken)
	handle("GET /token/{ns}/{token}/limit", true, (*adminCall).getLimit)
	handle("POST /token/{ns}/{token}/limit", true, (*adminCall).addLimit)
	handle("PUT /token/{ns}/{token}/limit", true, (*adminCall).setLimit)
	handle("DELETE /token/{ns}/{token}/limit", true, (*adminCall).deleteLimit)
	handle("GET /limits", true, (*adminCall).limits)
	handle("GET /info", false, (*adminCall).info)
	handle("GET /pools", false, (*adminCall).pools)
	handle("GET /version", false, func(c *adminCall) { _ = c.indented(http.StatusOK, a.Build) })
	handle("GET /accesslog", false, (*adminCall).accessLog)
	handle("POST /accesslog", true, (*adminCall).setAccessLog)
	for pattern, h := range a.Mount {
		handle(pattern, true, func(c *adminCall) { h.ServeHTTP(c.w, c.r) })
	}
	if a.Metrics != nil {
		mux.Handle("GET /metrics", a.Metrics)
	}
	for pattern, profile := range map[string]http.HandlerFunc{"": pprof.Index, "profile": pprof.Profile,
		"trace": pprof.Trace} {
		mux.HandleFunc("GET /debug/pprof/"+pattern, func(w http.ResponseWriter, r *http.Request) {
			if a.named(w, r) {
				profile(w, r)
			}
		})
	}
	bound := func() time.Duration { return adminBody }
	return front(mux, bound, func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "404 page not found", http.StatusNotFound)
	})
}

func (c *adminCall) authorized() bool { return c.a.Authorized(c.w, c.r) }

// rebound says that a request came to a loopback address under another host's name, as a browser asks for a page whose
// site gave its name that address (DNS rebinding).
func rebound(r *http.Request) bool {
	at, _ := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return host != "" && at != nil && at.IP.IsLoopback() && err != nil && !strings.EqualFold(host, "localhost")
}

// named says whether a request may come under the name that it has, and else has answered.
func (a *Admin) named(w http.ResponseWriter, r *http.Request) bool {
	if len(*a.accounts.Load()) > 0 || !rebound(r) {
		return true
	}
	c := &call{w: w, r: r, log: a.Log}
	_ = c.answer(http.StatusForbidden, failure("another host's name: ask for localhost, or set admin.accounts"))
	return false
}

// Authorized says whether a request comes from an operator, and else has answered: it asks for basic authentication.
// Without accounts everybody is an operator, but on loopback not under another host's name. All accounts are compared,
// so that the time tells nothing. Handler was called before.
func (a *Admin) Authorized(w http.ResponseWriter, r *http.Request) bool {
	if !a.named(w, r) {
		return false
	}
	accounts := *a.accounts.Load()
	if len(accounts) == 0 {
		return true
	}
	user, password, _ := r.BasicAuth()
	given, found := sha256.Sum256([]byte(user+"\x00"+password)), 0
	for u, p := range accounts {
		want := sha256.Sum256([]byte(u + "\x00" + p))
		found |= subtle.ConstantTimeCompare(given[:], want[:])
	}
	if found == 1 {
		return true
	}
	expire(w)
	w.Header().Set("WWW-Authenticate", `Basic realm="Authorization Required"`)
	w.WriteHeader(http.StatusUnauthorized)
	return false
}

// info lists the queues of a pool by namespace. Channels without a slash are none of lmstfy's.
func (c *adminCall) info() {
	q := c.a.Pools[c.poolOf("")]
	if q == nil {
		c.w.WriteHeader(http.StatusOK)
		return
	}
	names, err := q.Channels(c.r.Context())
	if err != nil {
		c.failed("list the queues", err)
		return
	}
	all := make(map[string][]string)
	for _, name := range names {
		if ns, queue, ok := strings.Cut(name, "/"); ok {
			all[ns] = append(all[ns], queue)
		}
	}
	_ = c.write(http.StatusOK, "text/plain; charset=utf-8", all, indent)
}

func (c *adminCall) pools() {
	names := make([]string, 0, len(c.a.Pools))
	for name := range c.a.Pools {
		names = append(names, name)
	}
	slices.Sort(names)
	_ = c.indented(http.StatusOK, names)
}

func (c *adminCall) accessLog() {
	status := "disabled"
	if c.a.AccessLog != nil && c.a.AccessLog.Load() {
		status = "enabled"
	}
	_ = c.answer(http.StatusOK, message{"status": status})
}

func (c *adminCall) setAccessLog() {
	status := c.query.Get("status")
	if status != "enable" && status != "disable" {
		_ = c.answer(http.StatusBadRequest, failure("invalid status"))
		return
	}
	if c.a.AccessLog != nil {
		c.a.AccessLog.Store(status == "enable")
	}
	_ = c.answer(http.StatusOK, message{"status": status + "d"})
}

// poolOf is the pool of the query, else of the prefix of a token, else the default.
func (c *adminCall) poolOf(prefix string) string {
	if prefix != "" {
		return prefix
	}
	if p := c.query.Get("pool"); p != "" {
		return p
	}
	return DefaultPool
}

// small bounds the reading of the request's body.
func (c *adminCall) small() {
	c.r.Body = http.MaxBytesReader(c.w, c.r.Body, smallBody)
}
