package lmstfy

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/shuntmq/shunt/daemon/budget"
)

// message is most answers.
type message map[string]any

func failure(text string) message { return message{"error": text} }

var internalError = failure("internal error")

// answer writes JSON, with writeTimeout for all of it. The Budget counts it meanwhile. The error is the connection's.
func (c *call) answer(status int, v any) error {
	return c.write(status, "application/json; charset=utf-8", v, json.Marshal)
}

// indented is answer with 4 spaces, as the admin routes have it.
func (c *call) indented(status int, v any) error {
	return c.write(status, "application/json; charset=utf-8", v, indent)
}

func indent(v any) ([]byte, error) { return json.MarshalIndent(v, "", "    ") }

func (c *call) write(status int, kind string, v any, marshal func(any) ([]byte, error)) error {
	body, err := marshal(v)
	if err != nil {
		c.complain("an answer", err)
		status, body = http.StatusInternalServerError, []byte(`{"error":"internal error"}`)
	}
	if c.budget != nil { // operators' answers are not counted
		c.budget.Hold(len(body))
		defer c.budget.Return(len(body))
	}
	control := expire(c.w)
	h := c.w.Header()
	h.Set("Content-Type", kind)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	c.w.WriteHeader(status)
	if _, err := c.w.Write(body); err != nil {
		return err
	}
	return control.Flush() // a client that has left by now may have read it
}

// expire bounds the writing of an answer. A connection keeps the deadline of its last answer until then.
func expire(w http.ResponseWriter) *http.ResponseController {
	control := http.NewResponseController(w)
	_ = control.SetWriteDeadline(time.Now().Add(writeTimeout)) // a recorder of tests has none
	return control
}

// room says whether jobs may be read for an answer. Else it has answered.
func (c *call) room() bool {
	full := c.budget.Full()
	if full {
		c.later(http.StatusServiceUnavailable, retryAfter, failure(budget.ErrFull.Error()))
	}
	return !full
}

// nothing answers 204.
func (c *call) nothing() {
	expire(c.w)
	c.w.WriteHeader(http.StatusNoContent)
}

// later asks the client to come again.
func (c *call) later(status int, after time.Duration, v any) {
	seconds := (after + time.Second - 1) / time.Second
	c.w.Header().Set("Retry-After", strconv.Itoa(int(max(1, seconds))))
	_ = c.answer(status, v)
}

// failed answers 500 for an error of Redis, and logs it.
func (c *call) failed(what string, err error) {
	if c.r.Context().Err() == nil {
		c.complain(what, err)
	}
	_ = c.answer(http.StatusInternalServerError, internalError)
}

func (c *call) complain(what string, err error) {
	c.log.Error("lmstfy: failed", "what", what, "pool", c.poolName, "namespace", c.ns, "queue", c.queue,
		"request", c.w.Header().Get("X-Request-ID"), "error", err)
}
