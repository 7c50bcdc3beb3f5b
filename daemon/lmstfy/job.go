package lmstfy

import (
	"crypto/rand"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/shuntmq/shunt"
)

// Headers of a message that is a job.
const (
	triesHeader = "job-tries" // as published
	untilHeader = "job-until" // ms since 1970, of a job with a ttl, by the publisher's clock
	attrHeader  = "job-attr-" // and the attribute's key
)

const (
	year     = 365 * 24 * time.Hour
	maxDelay = 99 * year
	maxTTL   = 100 * year
	// An attribute's key and value are cut to these, and a job has so many at most.
	maxAttrKey, maxAttrValue, maxAttrs = 32, 128, 16
	// serialPrefix begins the job id of a message without an ID: its serial follows.
	serialPrefix = "s"
)

// newJobID is 26 characters of a ULID, after "1" for a job that has attributes.
func newJobID(versioned bool) string {
	id := ulid.MustNew(ulid.Now(), rand.Reader).String() // crypto/rand does not fail
	if versioned {
		return "1" + id
	}
	return id
}

// refOf is the message that a job id names.
func refOf(channel, id string) shunt.Ref {
	if serial, ok := strings.CutPrefix(id, serialPrefix); ok {
		if _, err := ulid.ParseStrict(serial); err == nil {
			return shunt.BySerial(channel, serial)
		}
	}
	return shunt.ByID(channel, id)
}

// jobID is how clients know a message.
func jobID(id, serial string) string {
	if id == "" {
		return serialPrefix + serial
	}
	return id
}

// elapsed is how old a job is, in ms: by its id, else by when it was enqueued.
func elapsed(id string, enqueued, now time.Time) int64 {
	if len(id) == 27 && id[0] == '1' {
		id = id[1:]
	}
	if u, err := ulid.ParseStrict(id); err == nil {
		enqueued = ulid.Time(u.Time())
	}
	if enqueued.IsZero() {
		return 0
	}
	return max(0, now.Sub(enqueued).Milliseconds())
}

// left is a job's ttl in whole seconds, 0 where it has none. over: it has ended.
func left(headers map[string]string, now time.Time) (seconds int64, over bool) {
	ms, err := strconv.ParseInt(headers[untilHeader], 10, 64)
	if err != nil {
		return 0, false
	}
	wait := time.UnixMilli(ms).Sub(now)
	return max(0, int64((wait+500*time.Millisecond)/time.Second)), wait <= 0
}

// remaining is how many tries a job has left after some.
func remaining(headers map[string]string, used int) int {
	tries, err := strconv.Atoi(headers[triesHeader])
	if err != nil {
		return 0
	}
	return max(0, tries-used)
}

// attributesOf are those of a job that was published with some, else nil.
func attributesOf(headers map[string]string) map[string]string {
	var attrs map[string]string
	for name, value := range headers {
		if key, ok := strings.CutPrefix(name, attrHeader); ok {
			if attrs == nil {
				attrs = make(map[string]string)
			}
			attrs[key] = value
		}
	}
	return attrs
}

// jobJSON is a job in an answer. The fields are in the order in which lmstfy writes them.
type jobJSON struct {
	Attributes map[string]string `json:"attributes"`
	Data       []byte            `json:"data"`
	ElapsedMS  int64             `json:"elapsed_ms"`
	JobID      string            `json:"job_id"`
	Msg        string            `json:"msg,omitempty"`
	Namespace  string            `json:"namespace"`
	Queue      string            `json:"queue"`
	Remain     int               `json:"remain_tries"`
	TTL        int64             `json:"ttl"`
}

// inHands says whether somebody handles a message of a state.
func inHands(s shunt.State) bool { return s == shunt.StateDoing || s == shunt.StateLeased }

// peeked is a job that lies in Redis.
func (c *call) peeked(e shunt.Entry) jobJSON {
	now := time.Now()
	j := jobJSON{Namespace: c.ns, Queue: c.queue, JobID: jobID(e.ID, e.Serial),
		ElapsedMS: elapsed(e.ID, e.EnqueuedAt, now)}
	used := e.Attempts
	if inHands(e.State) {
		used++
	}
	if ttl, over := left(e.Headers, now); !over || e.State == shunt.StateDead {
		j.TTL, j.Data, j.Remain = ttl, filled(e.Payload), remaining(e.Headers, used)
		j.Attributes = attributesOf(e.Headers)
	}
	return j
}

// consumed is a job that is delivered.
func (c *call) consumed(l *shunt.Leased) jobJSON {
	now := time.Now()
	ttl, _ := left(l.Headers, now)
	_, queue, _ := strings.Cut(l.Channel, "/")
	return jobJSON{
		Attributes: attributesOf(l.Headers), Data: filled(l.Payload), ElapsedMS: elapsed(l.ID, l.EnqueuedAt, now),
		JobID: jobID(l.ID, l.Serial), Msg: "new job", Namespace: c.ns, Queue: queue,
		Remain: remaining(l.Headers, l.Attempt), TTL: ttl,
	}
}

// filled is not nil, so that an empty body is "" and no null.
func filled(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// Pushed is a job as lmstfy's pushers posted it.
func Pushed(i *shunt.Info, payload []byte, now time.Time) ([]byte, error) {
	ttl, _ := left(i.Headers, now)
	ns, queue, _ := strings.Cut(i.Channel, "/")
	return json.Marshal(struct {
		Namespace string `json:"namespace"`
		Queue     string `json:"queue"`
		ID        string `json:"id"`
		TTL       int64  `json:"ttl"`
		ElapsedMS int64  `json:"elapsed_ms"`
		Body      []byte `json:"body"`
	}{ns, queue, jobID(i.ID, i.Serial), ttl, elapsed(i.ID, i.EnqueuedAt, now), filled(payload)})
}
