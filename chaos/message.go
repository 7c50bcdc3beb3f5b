package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/store"
)

// Plans: what a message makes its handler do. Those with a number wait so many milliseconds. What concerns the first
// attempt only ends well at the second.
const (
	planOK      = "ok"
	planRetry   = "retry"   // fails once
	planAfter   = "after:"  // fails once and asks for that wait
	planReject  = "reject"  // goes to dead
	planTwice   = "reject2" // fails once, then goes to dead
	planPanic   = "panic"   // once
	planGoexit  = "goexit"  // once
	planHang    = "hang"    // once, for ever, whatever its context says
	planKill    = "kill"    // kills its process, each time
	planSlow    = "slow:"   // and gives up when its context ends
	planDeaf    = "deaf:"   // and does not look at its context
	planLate    = "late:"   // once, for so long, and does not look at its context: it is given up before it fails
	planTimeout = "timeout" // once, until its context ends
	planUntil   = "until:"  // so many ms of Unix time have passed, and does not look at its context
	planExtend  = "extend:" // for so long, while a puller puts the end of its lease off
	planHold    = "hold:"   // for ever, in the process of that name
)

const backoff = 20 * time.Millisecond

// message is what all processes of a run enqueue and handle: "id plan checksum filler". The checksum is over the rest.
type message struct {
	channel  string
	id, plan string
	filler   []byte
	corrupt  string

	log  *ledger       // the prototype's
	hang chan struct{} // the prototype's: what hangs, hangs until it is closed
}

func (m *message) Channel() string           { return m.channel }
func (m *message) Backoff(int) time.Duration { return backoff }
func (m *message) Marshal() ([]byte, error)  { return m.payload(), nil }
func (m *message) sum() string               { return fmt.Sprintf("%08x", crc32.ChecksumIEEE(m.rest())) }
func (m *message) rest() []byte              { return append([]byte(m.id+" "+m.plan+" "), m.filler...) }
func (m *message) payload() []byte {
	return append([]byte(m.id+" "+m.plan+" "+m.sum()+" "), m.filler...)
}

// parseMessage reads a payload; one that is none is a message all the same, and corrupt.
func parseMessage(payload []byte) *message {
	m := &message{}
	part := bytes.SplitN(payload, []byte(" "), 4)
	if len(part) != 4 {
		m.id, m.corrupt = fmt.Sprintf("%.40q", payload), "no message"
		return m
	}
	m.id, m.plan, m.filler = string(part[0]), string(part[1]), part[3]
	if m.sum() != string(part[2]) {
		m.corrupt = fmt.Sprintf("of %d bytes, checksum %s and not %s", len(payload), part[2], m.sum())
	}
	return m
}

func (m *message) Unmarshal(payload []byte) (shunt.IMessage, error) {
	n := parseMessage(payload)
	n.channel, n.log, n.hang = m.channel, m.log, m.hang
	return n, nil
}

// Resolve says what it does before and after it does it.
func (m *message) Resolve(ctx context.Context) error {
	i, _ := shunt.FromContext(ctx)
	e := entry{Op: handle, Phase: invoke, ID: m.id, Serial: i.Serial, Attempt: i.Attempt, N: i.Worker, Note: i.Receiver}
	if m.corrupt != "" {
		e.ID, e.Note = "corrupt "+m.id, m.corrupt
	}
	if ackFirst {
		m.ack(ctx, i) // before the ledger has it, so that who kills a handler that has begun comes after the ack
	}
	m.log.say(e)
	e.At = time.Time{}
	if i.Attempt == 1 && (m.plan == planPanic || m.plan == planGoexit) {
		e.Phase, e.Note = fail, m.plan
		m.log.say(e)
		if m.plan == planPanic {
			panic("as planned")
		}
		runtime.Goexit()
	}
	err := m.act(ctx, i.Attempt)
	e.Phase, e.Note = ok, ""
	if err != nil {
		e.Phase, e.Note, e.At = fail, err.Error(), time.Now()
		if ms, is := millis(m.plan, planAfter); is {
			e.Due = e.At.Add(ms)
		} else if !strings.HasPrefix(m.plan, planReject) {
			e.Due = e.At.Add(backoff)
		}
		_, late := millis(m.plan, planLate)
		if c := context.Cause(ctx); late || c == shunt.ErrLeaseLost || c == shunt.ErrShutdown {
			e.Phase, e.Due = info, time.Time{} // that is no attempt
		}
	}
	m.log.say(e)
	return err
}

// ack removes the message from its worker's list, as it lies there: the mistake of an ack before the handler.
func (m *message) ack(ctx context.Context, i shunt.Info) {
	inc, err := store.ParseIncarnation(i.Receiver)
	if err != nil {
		panic(err)
	}
	list := store.KeysOf(i.Channel).Doing(inc, i.Worker)
	c := ackPool.Get()
	defer c.Close()
	es, _ := redis.ByteSlices(c.Do("LRANGE", list, 0, -1))
	for _, raw := range es {
		if e, _ := element.Decode(raw); e.SerialString() == i.Serial {
			_, _ = c.Do("LREM", list, 1, raw)
		}
	}
}

// act is the handler itself.
func (m *message) act(ctx context.Context, attempt int) error {
	if m.plan == planHold+m.log.by {
		<-ctx.Done()
		return ctx.Err()
	}
	if ms, is := millis(m.plan, planSlow); is {
		select {
		case <-time.After(ms):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if ms, is := millis(m.plan, planDeaf); is {
		time.Sleep(ms)
		return nil
	}
	if ms, is := millis(m.plan, planUntil); is {
		time.Sleep(time.Until(time.UnixMilli(ms.Milliseconds())))
		return nil
	}
	if m.plan == planReject || m.plan == planTwice && attempt > 1 {
		return shunt.Reject(errors.New("as planned"))
	}
	if m.plan == planKill {
		self, _ := os.FindProcess(os.Getpid())
		_ = self.Kill()
		select {}
	}
	if n := following(m.plan); n > 0 {
		return m.follow(ctx, attempt, n)
	}
	if attempt > 1 {
		return nil
	}
	if ms, is := millis(m.plan, planAfter); is {
		return shunt.RetryAfter(ms, errors.New("as planned"))
	}
	if ms, is := millis(m.plan, planLate); is {
		time.Sleep(ms)
		return ctx.Err()
	}
	switch m.plan {
	case planRetry, planTwice:
		return errors.New("as planned")
	case planHang:
		<-m.hang
	case planTimeout:
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

// millis is the number in a plan of that kind.
func millis(plan, kind string) (time.Duration, bool) {
	text, is := strings.CutPrefix(plan, kind)
	n, err := strconv.Atoi(text)
	return time.Duration(n) * time.Millisecond, is && err == nil
}
