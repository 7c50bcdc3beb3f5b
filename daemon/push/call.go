package push

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/shuntmq/shunt/daemon/lmstfy"
)

const (
	maxBody      = 64 << 10 // of a group
	redisTimeout = 10 * time.Second
	writeTimeout = 30 * time.Second
)

// call is one request on its way.
type call struct {
	p     *Pusher
	w     http.ResponseWriter
	r     *http.Request
	query url.Values
	ctx   context.Context // of what is asked of Redis
	key   Key
}

// need is what the path of a route names.
type need int

const (
	needNothing need = iota
	needNamespace
	needGroup
)

// named reads the names. It answers where they are wrong.
func (c *call) named(n need) bool {
	var err error
	if c.query, err = url.ParseQuery(c.r.URL.RawQuery); err != nil {
		c.refuse(http.StatusBadRequest, "invalid query")
		return false
	}
	c.key = Key{c.query.Get("pool"), c.r.PathValue("ns"), c.r.PathValue("group")}
	if c.key.Pool == "" && n != needNothing {
		c.key.Pool = lmstfy.DefaultPool
	}
	const form = ": want 1 to 64 letters, digits, - and _"
	switch {
	case c.key.Pool != "" && c.p.Pools[c.key.Pool] == nil:
		c.refuse(http.StatusNotFound, "there is no such pool")
	case n >= needNamespace && (!isName(c.key.Namespace) || len(c.key.Namespace) > maxName):
		c.refuse(http.StatusBadRequest, "the namespace's name is wrong"+form)
	case n >= needGroup && (!isName(c.key.Name) || len(c.key.Name) > maxName):
		c.refuse(http.StatusBadRequest, "the group's name is wrong"+form)
	default:
		return true
	}
	return false
}

// decode reads the body into settings that have others already. It answers where it cannot.
func (c *call) decode(to any, strict bool) bool {
	d := json.NewDecoder(http.MaxBytesReader(c.w, c.r.Body, maxBody))
	if strict {
		d.DisallowUnknownFields()
	}
	err := d.Decode(to)
	if err == nil {
		if _, more := d.Token(); more != io.EOF {
			err = errors.New("there is more than one JSON value")
		}
	}
	var large *http.MaxBytesError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &kind):
		c.refuse(http.StatusBadRequest, fmt.Sprintf("%s: it is a %s: want a %v", kind.Field, kind.Value,
			kind.Type.Kind()))
	case errors.As(err, &large):
		c.refuse(http.StatusRequestEntityTooLarge, "body too large")
	case errors.Is(err, io.EOF):
		c.refuse(http.StatusBadRequest, "the body is empty: want JSON")
	case err != nil:
		c.refuse(http.StatusBadRequest, strings.TrimPrefix(err.Error(), "json: "))
	}
	return err == nil
}

// checked says whether the settings are right, the endpoint's address included where it names one. It answers where
// they are not.
func (c *call) checked(s *Settings) bool {
	err := s.Validate(c.key.Namespace)
	if u, bad := url.Parse(s.Endpoint); err == nil && bad == nil {
		if at, no := netip.ParseAddr(u.Hostname()); no == nil {
			own, _ := Networks(s.Allow)
			err = reachable(at, own, *c.p.allow.Load())
		}
	}
	if err != nil {
		c.refuse(http.StatusBadRequest, strings.ReplaceAll(strings.TrimPrefix(err.Error(), "push: "), "\n", "; "))
	}
	return err == nil
}

// failed answers an error of the store.
func (c *call) failed(err error) {
	switch {
	case errors.Is(err, errAnswered):
	case errors.Is(err, ErrNotFound):
		c.refuse(http.StatusNotFound, "there is no such group")
	case errors.Is(err, ErrExists):
		c.refuse(http.StatusConflict, "the group exists already")
	case errors.Is(err, ErrTooMany):
		c.refuse(http.StatusConflict, strings.TrimPrefix(ErrTooMany.Error(), "push: "))
	default:
		c.complain(err)
		c.refuse(http.StatusInternalServerError, "internal error")
	}
}

func (c *call) complain(err error) {
	if c.r.Context().Err() == nil {
		c.p.Log.Error("push: a request failed", "group", c.key.String(), "request", c.w.Header().Get("X-Request-ID"),
			"error", err)
	}
}

func (c *call) refuse(status int, text string) { c.answer(status, map[string]string{"error": text}) }

func (c *call) answer(status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		c.complain(err)
		status, body = http.StatusInternalServerError, []byte(`{"error":"internal error"}`)
	}
	c.expire(writeTimeout)
	c.w.Header().Set("Content-Type", "application/json; charset=utf-8")
	c.w.WriteHeader(status)
	_, _ = c.w.Write(append(body, '\n')) // an error is the client's
}

// expire bounds the writing of the answer.
func (c *call) expire(in time.Duration) {
	_ = http.NewResponseController(c.w).SetWriteDeadline(time.Now().Add(in)) // a recorder of tests has none
}
