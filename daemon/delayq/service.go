package delayq

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/daemon/topics"
)

const (
	defaultTTR = 20                        // s
	maxTTR     = 7 * 24 * 3600             // s, as leases are bounded
	maxName    = 16 << 10                  // bytes, as headers are bounded
	farthest   = 99 * 365 * 24 * time.Hour // of an exectime
	keptFor    = 24 * time.Hour            // what is kept of a finished job
	keptData   = 64 << 10                  // bytes of its data; what is larger is not kept
	endTries   = 3                         // for a job that moves meanwhile
	noJob      = "there is no ready job"   // of a pop
	noSuchJob  = "the job does not exist"  // of an info
	severalOf  = "several topics have it: give the topic, too"
)

func (a *API) add(c *call) {
	in := &c.in
	if in.JobID == "" || in.Topic == "" {
		c.no("wrong parameters: jobid and topic are required", "")
		return
	}
	if err := topics.CheckID(in.JobID); err != nil {
		c.no("wrong jobid: "+err.Error(), "")
		return
	}
	channel, err := a.Topics.Channel(in.Topic)
	switch {
	case err != nil:
		c.no("wrong topic: "+err.Error(), "")
		return
	case len(in.Name) > maxName:
		c.no("wrong name: want up to 16384 bytes", "")
		return
	case int64(len(in.Data)) > a.Budget.Limits().MaxBody:
		c.no("data too large", "")
		return
	}
	now := time.Now()
	j := job{JobID: in.JobID, Name: in.Name, Topic: in.Topic, Data: in.Data, AddTime: now.Unix(), ExecTime: in.ExecTime,
		TTR: min(in.TTR, maxTTR)}
	if j.TTR <= 0 {
		j.TTR = defaultTTR
	}
	if j.ExecTime == 0 {
		j.ExecTime = now.Unix() + 1
	}
	ctx, cancel := c.detached()
	defer cancel()
	taken, err := a.Topics.Elsewhere(ctx, in.JobID, channel)
	if err == nil && !taken {
		err = a.Topics.Queue.Enqueue(ctx, shunt.Raw(channel, []byte(in.Data)), a.options(&j)...)
	}
	switch {
	case taken, errors.Is(err, shunt.ErrDuplicate):
		c.no(fmt.Sprintf("%s: a job of that id exists", in.JobID), "")
	case errors.Is(err, shunt.ErrTooLarge):
		c.no("data too large", "")
	case errors.Is(err, shunt.ErrFull):
		c.no("redis is full, please retry later", "")
	case err != nil:
		a.failed(c, "add", err)
	default:
		a.Topics.Pushed(in.JobID, channel)
		_ = c.yes("added", j.text())
	}
}

// options are those of the message that is a job.
func (a *API) options(j *job) []shunt.Option {
	at := min(max(j.ExecTime, 1), time.Now().Add(farthest).Unix())
	opts := []shunt.Option{shunt.ID(j.JobID), shunt.At(time.Unix(at, 0)), shunt.MaxAttempts(a.Tries),
		shunt.Retain(keptFor), shunt.UniqueFor(keptFor), shunt.Header(ttrHeader, strconv.FormatInt(j.TTR, 10)),
		shunt.Header(execHeader, strconv.FormatInt(j.ExecTime, 10))}
	if j.Name != "" {
		opts = append(opts, shunt.Header(nameHeader, j.Name))
	}
	return opts
}

func (a *API) pop(c *call) {
	if c.in.Topic == "" {
		c.no("wrong parameters: topic is required", "")
		return
	}
	channel, err := a.Topics.Channel(c.in.Topic)
	switch {
	case err != nil:
		c.no("wrong topic: "+err.Error(), "")
		return
	case a.stopped.Load() || c.r.Method == "HEAD": // whose answer would have no job
		c.no(noJob, "")
		return
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), redisTimeout)
	l, err := a.Topics.Take(ctx, topics.Demand{Channels: []string{channel},
		Lease: func(l *shunt.Leased) time.Duration {
			return time.Duration(min(ttrOf(l.Headers), maxTTR)) * time.Second
		}})
	cancel()
	switch {
	case err != nil:
		a.failed(c, "pop", err)
	case l == nil:
		c.no(noJob, "")
	case c.r.Context().Err() != nil:
		a.release(c, l)
	default:
		a.Topics.Popped(l) // before the answer, upon which finish may come
		j := a.popped(l)
		if c.yes("popped", j.text()) != nil {
			a.release(c, l)
		}
	}
}

// release gives back what could not be handed over.
func (a *API) release(c *call, l *shunt.Leased) {
	a.Metrics.release()
	if err := a.Topics.Release(c.r.Context(), l); err != nil {
		a.Log.Error("delayq: failed", "what", "release what was not handed over", "channel", l.Channel, "error", err)
	}
}

// named reads the job that a request names, and its channel, which is empty where it gives no topic.
func (a *API) named(c *call) (channel string, ok bool) {
	if c.in.JobID == "" {
		c.no("wrong parameters: jobid is required", "")
		return "", false
	}
	if c.in.Topic == "" {
		return "", true
	}
	channel, err := a.Topics.Channel(c.in.Topic)
	if err != nil {
		c.no("wrong topic: "+err.Error(), "")
	}
	return channel, err == nil
}

// finish is done, whoever says so. As in delayq a job that does not exist is no error.
func (a *API) finish(c *call) {
	channel, ok := a.named(c)
	if !ok {
		return
	}
	ctx, cancel := c.detached()
	defer cancel()
	switch err := a.end(ctx, c.in.JobID, channel); {
	case err == nil:
		_ = c.yes("finished", "")
	case errors.Is(err, topics.ErrSeveral):
		c.no(severalOf, "")
	default:
		a.failed(c, "finish", err)
	}
}

// end ends a job in whichever state it is.
func (a *API) end(ctx context.Context, id, channel string) (err error) {
	for range endTries {
		var p topics.Place
		p, err = a.Topics.Ack(ctx, id, channel, func(l *shunt.Leased) { l.Result = a.result(l) })
		switch {
		case errors.Is(err, shunt.ErrNotFound):
			return nil
		case !errors.Is(err, topics.ErrNotLeased):
			return err
		case p.Status.State == shunt.StateDead || p.Status.Outcome.Kind == shunt.EventRejected:
			err = a.Topics.Queue.Delete(ctx, p.Ref)
		case p.Status.State == shunt.StateDone:
			return nil
		default:
			_, err = a.Topics.Queue.Cancel(ctx, p.Ref)
		}
		switch {
		case errors.Is(err, shunt.ErrNotFound):
			return nil
		case errors.Is(err, shunt.ErrRunning): // it was popped just now, or a Go handler has it, which was told
			continue
		}
		return err
	}
	return err
}

// result is what is kept of a finished job; nil where it has no id, by which it would be found.
func (a *API) result(l *shunt.Leased) []byte {
	if l.ID == "" {
		return nil
	}
	j := a.popped(l)
	if j.State = finished; len(j.Data) > keptData {
		j.Data = ""
	}
	return []byte(j.text())
}

func (a *API) info(c *call) {
	channel, ok := a.named(c)
	if !ok {
		return
	}
	j, err := a.look(c.r.Context(), c.in.JobID, channel)
	switch {
	case err == nil:
		_ = c.yes("found", j)
	case errors.Is(err, shunt.ErrNotFound):
		c.no(noSuchJob, "")
	case errors.Is(err, topics.ErrSeveral):
		c.no(severalOf, "")
	default:
		a.failed(c, "info", err)
	}
}

// look is a job as JSON. shunt.ErrNotFound: there is none, and nothing is kept of one.
func (a *API) look(ctx context.Context, id, channel string) (text string, err error) {
	for range endTries { // it may move between the two looks
		p, err := a.Topics.At(ctx, id, channel)
		if err != nil {
			return "", err
		}
		if s := p.Status; s.State == shunt.StateDone && s.Outcome.Kind != shunt.EventRejected {
			if s.Outcome.Kind != shunt.EventAcked {
				return "", shunt.ErrNotFound
			}
			if len(s.Outcome.Result) > 0 {
				return string(s.Outcome.Result), nil
			}
			j := job{JobID: id, AddTime: unix(s.EnqueuedAt), Tries: s.Attempt, State: finished}
			j.Topic, _ = a.Topics.Topic(p.Ref.Channel)
			return j.text(), nil
		}
		e, err := a.Topics.Queue.Peek(ctx, p.Ref)
		if err == nil && e.State != shunt.StateDone {
			j := a.seen(e, p.Status)
			return j.text(), nil
		}
		if err != nil && !errors.Is(err, shunt.ErrNotFound) {
			return "", err
		}
	}
	return "", shunt.ErrNotFound
}
