package delayq

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/daemon/topics"
)

// state is a job's.
type state int

const (
	delayed state = iota
	ready
	reserved
	failed
	finished
)

// Headers of a message that is a job.
const (
	nameHeader = "delayq-name"
	execHeader = "delayq-exectime" // s since 1970
	ttrHeader  = "delayq-ttr"      // s
)

// job has its fields in the order in which delayq writes them.
type job struct {
	JobID    string `json:"jobid"`
	Name     string `json:"name"`
	Topic    string `json:"topic"`
	Data     string `json:"data"`
	AddTime  int64  `json:"addtime"` // s since 1970, as exectime and poptime
	ExecTime int64  `json:"exectime"`
	PopTime  int64  `json:"poptime"` // 0: it is not popped
	Tries    int    `json:"tryes"`   // how often it was popped
	TTR      int64  `json:"ttr"`     // s
	State    state  `json:"state"`
}

func (j *job) text() string {
	b, err := json.Marshal(j)
	if err != nil { // of texts and numbers there is none
		return ""
	}
	return string(b)
}

// unix is 0 for no time.
func unix(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Unix()
}

// known sets what the headers of a message tell.
func (j *job) known(headers map[string]string, enqueued time.Time) {
	j.Name, j.AddTime, j.ExecTime, j.TTR = headers[nameHeader], unix(enqueued), unix(enqueued), ttrOf(headers)
	if at, err := strconv.ParseInt(headers[execHeader], 10, 64); err == nil {
		j.ExecTime = at
	}
}

// ttrOf is a job's, also of a message that was not added by this protocol.
func ttrOf(headers map[string]string) int64 {
	if ttr, err := strconv.ParseInt(headers[ttrHeader], 10, 64); err == nil {
		return ttr
	}
	return defaultTTR
}

// popped is a job that is delivered now.
func (a *API) popped(l *shunt.Leased) job {
	j := job{JobID: topics.ID(l.ID, l.Serial), Data: string(l.Payload), PopTime: time.Now().Unix(), Tries: l.Attempt,
		State: reserved}
	j.Topic, _ = a.Topics.Topic(l.Channel)
	j.known(l.Headers, l.EnqueuedAt)
	return j
}

// seen is a job that lies in Redis.
func (a *API) seen(e shunt.Entry, s shunt.Status) job {
	j := job{JobID: topics.ID(e.ID, e.Serial), Data: string(e.Payload), Tries: e.Attempts}
	j.Topic, _ = a.Topics.Topic(e.Channel)
	j.known(e.Headers, e.EnqueuedAt)
	switch e.State {
	case shunt.StateDelay:
		j.State = delayed
	case shunt.StateLeased, shunt.StateDoing:
		j.State, j.Tries, j.PopTime = reserved, s.Attempt, unix(s.StartedAt)
	case shunt.StateDead:
		j.State = failed
	default:
		j.State = ready
	}
	return j
}
