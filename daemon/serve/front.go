package serve

import (
	"cmp"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/shuntmq/shunt/daemon/access"
)

// Front stands before a handler: each request gets an id, a line in the log, and an answer though the handler panics.
// Its exported fields are its configuration. It serves GET /livez, which is always 200, and GET /readyz, which asks
// Ready.
type Front struct {
	Name      string       // of the listener, in the log
	Handler   http.Handler // required
	Log       *slog.Logger // required
	AccessLog *atomic.Bool // whether each request is logged; nil: none is
	Ready     func() error // nil: it is ready
	// MaxTime bounds a request with its answer, to begin with; 0: no bound. A handler may set deadlines of its own.
	MaxTime time.Duration

	networks Networks
	maxTime  atomic.Int64 // ns, as set since; 0: MaxTime holds
}

// SetMaxTime changes MaxTime for requests that come from now on: a positive time.
func (f *Front) SetMaxTime(d time.Duration) { f.maxTime.Store(int64(d)) }

// Allow sets from where requests may come; without any network, from everywhere. Others get 403.
func (f *Front) Allow(networks []netip.Prefix) { f.networks.Set(networks) }

// newRequestID is a ULID, no secret.
func newRequestID() string { return ulid.Make().String() }

func (f *Front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	begun, id := time.Now(), newRequestID()
	w.Header().Set("X-Request-ID", id)
	rec := &Recorder{ResponseWriter: w}
	if most := cmp.Or(time.Duration(f.maxTime.Load()), f.MaxTime); most > 0 {
		_ = http.NewResponseController(w).SetWriteDeadline(begun.Add(most))
	}
	defer func() {
		p := recover()
		if p != nil && p != http.ErrAbortHandler {
			f.Log.Error("serve: a handler panicked", "listener", f.Name, "request", id, "panic", fmt.Sprint(p),
				"stack", string(debug.Stack()))
			if rec.Status == 0 {
				rec.Header().Set("Content-Type", "application/json; charset=utf-8")
				rec.Header().Del("Content-Length")
				rec.WriteHeader(http.StatusInternalServerError)
				_, _ = rec.Write([]byte(`{"error":"internal error"}`))
				p = nil
			}
		}
		f.note(r, rec, id, time.Since(begun))
		if p != nil {
			panic(http.ErrAbortHandler) // half an answer must not look like a whole one
		}
	}()
	switch {
	case r.Method == http.MethodGet && r.URL.Path == "/livez":
		rec.say(http.StatusOK, "ok")
	case r.Method == http.MethodGet && r.URL.Path == "/readyz":
		if f.Ready != nil && f.Ready() != nil {
			rec.say(http.StatusServiceUnavailable, "not ready")
		} else {
			rec.say(http.StatusOK, "ok")
		}
	case !f.networks.Allows(r.RemoteAddr):
		rec.Header().Set("Content-Type", "application/json; charset=utf-8")
		rec.WriteHeader(http.StatusForbidden)
		_, _ = rec.Write([]byte(`{"error":"this address is not allowed"}`))
	default:
		f.Handler.ServeHTTP(rec, r)
	}
}

// note writes the request's line. Of the query it has only what is no secret.
func (f *Front) note(r *http.Request, rec *Recorder, id string, took time.Duration) {
	if f.AccessLog == nil || !f.AccessLog.Load() {
		return
	}
	remote := r.RemoteAddr
	if host, _, err := net.SplitHostPort(remote); err == nil {
		remote = host
	}
	f.Log.Info("request", "listener", f.Name, "request", id, "remote", remote, "method", cut(r.Method, 20),
		"path", cut(shown(r.URL.Path), 200), "query", cut(harmless(r.URL.RawQuery), 200), "status", rec.Status,
		"bytes", rec.bytes, "ms", took.Milliseconds(), "agent", cut(r.UserAgent(), 100))
}

func cut(s string, n int) string {
	if len(s) > n {
		return s[:n] + "…"
	}
	return s
}

// shown is a path in which a token is its mark, as in /token/NAMESPACE/TOKEN.
func shown(path string) string {
	part := strings.SplitN(strings.TrimLeft(path, "/"), "/", 3)
	if len(part) < 3 || !strings.EqualFold(part[0], "token") {
		return path
	}
	token, rest := strings.TrimRight(part[2], "/"), ""
	if t, ok := strings.CutSuffix(token, "/limit"); ok {
		token, rest = t, "/limit"
	}
	if pool, t, ok := strings.Cut(token, ":"); ok {
		return "/token/" + part[1] + "/" + pool + ":" + access.MarkOf(t) + rest
	}
	return "/token/" + part[1] + "/" + access.MarkOf(token) + rest
}

// known are the parameters that a log may have.
var known = []string{"delay", "ttl", "tries", "ttr", "timeout", "count", "limit", "pool", "role", "status",
	"force_update", "freeze_tries", "delay_ms", "lease_ms", "wait_ms", "max", "queues", "state", "offset", "after"}

func harmless(query string) string {
	if query == "" {
		return ""
	}
	all, err := url.ParseQuery(query)
	if err != nil {
		return "?"
	}
	some := make(url.Values)
	for _, name := range known {
		if v := all.Get(name); v != "" {
			some.Set(name, cut(v, 20))
		}
	}
	return some.Encode()
}
