package shunttest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt"
)

// Drain handles the messages in the prototypes' channels until only dead ones are left. That includes delayed messages,
// retries, and messages that handlers enqueue meanwhile. It is a ReceiveOrdered of the Queue with one worker, so
// messages of the first channel come first.
//
// Drain does not wait for due times. Whenever only delayed messages are left, it brings all due times of the channels
// forward, by as much as makes the first one due. So their order and distances stay as they are, also for messages that
// are enqueued on the way. The clock does not change: a message's age, Expire and Deadline go by real time. Status
// shows the due times of messages with an ID as they were.
//
// The test ends in three cases, and the failure says what is left: after MaxHandlings or Patience, so that endless
// retries are seen; if another receiver has one of the channels; or if a handler called t.FailNow.
func (q *Queue) Drain(prototypes ...shunt.IMessage) Handlings {
	q.t.Helper()
	out, err := q.drain(prototypes)
	if err != nil {
		q.t.Fatalf("shunttest: Drain: %v", err)
	}
	if q.t.Failed() && len(out) > 0 && exited(out[len(out)-1].Err) {
		q.t.FailNow()
	}
	return out
}

// journal is what a Drain sees of its receiver.
type journal struct {
	mu        sync.Mutex
	messages  map[string]shunt.IMessage // by serial, while they are handled
	handlings Handlings

	more chan struct{} // of capacity 1: something has happened
}

// watch is the kit's middleware.
func (j *journal) watch(next shunt.Handler) shunt.Handler {
	return func(ctx context.Context, m shunt.IMessage) error {
		info, _ := shunt.FromContext(ctx)
		j.mu.Lock()
		j.messages[info.Serial] = m
		j.mu.Unlock()
		return next(ctx, m)
	}
}

// note takes in every Event, for whatever changes the lists is followed by one.
func (j *journal) note(e shunt.Event) {
	if isVerdict(e.Kind) {
		j.mu.Lock()
		j.handlings = append(j.handlings, Handling{Channel: e.Channel, Serial: e.Serial, Attempt: e.Attempt,
			Message: j.messages[e.Serial],
			Verdict: e.Kind, Err: e.Err})
		delete(j.messages, e.Serial)
		j.mu.Unlock()
	}
	select {
	case j.more <- struct{}{}:
	default:
	}
}

// seen is how many handlings have ended, how the last one did, and whether all that began have.
func (j *journal) seen() (n int, last Handling, all bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if n = len(j.handlings); n > 0 {
		last = j.handlings[n-1]
	}
	return n, last, len(j.messages) == 0
}

func (q *Queue) drain(prototypes []shunt.IMessage) (Handlings, error) {
	var channels []string
	for _, p := range prototypes {
		if p == nil {
			return nil, errors.New("a prototype is nil")
		}
		channels = append(channels, p.Channel())
		rs, err := q.desk.Receivers(context.Background(), p.Channel())
		if err != nil {
			return nil, err
		}
		if len(rs) > 0 && rs[0].Alive {
			return nil, fmt.Errorf("channel %q has a receiver: shut it down first", p.Channel())
		}
	}
	j := &journal{messages: make(map[string]shunt.IMessage), more: make(chan struct{}, 1)}
	stage := queues.Copy(q.Queue)
	stage.Pool, stage.Wrap = q.pool, wrap(q.Wrap, j.watch)
	stage.Events = func(e shunt.Event) {
		j.note(e)
		if q.Events != nil {
			q.Events(e)
		}
	}
	shutdown, err := stage.ReceiveOrdered(context.Background(), 1, prototypes...)
	if err != nil {
		stage.Close()
		return nil, err
	}
	end, cancel := context.WithCancel(context.Background())
	defer cancel()
	why, err := q.untilEmpty(channels, j)
	if why != nil || err != nil {
		cancel()
	}
	stopped := shutdown(end)
	stage.Close() // whereupon all Events have come
	switch {
	case err != nil:
		return nil, err
	case why != nil:
		return j.handlings, q.endless(why, channels, j.handlings)
	}
	return j.handlings, stopped
}

// errExited says that a handler has ended the test.
var errExited = errors.New("a handler called t.FailNow")

// untilEmpty waits until the channels are empty, or says why it waits no longer.
func (q *Queue) untilEmpty(channels []string, j *journal) (why, err error) {
	limit := time.NewTimer(q.patience())
	defer limit.Stop()
	for {
		left, err := q.left(channels, false)
		n, last, all := j.seen()
		switch {
		case err != nil || left == nothing:
			return nil, err
		case exited(last.Err) && q.t.Failed():
			return errExited, nil
		case n >= cmp.Or(q.MaxHandlings, defaultMaxHandlings):
			return errors.New("its MaxHandlings"), nil
		case left == later && all: // else an Event is to come that may end it
			if _, err := q.left(channels, true); err != nil {
				return nil, err
			}
		}
		select {
		case <-j.more:
		case <-limit.C:
			return fmt.Errorf("its Patience of %v", q.patience()), nil
		}
	}
}

// What is left in channels: something that is ready, suspect or being handled; only delayed messages; or nothing.
const (
	nothing = iota
	something
	later
)

// leftLua says what is left, as seen at one moment. Asking for one list after another might miss messages that move
// meanwhile, and bring forward those due after them. If only delayed messages are left, and ARGV[2] is 1, it brings all
// due times forward, by as much as makes the first one due at ARGV[1], in ms. It then tells the receiver so. Done again
// it changes nothing. ARGV[3] and on are the channels.
var leftLua = redis.NewScript(0, `
local first
local doing = {}
for _, key in ipairs(redis.call('KEYS', '*')) do
  doing[string.match(key, '^(.*)doing%.[^.]*%.[^.]*$') or ''] = true
end
for i = 3, #ARGV do
  local p = '{' .. ARGV[i] .. '}.'
  if doing[p] or redis.call('EXISTS', p .. 'prepare', p .. 'suspect') > 0 then return 1 end
  local due = redis.call('ZRANGE', p .. 'delay', 0, 0, 'WITHSCORES')[2]
  if due and (not first or tonumber(due) < first) then first = tonumber(due) end
end
if not first then return 0 end
local sooner = first - ARGV[1]
if ARGV[2] == '0' or sooner <= 0 then return 2 end
for i = 3, #ARGV do
  local key = '{' .. ARGV[i] .. '}.delay'
  for _, element in ipairs(redis.call('ZRANGE', key, 0, -1)) do
    redis.call('ZINCRBY', key, string.format('%d', -sooner), element)
  end
  redis.call('PUBLISH', key, 0) -- ms until the earliest is due, as every script tells that adds one
end
return 2
`)

// left says what the channels have left; with forward, if that is due later, it makes the first of it due.
func (q *Queue) left(channels []string, forward bool) (int, error) {
	conn := q.pool.Get()
	defer conn.Close()
	return redis.Int(leftLua.Do(conn, redis.Args{time.Now().UnixMilli(), forward}.AddFlat(channels)...))
}

// endless is the error of a Drain that was stopped before its channels were empty, with what is left there.
func (q *Queue) endless(why error, channels []string, done Handlings) error {
	if why == errExited {
		return nil
	}
	there, err := q.enqueued(channels...)
	if err != nil {
		return err
	}
	text := fmt.Sprintf("stopped by %v after %d handlings: %d messages are left", why, len(done), len(there))
	if n := len(done); n > 0 {
		text += fmt.Sprintf("; the last one handled, of %q, was %v", done[n-1].Channel, done[n-1])
	}
	return errors.New(text + "\n" + table(rows(there)))
}
