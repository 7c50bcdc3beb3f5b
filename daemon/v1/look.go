package v1

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/shuntmq/shunt"
)

const (
	maxList   = 100
	listPage  = 10 // messages that one look brings, so that no answer takes much more than maxAnswer
	maxOffset = 1e9
)

// ref is the message that the path names: id:NAME, serial:SERIAL, or a Ref of this queue.
func (c *call) ref() (r shunt.Ref, ok bool) {
	text := c.path["ref"]
	var err error
	if id, is := strings.CutPrefix(text, "id:"); is {
		r = shunt.ByID(c.channel(), id)
		if id == "" || len(id) > maxID {
			err = errors.New("an id has 1 to 255 bytes")
		}
	} else if serial, is := strings.CutPrefix(text, "serial:"); is {
		r, err = shunt.ParseRef(shunt.BySerial(c.channel(), serial).String())
	} else {
		r, err = shunt.ParseRef(text)
		if err == nil && r.Channel != c.channel() {
			err = errors.New("it is of another queue")
		}
	}
	if err != nil {
		c.fault("path", "ref", "want id:NAME, serial:SERIAL or a ref, escaped as one segment: "+
			strings.ToValidUTF8(err.Error(), "?"))
		return r, false
	}
	return r, true
}

// one reads a request about one message that has neither parameters nor a body. It answers where that is wrong.
func (a *API) one(c *call) (r shunt.Ref, ok bool) {
	r, _ = c.ref()
	c.noParameters()
	ok = a.none(c)
	return r, ok && !c.bad()
}

func (a *API) status(c *call) {
	r, ok := a.one(c)
	if !ok {
		return
	}
	s, err := c.pool.Status(c.r.Context(), r)
	if err != nil {
		c.failed("look for the status", err)
		return
	}
	_ = c.answer(http.StatusOK, statusOf(c.channel(), s))
}

func (a *API) peek(c *call) {
	r, ok := a.one(c)
	if !ok || !c.room() {
		return
	}
	e, err := c.pool.Peek(c.r.Context(), r)
	if err != nil {
		c.failed("peek", err)
		return
	}
	_ = c.answer(http.StatusOK, entryOf(e))
}

// waitedJSON is what a wait has come to.
type waitedJSON struct {
	Over    bool         `json:"over"`
	Outcome *outcomeJSON `json:"outcome,omitempty"`
}

// wait waits for the end of a message. 202 says that it has not ended yet.
func (a *API) wait(c *call) {
	r, _ := c.ref()
	f := c.parameters(false)
	wait := time.Duration(f.integer("wait_ms", 0, 0, maxWaitMS)) * time.Millisecond
	f.end()
	if !a.none(c) || c.bad() {
		return
	}
	out, over, err := a.awaited(c, r, min(wait, a.Budget.Limits().MaxWait))
	switch {
	case errors.Is(err, errBusy):
		c.refuse(busy, "too many requests wait")
	case wait > 0 && !a.trustedStill(c):
		c.refuse(invalidToken, "")
	case err != nil:
		c.failed("wait", err)
	case !over:
		_ = c.answer(http.StatusAccepted, waitedJSON{})
	default:
		_ = c.answer(http.StatusOK, waitedJSON{true, outcomeOf(out)})
	}
}

func (a *API) awaited(c *call, r shunt.Ref, wait time.Duration) (out shunt.Outcome, over bool, err error) {
	s, err := c.pool.Status(c.r.Context(), r)
	switch {
	case err != nil:
		return out, false, err
	case s.Outcome.Kind != "":
		return s.Outcome, true, nil
	case s.State == shunt.StateDone || s.State == shunt.StateDead:
		return out, false, shunt.ErrNotKept
	case s.ID == "":
		return out, false, errNoID
	case wait == 0:
		return out, false, nil
	}
	if !a.Budget.Wait() {
		return out, false, errBusy
	}
	defer a.Budget.Done()
	ctx, cancel := context.WithTimeout(c.r.Context(), wait)
	defer cancel()
	defer context.AfterFunc(a.stopped, cancel)()
	r.ID, r.Serial = s.ID, s.Serial
	out, err = c.pool.Wait(ctx, r)
	if err != nil && ctx.Err() != nil {
		if a.stopped.Err() != nil {
			c.w.Header().Set("Connection", "close")
		}
		return out, false, nil
	}
	return out, err == nil, err
}

// list shows messages of a state, a page at a time.
func (a *API) list(c *call) {
	f := c.parameters(false)
	state := shunt.StatePrepare
	if text, given := f.string("state"); given {
		if state = shunt.State(text); !slices.Contains(shunt.States, state) {
			f.fault("state", "want one of %v", shunt.States)
		}
	}
	offset := int(f.integer("offset", 0, 0, maxOffset))
	limit := int(f.integer("limit", 20, 1, maxList))
	f.end()
	if !a.none(c) || c.bad() || !c.room() {
		return
	}
	es, next, err := c.entries(state, offset, limit)
	if err != nil {
		c.failed("list", err)
		return
	}
	out := struct {
		Messages []entryJSON `json:"messages"`
		Next     *int        `json:"next_offset,omitempty"`
	}{Messages: make([]entryJSON, len(es))}
	for i, e := range es {
		out.Messages[i] = entryOf(e)
	}
	if next > 0 {
		out.Next = &next
	}
	_ = c.answer(http.StatusOK, out)
}

// entries are up to limit messages, and where others may follow; next is 0 where none does.
func (c *call) entries(state shunt.State, offset, limit int) (es []shunt.Entry, next int, err error) {
	ctx := c.r.Context()
	if state == shunt.StateDoing || state == shunt.StateLeased || state == shunt.StateDone { // whose pages go by number
		page, err := c.pool.Browse(ctx, shunt.BrowseOptions{Channel: c.channel(), State: state, Limit: limit,
			Payload: -1, From: strconv.Itoa(offset)})
		next, _ = strconv.Atoi(page.Next)
		return page.Entries, next, err
	}
	size, at, last := 0, offset, offset+limit
	for at < last && size < maxAnswer {
		n := min(listPage, last-at)
		page, err := c.pool.List(ctx, c.channel(), state, at, n)
		if err != nil {
			return nil, 0, err
		}
		for _, e := range page {
			size += len(e.Payload)
		}
		es, at = append(es, page...), at+n
		if len(page) < n { // at the end, or beside cancelled ones
			stats, err := c.pool.Stats(ctx, c.channel())
			if err != nil {
				return nil, 0, err
			}
			if stats[state].Count+stats[state].Cancelled <= at {
				return es, 0, nil
			}
		}
	}
	return es, at, nil
}
