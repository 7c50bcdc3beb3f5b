package v1

import (
	"net/http"
	"strconv"
	"time"
)

// problem is an answer that says what is wrong, after RFC 9457.
type problem struct {
	Type     string      `json:"type"`
	Title    string      `json:"title"`
	Status   int         `json:"status"`
	Detail   string      `json:"detail,omitempty"`
	Request  string      `json:"request,omitempty"`  // X-Request-ID
	Faults   []fault     `json:"faults,omitempty"`   // of an invalid request: all of them, up to maxFaults
	Existing *statusJSON `json:"existing,omitempty"` // of a duplicate: the message that has the id
}

// fault is one thing that is wrong with a request.
type fault struct {
	In     string `json:"in"`   // path, query, header or body
	Name   string `json:"name"` // of the parameter or header; in a body, a JSON pointer
	Detail string `json:"detail"`
}

// maxFaults bounds what is told of one request.
const maxFaults = 100

// problemPrefix begins the type of each problem. The rest of a type never changes.
const problemPrefix = "urn:shunt:problem:"

// kind is a type of problem with its title and its status.
type kind struct {
	name   string
	status int
	title  string
}

var (
	invalidRequest = kind{"invalid-request", 400, "The request is invalid."}
	noToken        = kind{"no-token", 401, "A token is needed."}
	invalidToken   = kind{"invalid-token", 401, "The token is not valid here."}
	forbidden      = kind{"forbidden", 403, "The token's role does not allow this."}
	noRoute        = kind{"no-route", 404, "There is no such route."}
	noPool         = kind{"no-pool", 404, "There is no such pool."}
	noMessage      = kind{"no-message", 404, "There is no such message."}
	noRecurring    = kind{"no-recurring-message", 404, "There is no recurring message of that name."}
	wrongMethod    = kind{"method-not-allowed", 405, "The route has other methods."}
	notAcceptable  = kind{"not-acceptable", 406, "None of the accepted types can be given."}
	duplicate      = kind{"duplicate", 409, "The id is taken by another message."}
	noID           = kind{"no-id", 409, "The message has no id, by which its outcome would be found."}
	running        = kind{"running", 409, "The message is being handled."}
	waits          = kind{"waiting", 409, "The message waits to be taken already."}
	cancelled      = kind{"cancelled", 409, "The message was cancelled."}
	leaseLost      = kind{"lease-lost", 410, "The message was settled already, or its lease has ended."}
	unconfirmed    = kind{"unconfirmed", 410, "A reply of Redis was lost: this verdict may have settled the message."}
	notKept        = kind{"outcome-not-kept", 410, "The message is over or lost, and its outcome was not kept."}
	tooLarge       = kind{"too-large", 413, "The request is too large."}
	wrongType      = kind{"unsupported-media-type", 415, "The body's type is not one that the route reads."}
	keyReused      = kind{"idempotency-key-reused", 422, "Another request was made under this key."}
	tooMany        = kind{"rate-limited", 429, "The token's limit is reached."}
	internal       = kind{"internal", 500, "The server failed."}
	busy           = kind{"busy", 503, "Too much at once: try again later."}
	stopping       = kind{"stopping", 503, "The server stops: try again, and reach another one."}
	full           = kind{"redis-full", 503, "Redis takes no new messages for want of memory."}
	unavailable    = kind{"redis-unavailable", 503, "Redis cannot be asked now: nothing was changed."}
	unknownOutcome = kind{"unknown-outcome", 503, "A reply of Redis was lost: it may have been done."}
)

func (k kind) problem(detail string) *problem {
	return &problem{Type: problemPrefix + k.name, Title: k.title, Status: k.status, Detail: detail}
}

// refuse answers with a problem. Those of 503 and 429 have Retry-After.
func (c *call) refuse(k kind, detail string) { c.refuseWith(k.problem(detail)) }

func (c *call) refuseWith(p *problem) {
	h := c.w.Header()
	if p.Status == http.StatusServiceUnavailable && h.Get("Retry-After") == "" {
		h.Set("Retry-After", "1")
	}
	p.Request = h.Get("X-Request-ID")
	_ = c.write(p.Status, "application/problem+json", p)
}

// refuseFor asks the client to come again after some time.
func (c *call) refuseFor(k kind, after time.Duration, detail string) {
	seconds := (after + time.Second - 1) / time.Second
	c.w.Header().Set("Retry-After", strconv.Itoa(int(max(1, seconds))))
	c.refuse(k, detail)
}

// fault notes what is wrong.
func (c *call) fault(in, name, detail string) {
	if len(c.faults) < maxFaults {
		c.faults = append(c.faults, fault{in, name, detail})
	}
}

// bad answers 400 where anything is wrong with the request.
func (c *call) bad() bool {
	if len(c.faults) == 0 {
		return false
	}
	p := invalidRequest.problem("")
	p.Faults = c.faults
	c.refuseWith(p)
	return true
}
