package dashboard

import (
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/recur"
)

type recurringPage struct {
	Channel string
	Entries []recurrence
	Errors  []string
	More    bool // there are more channels
}

type recurrence struct {
	recur.Entry
	Ticks []time.Time // the next ones
	Fault string
}

func (q *request) timetable() *recur.Timetable { return &recur.Timetable{Queue: q.q} }

// recurring shows the recurring messages of one channel, or of all.
func (q *request) recurring() error {
	ctx := q.r.Context()
	p := recurringPage{Channel: q.form.Get("c")}
	channels := []string{p.Channel}
	if p.Channel == "" {
		var err error
		if channels, err = q.q.Channels(ctx); err != nil {
			return err
		}
	}
	if p.More = len(channels) > channelsLooked; p.More {
		channels = channels[:channelsLooked]
	}
	for _, c := range channels {
		es, err := q.timetable().List(ctx, c)
		if err != nil {
			p.Errors = append(p.Errors, err.Error())
		}
		for _, e := range es {
			shown := q.masked(shunt.Entry{Channel: e.Channel, Payload: e.Payload, PayloadSize: len(e.Payload),
				Headers: e.Headers})
			e.Payload, e.Headers = shown.Payload, shown.Headers
			r := recurrence{Entry: e}
			if err := e.Spec.Err(); err != nil {
				r.Fault = err.Error()
			} else if !e.Paused {
				r.Ticks, _ = recur.Next(e.Spec, time.Now(), 3) // its errors are those of the Spec
			}
			p.Entries = append(p.Entries, r)
		}
	}
	return q.show("recurring", q.T("recurring"), p)
}
