package v1

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/daemon/access"
	"github.com/shuntmq/shunt/daemon/budget"
)

// DefaultPool is the pool of a token without a prefix.
const DefaultPool = "default"

const redisTimeout = 10 * time.Second // of what a request changes, which its client's leaving does not end

// API serves the interface. Its exported fields are its configuration, and are not changed once Handler was called. A
// client names its pool by a prefix of its token, as in "name:token".
type API struct {
	Pools  map[string]*shunt.Queue // by name; required
	Access *access.Store           // required, unless Open
	Open   bool                    // no token is asked for
	Budget *budget.Budget          // shared with other interfaces; nil: one of its own
	// Events are the hubs of the Pools, each set as its Queue's Events; a pool without one has no events to serve.
	Events map[string]*Hub
	// Recurring runs recurring messages; nil: they can be changed, and another process must run them.
	Recurring *Recurring
	Metrics   *Metrics     // nil: none
	Log       *slog.Logger // of errors; nil: slog.Default()

	pull    func(context.Context, *shunt.Queue, shunt.PullOptions) ([]*shunt.Leased, error)
	release func(context.Context, *shunt.Queue, []shunt.Receipt) error

	once    sync.Once
	stopped context.Context // ended by Stop
	stop    context.CancelCauseFunc
}

// errStopping is why waiting requests end.
var errStopping = errors.New("v1: the server stops")

// Validate says all that is wrong with the configuration.
func (a *API) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("v1: API."+format, args...))
		}
	}
	check(len(a.Pools) > 0, "Pools is empty: want at least %q", DefaultPool)
	for name, q := range a.Pools {
		check(isName(name), "Pools has %.40q: want letters, digits, - and _", name)
		check(q != nil, "Pools has no queue for %.40q", name)
	}
	for name := range a.Events {
		check(a.Pools[name] != nil, "Events has %.40q, which is no pool", name)
	}
	check(a.Access != nil || a.Open, "Access is nil: want a Store, or Open")
	return errors.Join(errs...)
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
		a.Budget = cmp.Or(a.Budget, new(budget.Budget))
		a.Log = cmp.Or(a.Log, slog.Default())
	})
}

// Stop ends what waits: pulls and waits are answered at once, and streams of events end. Further pulls and streams are
// 503, and further waits do not wait. All other routes go on. It does not wait.
func (a *API) Stop() {
	a.begin()
	a.stop(errStopping)
}

// Handler is the routes, all of which begin with /v1. Call Validate before.
func (a *API) Handler() http.Handler {
	a.begin()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { a.route(w, r, nil) })
}

// Operators is the routes for operators: those of Handler for every namespace but GET pull, and GET /v1/namespaces.
// They ask for no token, and have no limits but the Budget's. allowed says whether a request comes from an operator;
// else it has answered. The pool is the parameter pool. Pages of other sites change nothing through a browser.
func (a *API) Operators(allowed func(http.ResponseWriter, *http.Request) bool) http.Handler {
	a.begin()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { a.route(w, r, allowed) })
}
