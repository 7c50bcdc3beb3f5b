package dashboard

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/shuntmq/shunt"
)

const (
	// bulkStep is how many messages are changed until the progress moves: as many as the Queue looks at at once.
	bulkStep = 100
	// maxBulks bounds the bulk actions that run at once.
	maxBulks = 8
	// bulksKept bounds the channels whose last bulk action is remembered.
	bulksKept = 1000
	// auditFor bounds how long an entry of the audit may take, whether the browser is still there or not.
	auditFor = 10 * time.Second
)

// job is a bulk action as it was when it was looked at.
type job struct {
	Verb     string
	Channel  string
	State    shunt.State
	Criteria criteria
	By       string
	Count    int  // that it was confirmed for
	Exact    bool // Count is all that fit: it ends there

	Looked, Changed, Refused int
	Next                     string // where to go on
	Error                    string
	Running, Stopped         bool
	Began, Ended             time.Time
}

// Resumable says whether it may go on where it ended.
func (j *job) Resumable() bool { return !j.Running && (j.Stopped || j.Error != "") && j.left() != 0 }

// left is how many messages it may change still; negative: as many as fit.
func (j *job) left() int {
	if !j.Exact {
		return -1
	}
	return max(0, j.Count-j.Changed-j.Refused) // what was refused was among those that were counted
}

// Part is how much is done, in percent.
func (j *job) Part() int {
	if j.Count == 0 {
		return 100
	}
	return min(100, 100*(j.Changed+j.Refused)/j.Count)
}

// bulks runs bulk actions in the background, one at a time a channel.
type bulks struct {
	d    *Dashboard
	ctx  context.Context
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu      sync.Mutex
	last    map[string]*job               // by channel
	running map[string]context.CancelFunc // by channel
}

func newBulks(d *Dashboard) *bulks {
	ctx, stop := context.WithCancel(context.Background())
	return &bulks{d: d, ctx: ctx, stop: stop, last: make(map[string]*job), running: make(map[string]context.CancelFunc)}
}

func (b *bulks) close() {
	b.mu.Lock() // none begins after it
	b.stop()
	b.mu.Unlock()
	b.wg.Wait()
}

// of is a channel's last bulk action; nil: none is remembered.
func (b *bulks) of(channel string) *job {
	b.mu.Lock()
	defer b.mu.Unlock()
	if j := b.last[channel]; j != nil {
		now := *j
		return &now
	}
	return nil
}

// any says whether one runs.
func (b *bulks) any() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.running) > 0
}

// begin starts a bulk action.
func (b *bulks) begin(j job, filter shunt.Filter) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.ctx.Err() != nil:
		return refuse(http.StatusServiceUnavailable, "dashboard: it is closed")
	case b.running[j.Channel] != nil:
		return refuse(http.StatusConflict, "dashboard: another bulk action runs on this channel: wait, or stop it")
	case len(b.running) >= maxBulks:
		return refuse(http.StatusTooManyRequests, "dashboard: %d bulk actions run: wait for one", maxBulks)
	}
	if len(b.last) >= bulksKept && b.last[j.Channel] == nil {
		for channel := range b.last {
			if b.running[channel] == nil {
				delete(b.last, channel)
				break
			}
		}
	}
	j.Running, j.Stopped, j.Error, j.Began, j.Ended = true, false, "", time.Now(), time.Time{}
	ctx, cancel := context.WithCancel(b.ctx)
	b.last[j.Channel], b.running[j.Channel] = &j, cancel
	b.wg.Add(1)
	go b.run(ctx, cancel, &j, filter)
	return nil
}

// cancel stops a channel's bulk action; false: none runs.
func (b *bulks) cancel(channel string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	cancel := b.running[channel]
	if cancel != nil {
		cancel()
	}
	return cancel != nil
}

// run changes a step after another. What it writes to j others read under the lock.
func (b *bulks) run(ctx context.Context, cancel context.CancelFunc, j *job, f shunt.Filter) {
	defer b.wg.Done()
	defer cancel()
	f.From = j.Next
	before := j.Changed
	var err error
	for err == nil {
		if f.Limit = bulkStep; j.Exact {
			f.Limit = min(bulkStep, j.left())
		}
		if f.Limit == 0 {
			break
		}
		var r shunt.BulkResult
		r, err = b.step(ctx, j, f)
		b.mu.Lock()
		j.Looked, j.Changed, j.Refused, j.Next = j.Looked+r.Looked, j.Changed+r.Changed, j.Refused+r.Refused, r.Next
		b.mu.Unlock()
		if r.Next == "" || r.Next == f.From && r.Changed == 0 {
			break
		}
		f.From = r.Next
	}
	b.mu.Lock()
	if j.Stopped = ctx.Err() != nil; err != nil && !j.Stopped {
		j.Error = err.Error()
	}
	note := shunt.AuditEntry{By: j.By, Verb: j.Verb, Channel: j.Channel, Count: j.Changed - before,
		Detail: fmt.Sprintf("%s: %s", j.State, j.Criteria), Error: cut(4000, j.Error)}
	if j.Stopped {
		note.Error = "stopped"
	}
	b.mu.Unlock()
	// Who waits for the end finds it in the audit, so that comes first.
	if err := b.d.audit(ctx, note); err != nil {
		b.d.o.Log.Error("dashboard: a bulk action is not in the audit", "action", note, "error", err)
	}
	b.mu.Lock()
	j.Running, j.Ended = false, time.Now()
	delete(b.running, j.Channel)
	b.mu.Unlock()
}

func (b *bulks) step(ctx context.Context, j *job, f shunt.Filter) (shunt.BulkResult, error) {
	switch j.Verb {
	case "retry-all":
		return b.d.q.RetryAllDead(ctx, j.Channel, f)
	case "delete-all":
		return b.d.q.DeleteAllDead(ctx, j.Channel, f)
	case "promote-all":
		return b.d.q.PromoteAll(ctx, j.Channel, f)
	case "cancel-all":
		return b.d.q.CancelAll(ctx, j.Channel, j.State, f)
	default: // purge
		n, err := b.d.q.Purge(ctx, j.Channel, j.State)
		return shunt.BulkResult{Looked: n, Changed: n}, err
	}
}

// audit adds an entry, even where ctx has ended.
func (d *Dashboard) audit(ctx context.Context, e shunt.AuditEntry) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), auditFor)
	defer cancel()
	return d.q.Audit(ctx, e)
}

// JobText is a bulk action in words.
func (q *request) JobText(j *job) string {
	key := "job.running"
	switch {
	case j.Error != "":
		key = "job.failed"
	case j.Running:
	case j.Stopped:
		key = "job.stopped"
	default:
		key = "job.ended"
	}
	text := q.T(key, q.T("verb."+j.Verb), q.Num(j.Changed), q.Num(j.Count))
	if j.Refused > 0 {
		text += q.T("job.refused", q.Num(j.Refused))
	}
	return text
}

// jobFields are what a live page shows of a channel's bulk action.
func (q *request) jobFields(channel string, fields map[string]string) {
	if j := q.bulks.of(channel); j != nil {
		fields["job"], fields["jobpart"] = q.JobText(j), fmt.Sprint(j.Part())
		fields["jobrun"] = fmt.Sprint(j.Running)
	}
}
