package lmstfy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/daemon/access"
	"github.com/shuntmq/shunt/daemon/budget"
)

// DefaultPool is the pool of a token without a prefix.
const DefaultPool = "default"

const (
	writeTimeout = 30 * time.Second // of an answer
	redisTimeout = 10 * time.Second // of what a request changes, which its client's leaving does not end
)

// Defaults are the parameters of requests that give none.
type Defaults struct {
	TTL     uint32 // s; 0: a day; use NoTTL for none
	NoTTL   bool   // jobs do not expire
	Delay   uint32 // s
	Tries   uint16 // 0: 1
	TTR     uint32 // s; 0: 120
	Timeout uint32 // s
}

// Limits bound what a request may cost.
type Limits = budget.Limits

// SetLimits changes the limits for requests that come from now on.
func (a *API) SetLimits(l Limits) error {
	a.begin()
	return a.Budget.SetLimits(l)
}

// API serves the public routes. Its exported fields are its configuration, and are not changed once Handler was called.
type API struct {
	Pools    map[string]*shunt.Queue // by name; required
	Access   *access.Store           // required, unless Open
	Open     bool                    // no token is asked for
	Defaults Defaults

	Limits Limits // to begin with; SetLimits changes them
	// Budget is what all interfaces share, and gets Limits; nil: one of its own.
	Budget *budget.Budget

	Metrics *Metrics     // nil: none
	Log     *slog.Logger // of errors; nil: slog.Default()

	pull    func(context.Context, *shunt.Queue, shunt.PullOptions) ([]*shunt.Leased, error)
	release func(context.Context, *shunt.Queue, []shunt.Receipt) error

	delivered delivered
	once      sync.Once
	stopped   context.Context // ended by Stop
	stop      context.CancelCauseFunc
}

// errStopping is why waiting requests end.
var errStopping = errors.New("lmstfy: the server stops")

// Validate says all that is wrong with the configuration.
func (a *API) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("lmstfy: API."+format, args...))
		}
	}
	check(len(a.Pools) > 0, "Pools is empty: want at least %q", DefaultPool)
	for name, q := range a.Pools {
		check(isName(name), "Pools has %.40q: want letters, digits, - and _", name)
		check(q != nil, "Pools has no queue for %.40q", name)
	}
	check(a.Access != nil || a.Open, "Access is nil: want a Store, or Open")
	return errors.Join(append(errs, a.Limits.Validate())...)
}

// begin sets what does not change.
func (a *API) begin() {
	a.once.Do(func() {
		a.stopped, a.stop = context.WithCancelCause(context.Background())
		if a.pull == nil {
			a.pull = func(ctx context.Context, q *shunt.Queue, o shunt.PullOptions) ([]*shunt.Leased, error) {
				return q.Pull(ctx, o)
			}
		}
		if a.release == nil {
			a.release = func(ctx context.Context, q *shunt.Queue, rs []shunt.Receipt) error {
				return q.Release(ctx, rs...)
			}
		}
		if a.Budget == nil {
			a.Budget = new(budget.Budget)
		}
		_ = a.Budget.SetLimits(a.Limits) // Validate has told
		a.Log = cmp.Or(a.Log, slog.Default())
		d := &a.Defaults
		d.Tries, d.TTR = cmp.Or(d.Tries, 1), cmp.Or(d.TTR, 120)
		if !d.NoTTL {
			d.TTL = cmp.Or(d.TTL, 86400)
		}
	})
}

// Stop ends the takes: waiting requests are answered at once that there is no job, and further ones with 503. All other
// routes go on. It does not wait.
func (a *API) Stop() {
	a.begin()
	a.stop(errStopping)
}

// Waiting is how many requests wait, of all interfaces that share the Budget.
func (a *API) Waiting() int {
	a.begin()
	return a.Budget.Waiting()
}

// need is what a route asks of a request before its handler.
type need uint8

const (
	needQueue  need = iota // one queue's name
	needQueues             // one or more, with commas
)

// route is one line of the interface.
type route struct {
	pattern string
	api     string // its name in metrics
	names   need
	role    access.Role // "": no token
	counts  string      // "produce" or "consume": limited; "": not
	good    int         // the status that counts
	handle  func(*API, *call)
}

var routes = []route{
	{"PUT /api/{ns}/{queue}", "publish", needQueue, access.Publish, "produce", 201, (*API).publish},
	{"PUT /api/{ns}/{queue}/bulk", "bulk", needQueue, access.Publish, "produce", 201, (*API).bulk},
	{"PUT /api/{ns}/{queue}/job/{id}", "republish", needQueue, access.Both, "", 0, (*API).republish},
	{"GET /api/{ns}/{queue}", "consume", needQueues, access.Consume, "consume", 200, (*API).consume},
	{"DELETE /api/{ns}/{queue}/job/{id}", "ack", needQueue, access.Consume, "", 0, (*API).ack},
	{"GET /api/{ns}/{queue}/peek", "peek", needQueue, anyRole, "", 0, (*API).peek},
	{"GET /api/{ns}/{queue}/job/{id}", "job", needQueue, anyRole, "", 0, (*API).job},
	{"DELETE /api/{ns}/{queue}", "destroy", needQueue, access.Both, "", 0, (*API).destroy},
	{"GET /api/{ns}/{queue}/deadletter", "deadletter", needQueue, anyRole, "", 0, (*API).deadLetter},
	{"PUT /api/{ns}/{queue}/deadletter", "respawn", needQueue, access.Both, "", 0, (*API).respawn},
	{"DELETE /api/{ns}/{queue}/deadletter", "delete_deadletter", needQueue, access.Both, "", 0, (*API).deleteDead},
	{"GET /api/{ns}/{queue}/size", "size", needQueue, "", "", 0, (*API).size},
	{"GET /api/{ns}/{queue}/deadletter/size", "deadletter_size", needQueue, "", "", 0, (*API).deadSize},
}

// anyRole is for what every token may do.
const anyRole access.Role = "any"

// Handler is the routes. Call Validate before.
func (a *API) Handler() http.Handler {
	a.begin()
	mux := http.NewServeMux()
	for _, rt := range routes {
		mux.HandleFunc(rt.pattern, func(w http.ResponseWriter, r *http.Request) { a.serve(&rt, w, r) })
	}
	bound := func() time.Duration { return a.Budget.Limits().BodyTimeout }
	return front(mux, bound, func(w http.ResponseWriter, r *http.Request) {
		c := &call{w: w, r: r, log: a.Log}
		_ = c.answer(http.StatusNotFound, failure("api not found"))
	})
}

// front keeps from a mux what it would answer in its own way: unclean paths, other methods and slashes at the end. It
// bounds the time of bodies, also of those that nobody reads: net/http reads what is left of them.
func front(mux *http.ServeMux, bound func() time.Duration, unknown http.HandlerFunc) http.Handler {
	const none = "/"
	mux.HandleFunc(none, unknown)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body != nil && r.Body != http.NoBody {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bound()))
		}
		p := r.URL.EscapedPath() // an escaped slash is a part of a job's ID
		trimmed := strings.TrimSuffix(p, "/")
		switch {
		case r.Method == http.MethodHead || r.Method == http.MethodConnect, p != "/" && !clean(trimmed):
			unknown(w, r)
			return
		case p != trimmed && p != "/":
			if _, pattern := mux.Handler(r); pattern != none && strings.HasSuffix(pattern, "/") {
				break
			}
			to := *r.URL
			to.Path, to.RawPath = strings.TrimSuffix(to.Path, "/"), strings.TrimSuffix(to.RawPath, "/")
			other := *r
			other.URL = &to
			if _, pattern := mux.Handler(&other); pattern == none {
				unknown(w, r)
				return
			}
			status := http.StatusTemporaryRedirect
			if r.Method == http.MethodGet {
				status = http.StatusMovedPermanently
			}
			expire(w)
			w.Header().Set("Location", (&to).RequestURI())
			w.WriteHeader(status)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// clean says that no segment of an escaped path is empty, "." or "..".
func clean(escaped string) bool {
	for s := range strings.SplitSeq(strings.TrimPrefix(escaped, "/"), "/") {
		if part, err := url.PathUnescape(s); err != nil || part == "" || part == "." || part == ".." {
			return false
		}
	}
	return true
}
