package dashboard

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt"
)

// Options says who may see what. Its zero value is for one's own machine.
type Options struct {
	// Authenticate says who asks: BasicAuth, Bearer, or a func of the program's own, such as one that reads its
	// session. Its errors are answered with 401; a Challenge with its header, and ErrForbidden with 403. It may be
	// called by many goroutines at once. Nil: only requests from this host to a loopback Host are answered, each as an
	// operator's.
	Authenticate func(*http.Request) (User, error)
	// Mask gives what may be shown of a message: a copy without its payload, say, or with a part of it. It gets a
	// payload whole or, for lists, not at all. It must not write to the maps and slices of the Entry, and may be called
	// by many goroutines at once.
	Mask func(shunt.Entry) shunt.Entry
	// Pool, of the Queue's Redis, is asked by INFO and SLOWLOG for the page about Redis. Nil: it has Health alone.
	Pool *redis.Pool
	// Title is shown on top, such as the name of the environment: default "shunt".
	Title string
	// Above is the URL of a page above this one, such as that of a list of several dashboards, to be linked on top.
	// A relative one is seen from the path under which the handler is mounted. Empty: there is none.
	Above string
	// Log gets what went wrong on a page or in a bulk action: default slog.Default.
	Log *slog.Logger
}

// Dashboard is the handler. Its methods may be called by many goroutines at once.
type Dashboard struct {
	q     *shunt.Queue
	o     Options
	hub   *hub
	bulks *bulks

	mu     sync.Mutex
	closed bool
}

// Handler makes a handler for a Queue, to be mounted under a path that ends in a slash. It starts nothing and asks
// Redis nothing before its first request.
func Handler(q *shunt.Queue, o Options) *Dashboard {
	if o.Authenticate == nil {
		o.Authenticate = LocalOnly
	}
	if o.Title == "" {
		o.Title = "shunt"
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	d := &Dashboard{q: q, o: o}
	d.bulks = newBulks(d)
	d.hub = newHub(q, o.Log, d.bulks.any)
	return d
}

// Close ends live streams and bulk actions, and waits for them. Later requests get 503. Close it before the Queue.
func (d *Dashboard) Close() error {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.hub.close()
	d.bulks.close()
	return nil
}

// request is one request of a known user.
type request struct {
	*Dashboard
	w     http.ResponseWriter
	r     *http.Request
	form  url.Values
	User  User
	Lang  int
	Theme string
	Token string
}

// gets are the pages by the last element of the path, posts what changes something.
var (
	gets = map[string]func(*request) error{
		"": (*request).overview, "channel": (*request).channel, "messages": (*request).messages,
		"message": (*request).message, "payload": (*request).payload, "dead": (*request).dead,
		"recurring": (*request).recurring, "receivers": (*request).receivers, "redis": (*request).redis,
		"audit": (*request).auditLog, "settings": (*request).settings, "live": (*request).live,
	}
	posts = map[string]func(*request) error{"act": (*request).act, "settings": (*request).setSettings}
)

// httpError is an error with a status of its own.
type httpError struct {
	status int
	err    error
}

func (e *httpError) Error() string { return e.err.Error() }
func (e *httpError) Unwrap() error { return e.err }

func refuse(status int, format string, args ...any) error {
	return &httpError{status, fmt.Errorf(format, args...)}
}

// maxForm bounds the body of a request.
const maxForm = 256 << 10

// ServeHTTP answers a request. Only the last element of its path counts.
func (d *Dashboard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	secure(w.Header())
	d.mu.Lock()
	closed := d.closed
	d.mu.Unlock()
	if closed || d.q == nil {
		http.Error(w, "dashboard: it is closed, or has no Queue", http.StatusServiceUnavailable)
		return
	}
	user, err := d.o.Authenticate(r)
	if err == nil && (user.Name == "" || len(user.Name) > 255 || user.Role != Viewer && user.Role != Operator) {
		d.o.Log.Error("dashboard: Authenticate gave a User without a name of 1 to 255 bytes or a known Role")
		err = ErrForbidden
	}
	var ask Challenge
	switch {
	case errors.As(err, &ask):
		w.Header().Set("WWW-Authenticate", string(ask))
		http.Error(w, "dashboard: log in", http.StatusUnauthorized)
		return
	case errors.Is(err, ErrForbidden):
		http.Error(w, "dashboard: not allowed. Without Options.Authenticate only this host may see it, at localhost.",
			http.StatusForbidden)
		return
	case err != nil:
		http.Error(w, "dashboard: log in", http.StatusUnauthorized)
		return
	}
	name := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
	if a, is := assets[name]; is && r.Method != http.MethodPost {
		w.Header().Set("Content-Type", a.kind)
		w.Header().Set("Cache-Control", "private, max-age=31536000, immutable")
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(a.body))
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	q := &request{Dashboard: d, w: w, r: r, User: user, Theme: "auto"}
	q.preferences()
	if err := q.serve(name); err != nil {
		q.fail(err)
	}
}

// secure sets the headers that keep other sites, and texts in messages, from doing harm.
func secure(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "+
		"connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

func (q *request) serve(name string) error {
	if err := q.r.ParseForm(); err != nil {
		return refuse(http.StatusBadRequest, "dashboard: the form cannot be read: %w", err)
	}
	q.form = q.r.Form
	page := gets[name]
	if !strings.Contains(q.r.URL.Path, "/") { // no link of a page would lead anywhere
		page = nil
	}
	switch q.r.Method {
	case http.MethodGet, http.MethodHead:
	case http.MethodPost:
		if page = posts[name]; page != nil {
			q.form = q.r.PostForm
			if err := forged(q.r); err != nil {
				return refuse(http.StatusForbidden, "dashboard: %w: go back, reload the page and try again", err)
			}
		}
	default:
		q.w.Header().Set("Allow", "GET, HEAD, POST")
		return refuse(http.StatusMethodNotAllowed, "dashboard: the method is GET, HEAD or POST")
	}
	if page == nil {
		return refuse(http.StatusNotFound, "dashboard: there is no such page")
	}
	q.Token = token(q.w, q.r)
	return page(q)
}
