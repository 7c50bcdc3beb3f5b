package dashboard

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/shuntmq/shunt"
)

const (
	// streamFor ends a stream, and the browser opens another one, so that whoever may not see it any more is found out.
	streamFor = 10 * time.Minute
	// writeFor bounds how long a browser may take to read an event.
	writeFor = 10 * time.Second
	// tellsAge is from which age on a page says how old its figures may be.
	tellsAge = 10 * time.Second
)

// event is what a browser gets: the fields that have changed of each channel, by the names that the templates use.
type event struct {
	Rows  map[string]map[string]string `json:"rows,omitempty"`
	Error string                       `json:"error"`
	Seen  string                       `json:"seen,omitempty"`  // within how long each figure was looked at
	Stale bool                         `json:"stale,omitempty"` // channels or findings have come or gone: load again
}

// live streams what changes on the page of the same query, the overview or a page of one channel.
func (q *request) live() error {
	if q.r.Method != http.MethodGet {
		return refuse(http.StatusMethodNotAllowed, "dashboard: a stream wants GET")
	}
	only := q.form.Get("c")
	ear := q.hub.listen(only)
	if ear == nil {
		return refuse(http.StatusServiceUnavailable, "dashboard: more than %d pages are live", maxStreams)
	}
	defer q.hub.leave(ear)
	q.w.Header().Set("Content-Type", "text/event-stream")
	q.w.Header().Set("X-Accel-Buffering", "no") // nginx would keep events back
	out := http.NewResponseController(q.w)
	send := func(text string) bool {
		_ = out.SetWriteDeadline(time.Now().Add(writeFor)) // a writer without deadlines has none to mind
		_, err := fmt.Fprint(q.w, text)
		return err == nil && out.Flush() == nil
	}
	end := time.NewTimer(streamFor)
	defer end.Stop()
	p := &pageState{request: q, only: only}
	for ok := send("retry: 3000\n\n"); ok; {
		select {
		case s := <-ear:
			body, err := json.Marshal(p.changes(s))
			if err != nil {
				return nil // it has no value that JSON lacks
			}
			ok = send("data: " + string(body) + "\n\n")
		case <-q.r.Context().Done():
			return nil
		case <-q.hub.gone:
			return nil
		case <-end.C:
			return nil
		}
	}
	return nil
}

// pageState is what a live page shows by now.
type pageState struct {
	*request
	only     string // one channel's page
	shown    map[string]map[string]string
	findings []shunt.Finding
	judged   bool
}

func (p *pageState) changes(s *snapshot) event {
	e := event{Error: s.err, Rows: make(map[string]map[string]string)}
	if s.all == nil {
		return e
	}
	e.Seen = p.seen(s)
	now := make(map[string]map[string]string)
	if p.only != "" {
		if one, is := s.all[p.only]; is {
			o := one.now()
			now[p.only] = p.fields(&o)
			p.jobFields(p.only, now[p.only])
		}
	} else {
		all := s.now()
		page := p.arrange(all)
		for i := range page.Rows {
			now[page.Rows[i].O.Channel] = page.Rows[i].Fields
		}
		now[""] = page.Sum
		e.Stale = p.shown != nil && len(all) != atoi(p.shown[""]["channels.raw"])
		if s.judged {
			e.Stale = e.Stale || p.judged && !sameKinds(p.findings, s.findings)
			p.findings, p.judged = s.findings, true
		}
	}
	for name, fields := range now {
		for key, text := range fields {
			if old, is := p.shown[name][key]; !is || old != text {
				if e.Rows[name] == nil {
					e.Rows[name] = make(map[string]string)
				}
				e.Rows[name][key] = text
			}
		}
	}
	p.shown = now
	return e
}

// seen is within how long each figure of the page was looked at, and empty where that is just now.
func (p *pageState) seen(s *snapshot) string {
	var most time.Duration
	for name, one := range s.all {
		if p.only == "" || p.only == name {
			most = max(most, time.Since(one.at))
		}
	}
	if most < tellsAge {
		return ""
	}
	step := tellsAge // so that it stays the same for a while
	if most > time.Hour {
		step = time.Minute
	}
	return p.T("seen", duration(most.Truncate(step)+step, p.Lang))
}

func sameKinds(a, b []shunt.Finding) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].Kind != b[i].Kind || a[i].Channel != b[i].Channel {
			return false
		}
	}
	return true
}
