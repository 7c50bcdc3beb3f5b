package v1

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/shuntmq/shunt"
)

const (
	eventStream = "text/event-stream"
	keepAlive   = 15 * time.Second       // a comment, and a look at the token
	trustFor    = 500 * time.Millisecond // an event that comes later has the token looked at before it goes
	eventWrite  = 10 * time.Second       // for one event: a reader that takes none for so long is cut off
)

// eventJSON is the data of an event.
type eventJSON struct {
	Kind    shunt.EventKind `json:"kind"`
	Time    *time.Time      `json:"time"`
	Queue   string          `json:"queue"`
	Serial  string          `json:"serial,omitempty"`
	ID      string          `json:"id,omitempty"`
	Attempt int             `json:"attempt,omitempty"`
	N       int             `json:"n,omitempty"`
	TookMS  int64           `json:"took_ms,omitempty"`
	DueAt   *time.Time      `json:"due_at,omitempty"`
	Error   string          `json:"error,omitempty"`
}

func eventOf(e shunt.Event) eventJSON {
	j := eventJSON{Kind: e.Kind, Time: instant(e.Time), Queue: queueOf(e.Channel), Serial: e.Serial, ID: e.ID,
		Attempt: e.Attempt, N: e.N, TookMS: millis(e.Took), DueAt: instant(e.DueAt)}
	if e.Err != nil {
		j.Error = e.Err.Error()
	}
	return j
}

// stream writes server-sent events.
type stream struct{ c *call }

// send writes one event, and sees it on its way.
func (s stream) send(name string, data any) error {
	text, err := json.Marshal(data)
	if err != nil {
		return err
	}
	return s.write(fmt.Sprintf("event: %s\ndata: %s\n\n", name, text))
}

// write bounds each event alone: over HTTP/2 a bound that passes ends the stream also while nothing is written.
func (s stream) write(text string) error {
	control := s.c.expire(eventWrite)
	if _, err := s.c.w.Write([]byte(text)); err != nil {
		return err
	}
	err := control.Flush()
	_ = control.SetWriteDeadline(time.Time{})
	return err
}

// distrust says why the stream ends.
func (s stream) distrust() {
	_ = s.send("end", map[string]string{"detail": "the token is not valid any more"})
}

// events is the channel's life as this process sees it, until the client leaves, is too slow, or the server stops.
func (a *API) events(c *call) {
	c.noParameters()
	if !a.none(c) || c.bad() {
		return
	}
	if _, ok := accepts(c.r.Header["Accept"], eventStream); !ok {
		c.refuse(notAcceptable, "the route gives "+eventStream)
		return
	}
	hub := a.Events[c.poolName]
	switch {
	case hub == nil:
		c.refuse(unavailable, "the server keeps no events of this pool")
		return
	case a.stopped.Err() != nil:
		c.refuse(stopping, "")
		return
	case !a.Budget.Wait():
		c.refuse(busy, "too many requests wait")
		return
	}
	defer a.Budget.Done()
	r := hub.join(c.channel())
	defer hub.leave(c.channel(), r)
	c.w.Header().Set("Content-Type", eventStream)
	c.w.WriteHeader(http.StatusOK)
	defer c.expire(eventWrite) // of the end, which net/http writes
	s := stream{c}
	if s.write("retry: 1000\n: events of this process alone\n\n") != nil {
		return
	}
	a.follow(c, s, r)
}

func (a *API) follow(c *call, s stream, r *reader) {
	alive := time.NewTicker(keepAlive)
	defer alive.Stop()
	looked := time.Now()
	trusted := func() bool {
		if time.Since(looked) < trustFor {
			return true
		}
		looked = time.Now()
		return a.trustedStill(c)
	}
	for {
		var err error
		select {
		case e := <-r.events:
			if !trusted() {
				s.distrust()
				return
			}
			err = s.send(string(e.Kind), eventOf(e))
		case <-r.cut:
			// what waits goes first, as far as the client takes it
			for len(r.events) > 0 && err == nil {
				e := <-r.events
				err = s.send(string(e.Kind), eventOf(e))
			}
			if err == nil {
				_ = s.send("cut-off", map[string]string{"detail": "too slow: events were lost from here on"})
			}
			return
		case <-alive.C:
			if !trusted() {
				s.distrust()
				return
			}
			err = s.write(":\n\n")
		case <-a.stopped.Done():
			_ = s.send("end", map[string]string{"detail": "the server stops"})
			return
		case <-c.r.Context().Done():
			return
		}
		if err != nil {
			return
		}
	}
}
