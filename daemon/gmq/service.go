package gmq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/daemon/topics"
)

const (
	methodPush = "Service.Push"
	methodPop  = "Service.Pop"
	methodAck  = "Service.Ack"

	popWait    = 2 * time.Second
	popTimeout = popWait + 3*time.Second // while Redis is away
	ttrMore    = 3                       // s that a lease is longer than its job's TTR
	// foreignTTR is that of messages that were not pushed by this protocol, in s. gmq would ack a job without one at
	// once.
	foreignTTR = 120
	// redisTimeout bounds what a request changes, which its client's leaving does not end.
	redisTimeout = 10 * time.Second
	maxTopics    = 64
	maxDelay     = 99 * 365 * 24 * 3600 // s
	maxTTR       = 7*24*3600 - ttrMore  // s, as leases are bounded
)

// Headers of a message that is a job.
const (
	ttrHeader   = "gmq-ttr"   // s, as pushed
	delayHeader = "gmq-delay" // s, as pushed
)

// fault is an error as clients read it.
type fault string

func (f fault) Error() string { return string(f) }

// Errors as gmq words them, and those of bounds that it does not have.
const (
	errEmpty       fault = "empty"
	errExpired     fault = "TTR has expired and will be consumed again"
	errNotReserved fault = "Job is not be reserved"
	errNoTopics    fault = "topics is empty"
	errNoID        fault = "job.id is empty"
	errNoTopic     fault = "job.topic is empty"

	errInternal fault = "internal error"
	errPops     fault = "too many pops of one connection at once"
	errBusy     fault = "too many waiting requests, please retry later"
	errTopics   fault = "too many topics, cannot exceed 64"
	errSeveral  fault = "several topics have a job of that id"
	errLarge    fault = "job.body is too large"
	errNoRoom   fault = "redis is full, please retry later"
)

// handle answers one request; err is what is wrong with it already.
func (c *conn) handle(r *request, err error) {
	if err != nil {
		c.s.Metrics.request(label(r.Method), wrong)
		_ = c.write(&response{ID: r.ID, Error: err.Error()})
		return
	}
	switch r.Method {
	case methodPush:
		c.push(r)
	case methodPop:
		c.pop(r)
	case methodAck:
		c.ack(r)
	default:
		c.s.Metrics.request("", wrong)
		text := "rpc: can't find service " + r.Method // as net/rpc has it
		if !strings.Contains(r.Method, ".") {
			text = "rpc: service/method request ill-formed: " + r.Method
		}
		_ = c.write(&response{ID: r.ID, Error: cut(text, 200)})
	}
}

// label is a method as metrics have it.
func label(method string) string {
	if method == methodPush || method == methodPop || method == methodAck {
		return method
	}
	return ""
}

func cut(s string, n int) string {
	if len(s) > n {
		return strings.ToValidUTF8(s[:n], "") + "…"
	}
	return s
}

// detached is a context for what goes on although the client has left.
func (c *conn) detached() (context.Context, context.CancelFunc) {
	return context.WithTimeout(c.s.life, redisTimeout)
}

// job is what a push gives.
type job struct {
	id, topic, body string
	delay, ttr      int64 // s
}

// seconds reads a number as gmq does: what is none is 0, and what is too large the largest.
func seconds(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return 0
	}
	return n
}

// push answers "success", or what is wrong as a result, and not as an error: so does gmq.
func (c *conn) push(r *request) {
	args, err := argument[map[string]string](r)
	if err != nil {
		c.handle(r, err)
		return
	}
	j := job{id: args["id"], topic: args["topic"], body: args["body"], delay: seconds(args["delay"]),
		ttr: seconds(args["TTR"])}
	result, outcome := "success", good
	if err := c.enqueue(&j); err != nil {
		if result, outcome = err.Error(), wrong; errors.Is(err, errInternal) {
			outcome = failed
		}
	}
	c.s.Metrics.request(methodPush, outcome)
	_ = c.write(&response{ID: r.ID, Result: result})
}

func (c *conn) enqueue(j *job) error {
	switch {
	case j.id == "":
		return errNoID
	case j.topic == "":
		return errNoTopic
	case int64(len(j.body)) > c.s.Budget.Limits().MaxBody:
		return errLarge
	}
	if err := topics.CheckID(j.id); err != nil {
		return fmt.Errorf("job.id is wrong: %w", err)
	}
	channel, err := c.s.Topics.Channel(j.topic)
	if err != nil {
		return fmt.Errorf("job.topic is wrong: %w", err)
	}
	ctx, cancel := c.detached()
	defer cancel()
	opts := []shunt.Option{shunt.ID(j.id), shunt.In(time.Duration(min(max(j.delay, 0), maxDelay)) * time.Second),
		shunt.MaxAttempts(-1), shunt.Header(ttrHeader, strconv.FormatInt(j.ttr, 10))}
	if j.delay != 0 {
		opts = append(opts, shunt.Header(delayHeader, strconv.FormatInt(j.delay, 10)))
	}
	taken, err := c.s.Topics.Elsewhere(ctx, j.id, channel)
	if err == nil && !taken {
		err = c.s.Topics.Queue.Enqueue(ctx, shunt.Raw(channel, []byte(j.body)), opts...)
	}
	switch {
	case taken, errors.Is(err, shunt.ErrDuplicate):
		return fmt.Errorf("jobKey:job_pool:%s,error:has exist", j.id)
	case errors.Is(err, shunt.ErrTooLarge):
		return errLarge
	case errors.Is(err, shunt.ErrFull):
		return errNoRoom
	case err != nil:
		c.s.Log.Error("gmq: failed", "what", "push", "channel", channel, "error", err)
		return errInternal
	}
	c.s.Topics.Pushed(j.id, channel)
	return nil
}

// ack answers true where the job was leased.
func (c *conn) ack(r *request) {
	id, err := argument[string](r)
	if err != nil {
		c.handle(r, err)
		return
	}
	ctx, cancel := c.detached()
	defer cancel()
	p, err := c.s.Topics.Ack(ctx, id, "", nil)
	outcome := wrong
	switch {
	case err == nil:
		c.s.Metrics.request(methodAck, good)
		_ = c.write(&response{ID: r.ID, Result: true})
		return
	case errors.Is(err, shunt.ErrNotFound):
		err = errNotReserved
	case errors.Is(err, topics.ErrNotLeased):
		err = errNotReserved
		if s := p.Status; s.State == shunt.StatePrepare && s.Attempt > 0 {
			err = errExpired
		}
	case errors.Is(err, topics.ErrSeveral):
		err = errSeveral
	default:
		c.s.Log.Error("gmq: failed", "what", "ack", "error", err)
		outcome, err = failed, errInternal
	}
	c.s.Metrics.request(methodAck, outcome)
	_ = c.write(&response{ID: r.ID, Error: err.Error()})
}

// demanded are the channels of a pop.
func (c *conn) demanded(names []string) (channels []string, err error) {
	for _, name := range names {
		channel, err := c.s.Topics.Channel(name)
		if err != nil {
			return nil, fmt.Errorf("a topic is wrong: %w", err)
		}
		if slices.Contains(channels, channel) {
			continue
		}
		if channels = append(channels, channel); len(channels) > maxTopics {
			return nil, errTopics
		}
	}
	if len(channels) == 0 {
		return nil, errNoTopics
	}
	return channels, nil
}

// popped is a job, or nil where none came.
func (c *conn) popped(channels []string) (*shunt.Leased, error) {
	if !c.s.Budget.Wait() {
		return nil, errBusy
	}
	defer c.s.Budget.Done()
	ctx, cancel := context.WithTimeout(c.pops, popTimeout)
	defer cancel()
	return c.s.Topics.Take(ctx, topics.Demand{Channels: channels, Wait: popWait, Lease: c.lease})
}

func (c *conn) pop(r *request) {
	names, err := argument[[]string](r)
	var channels []string
	if err == nil {
		channels, err = c.demanded(names)
	}
	if err != nil {
		c.handle(r, err)
		return
	}
	l, err := c.popped(channels)
	if err == errBusy {
		c.handle(r, err)
		return
	}
	left := c.pops.Err() != nil
	switch {
	case l != nil && left && errors.Is(context.Cause(c.pops), errGone):
		c.release(l)
		l, err = nil, errEmpty
	case l != nil:
		c.deliver(r, l)
		return
	case err != nil && !left:
		c.s.Log.Error("gmq: failed", "what", "pop", "channel", channels[0], "error", err)
		c.s.Metrics.request(methodPop, failed)
		_ = c.write(&response{ID: r.ID, Error: errInternal.Error()})
		return
	}
	c.s.Metrics.request(methodPop, empty)
	_ = c.write(&response{ID: r.ID, Error: errEmpty.Error()})
}

// deliver writes a job. One without a TTR is acked once it is written.
func (c *conn) deliver(r *request, l *shunt.Leased) {
	c.s.Topics.Popped(l) // before the answer, upon which the ack may come
	if err := c.write(&response{ID: r.ID, Result: c.reply(l)}); err != nil {
		c.release(l)
		return
	}
	c.s.Metrics.request(methodPop, good)
	if ttrOf(l) > 0 {
		return
	}
	ctx, cancel := c.detached()
	defer cancel()
	if err := l.Ack(ctx); err != nil && !errors.Is(err, shunt.ErrLeaseLost) { // the client may have acked it, too
		c.s.Log.Error("gmq: failed", "what", "ack a job without a TTR", "channel", l.Channel, "error", err)
	}
}

func (c *conn) release(l *shunt.Leased) {
	c.s.Metrics.release()
	if err := c.s.Topics.Release(c.s.life, l); err != nil {
		c.s.Log.Error("gmq: failed", "what", "release what was not handed over", "channel", l.Channel, "error", err)
	}
}

// reply is a job as gmq gives it: all its values are texts, and its numbers those before this pop.
func (c *conn) reply(l *shunt.Leased) map[string]string {
	topic, _ := c.s.Topics.Topic(l.Channel)
	return map[string]string{
		"id": topics.ID(l.ID, l.Serial), "topic": topic, "body": string(l.Payload), "status": "3",
		"delay": strconv.FormatInt(seconds(l.Headers[delayHeader]), 10), "TTR": strconv.FormatInt(ttrOf(l), 10),
		"consume_num": strconv.Itoa(max(0, l.Attempt-1)),
	}
}

// ttrOf is a job's TTR in s.
func ttrOf(l *shunt.Leased) int64 {
	if text, ok := l.Headers[ttrHeader]; ok {
		return seconds(text)
	}
	return foreignTTR
}

// lease is how long a job is the client's. One without a TTR is held until its answer is written.
func (c *conn) lease(l *shunt.Leased) time.Duration {
	if ttr := min(ttrOf(l), maxTTR); ttr > 0 {
		return time.Duration(ttr+ttrMore) * time.Second
	}
	return c.s.Limits.WriteTimeout + redisTimeout
}
