package v1

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/shuntmq/shunt/daemon/budget"
)

const (
	smallBody = 1 << 20 // of a request that has no payloads
	maxDepth  = 100     // of a JSON body
)

// read reads the request's body, up to a bound, within the Budget's BodyTimeout. It answers where it cannot.
func (a *API) read(c *call, most int64) (body []byte, ok bool) {
	control := http.NewResponseController(c.w)
	l := a.Budget.Limits()
	most = min(most, l.MaxBodies/2)
	c.body = a.Budget.Meter(http.MaxBytesReader(c.w, c.r.Body, most))
	body, err := io.ReadAll(&c.body)
	if err == nil {
		_ = control.SetReadDeadline(time.Time{}) // else it would end this request's wait
		return body, true
	} // else it still bounds what net/http reads of the rest
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		c.refuse(tooLarge, fmt.Sprintf("the body has more than %d bytes", most))
	case errors.Is(err, budget.ErrFull):
		c.body.Release()
		_ = control.SetReadDeadline(time.Now())
		c.w.Header().Set("Connection", "close")
		c.refuse(busy, tooMuch)
	default:
		_ = control.SetReadDeadline(time.Now())
		c.w.Header().Set("Connection", "close")
		c.fault("body", "", "it could not be read to its end in time")
		c.bad()
	}
	return nil, false
}

// none reads what a request should not have: net/http watches a connection only when the body has been read.
func (a *API) none(c *call) bool {
	if c.r.Body == nil || c.r.Body == http.NoBody {
		return true
	}
	body, ok := a.read(c, smallBody)
	if ok && len(body) > 0 {
		c.fault("body", "", "the route has none")
	}
	return ok
}

// json reads a body of JSON. It answers where it cannot; empty is set where there is none.
func (a *API) json(c *call, most int64) (raw json.RawMessage, empty, ok bool) {
	body, ok := a.read(c, most)
	if !ok {
		return nil, false, false
	}
	if len(body) == 0 {
		return nil, true, true
	}
	given := c.header("Content-Type")
	kind, params, err := mime.ParseMediaType(given)
	if charset := params["charset"]; err != nil || kind != "application/json" || charset != "" && !isUTF8(charset) {
		c.refuse(wrongType, fmt.Sprintf("the body is %.80q: want application/json", given))
		return nil, false, false
	}
	body = bytes.TrimSpace(body)
	switch {
	case !utf8.Valid(body):
		c.fault("body", "", "it is not UTF-8")
	case tooDeep(body):
		c.fault("body", "", fmt.Sprintf("it is nested deeper than %d", maxDepth))
	case !json.Valid(body):
		var v any
		c.fault("body", "", "it is not JSON: "+fmt.Sprint(json.Unmarshal(body, &v)))
	default:
		return body, false, true
	}
	c.bad()
	return nil, false, false
}

func isUTF8(charset string) bool {
	return bytes.EqualFold([]byte(charset), []byte("utf-8")) || bytes.EqualFold([]byte(charset), []byte("utf8"))
}

// tooDeep counts brackets outside of texts.
func tooDeep(body []byte) bool {
	depth, within := 0, false
	for i := 0; i < len(body); i++ {
		switch b := body[i]; {
		case within && b == '\\':
			i++
		case b == '"':
			within = !within
		case within:
		case b == '{' || b == '[':
			if depth++; depth > maxDepth {
				return true
			}
		case b == '}' || b == ']':
			depth--
		}
	}
	return false
}

// object reads a body that is one object; without a body it has no fields.
func (a *API) object(c *call) (f *fields, ok bool) { return a.objectUpTo(c, smallBody) }

func (a *API) objectUpTo(c *call, most int64) (f *fields, ok bool) {
	raw, empty, ok := a.json(c, most)
	if !ok {
		return nil, false
	}
	if empty {
		raw = json.RawMessage("{}")
	}
	if f = c.objectOf(raw, "/"); f == nil {
		c.bad()
		return nil, false
	}
	return f, true
}
