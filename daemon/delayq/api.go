package delayq

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/shuntmq/shunt/daemon/budget"
	"github.com/shuntmq/shunt/daemon/topics"
)

const (
	writeTimeout = 30 * time.Second // of an answer
	redisTimeout = 10 * time.Second // of what a request changes, which its client's leaving does not end
)

// API serves the routes. Its exported fields are its configuration, and are not changed once Handler was called.
type API struct {
	Topics  *topics.Topics              // required
	Tries   int                         // of a job: 1 to 255; 0: 1; negative: no bound
	Ping    func(context.Context) error // whether Redis answers; nil: it does
	Budget  *budget.Budget              // what all interfaces share; nil: one of its own
	Metrics *Metrics                    // nil: none
	Log     *slog.Logger                // of errors; nil: slog.Default()

	once    sync.Once
	stopped atomic.Bool
}

// Validate says all that is wrong with the configuration.
func (a *API) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("delayq: API."+format, args...))
		}
	}
	check(a.Topics != nil, "Topics is nil")
	check(a.Tries <= 255, "Tries is %d: want 1 to 255, 0 for 1, or negative for no bound", a.Tries)
	return errors.Join(errs...)
}

// Stop ends the takes: a pop gets no job from now on. All other routes go on.
func (a *API) Stop() { a.stopped.Store(true) }

// routes are those that a body belongs to.
var routes = map[string]func(*API, *call){
	"/delayq/job/add": (*API).add, "/delayq/job/pop": (*API).pop, "/delayq/job/finish": (*API).finish,
	"/delayq/job/info": (*API).info,
}

// Handler is the routes. Call Validate before.
func (a *API) Handler() http.Handler {
	a.once.Do(func() {
		a.Tries, a.Log = cmp.Or(a.Tries, 1), cmp.Or(a.Log, slog.Default())
		a.Budget = cmp.Or(a.Budget, new(budget.Budget))
	})
	return http.HandlerFunc(a.serve)
}

// call is one request on its way.
type call struct {
	w    http.ResponseWriter
	r    *http.Request
	path string // of a route; empty: none
	m    *Metrics
	in   command
	body []byte

	budget *budget.Budget
}

// command is the body of a request.
type command struct {
	JobID    string `json:"jobid"`
	Name     string `json:"name"`
	Topic    string `json:"topic"`
	Data     string `json:"data"`
	ExecTime int64  `json:"exectime"` // s since 1970
	TTR      int64  `json:"ttr"`      // s
}

// reply is every answer.
type reply struct {
	Code string `json:"code"`
	Info string `json:"info"`
	Data string `json:"data"`
}

func (a *API) serve(w http.ResponseWriter, r *http.Request) {
	c := &call{w: w, r: r, m: a.Metrics, budget: a.Budget}
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(a.Budget.Limits().BodyTimeout))
	handle := routes[r.URL.Path]
	ping := r.URL.Path == "/delayq/ping"
	if handle != nil || ping {
		c.path = r.URL.Path
	}
	switch h := r.Header; {
	case h.Get("Origin") != "" || h.Get("Sec-Fetch-Site") != "":
		c.no("browsers are not served", "")
	case ping:
		a.ping(c)
	case handle == nil:
		c.no("there is no such route", "")
	default:
		// A job may be twice as long in JSON, and has names beside.
		body := a.Budget.Meter(http.MaxBytesReader(w, r.Body, 2*a.Budget.Limits().MaxBody+64<<10))
		defer body.Release()
		if a.read(c, &body) {
			handle(a, c)
		}
	}
}

// read reads the body.
func (a *API) read(c *call, body io.Reader) (ok bool) {
	var err error
	c.body, err = io.ReadAll(body)
	if err == nil { // beyond the deadline net/http would take the client for gone
		_ = http.NewResponseController(c.w).SetReadDeadline(time.Time{})
	}
	var large *http.MaxBytesError
	switch {
	case errors.Is(err, budget.ErrFull):
		c.no(budget.ErrFull.Error(), "")
	case errors.As(err, &large):
		c.no("body too large", "")
	case err != nil:
		c.no("the body could not be read", "")
	case !utf8.Valid(c.body):
		c.no("wrong parameters: the body is not UTF-8", "")
	default:
		if err = json.Unmarshal(c.body, &c.in); err == nil {
			return true
		}
		c.no("wrong parameters: "+err.Error(), string(c.body))
	}
	return false
}

func (c *call) no(info, data string) { _ = c.answer(reply{"1", info, data}) }

func (c *call) yes(info, data string) error { return c.answer(reply{"0", info, data}) }

// failed answers for an error of Redis, and logs it.
func (a *API) failed(c *call, what string, err error) {
	if c.r.Context().Err() == nil {
		a.Log.Error("delayq: failed", "what", what, "request", c.w.Header().Get("X-Request-ID"), "error", err)
	}
	c.no("internal error", "")
}

// answer writes an answer. The error says that the client cannot have it.
func (c *call) answer(v reply) error {
	c.m.request(c.path, v.Code)
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	c.budget.Hold(len(b))
	defer c.budget.Return(len(b))
	control := http.NewResponseController(c.w)
	_ = control.SetWriteDeadline(time.Now().Add(writeTimeout))
	c.w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	c.w.Header().Set("Content-Length", fmt.Sprint(len(b)))
	if _, err := c.w.Write(b); err != nil {
		return err
	}
	return control.Flush() // a client that has left by now may have read it
}

// detached is a context for what goes on although the client has left.
func (c *call) detached() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(c.r.Context()), redisTimeout)
}

func (a *API) ping(c *call) {
	now := time.Now().Format(time.DateTime)
	if a.Ping != nil {
		if err := a.Ping(c.r.Context()); err != nil {
			c.no(now+" Redis does not answer", "")
			return
		}
	}
	_ = c.yes(now+" all is well", "PONG")
}
